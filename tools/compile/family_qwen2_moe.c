// SPDX-License-Identifier: MIT
/* Qwen2-MoE: a Qwen2 with experts, and another one that all tokens use, with a gate. */
#include "family.h"

static const struct family_names names = {
	FAMILY_NAMES_LLAMA,
	FAMILY_NAMES_MOE,
	FAMILY_NAMES_SHARED("shared_expert"),
	.shared_expert_gate = "model.layers.%u.mlp.shared_expert_gate",
};

/* Without layer_types every second one of the first layers has the window, not the last ones. */
static int parse_window(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "layer_types");
	uint32_t end, i;
	int r = family_parse_window(json, c, error);

	if (r || !c->sliding_window || (types && !cJSON_IsNull(types)))
		return r;
	r = config_u32(json, "max_window_layers", 0, 1u << 20, 28, &end, error);
	for (i = 0; !r && i < c->n_layers; i++)
		c->layer_window[i] = i % 2 == 0 && i < end;
	return r;
}

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r;

	r = config_bool(json, "qkv_bias", true, &c->qkv_bias, error);
	if (!r)
		r = parse_window(json, c, error);
	if (!r)
		r = family_parse_experts(json, c, error);
	if (!r)
		r = family_parse_sparse(json, c, error);
	if (!r && c->moe.n_experts)
		r = config_u32(json, "shared_expert_intermediate_size", 0, 1u << 20, 5632,
			       &c->moe.shared_inner, error);
	c->moe.shared_gate = c->moe.shared_inner > 0;
	return r;
}

const struct family family_qwen2_moe = {
	.model_type = "qwen2_moe",
	.defaults = {.kv_heads = 16, .max_position = 32768, .sliding_window = 4096, .top_k = 4},
	.names = &names,
	.parse = parse,
};
