// SPDX-License-Identifier: MIT
/* Converts the metadata of a GGUF file to a config.json, which config.c then reads and checks. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cjson/cJSON.h>

#include "config.h"
#include "gguf_model.h"

static const struct gguf_architecture architectures[] = {
	{.name = "llama", .model_type = "llama", .neighbours = true, .rotating = 1},
	{.name = "qwen2", .model_type = "qwen2", .biased = true, .rotating = 1},
	{.name = "qwen3", .model_type = "qwen3", .rotating = 1},
	{.name = "qwen2moe",
	 .model_type = "qwen2_moe",
	 .routing = GGUF_ROUTING_PLAIN,
	 .biased = true,
	 .rotating = 1},
	{.name = "qwen3moe",
	 .model_type = "qwen3_moe",
	 .routing = GGUF_ROUTING_PLAIN,
	 .rotating = 1},
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
	{.name = "glm4moe",
	 .model_type = "glm4_moe",
	 .routing = GGUF_ROUTING_DEEPSEEK,
	 .biased = true,
	 .naming = "deepseek",
	 .ahead = true,
	 .rotating = 0.5},
	{.name = "deepseek2",
	 .model_type = "deepseek_v3",
	 .routing = GGUF_ROUTING_DEEPSEEK,
	 .latent = true,
	 .naming = "deepseek",
	 .ahead = true,
	 .rotating = 1},
	{.name = "gpt-oss",
	 .model_type = "gpt_oss",
	 .routing = GGUF_ROUTING_PLAIN,
	 .alternating = true,
	 .naming = "gpt-oss",
	 .rotating = 1},
	{.name = "mistral3", .model_type = "mistral", .neighbours = true, .rotating = 1},
};
#define N_ARCHITECTURES (sizeof(architectures) / sizeof(architectures[0]))

/* A key "ARCHITECTURE.name", and its name in config.json. */
struct key {
	const char *name, *ours;
	bool required;
};

static const struct key keys[] = {
	{"context_length", "max_position_embeddings", true},
	{"embedding_length", "hidden_size", true},
	{"feed_forward_length", "intermediate_size", false},
	{"attention.head_count", "num_attention_heads", true},
	{"attention.head_count_kv", "num_key_value_heads", false},
	{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
	{"rope.freq_base", "rope_theta", false},
};
static const struct key expert_keys[] = {
	{"expert_count", "num_experts", true},
	{"expert_used_count", "num_experts_per_tok", true},
	{"expert_feed_forward_length", "moe_intermediate_size", true},
	{"expert_shared_feed_forward_length", "shared_expert_intermediate_size", false},
};
/* What is not there is 0, or no group at all. */
static const struct key deepseek_keys[] = {
	{"expert_shared_count", "n_shared_experts", false},
	{"leading_dense_block_count", "first_k_dense_replace", false},
	{"expert_group_count", "n_group", false},
	{"expert_group_used_count", "topk_group", false},
};
static const struct key latent_keys[] = {
	{"attention.kv_lora_rank", "kv_lora_rank", true},
	{"attention.q_lora_rank", "q_lora_rank", false},
	{"rope.dimension_count", "qk_rope_head_dim", true},
};
static const struct key gemma_keys[] = {
	{"attn_logit_softcapping", "attn_logit_softcapping", false},
	{"final_logit_softcapping", "final_logit_softcapping", false},
};
#define N_KEYS(list) (sizeof(list) / sizeof((list)[0]))

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
	/* JSON has no such numbers: the key would be as good as missing. */
	if (!isfinite(*ret))
		return tool_fail(r->error, -ERANGE, "%s: %g is not a finite number", key, *ret);
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
 * Keys of other architectures that change the results, with the values that mean nothing. Files of
 * vision models have another order of queries and keys.
 */
static int expect_plain(const struct reader *r)
{
	static const struct {
		const char *name;
		double value;
	} plain[] = {
		{"attention.causal", 1},
		{"attention.scale", 0},
		{"attention.clamp_kqv", 0},
		{"attention.max_alibi_bias", 0},
		{"attention.temperature_scale", 0},
		{"embedding_scale", 1},
		{"residual_scale", 1},
		{"logit_scale", 1},
		{"use_parallel_residual", 0},
		{"rope.scaling.attn_factor", 1},
	};
	char key[128];
	int e = 0;

	if (gguf_get(r->g, full(r, "rope.dimension_sections", key, sizeof(key))))
		return tool_fail(r->error, -ENOTSUP, "%s: not supported", key);
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]) && !e; i++)
		e = expect(r, plain[i].name, plain[i].value);
	/* Gemma's have these two. */
	for (size_t i = 0; i < N_KEYS(gemma_keys) && !e && !r->a->whole_norms; i++)
		e = expect(r, gemma_keys[i].name, 0);
	return e;
}

/* Layers are counted with those after the last one, which predict further tokens. */
static int add_layers(const struct reader *r, const struct gguf_model *m)
{
	double count = 0, ahead = 0;
	char key[128], name[64];
	bool there;
	int e = find_number(r, "block_count", &there, &count);

	if (!e && !there)
		e = tool_fail(r->error, -EINVAL, "%s: missing",
			      full(r, "block_count", key, sizeof(key)));
	if (!e && !r->a->ahead)
		e = expect(r, "nextn_predict_layers", 0);
	if (!e && r->a->ahead)
		e = find_number(r, "nextn_predict_layers", &there, &ahead);
	if (!e && !(ahead >= 0 && ahead < count))
		e = tool_fail(r->error, -ERANGE, "%s: %g of block_count %g",
			      full(r, "nextn_predict_layers", key, sizeof(key)), ahead, count);
	if (e)
		return e;
	cJSON_AddNumberToObject(r->to, "num_hidden_layers", count - ahead);
	snprintf(name, sizeof(name), "model.layers.%.0f.eh_proj.weight", count - ahead);
	if (ahead > 0 && gguf_model_has(m, name))
		cJSON_AddNumberToObject(r->to, "num_nextn_predict_layers", ahead);
	return 0;
}

/* A number of YaRN's, if there is one. */
static int add_yarn_key(const struct reader *r, cJSON *scaling, const char *name, const char *ours)
{
	double value = 0;
	bool there;
	int e = find_number(r, name, &there, &value);

	if (!e && there)
		cJSON_AddNumberToObject(scaling, ours, value);
	return e;
}

/*
 * The logarithm's multiplier is a tenth of mscale_all_dim; files do not say mscale, which is the
 * same in all models that have it.
 */
static int add_yarn(const struct reader *r, cJSON *scaling)
{
	double multiplier = 0;
	bool there;
	int e = find_number(r, "rope.scaling.yarn_log_multiplier", &there, &multiplier);

	if (!e && there && multiplier > 0) {
		cJSON_AddNumberToObject(scaling, "mscale", multiplier * 10);
		cJSON_AddNumberToObject(scaling, "mscale_all_dim", multiplier * 10);
	}
	if (!strcmp(r->a->name, "gpt-oss"))
		cJSON_AddBoolToObject(scaling, "truncate", false);
	if (!e)
		e = add_yarn_key(r, scaling, "rope.scaling.yarn_beta_fast", "beta_fast");
	if (!e)
		e = add_yarn_key(r, scaling, "rope.scaling.yarn_beta_slow", "beta_slow");
	if (!e)
		e = expect(r, "rope.scaling.yarn_ext_factor", 1);
	return e ? e : expect(r, "rope.scaling.yarn_attn_factor", 1);
}

/* The object "rope_scaling". Without a type, a factor (other than 0, for none) is a linear one. */
static int make_scaling(const struct reader *r, const char *type, double factor)
{
	cJSON *scaling = cJSON_AddObjectToObject(r->to, "rope_scaling");
	double original = 0;
	bool from;
	int e = find_number(r, "rope.scaling.original_context_length", &from, &original);

	if (!type)
		type = factor != 0 && factor != 1 ? "linear" : "none";
	/* Said explicitly, so that a family's own default does not apply. */
	if (!strcmp(type, "none")) {
		cJSON_AddStringToObject(scaling, "rope_type", "default");
		return e;
	}
	cJSON_AddStringToObject(scaling, "rope_type", type);
	cJSON_AddNumberToObject(scaling, "factor", factor);
	if (from)
		cJSON_AddNumberToObject(scaling, "original_max_position_embeddings", original);
	return !e && !strcmp(type, "yarn") ? add_yarn(r, scaling) : e;
}

static int add_scaling(const struct reader *r)
{
	char key[128], *type;
	double factor = 1;
	bool there = false;
	int e = gguf_string(r->g, full(r, "rope.scaling.type", key, sizeof(key)), &type, r->error);

	if (!e)
		e = find_number(r, "rope.scaling.factor", &there, &factor);
	/* Its older name. */
	if (!e && !there)
		e = find_number(r, "rope.scale_linear", &there, &factor);
	if (!e && type && strcmp(type, "none") && strcmp(type, "linear") && strcmp(type, "yarn"))
		e = tool_fail(r->error, -ENOTSUP,
			      "%s: \"%.64s\" is not supported (none, linear and yarn are)", key,
			      type);
	if (!e)
		e = make_scaling(r, type, factor);
	free(type);
	return e;
}

/* Ends of turns and texts, which files need not name as such. */
static const char *const ends[] = {
	"<|im_end|>",	 "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",
	"<|endoftext|>", "<|call|>",   "<|return|>", "<|end_of_text|>",
};
#define MAX_ENDS 8

static void add_end(cJSON *list, double id)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list)
		if (item->valuedouble == id)
			return;
	if (cJSON_GetArraySize(list) < MAX_ENDS)
		cJSON_AddItemToArray(list, cJSON_CreateNumber(id));
}

static bool is_end(struct gguf_text t)
{
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		if (t.bytes == strlen(ends[i]) && !memcmp(t.text, ends[i], t.bytes))
			return true;
	}
	return false;
}

/* The tokens that end an answer: those that keys name, and those with known names. */
static void add_ends(const struct reader *r)
{
	static const char *const named[] = {"tokenizer.ggml.eos_token_id",
					    "tokenizer.ggml.eot_token_id",
					    "tokenizer.ggml.eom_token_id"};
	const struct gguf_value *tokens = gguf_get(r->g, "tokenizer.ggml.tokens"), *v;
	cJSON *list = cJSON_AddArrayToObject(r->to, "eos_token_id");
	struct gguf_value at;

	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
		v = gguf_get(r->g, named[i]);
		if (v && !v->array && v->type != GGUF_STRING)
			add_end(list, gguf_number(v, 0));
	}
	if (!tokens || !tokens->array || tokens->type != GGUF_STRING)
		return;
	at = *tokens;
	for (uint64_t i = 0; i < tokens->n; i++) {
		if (is_end(gguf_next_text(&at)))
			add_end(list, (double)i);
	}
}

static void add_bos(const struct reader *r)
{
	const struct gguf_value *v = gguf_get(r->g, "tokenizer.ggml.bos_token_id");

	if (v && !v->array && v->type != GGUF_STRING)
		cJSON_AddNumberToObject(r->to, "bos_token_id", gguf_number(v, 0));
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
	cJSON_AddBoolToObject(r->to, "use_qk_norm",
			      gguf_model_has(m, "model.layers.0.self_attn.q_norm.weight"));
	cJSON_AddBoolToObject(r->to, "mlp_bias",
			      gguf_model_has(m, "model.layers.0.mlp.down_proj.bias"));
	if (!r->a->biased && bias != o_bias)
		return tool_fail(r->error, -ENOTSUP, "biases of %s alone are not supported for %s",
				 bias ? "queries, keys and values" : "the attention's output",
				 r->a->name);
	return 0;
}

/*
 * The window, and which layers have it: all but each @usual-th, unless there is a list of them.
 * Some files have the period instead.
 */
static int add_windows(const struct reader *r, double usual)
{
	static const struct key window = {"attention.sliding_window", "sliding_window", true};
	char key[128];
	const struct gguf_value *v =
		gguf_get(r->g, full(r, "attention.sliding_window_pattern", key, sizeof(key)));
	cJSON *list;
	int e = add_keys(r, &window, 1);

	if (e || !v || !v->array || v->type != GGUF_BOOL)
		return e ? e : expect(r, "attention.sliding_window_pattern", usual);
	list = cJSON_AddArrayToObject(r->to, "layer_types");
	for (uint64_t i = 0; i < v->n && i < CONFIG_ALL_LAYERS; i++)
		cJSON_AddItemToArray(list,
				     cJSON_CreateString(gguf_number(v, i) != 0 ? "sliding_attention"
									       : "full_attention"));
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
	int e = add_keys(r, gemma_keys, N_KEYS(gemma_keys));

	cJSON_AddNumberToObject(r->to, "query_pre_attn_scalar",
				large ? number_of(r, "hidden_size", 0) / heads
				      : number_of(r, "head_dim", 0));
	if (!e && three)
		e = find_number(r, "rope.freq_base_swa", &there, &speed);
	if (!e && there)
		cJSON_AddNumberToObject(r->to, "rope_local_base_freq", speed);
	return e ? e : add_windows(r, three ? 6 : 2);
}

/* Sizes of heads, and for DeepSeek's experts how they are chosen. */
static int add_latent(const struct reader *r)
{
	double key_length = 0, value_length = 0;
	bool there, of_head, values;
	int e = add_keys(r, latent_keys, N_KEYS(latent_keys));

	/* Newer files have the lengths of cached keys and values under the usual names. */
	if (!e)
		e = find_number(r, "attention.key_length_mla", &of_head, &key_length);
	if (!e)
		e = find_number(r, "attention.value_length_mla", &values, &value_length);
	if (!e && !of_head)
		e = find_number(r, "attention.key_length", &there, &key_length);
	if (!e && !values)
		e = find_number(r, "attention.value_length", &there, &value_length);
	cJSON_AddNumberToObject(r->to, "qk_nope_head_dim",
				key_length - number_of(r, "qk_rope_head_dim", 0));
	cJSON_AddNumberToObject(r->to, "v_head_dim", value_length);
	/* Whatever it says, all heads have one latent vector. */
	cJSON_DeleteItemFromObject(r->to, "num_key_value_heads");
	return e;
}

static int add_deepseek_experts(const struct reader *r)
{
	double gating = 0, scale = 0, norm = 0;
	bool there, sigmoid;
	int e = add_keys(r, deepseek_keys, N_KEYS(deepseek_keys));

	if (!e)
		e = find_number(r, "expert_gating_func", &there, &gating);
	if (!e)
		e = find_number(r, "expert_weights_scale", &there, &scale);
	if (!e)
		e = find_number(r, "expert_weights_norm", &there, &norm);
	if (e)
		return e;
	sigmoid = gating == 2;
	if (gating > 2 || (!sigmoid && !r->a->latent))
		return tool_fail(r->error, -ENOTSUP,
				 "%s.expert_gating_func: %g is not supported, only %s", r->a->name,
				 gating, r->a->latent ? "softmax (1) and sigmoid (2) are" : "2 is");
	/* A softmax is DeepSeek-V2's. */
	if (!sigmoid) {
		cJSON_ReplaceItemInObject(r->to, "model_type", cJSON_CreateString("deepseek_v2"));
		if (number_of(r, "n_group", 1) > 1)
			cJSON_AddStringToObject(r->to, "topk_method", "group_limited_greedy");
	}
	for (size_t i = 0; i < N_KEYS(deepseek_keys); i++) {
		if (!cJSON_HasObjectItem(r->to, deepseek_keys[i].ours))
			cJSON_AddNumberToObject(r->to, deepseek_keys[i].ours, i >= 2);
	}
	cJSON_AddNumberToObject(r->to, "routed_scaling_factor", scale > 0 ? scale : 1);
	cJSON_AddBoolToObject(r->to, "norm_topk_prob", norm != 0);
	return 0;
}

/* A softmax over all experts, or, which comes to the same, over those that it chose (3). */
static int add_plain_experts(const struct reader *r)
{
	double norm = !strcmp(r->a->name, "qwen3moe");
	bool there;
	int e = find_number(r, "expert_weights_norm", &there, &norm);

	cJSON_AddBoolToObject(r->to, "norm_topk_prob", norm != 0);
	if (!e)
		e = expect(r, "expert_gating_func", r->a->alternating ? 3 : 1);
	return e ? e : expect(r, "expert_weights_scale", 1);
}

static int add_experts(const struct reader *r)
{
	int e = add_keys(r, expert_keys, N_KEYS(expert_keys));

	if (!e && r->a->routing == GGUF_ROUTING_DEEPSEEK)
		return add_deepseek_experts(r);
	return e ? e : add_plain_experts(r);
}

/* The size of a head, how much of it rotates. */
static int add_heads(const struct reader *r)
{
	double head_dim = number_of(r, "hidden_size", 0) / number_of(r, "num_attention_heads", 1);
	double rotating;
	bool there;
	int e;

	if (r->a->latent)
		return add_latent(r);
	e = find_number(r, "attention.key_length", &there, &head_dim);
	cJSON_AddNumberToObject(r->to, "head_dim", head_dim);
	if (!e)
		e = expect(r, "attention.value_length", head_dim);
	if (e || r->a->rotating == 1)
		return e ? e : expect(r, "rope.dimension_count", head_dim);
	rotating = floor(head_dim * r->a->rotating);
	e = find_number(r, "rope.dimension_count", &there, &rotating);
	cJSON_AddNumberToObject(r->to, "partial_rotary_factor", rotating / head_dim);
	return e;
}

static int add_all(const struct reader *r, const struct gguf_model *m)
{
	int e;

	cJSON_AddStringToObject(r->to, "model_type", r->a->model_type);
	e = add_layers(r, m);
	if (!e)
		e = add_keys(r, keys, N_KEYS(keys));
	if (!e)
		e = r->a->routing ? add_experts(r) : expect(r, "expert_count", 0);
	/* Optional for models whose layers all have experts. */
	if (!e && !cJSON_HasObjectItem(r->to, "intermediate_size"))
		cJSON_AddNumberToObject(r->to, "intermediate_size",
					number_of(r, "moe_intermediate_size", 0));
	if (!e)
		e = add_heads(r);
	if (!e)
		e = expect_plain(r);
	if (!e && r->a->whole_norms)
		e = add_gemma(r);
	if (!e && r->a->alternating)
		e = add_windows(r, 2);
	if (!e && !strcmp(r->a->model_type, "mistral"))
		cJSON_AddNullToObject(r->to, "sliding_window");
	if (!e)
		e = add_scaling(r);
	if (!e)
		e = add_vocab(r, m);
	if (!e)
		e = add_choices(r, m);
	add_bos(r);
	add_ends(r);
	return e;
}

const struct gguf_architecture *gguf_architecture(const struct gguf *g, struct tool_error *error)
{
	char known[320] = "", *name = NULL;
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
