// SPDX-License-Identifier: MIT
/* Ops that work row by row: RMSNORM, EMBED, GATHER_ROWS, SILU_MUL. A part is a range of rows. */
#include "check.h"

#include <errno.h>
#include <string.h>

#include "product.h"
#include "simd.h"

void cm_rows_plan(struct cm_launch *l)
{
	uint64_t rows = l->out[0]->dim[0];

	l->phases = 0;
	if (rows)
		l->parts[l->phases++] = cm_div_up(rows, CM_ROWS_PER_PART);
}

void cm_rows_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes = 0;
	need->core_bytes = l->out[0]->dim[1] * 4 + 64;
}

void cm_rows_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = *written = l->out[0]->dim[0] * l->out[0]->dim[1] * 4;
}

/* ---- RMSNORM ---- */

static int rmsnorm_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), x->dim[1], CM_VECTOR) ||
	    cm_may(l, l->in[2], DT(TXDA_F32), x->dim[0], x->dim[1]) ||
	    cm_want(l, l->out[0], l->in[2] ? DT(TXDA_F32) : DT_ACT, x->dim[0], x->dim[1]))
		return -EINVAL;
	return 0;
}

static void rmsnorm_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *out = l->out[0];
	uint64_t width = out->dim[1];
	const float *w = l->in[1]->ptr;

	(void)phase;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		const float *x = (const float *)l->in[0]->ptr + r * width;
		float *to = out->dtype == TXDA_F32 && !l->in[2] ? (float *)out->ptr + r * width
								: l->core[core];

		if (l->precise)
			cm_precise_norm(to, x, w, width, l->op->rmsnorm.eps);
		else
			cm_simd->rmsnorm(to, x, w, width, l->op->rmsnorm.eps);
		if (l->in[2])
			cm_simd->add((float *)out->ptr + r * width,
				     (const float *)l->in[2]->ptr + r * width, to, width);
		else if (out->dtype == TXDA_BF16)
			cm_simd->to_bf16((uint16_t *)out->ptr + r * width, to, width);
	}
}

const struct cm_op_impl cm_op_rmsnorm = {
	.n_in = 3,
	.n_out = 1,
	.check = rmsnorm_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = rmsnorm_run,
	.traffic = cm_rows_traffic,
};

/* ---- EMBED ---- */

static int embed_check(const struct cm_launch *l)
{
	const struct cm_tensor *tokens = l->in[0], *table = l->in[1];
	const struct txda_op_embed *p = &l->op->embed;

	if (cm_want(l, tokens, DT(TXDA_I32), CM_ANY, CM_VECTOR) ||
	    cm_want_tiles(l, table, CM_ANY, CM_ANY, false) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), tokens->dim[0], table->dim[1]))
		return -EINVAL;
	return cm_want_index(l, tokens, tokens->dim[0], p->vocab, 0);
}

static void embed_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *table = l->in[1], *out = l->out[0];
	uint64_t width = out->dim[1];

	(void)phase;
	(void)core;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		/* read once: the memory may change after the check */
		uint32_t token = cm_index_at(l->in[0], r);
		float *to = (float *)out->ptr + r * width;

		if (token < l->op->embed.first || token - l->op->embed.first >= table->dim[0]) {
			memset(to, 0, width * 4);
			continue;
		}
		cm_tile_row(table, token - l->op->embed.first, to);
		if (l->op->embed.scale != 1.0f)
			for (uint64_t i = 0; i < width; i++)
				to[i] *= l->op->embed.scale;
	}
}

const struct cm_op_impl cm_op_embed = {
	.n_in = 2,
	.n_out = 1,
	.check = embed_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = embed_run,
	.traffic = cm_rows_traffic,
};

/* ---- GATHER_ROWS ---- */

static int gather_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *rows = l->in[1];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, rows, DT(TXDA_I32), CM_ANY, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), rows->dim[0], x->dim[1]))
		return -EINVAL;
	return cm_want_index(l, rows, rows->dim[0], x->dim[0], 0);
}

static void gather_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *x = l->in[0], *out = l->out[0];
	uint64_t width = out->dim[1];

	(void)phase;
	(void)core;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, out->dim[0]); r++) {
		uint32_t row = cm_index_at(l->in[1], r);

		/*
		 * Checked again, since the memory may have changed. If x and the output overlap,
		 * results are undefined.
		 */
		if (row < x->dim[0])
			memmove((float *)out->ptr + r * width, (const float *)x->ptr + row * width,
				width * 4);
	}
}

const struct cm_op_impl cm_op_gather_rows = {
	.n_in = 2,
	.n_out = 1,
	.check = gather_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = gather_run,
	.traffic = cm_rows_traffic,
};

/* ---- SILU_MUL ---- */

static int silu_mul_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *out = l->out[0];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_want(l, out, DT_ACT, x->dim[0], CM_ANY))
		return -EINVAL;
	if (l->op->silu_mul.act && !txda_is_gated(l->op->silu_mul.act))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, l->op->silu_mul.act);
	if (cm_want_limit(l, l->op->silu_mul.act, l->op->silu_mul.limit))
		return -EINVAL;
	return x->dim[1] == 2 * out->dim[1] ? 0 : cm_bad(l, TXDA_FAULT_SHAPE, out, out->va, 0);
}

static void silu_mul_row(const struct cm_launch *l, const float *gate, const float *up,
			 uint64_t width, uint64_t at)
{
	const struct cm_tensor *out = l->out[0];

	for (uint64_t i = 0; i < width; i += 16) {
		unsigned n = width - i < 16 ? (unsigned)(width - i) : 16;
		float pair[32] = {0}, y[16];

		memcpy(pair, gate + i, n * 4);
		memcpy(pair + 16, up + i, n * 4);
		cm_gate(l->precise, l->op->silu_mul.act, l->op->silu_mul.limit, y, pair);
		if (out->dtype == TXDA_F32)
			memcpy((float *)out->ptr + at + i, y, n * 4);
		else
			cm_simd->to_bf16((uint16_t *)out->ptr + at + i, y, n);
	}
}

static void silu_mul_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t width = l->out[0]->dim[1];

	(void)phase;
	(void)core;
	for (uint64_t r = (uint64_t)part * CM_ROWS_PER_PART;
	     r < cm_part_end(part, CM_ROWS_PER_PART, l->out[0]->dim[0]); r++) {
		const float *x = (const float *)l->in[0]->ptr + r * 2 * width;

		silu_mul_row(l, x, x + width, width, r * width);
	}
}

const struct cm_op_impl cm_op_silu_mul = {
	.n_in = 1,
	.n_out = 1,
	.check = silu_mul_check,
	.need = cm_rows_need,
	.plan = cm_rows_plan,
	.run = silu_mul_run,
	.traffic = cm_rows_traffic,
};
