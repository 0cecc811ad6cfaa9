// SPDX-License-Identifier: MIT
/* Qwen3-MoE: a Qwen3 with experts. */
#include "family.h"

static const struct family_names names = {FAMILY_NAMES_LLAMA, FAMILY_NAMES_MOE};

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "layer_types");
	int r = family_qwen3.parse(json, c, error);
	uint32_t i;

	/* There is no max_window_layers: all layers have the window. */
	for (i = 0; c->sliding_window && (!types || cJSON_IsNull(types)) && i < c->n_layers; i++)
		c->layer_window[i] = true;
	if (!r)
		r = family_parse_experts(json, c, error);
	return r ? r : family_parse_sparse(json, c, error);
}

const struct family family_qwen3_moe = {
	.model_type = "qwen3_moe",
	.defaults = {.kv_heads = 4, .max_position = 32768, .sliding_window = 4096, .top_k = 8},
	.names = &names,
	.parse = parse,
};
