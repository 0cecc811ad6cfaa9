// SPDX-License-Identifier: MIT
#include "model_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_value.h"
#include "chat_template.h"
#include "json_strict.h"
#include "tokenizer.h"

#define MAX_CONFIG ((size_t)16 << 20)

/* ---- loading --------------------------------------------------------------------------------- */

static void add_stop_token(struct model_text *t, int64_t id)
{
	if (id < 0 || id >= t->vocab ||
	    t->n_stop_tokens == sizeof(t->stop_tokens) / sizeof(t->stop_tokens[0]))
		return;
	for (unsigned i = 0; i < t->n_stop_tokens; i++)
		if (t->stop_tokens[i] == id)
			return;
	t->stop_tokens[t->n_stop_tokens++] = (int32_t)id;
}

/* An id or an array of ids. */
static void add_stop_tokens(struct model_text *t, const cJSON *config)
{
	const cJSON *eos = api_member(config, "eos_token_id"), *item;
	int64_t id;

	if (eos && api_value_int(eos, &id))
		add_stop_token(t, id);
	if (cJSON_IsArray(eos))
		cJSON_ArrayForEach(item, eos) if (api_value_int(item, &id)) add_stop_token(t, id);
}

/* A number of generation_config.json, if it is there and sensible. */
static void read_default(const cJSON *config, const char *name, double min, double max,
			 double *value)
{
	const cJSON *item = api_member(config, name);

	if (cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max)
		*value = item->valuedouble;
}

static int load_json(const char *dir, const char *name, cJSON **ret, char *err, size_t errlen)
{
	char path[1200];
	int r;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	r = txda_json_load(path, MAX_CONFIG, ret, err, errlen);
	return r == -ENOENT ? 0 : r;
}

static int load_configs(struct model_text *t, const char *dir, char *err, size_t errlen)
{
	cJSON *generation = NULL, *config = NULL;
	double top_k = 0;
	uint32_t eos;
	int r = load_json(dir, "generation_config.json", &generation, err, errlen);

	if (!r)
		r = load_json(dir, "config.json", &config, err, errlen);
	t->temperature = t->top_p = 1;
	read_default(generation, "temperature", 0, 2, &t->temperature);
	read_default(generation, "top_p", 0, 1, &t->top_p);
	read_default(generation, "min_p", 0, 1, &t->min_p);
	read_default(generation, "top_k", 0, INT32_MAX, &top_k);
	t->top_k = (unsigned)top_k;
	add_stop_tokens(t, generation);
	if (!t->n_stop_tokens)
		add_stop_tokens(t, config);
	eos = txda_tokenizer_eos(t->tokenizer);
	if (eos != TXDA_TOKEN_NONE)
		add_stop_token(t, eos);
	cJSON_Delete(generation);
	cJSON_Delete(config);
	return r;
}

int model_text_load(const char *dir, const struct engine_limits *limits, struct model_text **ret,
		    char *err, size_t errlen)
{
	struct model_text *t = calloc(1, sizeof(*t));
	int r;

	if (!t) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	t->max_context = limits->max_context;
	t->vocab = limits->vocab;
	r = txda_tokenizer_load(dir, &t->tokenizer, err, errlen);
	if (!r)
		r = load_configs(t, dir, err, errlen);
	if (r) {
		model_text_free(t);
		return r;
	}
	/* Many models have no template, and their completions work all the same. */
	if (txda_chat_template_load(dir, &t->chat, t->chat_error, sizeof(t->chat_error)))
		t->chat = NULL;
	*ret = t;
	return 0;
}

void model_text_free(struct model_text *t)
{
	if (!t)
		return;
	txda_chat_template_free(t->chat);
	txda_tokenizer_free(t->tokenizer);
	free(t);
}

/* ---- encoding -------------------------------------------------------------------------------- */

static bool encode_error(int r, const char *param, struct api_error *e)
{
	switch (r) {
	case -ENOMEM: return api_error_set(e, 500, NULL, NULL, "out of memory");
	case -EILSEQ: return api_error_set(e, 400, NULL, param, "%s is not valid UTF-8", param);
	default:
		return api_error_set(e, 400, NULL, param, "%s cannot be turned into tokens: %s",
				     param, strerror(-r));
	}
}

static bool encode_text(const struct model_text *t, const char *text, size_t len, unsigned flags,
			const char *param, struct prompt_tokens *ret, struct api_error *e)
{
	uint32_t *ids;
	size_t n;
	int r = txda_tokenizer_encode(t->tokenizer, text, len, flags, &ids, &n);

	if (r)
		return encode_error(r, param, e);
	if (n > INT32_MAX) {
		free(ids);
		return encode_error(-E2BIG, param, e);
	}
	ret->ids = (int32_t *)ids;
	ret->n = (unsigned)n;
	return true;
}

/* Where the last message's text ends in the prompt, so that the model goes on with it instead of a
 * new turn. */
static size_t cut_after_final_message(const cJSON *messages, const char *text, size_t len)
{
	const cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
	const cJSON *content = api_member(last, "content");
	size_t n = cJSON_IsString(content) ? strlen(content->valuestring) : 0, at;

	/* Templates trim what they print. */
	while (n && strchr(" \t\r\n", content->valuestring[n - 1]))
		n--;
	for (at = len - n; n && len >= n; at--) {
		if (!memcmp(text + at, content->valuestring, n))
			return at + n;
		if (!at)
			break;
	}
	return len;
}

static bool encode_chat(const struct model_text *t, const struct api_params *p,
			struct prompt_tokens *ret, struct api_error *e)
{
	struct txda_chat_request request = {
		.messages = p->messages,
		.tools = p->tools,
		.variables = p->template_kwargs,
		.add_generation_prompt = p->add_generation_prompt,
	};
	struct txda_template_error error = {0};
	char *text;
	size_t len;
	bool ok;
	int r;

	if (!t->chat)
		return api_error_set(
			e, 400, "no_chat_template", "messages",
			"the model has no usable chat template (%s); use /v1/completions",
			t->chat_error);
	r = txda_chat_template_render(t->chat, &request, &error, &text, &len);
	if (r == -ENOMEM)
		return encode_error(r, "messages", e);
	if (r)
		return api_error_set(e, 400, NULL, "messages",
				     "the chat template refuses the messages: %s", error.message);
	if (p->continue_final_message)
		len = cut_after_final_message(p->messages, text, len);
	/* The template itself writes what begins a text. */
	ok = encode_text(t, text, len, 0, "messages", ret, e);
	free(text);
	return ok;
}

static bool encode_prompt(const struct model_text *t, struct api_prompt *prompt,
			  struct prompt_tokens *ret, struct api_error *e)
{
	if (prompt->text)
		return encode_text(t, prompt->text, strlen(prompt->text), TXDA_ENCODE_ADD_SPECIAL,
				   "prompt", ret, e);
	for (unsigned i = 0; i < prompt->n_ids; i++)
		if ((unsigned)prompt->ids[i] >= t->vocab)
			return api_error_set(e, 400, NULL, "prompt",
					     "prompt has the token id %d; the limit is %u",
					     prompt->ids[i], t->vocab - 1);
	ret->ids = prompt->ids;
	ret->n = prompt->n_ids;
	prompt->ids = NULL;
	return true;
}

/* The prompt must fit the context with one token to generate at least, and with all that are
 * wanted. */
static bool check_context(const struct model_text *t, const struct api_params *p,
			  const struct prompt_tokens *prompt, struct api_error *e)
{
	const char *param = p->kind == API_CHAT ? "messages" : "prompt";

	if (!prompt->n)
		return api_error_set(e, 400, NULL, param,
				     "%s is empty: there is no token to begin with", param);
	if (prompt->n >= t->max_context)
		return api_error_set(
			e, 400, "context_length_exceeded", param,
			"%s has %u tokens; the limit is %u, as the model's context is %u tokens",
			param, prompt->n, t->max_context - 1, t->max_context);
	if (p->max_tokens_given && p->max_tokens > t->max_context - prompt->n)
		return api_error_set(e, 400, "context_length_exceeded", "max_tokens",
				     "max_tokens is %u, but the model's context is %u tokens and "
				     "%s has %u; the limit is %u",
				     p->max_tokens, t->max_context, param, prompt->n,
				     t->max_context - prompt->n);
	return true;
}

static bool check_stop_tokens(const struct model_text *t, const struct api_params *p,
			      struct api_error *e)
{
	for (unsigned i = 0; i < p->n_stop_tokens; i++)
		if ((unsigned)p->stop_tokens[i] >= t->vocab)
			return api_error_set(e, 400, NULL, "stop_token_ids",
					     "stop_token_ids has the id %d; the limit is %u",
					     p->stop_tokens[i], t->vocab - 1);
	return true;
}

bool model_text_encode(const struct model_text *t, struct api_params *p, struct prompt_tokens *ret,
		       struct api_error *e)
{
	unsigned n = p->kind == API_CHAT ? 1 : p->n_prompts, room = 0;

	if (!check_stop_tokens(t, p, e))
		return false;
	for (unsigned i = 0; i < n; i++) {
		bool ok = p->kind == API_CHAT ? encode_chat(t, p, &ret[i], e)
					      : encode_prompt(t, &p->prompts[i], &ret[i], e);

		if (!ok || !check_context(t, p, &ret[i], e))
			return false;
		if (t->max_context - ret[i].n > room)
			room = t->max_context - ret[i].n;
	}
	/* A chat goes on as long as the context lasts; a completion has OpenAI's default of 16, or
	 * what room there is. */
	if (!p->max_tokens_given && (p->kind == API_CHAT || p->max_tokens > room))
		p->max_tokens = room;
	if (p->min_tokens > p->max_tokens)
		return api_error_set(e, 400, NULL, "min_tokens",
				     "min_tokens is %u; the limit is %u", p->min_tokens,
				     p->max_tokens);
	return true;
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* The first choice has the seed itself; further ones numbers derived from it (splitmix64). */
static uint64_t derive_seed(uint64_t seed, unsigned k)
{
	uint64_t z = seed + k * 0x9E3779B97F4A7C15ull;

	if (!k)
		return seed;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

void model_text_sampling(const struct model_text *t, const struct api_params *p, uint64_t seed,
			 unsigned k, struct engine_sampling *ret)
{
	double top_p = isnan(p->top_p) ? t->top_p : p->top_p;

	*ret = (struct engine_sampling){
		.temperature = (float)(isnan(p->temperature) ? t->temperature : p->temperature),
		/* 0 means the best token alone, as the smallest share does. */
		.top_p = top_p > 1e-6 ? (float)top_p : 1e-6f,
		.min_p = (float)(isnan(p->min_p) ? t->min_p : p->min_p),
		.top_k = (int)(p->top_k < 0 ? t->top_k : p->top_k),
		.seed = derive_seed(seed, k),
		.logprobs = p->logprobs,
		.max_tokens = p->max_tokens ? p->max_tokens : 1,
		.min_tokens = p->min_tokens,
		.ignore_eos = p->ignore_eos && !p->n_stop_tokens,
	};
	for (unsigned i = 0; i < t->n_stop_tokens && !p->ignore_eos; i++)
		ret->stop_tokens[ret->n_stop_tokens++] = t->stop_tokens[i];
	for (unsigned i = 0; i < p->n_stop_tokens; i++)
		ret->stop_tokens[ret->n_stop_tokens++] = p->stop_tokens[i];
}
