// SPDX-License-Identifier: MIT
/* Qwen3-MoE: a Qwen3 with experts. */
#include "family.h"

static const struct family_names names = {FAMILY_NAMES_LLAMA, FAMILY_NAMES_MOE};

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = family_qwen3.parse(json, c, error);

	if (!r)
		r = family_parse_experts(json, c, error);
	return r ? r : family_parse_sparse(json, c, error);
}

const struct family family_qwen3_moe = {
	.model_type = "qwen3_moe",
	.names = &names,
	.parse = parse,
};
