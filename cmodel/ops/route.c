// SPDX-License-Identifier: MIT
/* ROUTE: the experts of each token and their weights. A part is a range of tokens. */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define TOKENS_PER_PART 8

static int route_check(const struct cm_launch *l)
{
	const struct txda_op_route *p = &l->op->route;
	const struct cm_tensor *x = l->in[0];
	uint64_t experts;

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY))
		return -EINVAL;
	experts = x->dim[1];
	if (experts > TXDA_ROUTE_MAX_EXPERTS || !p->k || p->k > TXDA_ROUTE_MAX_K ||
	    p->k > experts || !p->n_groups || p->n_groups > experts || experts % p->n_groups ||
	    !p->top_groups || p->top_groups > p->n_groups ||
	    p->flags & ~(TXDA_ROUTE_SIGMOID | TXDA_ROUTE_TOP2 | TXDA_ROUTE_NORMALISE))
		return cm_bad(l, TXDA_FAULT_PROGRAM, x, 0, p->k);
	if (cm_may(l, l->in[1], DT(TXDA_F32), experts, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT(TXDA_I32), x->dim[0], p->k) ||
	    cm_want(l, l->out[1], DT(TXDA_F32), x->dim[0], p->k))
		return -EINVAL;
	return 0;
}

static void route_need(const struct cm_launch *l, struct cm_op_need *need)
{
	(void)l;
	need->shared_bytes = 0;
	need->core_bytes = 0;
}

static void route_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = cm_div_up(l->in[0]->dim[0], TOKENS_PER_PART);
}

static void softmax(const float *x, unsigned n, float *score)
{
	double sum = 0;
	float max = -INFINITY;

	for (unsigned i = 0; i < n; i++)
		max = x[i] > max ? x[i] : max;
	for (unsigned i = 0; i < n; i++) {
		double e = exp((double)x[i] - max);

		score[i] = (float)e;
		sum += e;
	}
	for (unsigned i = 0; i < n; i++)
		score[i] = (float)(score[i] / sum);
}

/* Takes the largest of v[n] that is not taken, the first of equal ones; returns its index. */
static unsigned take_best(const float *v, uint8_t *taken, unsigned n)
{
	unsigned best = n;

	for (unsigned i = 0; i < n; i++)
		if (!taken[i] && (best == n || v[i] > v[best]))
			best = i;
	taken[best] = 1;
	return best;
}

/* Sets the choice of experts outside the best groups to 0. */
static void limit_groups(const struct txda_op_route *p, float *choice, unsigned experts)
{
	float score[TXDA_ROUTE_MAX_EXPERTS];
	uint8_t taken[TXDA_ROUTE_MAX_EXPERTS] = {0};
	unsigned size = experts / p->n_groups;

	for (unsigned g = 0; g < p->n_groups; g++) {
		float best = -INFINITY, second = -INFINITY;

		for (unsigned i = g * size; i < (g + 1) * size; i++) {
			float v = choice[i];

			if (v > best) {
				second = best;
				best = v;
			} else if (v > second) {
				second = v;
			}
		}
		score[g] = p->flags & TXDA_ROUTE_TOP2 && size > 1 ? best + second : best;
	}
	for (unsigned i = 0; i < p->top_groups; i++)
		take_best(score, taken, p->n_groups);
	for (unsigned i = 0; i < experts; i++)
		if (!taken[i / size])
			choice[i] = 0;
}

static void route_token(const struct cm_launch *l, uint64_t t)
{
	const struct txda_op_route *p = &l->op->route;
	unsigned experts = (unsigned)l->in[0]->dim[1];
	const float *x = (const float *)l->in[0]->ptr + t * experts;
	const float *bias = l->in[1] ? l->in[1]->ptr : NULL;
	int32_t *ids = (int32_t *)l->out[0]->ptr + t * p->k;
	float *weights = (float *)l->out[1]->ptr + t * p->k;
	float score[TXDA_ROUTE_MAX_EXPERTS], choice[TXDA_ROUTE_MAX_EXPERTS],
		chosen[TXDA_ROUTE_MAX_K];
	uint8_t taken[TXDA_ROUTE_MAX_EXPERTS];
	double sum = 0, factor = p->scale;

	if (p->flags & TXDA_ROUTE_SIGMOID)
		for (unsigned i = 0; i < experts; i++)
			score[i] = (float)(1.0 / (1.0 + exp(-(double)x[i])));
	else
		softmax(x, experts, score);
	for (unsigned i = 0; i < experts; i++) {
		choice[i] = score[i] + (bias ? bias[i] : 0);
		if (choice[i] != choice[i])
			choice[i] = -INFINITY;
	}
	if (p->n_groups > 1)
		limit_groups(p, choice, experts);
	memset(taken, 0, experts);
	for (unsigned j = 0; j < p->k; j++) {
		unsigned best = take_best(choice, taken, experts);

		ids[j] = (int32_t)best;
		chosen[j] = score[best];
		sum += score[best];
	}
	if (p->flags & TXDA_ROUTE_NORMALISE)
		factor /= sum + 1e-20;
	for (unsigned j = 0; j < p->k; j++)
		weights[j] = (float)(chosen[j] * factor);
}

static void route_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t t = (uint64_t)part * TOKENS_PER_PART, end = t + TOKENS_PER_PART;

	(void)phase;
	(void)core;
	end = end < l->in[0]->dim[0] ? end : l->in[0]->dim[0];
	for (; t < end; t++)
		route_token(l, t);
}

static void route_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	*written = l->in[0]->dim[0] * l->op->route.k * 8;
}

const struct cm_op_impl cm_op_route = {
	.n_in = 2,
	.n_out = 2,
	.check = route_check,
	.need = route_need,
	.plan = route_plan,
	.run = route_run,
	.traffic = route_traffic,
};
