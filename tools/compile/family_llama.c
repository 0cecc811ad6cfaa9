// SPDX-License-Identifier: MIT
/* Llama 2 and 3: grouped-query attention, gated SiLU, biases only if the config requests them. */
#include "family.h"

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r;

	r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);
	if (!r)
		r = config_bool(json, "mlp_bias", false, &c->mlp_bias, error);
	c->o_bias = c->qkv_bias;
	return r;
}

const struct family family_llama = {
	.model_type = "llama",
	.defaults = {.hidden = 4096, .inner = 11008, .layers = 32, .heads = 32, .vocab = 32000},
	.names = &family_names_llama,
	.parse = parse,
};
