// SPDX-License-Identifier: MIT
/*
 * Qwen3-Next and Qwen3.5, text: three of four layers are gated delta nets, the others attention
 * with a gated result; norms multiply by 1 + weight. Qwen3-Next has experts, and the input matrices
 * of a delta net combined into two.
 */
#include "family.h"

#include <errno.h>
#include <string.h>

#define DELTA(name) "model.layers.%u.linear_attn." name
#define NAMES                                                                                      \
	FAMILY_NAMES_LLAMA, FAMILY_NAMES_MOE, FAMILY_NAMES_SHARED("shared_expert"),                \
		.shared_expert_gate = "model.layers.%u.mlp.shared_expert_gate",                    \
		.delta_conv = DELTA("conv1d.weight"), .delta_a_log = DELTA("A_log"),               \
		.delta_dt = DELTA("dt_bias"), .delta_norm = DELTA("norm.weight"),                  \
		.delta_out = DELTA("out_proj")

static const struct family_names names_next = {
	NAMES,
	.delta_qkvz = DELTA("in_proj_qkvz"),
	.delta_ba = DELTA("in_proj_ba"),
};
static const struct family_names names_35 = {
	NAMES,
	.delta_qkv = DELTA("in_proj_qkv"),
	.delta_z = DELTA("in_proj_z"),
	.delta_b = DELTA("in_proj_b"),
	.delta_a = DELTA("in_proj_a"),
};

/* Which layers are delta nets: layer_types, or all but each full_attention_interval-th. */
static int parse_layers(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "layer_types"), *item;
	uint32_t every, i = 0;
	int r;

	if (!config_has(json, "layer_types")) {
		r = config_u32(json, "full_attention_interval", 1, CONFIG_MAX_LAYERS, 4, &every,
			       error);
		for (; !r && i < c->n_layers; i++)
			c->delta.layer[i] = (i + 1) % every != 0;
		return r;
	}
	if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != (int)c->n_layers)
		return tool_fail(error, -EINVAL,
				 "layer_types: not an array of num_hidden_layers %u", c->n_layers);
	cJSON_ArrayForEach(item, types) {
		const char *type = cJSON_GetStringValue(item);

		c->delta.layer[i] = type && !strcmp(type, "linear_attention");
		if (!c->delta.layer[i] && (!type || strcmp(type, "full_attention")))
			return tool_fail(error, -ENOTSUP,
					 "layer_types: \"%.64s\" is not supported (full_attention "
					 "and linear_attention are)",
					 type ? type : "?");
		i++;
	}
	return 0;
}

static int parse_delta(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	struct delta_config *d = &c->delta;
	int r;

	r = config_u32(json, "linear_num_key_heads", 1, 1024, 16, &d->n_k_heads, error);
	if (!r)
		r = config_u32(json, "linear_num_value_heads", 1, 4096, 32, &d->n_v_heads, error);
	if (!r)
		r = config_u32(json, "linear_key_head_dim", 1, TXDA_DELTA_MAX_DIM, 128, &d->k_dim,
			       error);
	if (!r)
		r = config_u32(json, "linear_value_head_dim", 1, TXDA_DELTA_MAX_DIM, 128, &d->v_dim,
			       error);
	if (!r)
		r = config_u32(json, "linear_conv_kernel_dim", 2, TXDA_DELTA_MAX_KERNEL, 4,
			       &d->kernel, error);
	if (!r && d->n_v_heads % d->n_k_heads)
		r = tool_fail(
			error, -EINVAL,
			"linear_num_value_heads: %u is not a multiple of linear_num_key_heads %u",
			d->n_v_heads, d->n_k_heads);
	return r ? r : parse_layers(json, c, error);
}

static int parse_dense(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	bool gate;
	int r;

	c->norm_plus_one = c->qk_norm = c->attention_gate = true;
	c->rope_partial = 0.25;
	r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);
	c->o_bias = c->qkv_bias;
	if (!r)
		r = config_bool(json, "attn_output_gate", true, &gate, error);
	if (!r && !gate)
		r = tool_fail(error, -ENOTSUP, "attn_output_gate: false is not supported");
	return r ? r : parse_delta(json, c, error);
}

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse_dense(json, c, error);

	if (!r)
		r = family_parse_experts(json, c, error);
	if (!r)
		r = family_parse_sparse(json, c, error);
	if (!r && c->moe.n_experts)
		r = config_u32(json, "shared_expert_intermediate_size", 0, 1u << 20, 512,
			       &c->moe.shared_inner, error);
	c->moe.shared_gate = c->moe.shared_inner > 0;
	return r;
}

static const uint32_t sections[3] = {11, 11, 10};

/* With a vision tower: positions have three coordinates. */
static int parse_dense_seeing(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse_dense(json, c, error);

	return r ? r : mrope_parse(json, sections, &c->mrope, error);
}

static int parse_seeing(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse(json, c, error);

	return r ? r : mrope_parse(json, sections, &c->mrope, error);
}

#define DENSE_DEFAULTS                                                                             \
	.defaults = {.kv_heads = 4, .head_dim = 256, .max_position = 32768}, .names = &names_35
#define MOE_DEFAULTS                                                                               \
	.defaults = {.kv_heads = 2,                                                                \
		     .head_dim = 256,                                                              \
		     .max_position = 32768,                                                        \
		     .top_k = 8,                                                                   \
		     .normalise = true},                                                           \
	.names = &names_35

const struct family family_qwen3_next = {
	.model_type = "qwen3_next",
	.defaults = {.kv_heads = 2,
		     .head_dim = 256,
		     .max_position = 32768,
		     .top_k = 10,
		     .normalise = true},
	.names = &names_next,
	.parse = parse,
};
const struct family family_qwen3_5 = {
	.model_type = "qwen3_5_text",
	DENSE_DEFAULTS,
	.parse = parse_dense,
};
const struct family family_qwen3_5_vl = {
	.model_type = "qwen3_5",
	DENSE_DEFAULTS,
	.parse = parse_dense_seeing,
};
const struct family family_qwen3_5_moe = {
	.model_type = "qwen3_5_moe_text",
	MOE_DEFAULTS,
	.parse = parse,
};
const struct family family_qwen3_5_vl_moe = {
	.model_type = "qwen3_5_moe",
	MOE_DEFAULTS,
	.parse = parse_seeing,
};
