// SPDX-License-Identifier: MIT
/*
 * The text models of vision models (vision.h): known families with other defaults, whose positions
 * have three coordinates.
 */
#include "family.h"

static const struct family_names names_qwen3_moe = {
	FAMILY_NAMES_LLAMA,
	FAMILY_NAMES_MOE,
	.experts_in_first = true,
};

static int parse_qwen2(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = family_qwen2.parse(json, c, error);

	return r ? r : mrope_parse(json, NULL, &c->mrope, error);
}

static int parse_qwen3(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	static const uint32_t sections[3] = {24, 20, 20};
	int r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);

	c->o_bias = c->qkv_bias;
	c->qk_norm = true;
	return r ? r : mrope_parse(json, sections, &c->mrope, error);
}

static int parse_qwen3_moe(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse_qwen3(json, c, error);

	if (!r)
		r = family_parse_experts(json, c, error);
	return r ? r : family_parse_sparse(json, c, error);
}

static int parse_glm(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	c->rope_partial = 0.5;
	c->rope_interleaved = c->qkv_bias = true;
	return mrope_parse(json, NULL, &c->mrope, error);
}

static int parse_glm_moe(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = family_glm4_moe.parse(json, c, error);

	if (!r)
		r = config_bool(json, "attention_bias", true, &c->qkv_bias, error);
	c->qk_norm = false;
	return r ? r : mrope_parse(json, NULL, &c->mrope, error);
}

const struct family family_qwen2_vl = {
	.model_type = "qwen2_vl",
	.defaults = {.kv_heads = 8,
		     .max_position = 32768,
		     .rms_norm_eps = 1e-5,
		     .sliding_window = 4096},
	.names = &family_names_llama,
	.parse = parse_qwen2,
};
const struct family family_qwen3_vl = {
	.model_type = "qwen3_vl",
	.defaults = {.kv_heads = 32, .head_dim = 128, .max_position = 128000},
	.names = &family_names_llama,
	.parse = parse_qwen3,
};
const struct family family_qwen3_vl_moe = {
	.model_type = "qwen3_vl_moe",
	.defaults = {.kv_heads = 16, .max_position = 128000, .top_k = 4, .normalise = true},
	.names = &names_qwen3_moe,
	.parse = parse_qwen3_moe,
};
const struct family family_glm4v = {
	.model_type = "glm4v",
	.defaults = {.kv_heads = 2, .max_position = 32768, .rms_norm_eps = 1e-5},
	.names = &family_names_glm4,
	.parse = parse_glm,
};
const struct family family_glm4v_moe = {
	.model_type = "glm4v_moe",
	.defaults = {.kv_heads = 8,
		     .max_position = 65536,
		     .rms_norm_eps = 1e-5,
		     .top_k = 8,
		     .dense_layers = 1,
		     .shared_experts = 1,
		     .normalise = true},
	.names = &family_names_glm4_moe,
	.parse = parse_glm_moe,
};
