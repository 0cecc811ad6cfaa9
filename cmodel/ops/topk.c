// SPDX-License-Identifier: MIT
/* TOPK: the k best of each row and the row's log-sum-exp. A part is one row. */
#include "check.h"

#include <errno.h>
#include <math.h>

#include "simd.h"

static int topk_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0];
	uint64_t k = l->op->topk.k;

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY))
		return -EINVAL;
	if (!k || k > TXDA_TOPK_MAX || k > x->dim[1])
		return cm_bad(l, TXDA_FAULT_PROGRAM, x, 0, k);
	if (cm_want(l, l->out[0], DT(TXDA_I32), x->dim[0], k) ||
	    cm_want(l, l->out[1], DT(TXDA_F32), x->dim[0], k) ||
	    cm_want(l, l->out[2], DT(TXDA_F32), x->dim[0], CM_VECTOR))
		return -EINVAL;
	return 0;
}

static void topk_need(const struct cm_launch *l, struct cm_op_need *need)
{
	(void)l;
	need->shared_bytes = 0;
	need->core_bytes = 0;
}

static void topk_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = l->in[0]->dim[0];
}

/* Inserts (v, i) into the sorted list of @n, and drops the last one if it is full (@k). Equal
 * values are in the order of their indices. */
static unsigned insert(float *val, int32_t *idx, unsigned n, unsigned k, float v, int32_t i)
{
	unsigned at = n < k ? n : k - 1;

	for (; at > 0 && val[at - 1] < v; at--) {
		val[at] = val[at - 1];
		idx[at] = idx[at - 1];
	}
	val[at] = v;
	idx[at] = i;
	return n < k ? n + 1 : n;
}

static void topk_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t width = l->in[0]->dim[1];
	unsigned k = l->op->topk.k, n = 0;
	const float *x = (const float *)l->in[0]->ptr + part * width;
	float val[TXDA_TOPK_MAX], max;
	int32_t idx[TXDA_TOPK_MAX];
	size_t i = 0;

	(void)phase;
	(void)core;
	/*
	 * The first k fill the list; after that only elements above its last one are considered.
	 * NaN never is.
	 */
	for (; i < width && n < k; i++)
		n = insert(val, idx, n, k, x[i] == x[i] ? x[i] : -INFINITY, (int32_t)i);
	while ((i = cm_simd->next_above(x, i, width, val[k - 1])) < width) {
		insert(val, idx, n, k, x[i], (int32_t)i);
		i++;
	}
	for (unsigned j = 0; j < k; j++) {
		((int32_t *)l->out[0]->ptr)[(uint64_t)part * k + j] = idx[j];
		((float *)l->out[1]->ptr)[(uint64_t)part * k + j] = val[j];
	}
	max = val[0];
	((float *)l->out[2]->ptr)[part] =
		isfinite(max) ? max + logf(cm_simd->sum_exp(x, width, max)) : max;
}

static void topk_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	*written = l->in[0]->dim[0] * l->op->topk.k * 8;
}

const struct cm_op_impl cm_op_topk = {
	.n_in = 1,
	.n_out = 3,
	.check = topk_check,
	.need = topk_need,
	.plan = topk_plan,
	.run = topk_run,
	.traffic = topk_traffic,
};
