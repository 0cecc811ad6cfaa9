// SPDX-License-Identifier: MIT
/* LAYERNORM, INTERPOLATE and MERGE_ROWS: row ops of vision towers. */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "product.h"
#include "simd.h"

/* ---- LAYERNORM ---- */

static int layernorm_check(const struct cm_launch *l)
{
	const struct txda_op_layernorm *p = &l->op->layernorm;
	const struct cm_tensor *x = l->in[0];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), x->dim[1], CM_VECTOR) ||
	    cm_may(l, l->in[2], DT(TXDA_F32), x->dim[1], CM_VECTOR) ||
	    cm_want(l, l->out[0], DT_ACT, x->dim[0], x->dim[1]))
		return -EINVAL;
	if (p->act && !txda_is_plain_act(p->act))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->act);
	return 0;
}

static void precise_layernorm(float *out, const float *x, const float *w, const float *b, size_t n,
			      float eps)
{
	double mean = 0, s = 0;

	for (size_t i = 0; i < n; i++)
		mean += x[i];
	mean /= (double)n;
	for (size_t i = 0; i < n; i++)
		s += (x[i] - mean) * (x[i] - mean);
	s = 1.0 / sqrt(s / (double)n + eps);
	for (size_t i = 0; i < n; i++)
		out[i] = (float)((x[i] - mean) * s * w[i] + (b ? b[i] : 0));
}

static void layernorm_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct txda_op_layernorm *p = &l->op->layernorm;
	const float *w = l->in[1]->ptr, *b = l->in[2] ? l->in[2]->ptr : NULL;
	const struct cm_tensor *out = l->out[0];
	uint64_t width = out->dim[1];
	float *to = l->core[core];

	(void)phase;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		const float *x = (const float *)l->in[0]->ptr + r * width;

		if (l->precise)
			precise_layernorm(to, x, w, b, width, p->eps);
		else
			cm_simd->layernorm(to, x, w, b, width, p->eps);
		for (uint64_t i = 0; p->act && i < width; i += 32) {
			unsigned n = width - i < 32 ? (unsigned)(width - i) : 32;
			float y[32] = {0};

			memcpy(y, to + i, n * 4);
			cm_activate(l->precise, p->act, y);
			memcpy(to + i, y, n * 4);
		}
		if (out->dtype == TXDA_BF16)
			cm_simd->to_bf16((uint16_t *)out->ptr + r * width, to, width);
		else
			memcpy((float *)out->ptr + r * width, to, width * 4);
	}
}

const struct cm_op_impl cm_op_layernorm = {
	.n_in = 3,
	.n_out = 1,
	.check = layernorm_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = layernorm_run,
	.traffic = cm_rows_traffic,
};

/* ---- INTERPOLATE ---- */

static int interpolate_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *table = l->in[1], *taps = l->in[2];
	uint64_t rows, k;

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, table, DT(TXDA_F32), CM_ANY, x->dim[1]) ||
	    cm_want(l, taps, DT(TXDA_I32), x->dim[0], CM_ANY))
		return -EINVAL;
	rows = x->dim[0];
	k = taps->dim[1];
	if (cm_want(l, l->in[3], DT(TXDA_F32), rows, k) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), rows, x->dim[1]))
		return -EINVAL;
	if (k > TXDA_INTERPOLATE_MAX)
		return cm_bad(l, TXDA_FAULT_SHAPE, taps, taps->va, k);
	return cm_want_index(l, taps, rows * k, table->dim[0], 0);
}

static void interpolate_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *table = l->in[1], *taps = l->in[2], *out = l->out[0];
	uint64_t width = out->dim[1], k = taps->dim[1];
	float *sum = l->core[core];

	(void)phase;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		memset(sum, 0, width * 4);
		for (uint64_t j = 0; j < k; j++) {
			uint32_t tap = cm_index_at(taps, r * k + j);
			float w = ((const float *)l->in[3]->ptr)[r * k + j];

			if (tap < table->dim[0])
				cm_simd->blend(sum, 1, sum, w,
					       (const float *)table->ptr + tap * width, width);
		}
		cm_simd->add((float *)out->ptr + r * width,
			     (const float *)l->in[0]->ptr + r * width, sum, width);
	}
}

const struct cm_op_impl cm_op_interpolate = {
	.n_in = 4,
	.n_out = 1,
	.check = interpolate_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = interpolate_run,
	.traffic = cm_rows_traffic,
};

/* ---- MERGE_ROWS ---- */

static int merge_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *source = l->in[1], *rows = l->in[2],
			       *out = l->out[0];
	const struct txda_op_merge_rows *p = &l->op->merge_rows;

	if (cm_want(l, rows, DT(TXDA_I32), CM_ANY, CM_VECTOR) ||
	    cm_want(l, out, DT(TXDA_F32), rows->dim[0], CM_ANY) ||
	    cm_want(l, source, DT(TXDA_F32), CM_ANY, CM_ANY))
		return -EINVAL;
	if (x && x->ndim == 1 ? cm_want(l, x, DT(TXDA_F32), out->dim[1], CM_VECTOR)
			      : cm_want(l, x, DT(TXDA_F32), out->dim[0], out->dim[1]))
		return -EINVAL;
	if (p->flags & ~TXDA_MERGE_ADD)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->flags);
	if (source->dim[1] < out->dim[1] || p->col > source->dim[1] - out->dim[1])
		return cm_bad(l, TXDA_FAULT_SHAPE, source, source->va, p->col);
	return cm_want_index(l, rows, rows->dim[0], source->dim[0], TXDA_NONE);
}

static void merge_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *x = l->in[0], *source = l->in[1], *out = l->out[0];
	const struct txda_op_merge_rows *p = &l->op->merge_rows;
	uint64_t width = out->dim[1];

	(void)phase;
	(void)core;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		const float *from = (const float *)x->ptr + (x->ndim == 1 ? 0 : r * width);
		float *to = (float *)out->ptr + r * width;
		uint32_t row = cm_index_at(l->in[2], r);
		const float *seen;

		if (row >= source->dim[0]) {
			if (to != from)
				memmove(to, from, width * 4);
			continue;
		}
		seen = (const float *)source->ptr + row * source->dim[1] + p->col;
		if (p->flags & TXDA_MERGE_ADD)
			cm_simd->add(to, from, seen, width);
		else
			memmove(to, seen, width * 4);
	}
}

const struct cm_op_impl cm_op_merge_rows = {
	.n_in = 3,
	.n_out = 1,
	.check = merge_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = merge_run,
	.traffic = cm_rows_traffic,
};
