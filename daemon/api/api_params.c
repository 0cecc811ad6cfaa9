// SPDX-License-Identifier: MIT
#include "api_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_messages.h"
#include "api_value.h"
#include "duration.h"
#include "jinja.h"
#include "json_strict.h"

static bool parse_stop(struct api_params *p, struct api_error *e)
{
	const cJSON *stop = api_member(p->root, "stop"), *item;
	char buf[96];

	if (!stop)
		return true;
	if (cJSON_IsString(stop)) {
		p->stop[p->n_stop++] = stop->valuestring;
	} else if (cJSON_IsArray(stop)) {
		int n = cJSON_GetArraySize(stop);

		if (n > STOP_MAX_STRINGS)
			return api_error_set(e, 400, NULL, "stop",
					     "stop has %d strings; the limit is %d", n,
					     STOP_MAX_STRINGS);
		cJSON_ArrayForEach(item, stop) {
			if (!cJSON_IsString(item))
				return api_error_set(e, 400, NULL, "stop",
						     "stop must hold strings, not %s",
						     api_describe(item, buf, sizeof(buf)));
			p->stop[p->n_stop++] = item->valuestring;
		}
	} else {
		return api_error_set(e, 400, NULL, "stop",
				     "stop must be a string or an array of strings, not %s",
				     api_describe(stop, buf, sizeof(buf)));
	}
	for (unsigned i = 0; i < p->n_stop; i++) {
		size_t len = strlen(p->stop[i]);

		if (!len || len > STOP_MAX_LEN)
			return api_error_set(e, 400, NULL, "stop",
					     "a stop string must have 1 to %d bytes, not %zu",
					     STOP_MAX_LEN, len);
	}
	return true;
}

static bool parse_stop_tokens(struct api_params *p, struct api_error *e)
{
	const cJSON *list = api_member(p->root, "stop_token_ids"), *item;
	char buf[96];
	int64_t id;

	if (!list)
		return true;
	if (!cJSON_IsArray(list))
		return api_error_set(e, 400, NULL, "stop_token_ids",
				     "stop_token_ids must be an array of integers, not %s",
				     api_describe(list, buf, sizeof(buf)));
	if (cJSON_GetArraySize(list) > API_MAX_STOP_TOKENS)
		return api_error_set(e, 400, NULL, "stop_token_ids",
				     "stop_token_ids has %d ids; the limit is %d",
				     cJSON_GetArraySize(list), API_MAX_STOP_TOKENS);
	cJSON_ArrayForEach(item, list) {
		if (!api_value_int(item, &id) || id < 0 || id > INT32_MAX)
			return api_error_set(e, 400, NULL, "stop_token_ids",
					     "stop_token_ids must hold token ids, not %s",
					     api_describe(item, buf, sizeof(buf)));
		p->stop_tokens[p->n_stop_tokens++] = (int32_t)id;
	}
	return true;
}

static bool parse_logprobs(struct api_params *p, struct api_error *e)
{
	bool wanted = false;
	unsigned top = 0;
	int64_t n = -1;

	p->logprobs = -1;
	if (p->kind == API_COMPLETION) {
		if (!api_int(p->root, "logprobs", 0, API_MAX_LOGPROBS, &n, e))
			return false;
		p->logprobs = (int)n;
		return true;
	}
	if (!api_bool(p->root, "logprobs", &wanted, e) ||
	    !api_unsigned(p->root, "top_logprobs", 0, API_MAX_LOGPROBS, &top, e))
		return false;
	if (top && !wanted)
		return api_error_set(e, 400, NULL, "top_logprobs",
				     "top_logprobs is %u, but logprobs is not true", top);
	if (wanted)
		p->logprobs = (int)top;
	return true;
}

static bool parse_max_tokens(struct api_params *p, struct api_error *e)
{
	unsigned min = p->kind == API_COMPLETION && p->echo ? 0 : 1;
	const char *name = "max_tokens";
	int64_t n = -1, new_tokens = -1;

	if (!api_int(p->root, "max_tokens", min, INT32_MAX, &n, e))
		return false;
	if (p->kind == API_CHAT && api_member(p->root, "max_completion_tokens")) {
		if (!api_int(p->root, "max_completion_tokens", min, INT32_MAX, &n, e))
			return false;
		name = "max_completion_tokens";
		api_leave(p->root, "max_tokens");
	}
	if (!api_int(p->root, "max_new_tokens", min, INT32_MAX, &new_tokens, e))
		return false;
	if (n >= 0 && new_tokens >= 0 && n != new_tokens)
		return api_error_set(e, 400, NULL, "max_new_tokens",
				     "max_new_tokens is %lld, but %s, which means the same, is "
				     "%lld",
				     (long long)new_tokens, name, (long long)n);
	if (new_tokens >= 0)
		n = new_tokens;
	p->max_tokens_given = n >= 0;
	p->max_tokens = n >= 0 ? (unsigned)n : 16;
	p->thinking_budget = API_NO_BUDGET;
	if (!api_unsigned(p->root, "min_tokens", 0, INT32_MAX, &p->min_tokens, e) ||
	    !api_unsigned(p->root, "thinking_token_budget", 0, INT32_MAX, &p->thinking_budget, e) ||
	    !api_unsigned(p->root, "thinking_budget", 0, INT32_MAX, &p->thinking_budget, e))
		return false;
	if (api_member(p->root, "thinking_budget"))
		api_leave(p->root, "thinking_token_budget");
	if (p->max_tokens_given && p->min_tokens > p->max_tokens)
		return api_error_set(e, 400, NULL, "min_tokens",
				     "min_tokens is %u, but max_tokens is %u", p->min_tokens,
				     p->max_tokens);
	return true;
}

static bool parse_stream(struct api_params *p, struct api_error *e)
{
	const cJSON *options = api_member(p->root, "stream_options");
	char buf[96];

	if (!api_bool(p->root, "stream", &p->stream, e))
		return false;
	if (!options)
		return true;
	if (!cJSON_IsObject(options))
		return api_error_set(e, 400, NULL, "stream_options",
				     "stream_options must be an object, not %s",
				     api_describe(options, buf, sizeof(buf)));
	if (!p->stream)
		return api_error_set(e, 400, NULL, "stream_options",
				     "stream_options is only allowed when stream is true");
	return api_bool(options, "include_usage", &p->include_usage, e) &&
	       api_bool(options, "continuous_usage_stats", &p->continuous_usage, e);
}

/* Members shared by chats and completions. */
static bool parse_generation(struct api_params *p, struct api_error *e)
{
	const cJSON *root = p->root;

	p->n = 1;
	p->skip_special = true;
	p->add_special = p->kind == API_COMPLETION;
	if (!api_unsigned(root, "n", 1, API_MAX_N, &p->n, e) ||
	    !api_bool(root, "ignore_eos", &p->ignore_eos, e) ||
	    !api_bool(root, "skip_special_tokens", &p->skip_special, e) ||
	    !api_bool(root, "include_stop_str_in_output", &p->include_stop, e) ||
	    !api_bool(root, "add_special_tokens", &p->add_special, e))
		return false;
	if (p->kind == API_COMPLETION && !api_bool(root, "echo", &p->echo, e))
		return false;
	p->include_reasoning = true;
	if (p->kind == API_CHAT && !api_bool(root, "include_reasoning", &p->include_reasoning, e))
		return false;
	if (!parse_stream(p, e) || !api_parse_format(root, &p->format, e) ||
	    !parse_max_tokens(p, e) || !parse_stop(p, e) || !parse_stop_tokens(p, e) ||
	    !api_parse_sampling(p, e) || !parse_logprobs(p, e))
		return false;
	return p->kind == API_CHAT ? api_parse_messages(p, e) : api_parse_prompts(p, "prompt", e);
}

static bool parse_embedding(struct api_params *p, struct api_error *e)
{
	static const char *const poolings[] = {
		[API_POOL_BY_MODEL] = "",
		[API_POOL_LAST] = "last",
		[API_POOL_MEAN] = "mean",
		[API_POOL_CLS] = "cls",
	};
	const char *encoding = "float", *pooling = NULL;
	bool chat = api_member(p->root, "messages") != NULL;

	p->n = p->best_of = 1;
	p->add_special = !chat;
	p->normalize_given = api_member(p->root, "normalize") != NULL;
	if (!api_string(p->root, "encoding_format", &encoding, e) ||
	    !api_string(p->root, "pooling", &pooling, e) ||
	    !api_bool(p->root, "normalize", &p->normalize, e) ||
	    !api_bool(p->root, "add_special_tokens", &p->add_special, e) ||
	    !api_unsigned(p->root, "dimensions", 1, INT32_MAX, &p->dimensions, e))
		return false;
	p->base64 = !strcmp(encoding, "base64");
	if (!p->base64 && strcmp(encoding, "float"))
		return api_error_set(
			e, 400, NULL, "encoding_format",
			"encoding_format must be \"float\" or \"base64\", not \"%.40s\"", encoding);
	for (unsigned i = API_POOL_LAST; pooling && i <= API_POOL_CLS; i++) {
		if (!strcmp(pooling, poolings[i]))
			p->pooling = (enum api_pooling)i;
	}
	if (pooling && !p->pooling)
		return api_error_set(e, 400, NULL, "pooling",
				     "pooling must be \"last\", \"mean\" or \"cls\", not \"%.40s\"",
				     pooling);
	if (chat && api_member(p->root, "input"))
		return api_error_set(e, 400, NULL, "input",
				     "input and messages exclude each other");
	return chat ? api_parse_messages(p, e) : api_parse_prompts(p, "input", e);
}

static bool parse_tokenize(struct api_params *p, struct api_error *e)
{
	p->n = p->best_of = 1;
	if (p->kind == API_DETOKENIZE) {
		const cJSON *tokens = api_member(p->root, "tokens");

		if (!cJSON_IsArray(tokens) || (tokens->child && !cJSON_IsNumber(tokens->child)))
			return api_error_set(e, 400, NULL, "tokens",
					     "tokens must be an array of token ids");
		return api_parse_prompts(p, "tokens", e);
	}
	p->add_special = !api_member(p->root, "messages");
	if (!api_bool(p->root, "add_special_tokens", &p->add_special, e) ||
	    !api_bool(p->root, "return_token_strs", &p->token_strings, e))
		return false;
	if (api_member(p->root, "messages") && api_member(p->root, "prompt"))
		return api_error_set(e, 400, NULL, "prompt",
				     "prompt and messages exclude each other");
	if (api_member(p->root, "messages"))
		return api_parse_messages(p, e);
	if (!cJSON_IsString(api_member(p->root, "prompt")))
		return api_error_set(e, 400, NULL, "prompt",
				     "there must be a string \"prompt\", or \"messages\"");
	return api_parse_prompts(p, "prompt", e);
}

bool api_parse_keep_alive(const cJSON *root, bool *ret_given, int64_t *ret, struct api_error *e)
{
	const cJSON *value = api_member(root, "keep_alive");
	char shown[64];
	int64_t seconds = 0;
	bool ok = true;

	if (!value)
		return true;
	if (cJSON_IsString(value)) {
		ok = duration_parse(value->valuestring, &seconds);
	} else {
		ok = cJSON_IsNumber(value) && api_value_int(value, &seconds) && seconds >= -1 &&
		     seconds <= DURATION_MAX;
	}
	if (!ok)
		return api_error_set(e, 400, NULL, "keep_alive",
				     "keep_alive must be seconds up to %lld, a time like \"5m\", "
				     "or -1, not %s",
				     (long long)DURATION_MAX,
				     api_describe(value, shown, sizeof(shown)));
	*ret_given = true;
	*ret = seconds;
	return true;
}

static bool parse_kind(struct api_params *p, struct api_error *e)
{
	const char *user = NULL;

	if (!api_string(p->root, "model", &p->model, e) || !api_string(p->root, "user", &user, e) ||
	    !api_string(p->root, "cache_salt", &p->cache_salt, e) ||
	    !api_number(p->root, "timeout", 0.001, 86400, &p->timeout, e) ||
	    !api_int(p->root, "priority", -API_MAX_PRIORITY, API_MAX_PRIORITY, &p->priority, e) ||
	    !api_parse_keep_alive(p->root, &p->keep_alive_given, &p->keep_alive, e))
		return false;
	if (p->cache_salt && !*p->cache_salt)
		return api_error_set(e, 400, NULL, "cache_salt", "cache_salt must not be empty");
	switch (p->kind) {
	case API_EMBEDDING: return parse_embedding(p, e);
	case API_FORWARD: return api_parse_forward(p, e);
	case API_TOKENIZE:
	case API_DETOKENIZE: return parse_tokenize(p, e);
	default: return parse_generation(p, e);
	}
}

bool api_params_parse(enum api_kind kind, const char *body, size_t len, struct api_params *ret,
		      struct api_error *e)
{
	struct api_params p = {.kind = kind};
	char err[256];
	bool ok;

	if (api_count_values(body, len, API_MAX_VALUES) > API_MAX_VALUES)
		return api_error_set(e, 400, NULL, NULL, "the JSON body has more than %d values",
				     API_MAX_VALUES);
	p.root = txda_json_parse(body, len, err, sizeof(err));
	if (!p.root)
		return api_error_set(e, 400, NULL, NULL, "the body is not valid JSON: %s", err);
	if (!cJSON_IsObject(p.root)) {
		cJSON_Delete(p.root);
		return api_error_set(e, 400, NULL, NULL, "the body must be a JSON object");
	}
	/*
	 * Records number literals that a double cannot represent; only numbers above 2^53 need
	 * this.
	 */
	ok = !txda_template_mark_numbers(p.root, body, len) ||
	     api_error_set(e, 500, NULL, NULL, "out of memory");
	ok = ok && api_check_duplicates(p.root, e) &&
	     api_fields_check(kind, p.root, p.ignored, e) && parse_kind(&p, e) &&
	     api_fields_settle(kind, p.root, p.ignored, e);
	if (!ok) {
		api_params_free(&p);
		return false;
	}
	*ret = p;
	return true;
}

const char *api_prompt_name(const struct api_params *p, const char *name, unsigned i,
			    char buf[API_PROMPT_NAME])
{
	if (p->n_prompts < 2)
		return name;
	snprintf(buf, API_PROMPT_NAME, "%s[%u]", name, i);
	return buf;
}

void api_params_free(struct api_params *p)
{
	for (unsigned i = 0; i < p->n_prompts; i++)
		free(p->prompts[i].ids);
	free(p->prompts);
	free(p->biases);
	free(p->row_list);
	api_format_free(&p->format);
	cJSON_Delete(p->images);
	cJSON_Delete(p->root);
	*p = (struct api_params){0};
}
