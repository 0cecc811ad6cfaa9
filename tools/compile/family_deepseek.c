// SPDX-License-Identifier: MIT
/*
 * DeepSeek-V2 and -V3 (R1): latent attention; the first layers are dense, the others have experts,
 * some of which all tokens use. V2 routes by softmax and the best expert of a group, V3 by sigmoid
 * with a correction and the best two. Kimi-K2 is a V3; V3.2 has an indexer that chooses the keys.
 */
#include "family.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DEFAULTS_V3                                                                                \
	{                                                                                          \
		.max_position = 4096, .top_k = 8, .dense_layers = 3, .shared_experts = 1,          \
		.n_groups = 8, .top_groups = 4, .scale = 2.5, .normalise = true                    \
	}
#define NAMES                                                                                      \
	FAMILY_NAMES_LLAMA, FAMILY_NAMES_MOE, FAMILY_NAMES_SHARED("shared_experts"),               \
		.q_a = "model.layers.%u.self_attn.q_a_proj",                                       \
		.q_a_norm = "model.layers.%u.self_attn.q_a_layernorm",                             \
		.q_b = "model.layers.%u.self_attn.q_b_proj",                                       \
		.kv_a = "model.layers.%u.self_attn.kv_a_proj_with_mqa",                            \
		.kv_a_norm = "model.layers.%u.self_attn.kv_a_layernorm",                           \
		.kv_b = "model.layers.%u.self_attn.kv_b_proj",                                     \
		.k_b = "model.layers.%u.self_attn.heads.%u.k_b",                                   \
		.v_b = "model.layers.%u.self_attn.heads.%u.v_b"

static const struct family_names names_v2 = {NAMES};
#define NAMES_V3                                                                                   \
	NAMES, .router_bias = "model.layers.%u.mlp.gate.e_score_correction_bias", FAMILY_NAMES_MTP
static const struct family_names names_v3 = {NAMES_V3};
static const struct family_names names_v32 = {
	NAMES_V3,
	.index_q = "model.layers.%u.self_attn.indexer.wq_b",
	.index_k = "model.layers.%u.self_attn.indexer.wk",
	.index_k_norm = "model.layers.%u.self_attn.indexer.k_norm",
	.index_weights = "model.layers.%u.self_attn.indexer.weights_proj",
};

static int parse_latent(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	struct mla_config *m = &c->mla;
	int r;

	r = config_u32(json, "kv_lora_rank", 1, TXDA_MLA_MAX_LATENT, CONFIG_REQUIRED, &m->latent,
		       error);
	if (!r)
		r = config_u32(json, "q_lora_rank", 0, 1u << 17, 0, &m->q_lora, error);
	if (!r)
		r = config_u32(json, "qk_rope_head_dim", 2, TXDA_MLA_MAX_ROPE, CONFIG_REQUIRED,
			       &m->rope, error);
	if (!r)
		r = config_u32(json, "qk_nope_head_dim", 1, 1u << 12, CONFIG_REQUIRED, &m->nope,
			       error);
	if (!r)
		r = config_u32(json, "v_head_dim", 1, 1u << 12, CONFIG_REQUIRED, &m->v, error);
	if (!r)
		r = config_bool(json, "attention_bias", false, &c->o_bias, error);
	if (!r && m->rope % 2)
		r = tool_fail(error, -ENOTSUP, "qk_rope_head_dim: %u is odd", m->rope);
	if (r)
		return r;
	/* One key for all heads; a rope only applies to the rotated part of a head. */
	c->n_kv_heads = 1;
	c->head_dim = m->rope;
	c->rope.partial = 0;
	m->mscale = 1;
	if (c->rope.type != ROPE_DEFAULT && c->rope.mscale_all_dim > 0 && c->rope.factor > 1)
		m->mscale = 0.1 * c->rope.mscale_all_dim * log(c->rope.factor) + 1;
	return 0;
}

static int parse_shared(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse_latent(json, c, error);

	if (!r)
		r = family_parse_deepseek_experts(json, c, error);
	return r;
}

static int parse_v2(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const char *method =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "topk_method"));
	int r = parse_shared(json, c, error);

	c->rope_interleaved = true;
	if (!r)
		r = family_expect_routing(json, "softmax", NULL, error);
	if (r)
		return r;
	if (!method || !strcmp(method, "greedy"))
		c->moe.n_groups = c->moe.top_groups = 1;
	else if (strcmp(method, "group_limited_greedy"))
		return tool_fail(error, -ENOTSUP,
				 "topk_method: \"%.64s\" is not supported (greedy and "
				 "group_limited_greedy are)",
				 method);
	/* Normalised weights are not scaled; the weight of a single expert is never normalised. */
	c->moe.normalise &= c->moe.top_k > 1;
	if (c->moe.normalise)
		c->moe.scale = 1;
	return 0;
}

static int parse_v3(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = parse_shared(json, c, error);

	c->moe.sigmoid = c->moe.correction_bias = c->moe.top2 = true;
	if (!r)
		r = family_expect_routing(json, "sigmoid", "noaux_tc", error);
	if (!r)
		r = config_bool(json, "rope_interleave", true, &c->rope_interleaved, error);
	return r ? r : family_parse_mtp(json, c, error);
}

static int parse_v32(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	struct mla_config *m = &c->mla;
	int r = parse_v3(json, c, error);

	if (!r)
		r = config_u32(json, "index_topk", 1, TXDA_INDEX_MAX_KEYS, 2048, &m->index_keys,
			       error);
	if (!r)
		r = config_u32(json, "index_n_heads", 1, 1024, 64, &m->index_heads, error);
	if (!r)
		r = config_u32(json, "index_head_dim", 2, TXDA_INDEX_MAX_DIM, 128, &m->index_dim,
			       error);
	if (r)
		return r;
	if (!m->q_lora)
		return tool_fail(error, -ENOTSUP,
				 "q_lora_rank: missing, and the indexer's queries come from it");
	if (m->index_dim % 2 || m->index_dim < m->rope)
		return tool_fail(error, -ENOTSUP,
				 "index_head_dim: %u is odd or below qk_rope_head_dim %u",
				 m->index_dim, m->rope);
	return 0;
}

const struct family family_deepseek_v2 = {
	.model_type = "deepseek_v2",
	.defaults = {.shared_experts = 2},
	.names = &names_v2,
	.parse = parse_v2,
};
const struct family family_deepseek_v3 = {
	.model_type = "deepseek_v3",
	.defaults = DEFAULTS_V3,
	.names = &names_v3,
	.parse = parse_v3,
};
const struct family family_deepseek_v32 = {
	.model_type = "deepseek_v32",
	.defaults = DEFAULTS_V3,
	.names = &names_v32,
	.parse = parse_v32,
};
const struct family family_kimi_k2 = {
	.model_type = "kimi_k2",
	.defaults = DEFAULTS_V3,
	.names = &names_v3,
	.parse = parse_v3,
};
