// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler_internal.h"
#include "token_counts.h"

/*
 * Maximum relative error of the exponential of the device's float32 lse. A draw so close to a
 * boundary is decided by the full row.
 */
#define LSE_SLACK 3e-5

/* Reading more single logits than this part of a row is slower than reading all of it at once. */
#define MANY_LOGITS 16

/* ---- allowed tokens -------------------------------------------------------------------------- */

bool sampler_allows(const struct sampler *s, int32_t token)
{
	const struct engine_mask *mask = s->rules.mask;

	if (s->rules.mask_stops && sampler_is_stop(s->p, token))
		return false;
	if (!mask || (!mask->bits && !mask->list))
		return true;
	if (mask->end && !s->p->ignore_eos && sampler_is_stop(s->p, token))
		return true;
	if (mask->bits)
		return mask->bits[token / 32] >> (token % 32) & 1;
	for (uint32_t low = 0, high = mask->n; low < high;) {
		uint32_t middle = (low + high) / 2;

		if (mask->list[middle] == token)
			return true;
		if (mask->list[middle] < token)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* ---- adjustment ------------------------------------------------------------------------------ */

/* The token's entry among the adjusted ones; a new one gets its logit from the chip. */
static struct adjusted *adjust(struct sampler *s, int32_t token)
{
	uint32_t *at = &s->adjusted_at[token];

	if (!*at) {
		float raw = sampler_read(s, s->row, token);

		s->adjusted[s->n_adjusted] =
			(struct adjusted){.token = token, .logit = raw, .raw = raw};
		*at = ++s->n_adjusted;
	}
	return &s->adjusted[*at - 1];
}

static float penalised(const struct engine_sampling *p, float logit, uint32_t generated)
{
	if (p->repetition_penalty > 0 && p->repetition_penalty != 1)
		logit = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
	if (generated)
		logit -= p->frequency_penalty * (float)generated + p->presence_penalty;
	return logit;
}

static void adjust_all(struct sampler *s)
{
	const struct token_counts *counts = s->rules.counts;
	const struct engine_sampling *p = s->p;

	if (p->n_biases + (counts ? counts->n : 0) > s->row->vocab / MANY_LOGITS)
		sampler_fetch(s, s->row);
	for (unsigned i = 0; i < p->n_biases; i++) {
		int32_t token = p->biases[i].token;

		if (token >= 0 && (unsigned)token < s->row->vocab)
			adjust(s, token)->logit += p->biases[i].bias;
	}
	for (unsigned i = 0; counts && i < counts->n; i++) {
		const struct token_count *c = &counts->entries[i];

		struct adjusted *a;

		if ((unsigned)c->token >= s->row->vocab)
			continue;
		a = adjust(s, c->token);
		a->logit = penalised(p, a->logit, c->generated);
	}
}

/* ---- building the list ----------------------------------------------------------------------- */

static void list_add(struct sampler *s, int32_t token, float logit)
{
	s->list[s->n_list] = token;
	s->list_logits[s->n_list++] = logit;
}

/* Adds a token to s->sorted, for sorting. False: its logit is invalid. */
static bool note(struct sampler *s, unsigned *n, int32_t token)
{
	float logit = sampler_logit(s, token);

	if (isnan(logit))
		return false;
	s->sorted[(*n)++] = (struct ranked){logit, token};
	return true;
}

/* Under a mask that is a list: all allowed tokens, best first. */
static int take_mask(struct sampler *s)
{
	const struct engine_mask *mask = s->rules.mask;
	unsigned n = 0;

	for (uint32_t i = 0; i < mask->n; i++) {
		if ((unsigned)mask->list[i] < s->row->vocab && sampler_allows(s, mask->list[i]) &&
		    !note(s, &n, mask->list[i]))
			return -EDOM;
	}
	for (unsigned i = 0; i < s->p->n_stop_tokens; i++) {
		int32_t token = s->p->stop_tokens[i];
		bool known =
			token < 0 || (unsigned)token >= s->row->vocab || !sampler_allows(s, token);

		for (unsigned k = 0; !known && k < n; k++)
			known = s->sorted[k].token == token;
		if (!known && !note(s, &n, token))
			return -EDOM;
	}
	qsort(s->sorted, n, sizeof(*s->sorted), sampler_by_rank);
	for (unsigned i = 0; i < n && s->sorted[i].weight > -INFINITY; i++)
		list_add(s, s->sorted[i].token, (float)s->sorted[i].weight);
	s->whole = true;
	return s->n_list && s->list_logits[0] == INFINITY ? -EDOM : 0;
}

/* Adjusted tokens above everything that is not in the device's list, best first. */
static unsigned sort_adjusted(struct sampler *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_adjusted; i++) {
		struct adjusted *a = &s->adjusted[i];

		if (!(a->logit > s->floor) || !sampler_allows(s, a->token))
			continue;
		a->listed = true;
		s->sorted[n++] = (struct ranked){a->logit, a->token};
	}
	qsort(s->sorted, n, sizeof(*s->sorted), sampler_by_rank);
	return n;
}

/* The device's list without forbidden tokens, with adjusted ones merged in. */
static int take_device_list(struct sampler *s)
{
	const struct sampler_row *row = s->row;
	unsigned k = row->k < s->k ? row->k : s->k, n_adjusted, next = 0;

	s->floor = k ? row->topk_logits[k - 1] : INFINITY;
	n_adjusted = sort_adjusted(s);
	for (unsigned i = 0; i < k; i++) {
		int32_t token = row->topk_ids[i];

		if (token < 0 || (unsigned)token >= row->vocab || !isfinite(row->topk_logits[i]))
			return -EDOM;
		if (s->adjusted_at[token] || !sampler_allows(s, token))
			continue;
		for (; next < n_adjusted && s->sorted[next].weight > row->topk_logits[i]; next++)
			list_add(s, s->sorted[next].token, (float)s->sorted[next].weight);
		list_add(s, token, row->topk_logits[i]);
	}
	for (; next < n_adjusted; next++)
		list_add(s, s->sorted[next].token, (float)s->sorted[next].weight);
	return s->n_list && !isfinite(s->list_logits[0]) ? -EDOM : 0;
}

int sampler_make_list(struct sampler *s)
{
	const struct engine_mask *mask = s->rules.mask;

	s->n_list = 0;
	s->whole = false;
	if (!isfinite(s->row->lse))
		return -EDOM;
	adjust_all(s);
	return mask && mask->list ? take_mask(s) : take_device_list(s);
}

void sampler_drop_list(struct sampler *s)
{
	for (unsigned i = 0; i < s->n_adjusted; i++)
		s->adjusted_at[s->adjusted[i].token] = 0;
	s->n_adjusted = 0;
}

/* ---- choosing from it ------------------------------------------------------------------------ */

void sampler_weigh_list(struct sampler *s)
{
	double temperature = s->p->temperature;

	s->list_sum[0] = 0;
	for (unsigned i = 0; i < s->n_list; i++)
		s->list_sum[i + 1] =
			s->list_sum[i] +
			exp(((double)s->list_logits[i] - s->list_logits[0]) / temperature);
}

unsigned sampler_list_reach(const struct sampler *s, double mass)
{
	unsigned n = 1;

	while (n <= s->n_list && s->list_sum[n] < mass)
		n++;
	return n;
}

unsigned sampler_list_draw(const struct sampler *s, unsigned n, double target)
{
	unsigned i = 0;

	while (i + 1 < n && s->list_sum[i + 1] <= target)
		i++;
	return i;
}

static bool first_of_its_kind(const struct engine_sampling *p, unsigned i)
{
	for (unsigned j = 0; j < i; j++) {
		if (p->stop_tokens[j] == p->stop_tokens[i])
			return false;
	}
	return true;
}

static bool in_device_list(const struct sampler *s, int32_t token)
{
	unsigned k = s->row->k < s->k ? s->row->k : s->k;

	for (unsigned i = 0; i < k; i++) {
		if (s->row->topk_ids[i] == token)
			return true;
	}
	return false;
}

/*
 * Tokens that are neither in the device's list nor adjusted nor masked stop tokens: *ret_m is their
 * number; returns their total weight, without temperature and adjustment.
 */
static double known_weight(struct sampler *s, double best, double *ret_m)
{
	const struct engine_sampling *p = s->p;
	const struct sampler_row *row = s->row;
	unsigned k = row->k < s->k ? row->k : s->k;
	double weight = 0, m = row->vocab - k;

	for (unsigned i = 0; i < k; i++)
		weight += exp(row->topk_logits[i] - best);
	for (unsigned i = 0; i < s->n_adjusted; i++) {
		if (in_device_list(s, s->adjusted[i].token))
			continue;
		weight += exp(s->adjusted[i].raw - best);
		m--;
	}
	for (unsigned i = 0; s->rules.mask_stops && i < p->n_stop_tokens; i++) {
		int32_t token = p->stop_tokens[i];

		if (token < 0 || (unsigned)token >= row->vocab || !first_of_its_kind(p, i) ||
		    s->adjusted_at[token] || in_device_list(s, token))
			continue;
		weight += exp(sampler_read(s, row, token) - best);
		m--;
	}
	*ret_m = m;
	return weight;
}

/* The weight, after temperature, of allowed adjusted tokens that are not in the list. */
static double adjusted_tail(const struct sampler *s, double best)
{
	double sum = 0;

	for (unsigned i = 0; i < s->n_adjusted; i++) {
		const struct adjusted *a = &s->adjusted[i];

		if (!a->listed && sampler_allows(s, a->token))
			sum += exp((a->logit - best) / s->p->temperature);
	}
	return sum;
}

/*
 * Bounds the weight, after temperature, of all tokens outside the list. Without temperature it is
 * known from lse as the remainder r of m tokens, each at most as heavy as the last of the device's
 * list, w. Raised to the power a = 1 / temperature, the sum is between: a >= 1: sum x^a >= m
 * (r/m)^a and <= r w^(a-1); a < 1: the other way round. How much of it a mask removes is unknown:
 * then there is no lower bound.
 */
static void bound_tail(struct sampler *s, double *ret_low, double *ret_high)
{
	double best = s->list_logits[0], a = 1 / (double)s->p->temperature, m;
	double total = exp((double)s->row->lse - best), slack = total * LSE_SLACK;
	double known = known_weight(s, best, &m), last = exp(s->floor - best);
	double more = s->n_adjusted ? adjusted_tail(s, best) : 0, low, high;
	bool masked = s->rules.mask && s->rules.mask->bits;

	*ret_low = more;
	*ret_high = more + m * pow(last, a);
	if (!(m * pow(last, a) > 0) || !isfinite(total))
		return;
	low = fmax(total - known - slack, 0);
	high = fmin(fmax(total - known + slack, 0), m * last);
	if (!(low <= high))
		return; /* lse and list contradict each other, or are not finite */
	if (a >= 1) {
		*ret_low = more + (masked ? 0 : m * pow(low / m, a));
		*ret_high = more + fmin(m * pow(last, a), high * pow(last, a - 1));
	} else {
		*ret_low = more + (masked ? 0 : low * pow(last, a - 1));
		*ret_high = more + fmin(m * pow(last, a), m * pow(high / m, a));
	}
	*ret_low *= 1 - 1e-9;
	*ret_high *= 1 + 1e-9;
}

bool sampler_choose_from_list(struct sampler *s, double u, int32_t *ret_token)
{
	const struct engine_sampling *p = s->p;
	unsigned n = s->n_list, by_min_p = n + 1, least, most;
	double low = 0, high = 0, sum = s->list_sum[n];

	if (p->top_k > 0 && (unsigned)p->top_k <= n) {
		n = (unsigned)p->top_k;
		sum = s->list_sum[n];
	} else if (!s->whole) {
		bound_tail(s, &low, &high);
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
		least = sampler_list_reach(s, p->top_p * (sum + low));
		most = sampler_list_reach(s, p->top_p * (sum + high));
	} else {
		least = most = high > 0 ? s->n_list + 1 : n;
	}
	least = by_min_p < least ? by_min_p : least;
	most = by_min_p < most ? by_min_p : most;
	if (least == most && most <= n) {
		*ret_token = s->list[sampler_list_draw(s, most, u * s->list_sum[most])];
		return true;
	}
	if (p->top_p < 1 || p->min_p > 0)
		return false;
	/*
	 * Everything that top_k left: the draw may fall into the list whatever the tail's weight.
	 */
	least = sampler_list_draw(s, n + 1, u * (sum + low));
	most = sampler_list_draw(s, n + 1, u * (sum + high));
	if (least != most || most >= n)
		return false;
	*ret_token = s->list[most];
	return true;
}
