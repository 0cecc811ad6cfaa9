// SPDX-License-Identifier: MIT
/* Qwen3: each head of q and k is normalised before the rotation; some layers may use a sliding
 * window. */
#include "family.h"

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r;

	r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);
	c->o_bias = c->qkv_bias;
	c->qk_norm = true;
	return r ? r : family_parse_window(json, c, error);
}

const struct family family_qwen3 = {
	.model_type = "qwen3",
	.defaults = {.kv_heads = 32,
		     .head_dim = 128,
		     .max_position = 32768,
		     .sliding_window = 4096},
	.names = &family_names_llama,
	.parse = parse,
};
