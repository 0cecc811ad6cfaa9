// SPDX-License-Identifier: MIT
/* Mistral: a Llama whose layers all use a sliding window if sliding_window is given. */
#include "family.h"

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	uint32_t i, none = config_is_null(json, "sliding_window") ? 0 : 4096;
	int r = config_u32(json, "sliding_window", 0, 1u << 28, none, &c->sliding_window, error);

	for (i = 0; !r && c->sliding_window && i < c->n_layers; i++)
		c->layer_window[i] = true;
	return r;
}

const struct family family_mistral = {
	.model_type = "mistral",
	.defaults = {.hidden = 4096,
		     .inner = 14336,
		     .layers = 32,
		     .heads = 32,
		     .vocab = 32000,
		     .kv_heads = 8,
		     .max_position = 131072},
	.names = &family_names_llama,
	.parse = parse,
};
