// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler_internal.h"

int sampler_by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->token < y->token ? -1 : x->token > y->token;
}

/* Bucket 0 has the largest weights. */
static unsigned bucket_of(double weight)
{
	int exponent;
	double mantissa =
		frexp(weight, &exponent); /* weight = mantissa * 2^exponent, 0.5 <= mantissa < 1 */
	double at = (1 - exponent) * 32 - (mantissa - 0.5) * 64 + 32;

	return at < 0 ? 0 : at >= N_BUCKETS ? N_BUCKETS - 1 : (unsigned)at;
}

/*
 * Keeps the best tokens of the tail until @count of them or @mass are reached, including the one
 * that reaches it: clears the weights of the others. Returns the remaining weight.
 */
static double keep_best(struct sampler *s, unsigned count, double mass)
{
	unsigned bucket, n = 0, n_sorted = 0, kept = 0;
	double sum = 0, all = 0;

	memset(s->bucket_sum, 0, sizeof(s->bucket_sum));
	memset(s->bucket_count, 0, sizeof(s->bucket_count));
	for (unsigned t = 0; t < s->vocab; t++) {
		if (s->weights[t] > 0) {
			bucket = bucket_of(s->weights[t]);
			s->bucket_sum[bucket] += s->weights[t];
			s->bucket_count[bucket]++;
			all += s->weights[t];
		}
	}
	for (bucket = 0; bucket < N_BUCKETS; bucket++) {
		if (n + s->bucket_count[bucket] > count || sum + s->bucket_sum[bucket] >= mass)
			break;
		n += s->bucket_count[bucket];
		sum += s->bucket_sum[bucket];
	}
	if (bucket == N_BUCKETS)
		return all;
	for (unsigned t = 0; t < s->vocab; t++) {
		unsigned mine = s->weights[t] > 0 ? bucket_of(s->weights[t]) : 0;

		if (!(s->weights[t] > 0) || mine < bucket)
			continue;
		if (mine == bucket)
			s->sorted[n_sorted++] = (struct ranked){s->weights[t], (int32_t)t};
		s->weights[t] = 0;
	}
	qsort(s->sorted, n_sorted, sizeof(*s->sorted), sampler_by_rank);
	while (kept < n_sorted && n < count && sum < mass) {
		s->weights[s->sorted[kept].token] = s->sorted[kept].weight;
		sum += s->sorted[kept++].weight;
		n++;
	}
	return sum;
}

static double keep_above(struct sampler *s, double least)
{
	double sum = 0;

	for (unsigned t = 0; t < s->vocab; t++) {
		if (s->weights[t] < least)
			s->weights[t] = 0;
		sum += s->weights[t];
	}
	return sum;
}

static double weight_of(const struct sampler *s, float logit, double best)
{
	return logit <= best ? exp((logit - best) / s->p->temperature) : 0;
}

/* Computes the weights of the row's tokens without adjustment, 0 for masked ones. */
static void weigh_row(struct sampler *s, double best)
{
	const struct engine_mask *mask = s->rules.mask;
	const uint32_t *bits = mask ? mask->bits : NULL;

	for (unsigned t = 0; t < s->vocab; t++) {
		if (bits && !(bits[t / 32] >> (t % 32) & 1))
			s->weights[t] = 0;
		else
			s->weights[t] = weight_of(s, s->row->logits[t], best);
	}
}

static void weigh_token(struct sampler *s, int32_t token, double best)
{
	if (token >= 0 && (unsigned)token < s->vocab)
		s->weights[token] =
			sampler_allows(s, token) ? weight_of(s, sampler_logit(s, token), best) : 0;
}

/*
 * Weights of all tokens outside the list, and their sum. The list may be empty: then of all tokens.
 */
static double weigh_tail(struct sampler *s, double best)
{
	double sum = 0;

	if (s->whole) {
		memset(s->weights, 0, s->vocab * sizeof(*s->weights));
		return 0;
	}
	weigh_row(s, best);
	for (unsigned i = 0; i < s->n_adjusted; i++)
		weigh_token(s, s->adjusted[i].token, best);
	for (unsigned i = 0; i < s->p->n_stop_tokens; i++)
		weigh_token(s, s->p->stop_tokens[i], best);
	for (unsigned i = 0; i < s->n_list; i++)
		s->weights[s->list[i]] = 0;
	for (unsigned t = 0; t < s->vocab; t++)
		sum += s->weights[t];
	return sum;
}

/* The best logit of the allowed tokens. */
static double find_best(struct sampler *s)
{
	double best = s->n_list ? s->list_logits[0] : -INFINITY;

	for (unsigned t = 0; !s->n_list && t < s->vocab; t++) {
		if (sampler_logit(s, (int32_t)t) > best && sampler_allows(s, (int32_t)t))
			best = sampler_logit(s, (int32_t)t);
	}
	return best;
}

int sampler_choose_from_row(struct sampler *s, double u, int32_t *ret_token)
{
	const struct engine_sampling *p = s->p;
	unsigned n = s->n_list, limit;
	double tail, sum = s->list_sum[n], best, target;
	int32_t last = -1;

	sampler_fetch(s, s->row);
	best = find_best(s);
	if (!isfinite(best))
		return best < 0 && s->rules.mask ? -ENOENT : -EDOM;
	tail = weigh_tail(s, best);
	if (p->top_k > 0 && (unsigned)p->top_k <= n) {
		n = (unsigned)p->top_k;
		sum = s->list_sum[n];
		tail = 0;
	} else if (p->top_k > 0) {
		tail = keep_best(s, (unsigned)p->top_k - n, INFINITY);
	}
	if (p->top_p < 1) {
		double mass = p->top_p * (sum + tail);

		limit = sampler_list_reach(s, mass);
		if (limit <= n) {
			n = limit;
			tail = 0;
		} else if (tail > 0) {
			tail = keep_best(s, s->vocab, mass - sum);
		}
		sum = s->list_sum[n];
	}
	if (p->min_p > 0) {
		for (limit = n ? 1 : 0; limit < n; limit++) {
			if (s->list_sum[limit + 1] - s->list_sum[limit] < p->min_p)
				break;
		}
		tail = limit < n ? 0 : tail;
		n = limit;
		sum = s->list_sum[n];
		if (tail > 0)
			tail = keep_above(s, p->min_p);
	}
	target = u * (sum + tail);
	if (n && (target < sum || !(tail > 0))) {
		*ret_token = s->list[sampler_list_draw(s, n, target)];
		return 0;
	}
	for (unsigned t = 0; t < s->vocab && (last < 0 || sum <= target); t++) {
		if (s->weights[t] > 0) {
			sum += s->weights[t];
			last = (int32_t)t;
		}
	}
	if (last < 0)
		return -EDOM;
	*ret_token = last;
	return 0;
}
