// SPDX-License-Identifier: MIT
/* Qwen2 and Qwen2.5: q, k and v have biases; some layers may use a sliding window. */
#include "family.h"

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	c->qkv_bias = true;
	return family_parse_window(json, c, error);
}

const struct family family_qwen2 = {
	.model_type = "qwen2",
	.defaults = {.hidden = 4096,
		     .inner = 22016,
		     .layers = 32,
		     .heads = 32,
		     .vocab = 151936,
		     .kv_heads = 32,
		     .max_position = 32768,
		     .sliding_window = 4096},
	.names = &family_names_llama,
	.parse = parse,
};
