// SPDX-License-Identifier: MIT
/*
 * GLM-4: half of each head rotates, in neighbouring pairs; gates and ups are one matrix. The models
 * of 2025 (glm4) normalise the result of each block before adding it to the stream; those with
 * experts (glm4_moe) route as DeepSeek-V3 does, rotate halves and may have a layer that predicts a
 * further token.
 */
#include "family.h"

#define FUSED .gate_up = "model.layers.%u.mlp.gate_up_proj"

static const struct family_names names = {FAMILY_NAMES_LLAMA, FUSED};

const struct family_names family_names_glm4 = {
	FAMILY_NAMES_LLAMA,
	FUSED,
	.post_attention = "model.layers.%u.post_self_attn_layernorm",
	.post_mlp = "model.layers.%u.post_mlp_layernorm",
};

const struct family_names family_names_glm4_moe = {
	FAMILY_NAMES_LLAMA,
	FAMILY_NAMES_MOE,
	FAMILY_NAMES_SHARED("shared_experts"),
	FAMILY_NAMES_MTP,
	.router_bias = "model.layers.%u.mlp.gate.e_score_correction_bias",
};

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	c->rope_partial = 0.5;
	c->rope_interleaved = true;
	return config_bool(json, "attention_bias", false, &c->qkv_bias, error);
}

static int parse_moe(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r;

	c->rope_partial = 0.5;
	r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);
	if (!r)
		r = config_bool(json, "use_qk_norm", false, &c->qk_norm, error);
	if (!r)
		r = family_parse_deepseek_experts(json, c, error);
	if (!r)
		r = family_expect_routing(json, "sigmoid", "noaux_tc", error);
	c->moe.sigmoid = c->moe.correction_bias = c->moe.top2 = true;
	return r ? r : family_parse_mtp(json, c, error);
}

const struct family family_glm = {
	.model_type = "glm",
	.defaults = {.kv_heads = 2,
		     .head_dim = 128,
		     .max_position = 131072,
		     .rms_norm_eps = 1.5625e-7},
	.names = &names,
	.parse = parse,
};
const struct family family_glm4 = {
	.model_type = "glm4",
	.defaults = {.kv_heads = 2,
		     .head_dim = 128,
		     .max_position = 131072,
		     .rms_norm_eps = 1.5625e-7},
	.names = &family_names_glm4,
	.parse = parse,
};
const struct family family_glm4_moe = {
	.model_type = "glm4_moe",
	.defaults = {.kv_heads = 8,
		     .max_position = 131072,
		     .rms_norm_eps = 1e-5,
		     .top_k = 8,
		     .dense_layers = 1,
		     .shared_experts = 1,
		     .normalise = true},
	.names = &family_names_glm4_moe,
	.parse = parse_moe,
};
