// SPDX-License-Identifier: MIT
#include "family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct family *const families[] = {
	&family_llama,		&family_mistral,    &family_qwen2,	  &family_qwen3,
	&family_internlm3,	&family_qwen2_moe,  &family_qwen3_moe,	  &family_glm,
	&family_glm4,		&family_glm4_moe,   &family_deepseek_v2,  &family_deepseek_v3,
	&family_kimi_k2,	&family_gemma2,	    &family_gemma3,	  &family_gpt_oss,
	&family_deepseek_v32,	&family_qwen3_next, &family_qwen3_5,	  &family_qwen3_5_moe,
	&family_qwen2_vl,	&family_qwen3_vl,   &family_qwen3_vl_moe, &family_qwen3_5_vl,
	&family_qwen3_5_vl_moe, &family_glm4v,	    &family_glm4v_moe,
};

const struct family_names family_names_llama = {FAMILY_NAMES_LLAMA};

const struct family *family_find(const char *model_type)
{
	size_t i;

	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		if (!strcmp(families[i]->model_type, model_type))
			return families[i];
	}
	return NULL;
}

/* Vision models whose towers are not supported, and the model_type of their text. */
static const struct {
	const char *model_type, *text;
} text_only[] = {{"gemma3", "gemma3_text"}, {"mistral3", "mistral"}};
#define N_TEXT_ONLY (sizeof(text_only) / sizeof(text_only[0]))

const char *family_text_only(const char *model_type)
{
	size_t i;

	for (i = 0; i < N_TEXT_ONLY; i++) {
		if (!strcmp(text_only[i].model_type, model_type))
			return text_only[i].text;
	}
	return NULL;
}

char *family_list(char *buf, size_t len)
{
	size_t i, at = 0;

	for (i = 0; i < sizeof(families) / sizeof(families[0]) && at < len; i++) {
		/* Vision models are listed at the end. */
		if (!vision_family_find(families[i]->model_type))
			at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "",
					       families[i]->model_type);
	}
	for (i = 0; i < N_TEXT_ONLY && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, ", %s", text_only[i].model_type);
	vision_family_list(buf, len);
	return buf;
}

static int parse_layer_types(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "layer_types"), *item;
	uint32_t i = 0;

	if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != (int)c->n_layers)
		return tool_fail(error, -EINVAL,
				 "layer_types: not an array of num_hidden_layers %u", c->n_layers);
	cJSON_ArrayForEach(item, types) {
		const char *type = cJSON_GetStringValue(item);

		if (type && !strcmp(type, "sliding_attention"))
			c->layer_window[i] = true;
		else if (!type || strcmp(type, "full_attention"))
			return tool_fail(error, -ENOTSUP,
					 "layer_types: \"%.64s\" is not supported (full_attention "
					 "and sliding_attention are)",
					 type ? type : "?");
		i++;
	}
	return 0;
}

/* Layers with a sliding window need its size; @keys: the keys that could have given it. */
static int check_window(const struct model_config *c, const char *keys, struct tool_error *error)
{
	uint32_t i;

	for (i = 0; !c->sliding_window && i < c->n_layers; i++) {
		if (c->layer_window[i])
			return tool_fail(error, -EINVAL,
					 "layer_types: layer %u is sliding_attention without %s", i,
					 keys);
	}
	return 0;
}

int family_parse_alternating(const cJSON *json, uint32_t every, struct model_config *c,
			     struct tool_error *error)
{
	uint32_t i;
	int r = 0;

	if (!config_is_null(json, "sliding_window"))
		r = config_u32(json, "sliding_window", 1, 1u << 28,
			       c->family->defaults.sliding_window, &c->sliding_window, error);
	if (!r && config_has(json, "layer_types"))
		r = parse_layer_types(json, c, error);
	else
		for (i = 0; i < c->n_layers; i++)
			c->layer_window[i] = (i + 1) % every != 0;
	return r ? r : check_window(c, "sliding_window", error);
}

int family_parse_window(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	uint32_t first, i;
	bool use;
	int r;

	r = config_bool(json, "use_sliding_window", false, &use, error);
	if (!r && use && !config_is_null(json, "sliding_window"))
		r = config_u32(json, "sliding_window", 1, 1u << 28,
			       c->family->defaults.sliding_window, &c->sliding_window, error);
	if (r)
		return r;
	if (config_has(json, "layer_types")) {
		r = parse_layer_types(json, c, error);
	} else {
		r = config_u32(json, "max_window_layers", 0, 1u << 20, 28, &first, error);
		for (i = 0; !r && c->sliding_window && i < c->n_layers; i++)
			c->layer_window[i] = i >= first;
	}
	return r ? r : check_window(c, "use_sliding_window and sliding_window", error);
}

int family_parse_experts(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const struct family_defaults *d = &c->family->defaults;
	struct moe_config *m = &c->moe;
	const char *key = config_key(json, "num_experts", "num_local_experts");
	int r;

	key = config_key(json, "n_routed_experts", key);
	m->scale = 1;
	m->n_groups = m->top_groups = 1;
	r = config_u32(json, key, 0, TXDA_ROUTE_MAX_EXPERTS, 0, &m->n_experts, error);
	if (r || !m->n_experts)
		return r;
	r = config_u32(json, "num_experts_per_tok", 1, TXDA_ROUTE_MAX_K,
		       d->top_k ? d->top_k : CONFIG_REQUIRED, &m->top_k, error);
	if (!r)
		r = config_u32(json, "moe_intermediate_size", 1, 1u << 20, CONFIG_REQUIRED,
			       &m->inner, error);
	if (!r)
		r = config_bool(json, "norm_topk_prob", d->normalise, &m->normalise, error);
	if (!r && m->top_k > m->n_experts)
		r = tool_fail(error, -ERANGE, "num_experts_per_tok: %u of %u experts", m->top_k,
			      m->n_experts);
	return r;
}

int family_parse_sparse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	uint32_t step, i;
	int r = config_u32(json, "decoder_sparse_step", 1, 1u << 20, 1, &step, error);

	if (r || !c->moe.n_experts)
		return r;
	for (i = 0; i < c->n_layers; i++)
		c->moe.layer[i] = (i + 1) % step == 0;
	return config_layers(json, "mlp_only_layers", c->n_layers, false, c->moe.layer, error);
}

/* Newer configs say of each layer what it has. */
static int parse_mlp_types(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "mlp_layer_types"), *item;
	uint32_t i = 0;

	if (!config_has(json, "mlp_layer_types"))
		return 0;
	if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != (int)c->n_layers)
		return tool_fail(error, -EINVAL,
				 "mlp_layer_types: not an array of num_hidden_layers %u",
				 c->n_layers);
	cJSON_ArrayForEach(item, types) {
		const char *type = cJSON_GetStringValue(item);

		c->moe.layer[i] = type && !strcmp(type, "sparse");
		if (!c->moe.layer[i] && (!type || strcmp(type, "dense")))
			return tool_fail(error, -ENOTSUP,
					 "mlp_layer_types: \"%.64s\" is not supported (dense and "
					 "sparse are)",
					 type ? type : "?");
		i++;
	}
	return 0;
}

static int expect_name(const cJSON *json, const char *key, const char *want,
		       struct tool_error *error)
{
	const cJSON *item = config_find(json, key);
	const char *name = cJSON_GetStringValue(item);

	if (!want || !item || (name && !strcmp(name, want)))
		return 0;
	return tool_fail(error, -ENOTSUP, "%s: \"%.64s\" is not supported, only %s is", key,
			 name ? name : "?", want);
}

int family_expect_routing(const cJSON *json, const char *scoring, const char *method,
			  struct tool_error *error)
{
	int r = expect_name(json, "scoring_func", scoring, error);

	return r ? r : expect_name(json, "topk_method", method, error);
}

int family_parse_deepseek_experts(const cJSON *json, struct model_config *c,
				  struct tool_error *error)
{
	const struct family_defaults *d = &c->family->defaults;
	struct moe_config *m = &c->moe;
	uint32_t dense, every, shared, groups, i;
	const double scale = d->scale > 0 ? d->scale : 1;
	int r = family_parse_experts(json, c, error);

	if (r || !m->n_experts)
		return r;
	groups = d->n_groups && !(m->n_experts % d->n_groups) && !config_is_null(json, "n_group")
			 ? d->n_groups
			 : 1;
	r = config_u32(json, "first_k_dense_replace", 0, 1u << 20, d->dense_layers, &dense, error);
	if (!r)
		r = config_u32(json, "moe_layer_freq", 1, 1u << 20, 1, &every, error);
	if (!r)
		r = config_u32(json, "n_shared_experts", 0, 256,
			       config_is_null(json, "n_shared_experts") ? 0 : d->shared_experts,
			       &shared, error);
	if (!r)
		r = config_u32(json, "n_group", 1, m->n_experts, groups, &m->n_groups, error);
	if (!r)
		r = config_u32(json, "topk_group", 1, m->n_groups,
			       d->top_groups && d->top_groups < m->n_groups ? d->top_groups
									    : m->n_groups,
			       &m->top_groups, error);
	if (!r)
		r = config_double(json, "routed_scaling_factor", 0, 1e6, &scale, &m->scale, error);
	if (!r && m->n_experts % m->n_groups)
		r = tool_fail(error, -EINVAL, "n_group: %u does not divide n_routed_experts %u",
			      m->n_groups, m->n_experts);
	if (r)
		return r;
	m->shared_inner = shared * m->inner;
	for (i = 0; i < c->n_layers; i++)
		m->layer[i] = i >= dense && i % every == 0;
	return parse_mlp_types(json, c, error);
}

int family_parse_mtp(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	int r = config_u32(json, "num_nextn_predict_layers", 0, 16, 0, &c->n_mtp, error);

	if (!r && c->n_mtp && c->moe.n_experts)
		c->moe.layer[c->n_layers] = true;
	return r;
}
