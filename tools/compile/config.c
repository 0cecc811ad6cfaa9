// SPDX-License-Identifier: MIT
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "family.h"
#include "json.h"

/* @nested: it is the text_config of a vision model. */
static int parse_sizes(const cJSON *json, const struct family_defaults *d, bool nested,
		       struct model_config *c, struct tool_error *error)
{
	const struct {
		const char *key;
		uint32_t min, max, usual;
		uint32_t *to;
	} sizes[] = {
		{"hidden_size", 2, 1u << 17, d->hidden, &c->hidden_size},
		{"intermediate_size", 1, 1u << 20, d->inner, &c->intermediate_size},
		{"num_hidden_layers", 1, CONFIG_MAX_LAYERS, d->layers, &c->n_layers},
		{"num_attention_heads", 1, 1024, d->heads, &c->n_heads},
		{"vocab_size", 1, 1u << 24, d->vocab, &c->vocab_size},
	};
	uint32_t derived, kv_heads;
	int r = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r; i++)
		r = config_u32(json, sizes[i].key, sizes[i].min, sizes[i].max,
			       nested && sizes[i].usual ? sizes[i].usual : CONFIG_REQUIRED,
			       sizes[i].to, error);
	if (r)
		return r;
	kv_heads = d->kv_heads && !(c->n_heads % d->kv_heads) &&
				   !config_is_null(json, "num_key_value_heads")
			   ? d->kv_heads
			   : c->n_heads;
	r = config_u32(json, "num_key_value_heads", 1, 1024, kv_heads, &c->n_kv_heads, error);
	if (!r)
		r = config_u32(json, "max_position_embeddings", 1, 1u << 28,
			       d->max_position ? d->max_position : 2048, &c->max_position, error);
	if (r)
		return r;
	if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads)
		return tool_fail(error, -EINVAL,
				 "num_key_value_heads: %u does not divide num_attention_heads %u",
				 c->n_kv_heads, c->n_heads);
	derived = d->head_dim && !config_is_null(json, "head_dim") ? d->head_dim
		  : c->hidden_size % c->n_heads			   ? 0
								   : c->hidden_size / c->n_heads;
	return config_u32(json, "head_dim", 2, 512, derived, &c->head_dim, error);
}

/* What families may have set: the size of heads and how much of them rotates. */
static int check_heads(struct model_config *c, struct tool_error *error)
{
	double share = c->rope.partial > 0   ? c->rope.partial
		       : c->rope_partial > 0 ? c->rope_partial
					     : 1;

	if (!c->head_dim)
		return tool_fail(error, -EINVAL,
				 "head_dim: missing, and hidden_size %u is not a multiple of "
				 "num_attention_heads %u",
				 c->hidden_size, c->n_heads);
	if (c->head_dim < 2 || c->head_dim > 512 || c->head_dim % 2)
		return tool_fail(error, -ENOTSUP, "head_dim: %u is not an even number in [2, 512]",
				 c->head_dim);
	c->rope_dim = (uint32_t)(c->head_dim * share);
	if (c->rope_dim < 2 || c->rope_dim % 2)
		return tool_fail(
			error, -ENOTSUP,
			"partial_rotary_factor: %g of head_dim %u is not an even number of "
			"at least 2",
			share, c->head_dim);
	return 0;
}

/* Families with GELU have their own key for it, and ignore the usual one. */
static int parse_activation(const cJSON *json, const struct family_defaults *d,
			    struct model_config *c, struct tool_error *error)
{
	static const char *const silu[] = {"silu", "swish"}, *const gelu[] = {"gelu_pytorch_tanh",
									      "gelu_new"};
	const char *const *known = d->gelu ? gelu : silu;
	const char *key = d->gelu ? "hidden_activation" : "hidden_act";
	const cJSON *act = config_find(json, key);
	const char *name = cJSON_GetStringValue(act);

	c->gelu = d->gelu;
	if (act && (!name || (strcmp(name, known[0]) && strcmp(name, known[1]))))
		return tool_fail(error, -ENOTSUP, "%s: \"%.64s\" is not supported, only \"%s\" is",
				 key, name ? name : "?", known[0]);
	return 0;
}

static int parse_choices(const cJSON *json, const struct family_defaults *d, struct model_config *c,
			 struct tool_error *error)
{
	const double default_eps = d->rms_norm_eps > 0 ? d->rms_norm_eps : 1e-6;
	double eps = default_eps;
	int r;

	r = parse_activation(json, d, c, error);
	if (!r)
		r = config_double(json, "rms_norm_eps", 0, 1, &default_eps, &eps, error);
	if (!r)
		r = config_bool(json, "tie_word_embeddings", d->tied, &c->tie_word_embeddings,
				error);
	c->rms_norm_eps = (float)eps;
	return r;
}

/* What the graphs do not compute: attention to later tokens, and heads other than a vocabulary's. */
static int check_kind(const cJSON *json, const cJSON *text, struct tool_error *error)
{
	static const char *const heads[] = {"ForSequenceClassification", "ForTokenClassification",
					    "ForQuestionAnswering"};
	const char *name =
		cJSON_GetStringValue(cJSON_GetArrayItem(config_find(json, "architectures"), 0));
	bool causal, both_ways = false;
	int r = config_bool(text, "is_causal", true, &causal, error);

	if (!r && !causal)
		r = tool_fail(error, -ENOTSUP, "is_causal: false is not supported");
	if (!r)
		r = config_bool(text, "use_bidirectional_attention", false, &both_ways, error);
	if (!r && both_ways)
		r = tool_fail(error, -ENOTSUP,
			      "use_bidirectional_attention: true is not supported");
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]) && !r && name; i++) {
		if (strstr(name, heads[i]))
			r = tool_fail(error, -ENOTSUP, "architectures: \"%.64s\" is not supported",
				      name);
	}
	return r;
}

/* Some vision models have it in their text_config. */
static int parse_quantisation(const cJSON *json, const cJSON *text, struct model_config *c,
			      struct tool_error *error)
{
	int r = quant_parse(json, &c->quant, error);

	if (r || c->quant.method != QUANT_NONE || text == json)
		return r;
	r = quant_parse(text, &c->quant, error);
	return r ? tool_fail_within(error, r, "text_config") : 0;
}

static int parse_placement(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *dir = config_find(json, "param_dir"),
		    *tp = config_find(json, "tensor_parallel");
	bool use = false;
	int r;

	if (dir) {
		if (!cJSON_IsString(dir) || strlen(dir->valuestring) >= sizeof(c->param_dir))
			return tool_fail(error, -EINVAL,
					 "param_dir: not a string of at most %zu bytes",
					 sizeof(c->param_dir) - 1);
		strcpy(c->param_dir, dir->valuestring);
	}
	if (!tp)
		return 0;
	if (!cJSON_IsObject(tp))
		return tool_fail(error, -EINVAL, "tensor_parallel: not an object");
	r = config_bool(tp, "use_tp", false, &use, error);
	if (!r && use)
		r = config_u32(tp, "parallel_size", 1, TXDA_MAX_GROUP, CONFIG_REQUIRED,
			       &c->parallel_size, error);
	return r ? tool_fail_within(error, r, "tensor_parallel") : 0;
}

/* The object with the text model's keys: text_config, or in older configurations the root. */
static const cJSON *find_text(const cJSON *json)
{
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(json, "text_config");

	return cJSON_IsObject(text) ? text : json;
}

/* The family of the text, or NULL. */
static const struct family *find_family(const char *type, const struct vision_family *vision,
					const cJSON *text)
{
	const char *own = cJSON_GetStringValue(config_find(text, "model_type"));

	if (!vision && family_text_only(type))
		return !own || !strcmp(own, family_text_only(type))
			       ? family_find(family_text_only(type))
			       : NULL;
	if (!vision)
		return family_find(type);
	if (vision->text)
		return family_find(vision->text);
	return own && !vision_family_find(own) ? family_find(own) : NULL;
}

static int fail_unknown(const char *type, const cJSON *text, struct tool_error *error)
{
	const char *own = cJSON_GetStringValue(config_find(text, "model_type"));
	char known[640];

	if (own && strcmp(own, type))
		return tool_fail(error, -ENOTSUP,
				 "text_config: model_type: \"%.64s\" is not supported for %.64s",
				 own, type);
	return tool_fail(error, -ENOTSUP, "model_type: \"%.64s\" is not supported (%s are)", type,
			 family_list(known, sizeof(known)));
}

int config_parse(const char *text, size_t bytes, struct model_config *ret, struct tool_error *error)
{
	struct model_config c = {0};
	const struct vision_family *vision;
	const struct family *family;
	const cJSON *text_json;
	const cJSON *type;
	const char *duplicate;
	cJSON *json;
	int r;

	r = tool_json_parse(text, bytes, &json, error);
	if (r)
		return r;
	type = config_find(json, "model_type");
	duplicate = tool_json_duplicate(json);
	if (!cJSON_IsObject(json))
		r = tool_fail(error, -EINVAL, "not a JSON object");
	else if (duplicate)
		r = tool_fail(error, -EINVAL, "%.64s: there twice", duplicate);
	else if (!cJSON_IsString(type))
		r = tool_fail(error, -EINVAL, "model_type: missing or not a string");
	if (r)
		goto out;
	vision = vision_family_find(type->valuestring);
	text_json = vision || family_text_only(type->valuestring) ? find_text(json) : json;
	family = find_family(type->valuestring, vision, text_json);
	if (!family) {
		r = fail_unknown(type->valuestring, text_json, error);
		goto out;
	}
	snprintf(c.model_type, sizeof(c.model_type), "%s", type->valuestring);
	c.family = family;
	r = parse_sizes(text_json, &family->defaults, text_json != json, &c, error);
	if (!r)
		r = parse_choices(text_json, &family->defaults, &c, error);
	if (!r)
		r = rope_parse(text_json, &(struct rope_keys){.theta = "rope_theta"},
			       c.max_position, &c.rope, error);
	if (!r)
		r = check_kind(json, text_json, error);
	if (!r)
		r = parse_quantisation(json, text_json, &c, error);
	if (!r)
		r = parse_placement(json, &c, error);
	if (!r)
		r = family->parse(text_json, &c, error);
	if (!r)
		r = rope_check(text_json, c.two_ropes, c.model_type, error);
	if (!r)
		r = check_heads(&c, error);
	/* Top-level keys of a nested configuration take precedence. */
	if (!r && text_json != json)
		r = config_bool(json, "tie_word_embeddings", c.tie_word_embeddings,
				&c.tie_word_embeddings, error);
	if (!r && vision)
		r = vision_parse(json, vision, c.hidden_size, c.vocab_size, &c.vision, error);
	if (!r)
		*ret = c;
out:
	cJSON_Delete(json);
	return r;
}

uint32_t config_default_context(const struct model_config *c)
{
	uint32_t from =
		c->rope.original_max_position ? c->rope.original_max_position : c->max_position;
	double reach = c->max_position;

	if (c->rope.type == ROPE_YARN || c->rope.type == ROPE_DYNAMIC)
		reach = fmax(reach, floor(from * c->rope.factor));
	return (uint32_t)fmin(reach, 1u << 28);
}
