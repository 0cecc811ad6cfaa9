// SPDX-License-Identifier: MIT
/*
 * Gemma 2 and 3, text: four norms per layer, each with 1 + weight, GELU gates, embeddings
 * multiplied by the root of their length, windows on all but every second or sixth layer. Gemma 2
 * caps scores and logits; Gemma 3 normalises queries and keys, and its layers with a window have a
 * separate RoPE base.
 */
#include "family.h"

static const struct family_names names = {
	FAMILY_NAMES_LLAMA,
	.post_attention = "model.layers.%u.post_attention_layernorm",
	.before_mlp = "model.layers.%u.pre_feedforward_layernorm",
	.post_mlp = "model.layers.%u.post_feedforward_layernorm",
};

/* null: no cap; an absent key: @fallback. */
static int parse_cap(const cJSON *json, const char *key, double fallback, double *ret,
		     struct tool_error *error)
{
	*ret = config_is_null(json, key) ? 0 : fallback;
	return config_has(json, key) ? config_double(json, key, 1e-3, 1e6, NULL, ret, error) : 0;
}

static int parse(const cJSON *json, double attention_cap, double logit_cap, uint32_t every,
		 struct model_config *c, struct tool_error *error)
{
	const double scalar = 256;
	int r;

	c->norm_plus_one = c->embed_by_root = true;
	r = config_bool(json, "attention_bias", false, &c->qkv_bias, error);
	c->o_bias = c->qkv_bias;
	if (!r)
		r = config_double(json, "query_pre_attn_scalar", 1e-3, 1e6, &scalar,
				  &c->query_scalar, error);
	if (!r)
		r = parse_cap(json, "attn_logit_softcapping", attention_cap, &c->attention_cap,
			      error);
	if (!r)
		r = parse_cap(json, "final_logit_softcapping", logit_cap, &c->logit_cap, error);
	return r ? r : family_parse_alternating(json, every, c, error);
}

static int parse_2(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	return parse(json, 50, 30, 2, c, error);
}

static int parse_3(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const char *key = config_key(json, "sliding_window_pattern", "_sliding_window_pattern");
	uint32_t every;
	int r = config_u32(json, key, 1, CONFIG_MAX_LAYERS, 6, &every, error);

	c->qk_norm = c->two_ropes = true;
	if (!r)
		r = rope_parse(json,
			       &(struct rope_keys){.kind = "full_attention",
						   .theta = "rope_theta",
						   .base = 1e6},
			       c->max_position, &c->rope, error);
	if (!r)
		r = rope_parse(json,
			       &(struct rope_keys){.kind = "sliding_attention",
						   .theta = "rope_local_base_freq",
						   .without_scaling = true},
			       c->max_position, &c->rope_window, error);
	return r ? r : parse(json, 0, 0, every, c, error);
}

const struct family family_gemma2 = {
	.model_type = "gemma2",
	.defaults = {.kv_heads = 4,
		     .head_dim = 256,
		     .max_position = 8192,
		     .sliding_window = 4096,
		     .tied = true,
		     .gelu = true},
	.names = &names,
	.parse = parse_2,
};
const struct family family_gemma3 = {
	.model_type = "gemma3_text",
	.defaults = {.hidden = 2304,
		     .inner = 9216,
		     .layers = 26,
		     .heads = 8,
		     .vocab = 262208,
		     .kv_heads = 4,
		     .head_dim = 256,
		     .max_position = 131072,
		     .sliding_window = 4096,
		     .tied = true,
		     .gelu = true},
	.names = &names,
	.parse = parse_3,
};
