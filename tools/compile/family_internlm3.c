// SPDX-License-Identifier: MIT
/*
 * InternLM3: a Llama with separate keys for biases: qkv_bias for q, k and v, bias for all others.
 */
#include "family.h"

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r;

	r = config_bool(json, "qkv_bias", false, &c->qkv_bias, error);
	if (!r)
		r = config_bool(json, "bias", false, &c->o_bias, error);
	c->mlp_bias = c->o_bias;
	return r;
}

const struct family family_internlm3 = {
	.model_type = "internlm3",
	.defaults = {.max_position = 32768},
	.names = &family_names_llama,
	.parse = parse,
};
