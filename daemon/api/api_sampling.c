// SPDX-License-Identifier: MIT
/* Sampling parameters: temperature and the like, penalties, biases, number of answers, beams. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_params.h"
#include "api_value.h"

/* Parses a key of logit_bias as a token id; -1: not a token id. */
static int64_t token_key(const char *key)
{
	char *end;
	long long id = strtoll(key, &end, 10);

	if (*key < '0' || *key > '9' || *end || id > INT32_MAX || (*key == '0' && key[1]))
		return -1;
	return id;
}

static bool parse_biases(struct api_params *p, struct api_error *e)
{
	const cJSON *bias = api_member(p->root, "logit_bias"), *item;
	char buf[96];
	int n;

	if (!bias)
		return true;
	if (!cJSON_IsObject(bias))
		return api_error_set(e, 400, NULL, "logit_bias",
				     "logit_bias must be an object, not %s",
				     api_describe(bias, buf, sizeof(buf)));
	n = cJSON_GetArraySize(bias);
	if (n > API_MAX_BIASES)
		return api_error_set(e, 400, NULL, "logit_bias",
				     "logit_bias has %d tokens; the limit is %d", n,
				     API_MAX_BIASES);
	p->biases = calloc((size_t)n + 1, sizeof(*p->biases));
	if (!p->biases)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	cJSON_ArrayForEach(item, bias) {
		int64_t id = token_key(item->string);

		if (id < 0)
			return api_error_set(
				e, 400, NULL, "logit_bias",
				"logit_bias has the key \"%.40s\", which is not a token id",
				item->string);
		if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 100))
			return api_error_set(
				e, 400, NULL, "logit_bias",
				"logit_bias must hold numbers between -100 and 100, not %s",
				api_describe(item, buf, sizeof(buf)));
		p->biases[p->n_biases++] = (struct api_bias){(int32_t)id, (float)item->valuedouble};
	}
	return true;
}

static bool parse_numbers(struct api_params *p, struct api_error *e)
{
	const cJSON *root = p->root;

	p->temperature = p->top_p = p->min_p = p->repetition_penalty = NAN;
	p->top_k = -1;
	p->seed_given = api_member(root, "seed");
	if (!api_number(root, "temperature", 0, 2, &p->temperature, e) ||
	    !api_number(root, "top_p", 0, 1, &p->top_p, e) ||
	    !api_number(root, "min_p", 0, 1, &p->min_p, e) ||
	    !api_int(root, "top_k", -1, INT32_MAX, &p->top_k, e) ||
	    !api_int(root, "seed", INT64_MIN, INT64_MAX, &p->seed, e) ||
	    !api_number(root, "repetition_penalty", 0.01, 100, &p->repetition_penalty, e) ||
	    !api_number(root, "presence_penalty", -2, 2, &p->presence_penalty, e) ||
	    !api_number(root, "frequency_penalty", -2, 2, &p->frequency_penalty, e))
		return false;
	if (p->top_k == -1 && api_member(root, "top_k"))
		p->top_k = 0;
	return true;
}

/* ---- beams ----------------------------------------------------------------------------------- */

/* Parameters that beam search does not implement, and which are therefore refused with it. */
static bool check_beams(const struct api_params *p, struct api_error *e)
{
	const char *param = NULL;

	if (p->stream)
		param = "stream";
	else if (p->n_stop)
		param = "stop";
	else if (p->format.form)
		param = p->format.param;
	else if (p->n_biases)
		param = "logit_bias";
	else if (p->presence_penalty != 0)
		param = "presence_penalty";
	else if (p->frequency_penalty != 0)
		param = "frequency_penalty";
	else if (p->repetition_penalty > 0 && p->repetition_penalty != 1)
		param = "repetition_penalty";
	else if (p->min_tokens)
		param = "min_tokens";
	else if (p->thinking_budget != API_NO_BUDGET)
		param = "thinking_budget";
	else if (p->echo)
		param = "echo";
	if (param)
		return api_error_set(e, 400, "unsupported_value", param,
				     "%s is not supported together with use_beam_search", param);
	return true;
}

static bool parse_early_stopping(struct api_params *p, struct api_error *e)
{
	const cJSON *value = api_member(p->root, "early_stopping");
	char buf[96];

	if (!value || cJSON_IsFalse(value))
		return true;
	if (cJSON_IsTrue(value))
		p->early_stopping = API_STOP_AT_WIDTH;
	else if (cJSON_IsString(value) && !strcmp(value->valuestring, "never"))
		p->early_stopping = API_STOP_NEVER;
	else
		return api_error_set(e, 400, NULL, "early_stopping",
				     "early_stopping must be true, false or \"never\", not %s",
				     api_describe(value, buf, sizeof(buf)));
	return true;
}

static void leave(const cJSON *root, const char *const *names)
{
	for (; *names; names++)
		api_leave(root, *names);
}

static bool parse_beams(struct api_params *p, struct api_error *e)
{
	static const char *const of_beams[] = {"beam_width", "length_penalty", "early_stopping",
					       NULL};
	/* Beams are the likeliest answers, whatever is sampled otherwise. */
	static const char *const of_samples[] = {"temperature", "top_p", "top_k",
						 "min_p",	"seed",	 NULL};
	unsigned width = p->best_of > p->n ? p->best_of : p->n;
	bool wanted = false;

	p->length_penalty = 1;
	if (!api_bool(p->root, "use_beam_search", &wanted, e) ||
	    !api_number(p->root, "length_penalty", -10, 10, &p->length_penalty, e) ||
	    !parse_early_stopping(p, e))
		return false;
	if (!wanted) {
		leave(p->root, of_beams);
		return true;
	}
	leave(p->root, of_samples);
	if (width > API_MAX_BEAMS)
		return api_error_set(e, 400, NULL, p->best_of > p->n ? "best_of" : "n",
				     "%u answers by beam search; the limit is %d", width,
				     API_MAX_BEAMS);
	if (!api_unsigned(p->root, "beam_width", width, API_MAX_BEAMS, &width, e))
		return false;
	p->beam_width = width;
	p->best_of = p->n;
	return check_beams(p, e);
}

bool api_parse_sampling(struct api_params *p, struct api_error *e)
{
	if (!parse_numbers(p, e) || !parse_biases(p, e))
		return false;
	p->best_of = p->n;
	if (!api_unsigned(p->root, "best_of", p->n, API_MAX_N, &p->best_of, e))
		return false;
	if (p->best_of > p->n && p->stream)
		return api_error_set(
			e, 400, NULL, "best_of",
			"best_of is %u: the best of several answers cannot be streamed",
			p->best_of);
	return parse_beams(p, e);
}
