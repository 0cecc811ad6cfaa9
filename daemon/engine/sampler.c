// SPDX-License-Identifier: MIT
#include "sampler.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "sampler_internal.h"

int sampler_new(unsigned vocab, unsigned k, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->vocab = vocab;
	s->k = k < SAMPLER_MAX_TOPK ? k : SAMPLER_MAX_TOPK;
	s->fetched = calloc(vocab, sizeof(*s->fetched));
	s->list = calloc(vocab, sizeof(*s->list));
	s->list_logits = calloc(vocab, sizeof(*s->list_logits));
	s->list_sum = calloc((size_t)vocab + 1, sizeof(*s->list_sum));
	s->adjusted = calloc(vocab, sizeof(*s->adjusted));
	s->adjusted_at = calloc(vocab, sizeof(*s->adjusted_at));
	s->weights = calloc(vocab, sizeof(*s->weights));
	s->sorted = calloc((size_t)vocab + ENGINE_MAX_STOP_TOKENS, sizeof(*s->sorted));
	if (!s->fetched || !s->list || !s->list_logits || !s->list_sum || !s->adjusted ||
	    !s->adjusted_at || !s->weights || !s->sorted) {
		sampler_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	free(s->fetched);
	free(s->list);
	free(s->list_logits);
	free(s->list_sum);
	free(s->adjusted);
	free(s->adjusted_at);
	free(s->weights);
	free(s->sorted);
	free(s);
}

uint64_t sampler_bytes_read(const struct sampler *s)
{
	return s->bytes_read;
}

double sampler_uniform(uint64_t seed, uint64_t position)
{
	uint64_t key = hash_spread(seed + HASH_GOLDEN);
	uint64_t bits = hash_spread(key ^ hash_spread(position * HASH_GOLDEN + 1));

	return (double)(hash_spread(bits + key) >> 11) * 0x1p-53;
}

void sampler_fetch(struct sampler *s, struct sampler_row *row)
{
	if (row->fetched)
		return;
	memcpy(s->fetched, row->logits, row->vocab * sizeof(*row->logits));
	s->bytes_read += row->vocab * sizeof(*row->logits);
	row->logits = s->fetched;
	row->fetched = true;
}

float sampler_logprob(struct sampler *s, struct sampler_row *row, int32_t token)
{
	for (unsigned i = 0; i < row->k; i++) {
		if (row->topk_ids[i] == token)
			return row->topk_logits[i] - row->lse;
	}
	return sampler_read(s, row, token) - row->lse;
}

void sampler_top(struct sampler *s, struct sampler_row *row, unsigned n, struct engine_logprob *ret)
{
	unsigned found = 0;

	if (n > row->vocab)
		n = row->vocab;
	if (n <= row->k) {
		for (; found < n; found++)
			ret[found] = (struct engine_logprob){
				row->topk_ids[found],
				row->topk_logits[found] - row->lse,
			};
		return;
	}
	sampler_fetch(s, row);
	for (unsigned t = 0; t < row->vocab; t++) {
		float logprob = row->logits[t] - row->lse;
		unsigned i = found < n ? found++ : n;

		for (; i > 0 && ret[i - 1].logprob < logprob; i--) {
			if (i < n)
				ret[i] = ret[i - 1];
		}
		if (i < n)
			ret[i] = (struct engine_logprob){(int32_t)t, logprob};
	}
}

static bool biases_are_finite(const struct engine_sampling *p)
{
	for (unsigned i = 0; i < p->n_biases; i++) {
		if (!isfinite(p->biases[i].bias))
			return false;
	}
	return true;
}

bool sampler_is_stop(const struct engine_sampling *p, int32_t token)
{
	for (unsigned i = 0; i < p->n_stop_tokens; i++) {
		if (p->stop_tokens[i] == token)
			return true;
	}
	return false;
}

bool sampler_needs_counts(const struct engine_sampling *p)
{
	return (p->repetition_penalty != 0 && p->repetition_penalty != 1) ||
	       p->presence_penalty != 0 || p->frequency_penalty != 0;
}

int sampler_check(const struct engine_sampling *p, char *err, size_t errlen)
{
	if (!(p->temperature >= 0) || p->temperature > 100)
		snprintf(err, errlen, "temperature %g is not between 0 and 100",
			 (double)p->temperature);
	else if (!(p->top_p > 0 && p->top_p <= 1))
		snprintf(err, errlen, "top_p %g is not above 0 and at most 1", (double)p->top_p);
	else if (!(p->min_p >= 0 && p->min_p <= 1))
		snprintf(err, errlen, "min_p %g is not between 0 and 1", (double)p->min_p);
	else if (p->top_k < 0)
		snprintf(err, errlen, "top_k %d is negative", p->top_k);
	else if (p->logprobs < -1 || p->logprobs > ENGINE_MAX_LOGPROBS)
		snprintf(err, errlen, "logprobs %d is not between 0 and %d", p->logprobs,
			 ENGINE_MAX_LOGPROBS);
	else if (p->n_stop_tokens > ENGINE_MAX_STOP_TOKENS)
		snprintf(err, errlen, "%u stop tokens; the limit is %d", p->n_stop_tokens,
			 ENGINE_MAX_STOP_TOKENS);
	else if (!p->max_tokens)
		snprintf(err, errlen, "max_tokens 0 is less than 1");
	else if (!(p->repetition_penalty >= 0 && p->repetition_penalty <= 1000))
		snprintf(err, errlen, "repetition_penalty %g is not between 0 and 1000",
			 (double)p->repetition_penalty);
	else if (!(fabsf(p->presence_penalty) <= 1000 && fabsf(p->frequency_penalty) <= 1000))
		snprintf(
			err, errlen,
			"presence_penalty %g or frequency_penalty %g is not between -1000 and 1000",
			(double)p->presence_penalty, (double)p->frequency_penalty);
	else if (p->n_biases > ENGINE_MAX_BIASES)
		snprintf(err, errlen, "%u biases; the limit is %d", p->n_biases, ENGINE_MAX_BIASES);
	else if (!biases_are_finite(p))
		snprintf(err, errlen, "a bias is not finite");
	else
		return 0;
	return -EINVAL;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static int choose_best(struct sampler *s, int32_t *ret_token)
{
	float best = -INFINITY;
	int32_t token = -1;

	if (s->n_list) {
		*ret_token = s->list[0];
		return 0;
	}
	sampler_fetch(s, s->row);
	for (unsigned t = 0; t < s->row->vocab; t++) {
		float logit = sampler_logit(s, (int32_t)t);

		if (logit > best && sampler_allows(s, (int32_t)t)) {
			best = logit;
			token = (int32_t)t;
		}
	}
	if (token < 0)
		return s->rules.mask ? -ENOENT : -EDOM;
	*ret_token = token;
	return 0;
}

int sampler_choose(struct sampler *s, struct sampler_row *row, const struct engine_sampling *p,
		   uint64_t position, const struct sampler_rules *rules, int32_t *ret_token)
{
	static const struct sampler_rules none;
	int error;
	double u;

	s->row = row;
	s->p = p;
	s->rules = rules ? *rules : none;
	error = sampler_make_list(s);
	if (!error && s->whole && !s->n_list)
		error = -ENOENT;
	if (error) {
		sampler_drop_list(s);
		return error;
	}
	/*
	 * Below this temperature, logits that differ at all differ by more than a double can
	 * represent as a weight.
	 */
	if (p->temperature < 1e-5f || p->top_k == 1) {
		error = choose_best(s, ret_token);
	} else {
		u = sampler_uniform(p->seed, position);
		sampler_weigh_list(s);
		if (!s->n_list || !sampler_choose_from_list(s, u, ret_token))
			error = sampler_choose_from_row(s, u, ret_token);
	}
	sampler_drop_list(s);
	return error;
}
