// SPDX-License-Identifier: MIT
/* Converts the metadata of a GGUF file to a config.json, which config.c then reads and checks. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cjson/cJSON.h>

#include "gguf_model.h"

static const struct gguf_architecture architectures[] = {
	{.name = "llama", .model_type = "llama", .neighbours = true, .rotating = 1},
	{.name = "qwen2", .model_type = "qwen2", .biased = true, .rotating = 1},
	{.name = "qwen3", .model_type = "qwen3", .rotating = 1},
	{.name = "qwen2moe",
	 .model_type = "qwen2_moe",
	 .experts = true,
	 .biased = true,
	 .rotating = 1},
	{.name = "qwen3moe", .model_type = "qwen3_moe", .experts = true, .rotating = 1},
	{.name = "gemma2",
	 .model_type = "gemma2",
	 .whole_norms = true,
	 .naming = "gemma",
	 .rotating = 1},
	{.name = "gemma3",
	 .model_type = "gemma3_text",
	 .whole_norms = true,
	 .naming = "gemma",
	 .rotating = 1},
	{.name = "glm4", .model_type = "glm4", .biased = true, .naming = "glm4", .rotating = 0.5},
};
#define N_ARCHITECTURES (sizeof(architectures) / sizeof(architectures[0]))

/* A key "ARCHITECTURE.name", and its name in config.json. */
struct key {
	const char *name, *ours;
	bool required;
};

static const struct key keys[] =
	{
		{"block_count", "num_hidden_layers", true},
		{"context_length", "max_position_embeddings", true},
		{"embedding_length", "hidden_size", true},
		{"feed_forward_length", "intermediate_size", false},
		{"attention.head_count", "num_attention_heads", true},
		{"attention.head_count_kv", "num_key_value_heads", false},
		{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
		{"attention.key_length", "head_dim", false},
		{"rope.freq_base", "rope_theta", false},
},
			expert_keys[] =
				{
					{"expert_count", "num_experts", true},
					{"expert_used_count", "num_experts_per_tok", true},
					{"expert_feed_forward_length", "moe_intermediate_size",
					 true},
					{"expert_shared_feed_forward_length",
					 "shared_expert_intermediate_size", false},
},
			gemma_keys[] = {
				{"attn_logit_softcapping", "attn_logit_softcapping", false},
				{"final_logit_softcapping", "final_logit_softcapping", false},
				{"attention.sliding_window", "sliding_window", true},
};

struct reader {
	const struct gguf *g;
	const struct gguf_architecture *a;
	cJSON *to;
	struct tool_error *error;
};

static const char *full(const struct reader *r, const char *name, char *buf, size_t len)
{
	snprintf(buf, len, "%s.%s", r->a->name, name);
	return buf;
}

/* Looks up @name and its value; not a number, or an array with different values: an error. */
static int find_number(const struct reader *r, const char *name, bool *ret_there, double *ret)
{
	char key[128];
	const struct gguf_value *v = gguf_get(r->g, full(r, name, key, sizeof(key)));

	*ret_there = v != NULL;
	if (!v)
		return 0;
	if (v->type == GGUF_STRING || !v->n)
		return tool_fail(r->error, -EINVAL, "%s: not a number", key);
	*ret = gguf_number(v, 0);
	/* Some files have one value per layer. */
	for (uint64_t i = 1; i < v->n; i++) {
		if (gguf_number(v, i) != *ret)
			return tool_fail(
				r->error, -ENOTSUP,
				"%s: %g of layer %llu, but %g of the first one; layers that "
				"differ are not supported",
				key, gguf_number(v, i), (unsigned long long)i, *ret);
	}
	return 0;
}

static int add_keys(const struct reader *r, const struct key *list, size_t n)
{
	char key[128];

	for (size_t i = 0; i < n; i++) {
		double value = 0;
		bool there;
		int e = find_number(r, list[i].name, &there, &value);

		if (e)
			return e;
		if (!there && list[i].required)
			return tool_fail(r->error, -EINVAL, "%s: missing",
					 full(r, list[i].name, key, sizeof(key)));
		if (there)
			cJSON_AddNumberToObject(r->to, list[i].ours, value);
	}
	return 0;
}

static double number_of(const struct reader *r, const char *name, double otherwise)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->to, name);

	return item ? item->valuedouble : otherwise;
}

/* A key that, if present, must have the value that the graph assumes. */
static int expect(const struct reader *r, const char *name, double value)
{
	char key[128];
	double found = value;
	bool there;
	int e = find_number(r, name, &there, &found);

	if (!e && found != value)
		e = tool_fail(r->error, -ENOTSUP, "%s: %g is not supported, only %g is",
			      full(r, name, key, sizeof(key)), found, value);
	return e;
}

/*
 * Files of vision models have another order of queries and keys; layers beyond the last one predict
 * further tokens.
 */
static int expect_plain(const struct reader *r)
{
	char key[128];

	if (gguf_get(r->g, full(r, "rope.dimension_sections", key, sizeof(key))))
		return tool_fail(r->error, -ENOTSUP, "%s: not supported", key);
	return expect(r, "nextn_predict_layers", 0);
}

static int add_scaling(const struct reader *r)
{
	double factor = 1, original = 0;
	char key[128], *type;
	bool there, from;
	cJSON *scaling;
	int e = gguf_string(r->g, full(r, "rope.scaling.type", key, sizeof(key)), &type, r->error);

	if (!e)
		e = find_number(r, "rope.scaling.factor", &there, &factor);
	if (!e)
		e = find_number(r, "rope.scaling.original_context_length", &from, &original);
	if (!e && type && strcmp(type, "none") && strcmp(type, "linear") && strcmp(type, "yarn"))
		e = tool_fail(r->error, -ENOTSUP,
			      "%s: \"%.64s\" is not supported (none, linear and yarn are)", key,
			      type);
	if (!e && type && strcmp(type, "none")) {
		scaling = cJSON_AddObjectToObject(r->to, "rope_scaling");
		cJSON_AddStringToObject(scaling, "rope_type", type);
		cJSON_AddNumberToObject(scaling, "factor", factor);
		if (from)
			cJSON_AddNumberToObject(scaling, "original_max_position_embeddings",
						original);
	}
	free(type);
	return e;
}

static void add_token(const struct reader *r, const char *key, const char *ours)
{
	const struct gguf_value *v = gguf_get(r->g, key);

	if (v && !v->array && v->type != GGUF_STRING)
		cJSON_AddNumberToObject(r->to, ours, gguf_number(v, 0));
}

static int add_vocab(const struct reader *r, const struct gguf_model *m)
{
	const struct gguf_tensor *t = gguf_model_tensor(m, "model.embed_tokens.weight");

	if (!t)
		return tool_fail(r->error, -EINVAL, "tensor \"token_embd.weight\" is missing");
	cJSON_AddNumberToObject(r->to, "vocab_size", (double)t->dim[1]);
	return 0;
}

/* Properties implied by the presence of tensors. */
static int add_choices(const struct reader *r, const struct gguf_model *m)
{
	bool bias = gguf_model_has(m, "model.layers.0.self_attn.q_proj.bias");
	bool o_bias = gguf_model_has(m, "model.layers.0.self_attn.o_proj.bias");

	cJSON_AddBoolToObject(r->to, "tie_word_embeddings", !gguf_model_has(m, "lm_head.weight"));
	cJSON_AddBoolToObject(r->to, "attention_bias", bias);
	cJSON_AddBoolToObject(r->to, "mlp_bias",
			      gguf_model_has(m, "model.layers.0.mlp.down_proj.bias"));
	if (!r->a->biased && bias != o_bias)
		return tool_fail(r->error, -ENOTSUP, "biases of %s alone are not supported for %s",
				 bias ? "queries, keys and values" : "the attention's output",
				 r->a->name);
	return 0;
}

/*
 * Files do not state the divisor of scores: it is the root of a head's size, except for the models
 * with 27 billion parameters, which are recognised by their number of layers. Nor do they state
 * which layers have a window, or the RoPE base of those, unless it differs from the usual one.
 */
static int add_gemma(const struct reader *r)
{
	const bool three = !strcmp(r->a->name, "gemma3");
	const bool large = number_of(r, "num_hidden_layers", 0) == (three ? 62 : 46);
	const double heads = number_of(r, "num_attention_heads", 1);
	double speed = 0;
	bool there = false;
	int e = add_keys(r, gemma_keys, sizeof(gemma_keys) / sizeof(gemma_keys[0]));

	cJSON_AddNumberToObject(r->to, "query_pre_attn_scalar",
				large ? number_of(r, "hidden_size", 0) / heads
				      : number_of(r, "head_dim", 0));
	if (!e && three)
		e = find_number(r, "rope.freq_base_swa", &there, &speed);
	if (!e && there)
		cJSON_AddNumberToObject(r->to, "rope_local_base_freq", speed);
	return e ? e : expect(r, "attention.sliding_window_pattern", three ? 6 : 2);
}

static int add_all(const struct reader *r, const struct gguf_model *m)
{
	double head_dim;
	int e = add_keys(r, keys, sizeof(keys) / sizeof(keys[0]));

	cJSON_AddStringToObject(r->to, "model_type", r->a->model_type);
	if (!e && r->a->experts)
		e = add_keys(r, expert_keys, sizeof(expert_keys) / sizeof(expert_keys[0]));
	if (!e && !r->a->experts)
		e = expect(r, "expert_count", 0);
	/* Optional for models whose layers all have experts. */
	if (!e && !cJSON_HasObjectItem(r->to, "intermediate_size"))
		cJSON_AddNumberToObject(r->to, "intermediate_size",
					number_of(r, "moe_intermediate_size", 0));
	if (!e && !cJSON_HasObjectItem(r->to, "head_dim"))
		cJSON_AddNumberToObject(r->to, "head_dim",
					number_of(r, "hidden_size", 0) /
						number_of(r, "num_attention_heads", 1));
	head_dim = number_of(r, "head_dim", 0);
	if (!e)
		e = expect(r, "attention.value_length", head_dim);
	if (!e)
		e = expect(r, "rope.dimension_count", floor(head_dim * r->a->rotating));
	if (!e)
		e = expect_plain(r);
	if (!e)
		e = expect(r, "attention.causal", 1);
	if (!e)
		e = expect(r, "expert_weights_scale", 1);
	if (!e && r->a->whole_norms)
		e = add_gemma(r);
	if (!e && r->a->experts)
		cJSON_AddBoolToObject(r->to, "norm_topk_prob", !strcmp(r->a->name, "qwen3moe"));
	if (!e)
		e = add_scaling(r);
	if (!e)
		e = add_vocab(r, m);
	if (!e)
		e = add_choices(r, m);
	add_token(r, "tokenizer.ggml.bos_token_id", "bos_token_id");
	add_token(r, "tokenizer.ggml.eos_token_id", "eos_token_id");
	return e;
}

const struct gguf_architecture *gguf_architecture(const struct gguf *g, struct tool_error *error)
{
	char known[256] = "", *name = NULL;
	size_t at = 0;
	const struct gguf_architecture *found = NULL;
	int r = gguf_string(g, "general.architecture", &name, error);

	if (r)
		return NULL;
	for (size_t i = 0; i < N_ARCHITECTURES; i++) {
		if (name && !strcmp(name, architectures[i].name))
			found = &architectures[i];
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "",
				       architectures[i].name);
	}
	if (!found)
		tool_fail(error, -ENOTSUP,
			  "general.architecture: \"%.64s\" is not supported (%s are)",
			  name ? name : "", known);
	free(name);
	return found;
}

void gguf_adapt(const struct gguf_model *m, struct model_config *c)
{
	const struct gguf_architecture *a = gguf_architecture(gguf_model_file(m, 0), NULL);

	c->rope_interleaved |= a->neighbours;
	c->norm_plus_one &= !a->whole_norms;
}

int gguf_config(const struct gguf_model *m, char **ret, struct tool_error *error)
{
	const struct gguf *g = gguf_model_file(m, 0);
	struct reader r = {.g = g, .error = error};
	int e;

	r.a = gguf_architecture(g, error);
	if (!r.a)
		return -ENOTSUP;
	r.to = cJSON_CreateObject();
	if (!r.to)
		return tool_fail(error, -ENOMEM, "no memory");
	e = add_all(&r, m);
	if (!e) {
		*ret = cJSON_Print(r.to);
		e = *ret ? 0 : tool_fail(error, -ENOMEM, "no memory");
	}
	cJSON_Delete(r.to);
	return e;
}
