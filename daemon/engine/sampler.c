// SPDX-License-Identifier: MIT
#include "sampler.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How far the exponential of the device's float32 lse may be off, relatively. A draw so close to a
 * boundary is decided by the full row.
 */
#define LSE_SLACK 3e-5
#define N_BUCKETS 2048 /* of the tail's weights, by logarithm */

struct ranked {
	double weight;
	int32_t token;
};

struct sampler {
	uint64_t full_rows;
	unsigned vocab, k;
	/* The list without masked tokens; weights relative to the best, after temperature. */
	unsigned n_list;
	int32_t list[SAMPLER_MAX_TOPK];
	float list_logits[SAMPLER_MAX_TOPK];
	double list_sum[SAMPLER_MAX_TOPK + 1]; /* [i]: weight of the first i */
	/* The full row. */
	double *weights;       /* [vocab], 0 for tokens of the list and masked ones */
	struct ranked *sorted; /* [vocab] the bucket in which a limit falls */
	double bucket_sum[N_BUCKETS];
	unsigned bucket_count[N_BUCKETS];
};

int sampler_new(unsigned vocab, unsigned k, struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->vocab = vocab;
	s->k = k < SAMPLER_MAX_TOPK ? k : SAMPLER_MAX_TOPK;
	s->weights = calloc(vocab, sizeof(*s->weights));
	s->sorted = calloc(vocab, sizeof(*s->sorted));
	if (!s->weights || !s->sorted) {
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
	free(s->weights);
	free(s->sorted);
	free(s);
}

uint64_t sampler_full_rows(const struct sampler *s)
{
	return s->full_rows;
}

/* A bijection of 64 bits that spreads each input bit over all output bits. */
static uint64_t scramble(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	x ^= x >> 31;
	return x;
}

double sampler_uniform(uint64_t seed, uint64_t position)
{
	uint64_t key = scramble(seed + 0x9e3779b97f4a7c15ull);
	uint64_t bits = scramble(key ^ scramble(position * 0x9e3779b97f4a7c15ull + 1));

	return (double)(scramble(bits + key) >> 11) * 0x1p-53;
}

float sampler_logprob(const struct sampler_row *row, int32_t token)
{
	return row->logits[token] - row->lse;
}

void sampler_top(const struct sampler_row *row, unsigned n, struct engine_logprob *ret)
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

int sampler_check(const struct engine_sampling *p, char *err, size_t errlen)
{
	if (!(p->temperature >= 0) || p->temperature > 100)
		snprintf(err, errlen, "temperature %g is not within 0 to 100",
			 (double)p->temperature);
	else if (!(p->top_p > 0 && p->top_p <= 1))
		snprintf(err, errlen, "top_p %g is not above 0 and at most 1", (double)p->top_p);
	else if (!(p->min_p >= 0 && p->min_p <= 1))
		snprintf(err, errlen, "min_p %g is not within 0 to 1", (double)p->min_p);
	else if (p->top_k < 0)
		snprintf(err, errlen, "top_k %d is negative", p->top_k);
	else if (p->logprobs < -1 || p->logprobs > ENGINE_MAX_LOGPROBS)
		snprintf(err, errlen, "logprobs %d is not within 0 to %d", p->logprobs,
			 ENGINE_MAX_LOGPROBS);
	else if (p->n_stop_tokens > ENGINE_MAX_STOP_TOKENS)
		snprintf(err, errlen, "%u stop tokens are more than %d", p->n_stop_tokens,
			 ENGINE_MAX_STOP_TOKENS);
	else if (!p->max_tokens)
		snprintf(err, errlen, "max_tokens 0 is less than 1");
	else
		return 0;
	return -EINVAL;
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool is_masked(const struct engine_sampling *p, bool mask_stops, int32_t token)
{
	for (unsigned i = 0; mask_stops && i < p->n_stop_tokens; i++) {
		if (p->stop_tokens[i] == token)
			return true;
	}
	return false;
}

/* Fills s->list. -EDOM if the device's is none. */
static int take_list(struct sampler *s, const struct sampler_row *row,
		     const struct engine_sampling *p, bool mask_stops)
{
	unsigned k = row->k < s->k ? row->k : s->k;

	s->n_list = 0;
	if (!isfinite(row->lse))
		return -EDOM;
	for (unsigned i = 0; i < k; i++) {
		int32_t token = row->topk_ids[i];

		if (token < 0 || (unsigned)token >= row->vocab || !isfinite(row->topk_logits[i]))
			return -EDOM;
		if (is_masked(p, mask_stops, token))
			continue;
		s->list[s->n_list] = token;
		s->list_logits[s->n_list++] = row->topk_logits[i];
	}
	return 0;
}

static void weigh_list(struct sampler *s, double temperature)
{
	s->list_sum[0] = 0;
	for (unsigned i = 0; i < s->n_list; i++)
		s->list_sum[i + 1] =
			s->list_sum[i] +
			exp(((double)s->list_logits[i] - s->list_logits[0]) / temperature);
}

static bool first_of_its_kind(const struct engine_sampling *p, unsigned i)
{
	for (unsigned j = 0; j < i; j++) {
		if (p->stop_tokens[j] == p->stop_tokens[i])
			return false;
	}
	return true;
}

/*
 * Bounds the weight, after temperature, of all tokens outside the list. Without temperature it is
 * known from lse as the rest r of m tokens, each at most as heavy as the list's last, w. To the
 * power a = 1 / temperature each then weighs between: a >= 1: sum x^a >= m (r/m)^a and <= r
 * w^(a-1); a < 1: the other way round.
 */
static void bound_tail(const struct sampler *s, const struct sampler_row *row,
		       const struct engine_sampling *p, bool mask_stops, double *ret_low,
		       double *ret_high)
{
	double best = s->list_logits[0], a = 1 / (double)p->temperature;
	double total = exp((double)row->lse - best), slack = total * LSE_SLACK, listed = 0;
	double last = exp(s->list_logits[s->n_list - 1] - best);
	double m = (double)(row->vocab - s->n_list), low, high, bend_low, bend_high;

	*ret_low = 0;
	*ret_high = m * pow(last, a);
	if (!(*ret_high > 0) || !isfinite(total))
		return;
	for (unsigned i = 0; i < s->n_list; i++)
		listed += exp(s->list_logits[i] - best);
	for (unsigned i = 0; mask_stops && i < p->n_stop_tokens; i++) {
		if (first_of_its_kind(p, i) && (unsigned)p->stop_tokens[i] < row->vocab)
			listed += exp(row->logits[p->stop_tokens[i]] - best);
	}
	low = fmax(total - listed - slack, 0);
	high = fmin(fmax(total - listed + slack, 0), m * last);
	if (!(low <= high))
		return; /* lse and list contradict each other, or are not finite */
	bend_low = m * pow(low / m, a);
	bend_high = m * pow(high / m, a);
	if (a >= 1) {
		*ret_low = bend_low;
		*ret_high = fmin(*ret_high, high * pow(last, a - 1));
	} else {
		*ret_low = low * pow(last, a - 1);
		*ret_high = fmin(*ret_high, bend_high);
	}
	*ret_low *= 1 - 1e-9;
	*ret_high *= 1 + 1e-9;
}

/* How many of the list's best reach @mass; n_list + 1 if they do not. */
static unsigned list_reach(const struct sampler *s, double mass)
{
	unsigned n = 1;

	while (n <= s->n_list && s->list_sum[n] < mass)
		n++;
	return n;
}

/* The first of the list's best @n whose cumulative weight is above @target. */
static unsigned list_draw(const struct sampler *s, unsigned n, double target)
{
	unsigned i = 0;

	while (i + 1 < n && s->list_sum[i + 1] <= target)
		i++;
	return i;
}

/* Chooses by the list alone; false if that cannot decide. */
static bool choose_by_list(struct sampler *s, const struct sampler_row *row,
			   const struct engine_sampling *p, bool mask_stops, double u,
			   int32_t *ret_token)
{
	unsigned n = s->n_list, by_min_p = n + 1, least, most;
	double low = 0, high = 0, sum = s->list_sum[n];

	if (p->top_k > 0 && (unsigned)p->top_k <= n) {
		n = (unsigned)p->top_k;
		sum = s->list_sum[n];
	} else {
		bound_tail(s, row, p, mask_stops, &low, &high);
		if (p->top_k > 0) {
			low = 0;
			high = fmin(high,
				    (p->top_k - (double)n) * (s->list_sum[n] - s->list_sum[n - 1]));
		}
	}
	if (p->min_p > 0) {
		for (by_min_p = 1; by_min_p < n; by_min_p++) {
			if (s->list_sum[by_min_p + 1] - s->list_sum[by_min_p] < p->min_p)
				break;
		}
		if (by_min_p == n)
			by_min_p = high > 0 ? s->n_list + 1 : n;
	}
	if (p->top_p < 1) {
		least = list_reach(s, p->top_p * (sum + low));
		most = list_reach(s, p->top_p * (sum + high));
	} else {
		least = most = high > 0 ? s->n_list + 1 : n;
	}
	least = by_min_p < least ? by_min_p : least;
	most = by_min_p < most ? by_min_p : most;
	if (least == most && most <= n) {
		*ret_token = s->list[list_draw(s, most, u * s->list_sum[most])];
		return true;
	}
	if (p->top_p < 1 || p->min_p > 0)
		return false;
	/* All that top_k left: the draw may fall into the list whatever the tail weighs. */
	least = list_draw(s, n + 1, u * (sum + low));
	most = list_draw(s, n + 1, u * (sum + high));
	if (least != most || most >= n)
		return false;
	*ret_token = s->list[most];
	return true;
}

/* ---- the full row ---------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->token < y->token ? -1 : x->token > y->token;
}

/* Bucket 0 has the heaviest. */
static unsigned bucket_of(double weight)
{
	int exponent;
	double mantissa =
		frexp(weight, &exponent); /* weight = mantissa * 2^exponent, 0.5 <= mantissa < 1 */
	double at = (1 - exponent) * 32 - (mantissa - 0.5) * 64 + 32;

	return at < 0 ? 0 : at >= N_BUCKETS ? N_BUCKETS - 1 : (unsigned)at;
}

/*
 * Keeps the best tokens of the tail until @count of them or @mass are reached, the one that reaches
 * it included: clears the weights of the others. Returns the weight that is left.
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
	qsort(s->sorted, n_sorted, sizeof(*s->sorted), by_rank);
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

/* Weights of all tokens outside the list, their sum. The list may be empty: then everything is
 * outside. */
static double weigh_tail(struct sampler *s, const struct sampler_row *row,
			 const struct engine_sampling *p, bool mask_stops, double best)
{
	double sum = 0;

	for (unsigned t = 0; t < row->vocab; t++)
		s->weights[t] =
			row->logits[t] <= best ? exp((row->logits[t] - best) / p->temperature) : 0;
	for (unsigned i = 0; mask_stops && i < p->n_stop_tokens; i++) {
		if (p->stop_tokens[i] >= 0 && (unsigned)p->stop_tokens[i] < row->vocab)
			s->weights[p->stop_tokens[i]] = 0;
	}
	for (unsigned i = 0; i < s->n_list; i++)
		s->weights[s->list[i]] = 0;
	for (unsigned t = 0; t < row->vocab; t++)
		sum += s->weights[t];
	return sum;
}

static int choose_by_row(struct sampler *s, const struct sampler_row *row,
			 const struct engine_sampling *p, bool mask_stops, double u,
			 int32_t *ret_token)
{
	unsigned n = s->n_list, limit;
	double tail, sum = s->list_sum[n], best = n ? s->list_logits[0] : -INFINITY, target;
	int32_t last = -1;

	s->full_rows++;
	if (!n) {
		for (unsigned t = 0; t < row->vocab; t++) {
			if (!is_masked(p, mask_stops, (int32_t)t) && row->logits[t] > best)
				best = row->logits[t];
		}
	}
	if (!isfinite(best))
		return -EDOM;
	tail = weigh_tail(s, row, p, mask_stops, best);
	if (p->top_k > 0 && (unsigned)p->top_k <= n) {
		n = (unsigned)p->top_k;
		sum = s->list_sum[n];
		tail = 0;
	} else if (p->top_k > 0) {
		tail = keep_best(s, (unsigned)p->top_k - n, INFINITY);
	}
	if (p->top_p < 1) {
		double mass = p->top_p * (sum + tail);

		limit = list_reach(s, mass);
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
		*ret_token = s->list[list_draw(s, n, target)];
		return 0;
	}
	for (unsigned t = 0; t < row->vocab && (last < 0 || sum <= target); t++) {
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

/* ---- the choice ------------------------------------------------------------------------------ */

static int choose_best(const struct sampler *s, const struct sampler_row *row,
		       const struct engine_sampling *p, bool mask_stops, int32_t *ret_token)
{
	float best = -INFINITY;
	int32_t token = -1;

	if (s->n_list) {
		*ret_token = s->list[0];
		return 0;
	}
	for (unsigned t = 0; t < row->vocab; t++) {
		if (row->logits[t] > best && !is_masked(p, mask_stops, (int32_t)t)) {
			best = row->logits[t];
			token = (int32_t)t;
		}
	}
	if (token < 0)
		return -EDOM;
	*ret_token = token;
	return 0;
}

static int choose(struct sampler *s, const struct sampler_row *row, const struct engine_sampling *p,
		  uint64_t position, bool mask_stops, bool by_row, int32_t *ret_token)
{
	int error = take_list(s, row, p, mask_stops);
	double u;

	if (error)
		return error;
	/* Colder than this, logits that differ at all differ by more than a double can weigh. */
	if (p->temperature < 1e-5f || p->top_k == 1)
		return choose_best(s, row, p, mask_stops, ret_token);
	u = sampler_uniform(p->seed, position);
	weigh_list(s, p->temperature);
	if (!by_row && s->n_list && choose_by_list(s, row, p, mask_stops, u, ret_token))
		return 0;
	return choose_by_row(s, row, p, mask_stops, u, ret_token);
}

int sampler_choose(struct sampler *s, const struct sampler_row *row,
		   const struct engine_sampling *p, uint64_t position, bool mask_stops,
		   int32_t *ret_token)
{
	return choose(s, row, p, position, mask_stops, false, ret_token);
}

int sampler_choose_by_row(struct sampler *s, const struct sampler_row *row,
			  const struct engine_sampling *p, uint64_t position, bool mask_stops,
			  int32_t *ret_token)
{
	return choose(s, row, p, position, mask_stops, true, ret_token);
}
