// SPDX-License-Identifier: MIT
/*
 * SPAN_ATTENTION: bidirectional attention within each span of rows.
 *
 * A part is some query rows of one head of one span. It copies the head's keys and values of the
 * span to its core's scratch, in the layout of a KV cache, and runs the kernel of ATTENTION on it,
 * CM_ATT_ROWS rows at a time, all keys at once. Results do not depend on the rows of a part.
 *
 * The leader copies the spans into chip scratch before the cores start: the client's memory may
 * change meanwhile.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define BLOCK	     128 /* keys of a block of the scratch cache */
#define GROUP	     16	 /* keys that are interleaved in it */
#define MAX_HEAD_DIM 512
#define LEAST_ROWS   256 /* of a part: fewer would pack the keys too often */
#define AHEAD	     8	 /* rows to prefetch: hardware does not see their stride */

struct span {
	uint32_t first, n;
	uint64_t part; /* its first one */
};

/* state.u[] */
enum { U_SPANS, U_ROWS };

/* The scratch of a core. */
struct room {
	int32_t *blocks;
	uint8_t *cache; /* precise: the rotated keys, float [n][D] */
	float *q;	/* [CM_ATT_ROWS][D'] */
	float *tmp;	/* [2 D'] */
	uint32_t *q_pack, *p_pack;
	float *scores, *max, *sum, *acc;
};

static uint64_t cache_bytes(uint64_t keys, uint32_t dim)
{
	return cm_div_up(keys, BLOCK) * txda_kv_layer_bytes(1, dim, BLOCK);
}

static uint64_t blocks_bytes(uint64_t keys)
{
	return cm_div_up(cm_div_up(keys, BLOCK) * 4, 64) * 64;
}

static uint64_t room_bytes(uint64_t keys, uint32_t dim)
{
	uint64_t padded = TXDA_KV_DIM(dim), words;

	words = (CM_ATT_ROWS + 2) * padded + 2 * padded * CM_ATT_ROWS + CM_ATT_TILE * CM_ATT_ROWS +
		CM_ATT_ROWS * CM_ATT_TILE + 2 * CM_ATT_ROWS + CM_ATT_ROWS * padded;
	return blocks_bytes(keys) + cache_bytes(keys, dim) + words * 4;
}

static struct room room_at(void *base, uint64_t keys, uint32_t dim)
{
	uint64_t padded = TXDA_KV_DIM(dim);
	struct room r;

	r.blocks = base;
	r.cache = (uint8_t *)base + blocks_bytes(keys);
	r.q = (float *)(r.cache + cache_bytes(keys, dim));
	r.tmp = r.q + CM_ATT_ROWS * padded;
	r.q_pack = (uint32_t *)(r.tmp + 2 * padded);
	r.p_pack = r.q_pack + 2 * padded * CM_ATT_ROWS;
	r.scores = (float *)(r.p_pack + CM_ATT_TILE * CM_ATT_ROWS);
	r.max = r.scores + CM_ATT_ROWS * CM_ATT_TILE;
	r.sum = r.max + CM_ATT_ROWS;
	r.acc = r.sum + CM_ATT_ROWS;
	return r;
}

/* Elements of a head, an odd number rounded up: the zero added changes no sum. */
static uint32_t paired(const struct txda_op_span_attention *p)
{
	return p->head_dim + p->head_dim % 2;
}

static int span_check(const struct cm_launch *l)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;
	const struct cm_tensor *qkv = l->in[0], *spans = l->in[1], *table = l->in[2];
	uint64_t width = (uint64_t)p->n_heads * p->head_dim, end = 0;

	if (!p->n_heads || p->n_heads > 65536 || !p->head_dim || p->head_dim > MAX_HEAD_DIM)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->head_dim);
	if (cm_want(l, qkv, DT(TXDA_F32), CM_ANY, 3 * width) ||
	    cm_want(l, spans, DT(TXDA_I32), CM_ANY, 2) ||
	    cm_may(l, table, DT(TXDA_F32), qkv->dim[0], CM_ANY) ||
	    cm_want(l, l->out[0], l->precise ? DT(TXDA_F32) : DT_ACT, qkv->dim[0], width))
		return -EINVAL;
	if (table && (table->dim[1] % 2 || table->dim[1] > p->head_dim))
		return cm_bad(l, TXDA_FAULT_SHAPE, table, table->va, table->dim[1]);
	for (uint64_t s = 0; s < spans->dim[0]; s++) {
		uint32_t first = cm_index_at(spans, 2 * s), n = cm_index_at(spans, 2 * s + 1);

		if (first < end || (uint64_t)first + n > qkv->dim[0])
			return cm_bad(l, TXDA_FAULT_INDEX, spans, spans->va + s * 8, first);
		end = (uint64_t)first + n;
	}
	return 0;
}

static void span_need(const struct cm_launch *l, struct cm_op_need *need)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;

	need->shared_bytes = (l->in[1]->dim[0] + 1) * sizeof(struct span);
	/* Nothing for shapes that check() will refuse. */
	need->core_bytes =
		p->head_dim <= MAX_HEAD_DIM ? room_bytes(l->in[0]->dim[0], paired(p)) + 64 : 0;
}

/* Number of parts of at most @rows rows each; sets the first part of each span. */
static uint64_t count_parts(struct span *span, uint64_t n, uint64_t heads, uint64_t rows)
{
	uint64_t parts = 0;

	for (uint64_t s = 0; s < n; s++) {
		span[s].part = parts;
		parts += heads * cm_div_up(span[s].n, rows);
	}
	return parts;
}

static void span_plan(struct cm_launch *l)
{
	const struct cm_tensor *spans = l->in[1];
	uint64_t rows = l->in[0]->dim[0], end = 0, n = spans->dim[0], parts;
	uint32_t heads = l->op->span_attention.n_heads;
	struct span *span = l->shared;

	l->phases = 0;
	for (uint64_t s = 0; s < n; s++) {
		span[s].first = cm_index_at(spans, 2 * s);
		span[s].n = cm_index_at(spans, 2 * s + 1);
		/* Spans that became invalid since check() are made empty. */
		if (span[s].first < end || (uint64_t)span[s].first + span[s].n > rows)
			span[s].n = 0;
		else
			end = (uint64_t)span[s].first + span[s].n;
	}
	parts = count_parts(span, n, heads, rows ? rows : 1);
	while (parts && parts < 4ull * l->cores && rows > LEAST_ROWS) {
		rows = cm_div_up(rows, 2);
		parts = count_parts(span, n, heads, rows);
	}
	l->state.u[U_SPANS] = n;
	l->state.u[U_ROWS] = rows;
	if (parts)
		l->parts[l->phases++] = parts;
}

/* The queries (@which 0), keys (1) or values (2) of a row and head. */
static const float *row_of(const struct cm_launch *l, uint64_t row, uint32_t head, unsigned which)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;

	return (const float *)l->in[0]->ptr +
	       ((row * 3 + which) * p->n_heads + head) * (uint64_t)p->head_dim;
}

static void prefetch_row(const struct cm_launch *l, uint64_t row, uint32_t head, unsigned which)
{
	const float *x = row_of(l, row, head, which);

	if (row < l->in[0]->dim[0])
		for (uint32_t d = 0; d < l->op->span_attention.head_dim; d += 16)
			__builtin_prefetch(x + d);
}

static void rotated(const struct cm_launch *l, uint64_t row, uint32_t head, unsigned which,
		    float *to)
{
	const struct cm_tensor *table = l->in[2];
	const uint32_t dim = l->op->span_attention.head_dim;
	const float *x = row_of(l, row, head, which);
	unsigned pairs = table ? (unsigned)table->dim[1] / 2 : 0;
	const float *angles = table ? (const float *)table->ptr + row * table->dim[1] : NULL;

	if (table)
		cm_simd->rotate(to, x, angles, angles + pairs, pairs);
	memcpy(to + 2 * pairs, x + 2 * pairs, (dim - 2 * pairs) * 4);
	if (dim % 2)
		to[dim] = 0;
}

/* @n keys and values of a group from row @row on: keys as pairs [D'/2][16], values [8][D']. */
static void pack_group(const struct cm_launch *l, uint64_t row, uint32_t n, uint32_t head,
		       uint32_t *keys, uint16_t *values, float *tmp)
{
	uint32_t own = l->op->span_attention.head_dim, dim = paired(&l->op->span_attention),
		 padded = TXDA_KV_DIM(dim);
	uint32_t key[GROUP][MAX_HEAD_DIM / 2];
	const uint32_t *keys_of[GROUP];
	uint16_t value[MAX_HEAD_DIM];

	for (uint32_t i = 0; i < n; i++) {
		prefetch_row(l, row + i + AHEAD, head, 1);
		prefetch_row(l, row + i + AHEAD, head, 2);
		rotated(l, row + i, head, 1, tmp);
		cm_simd->to_bf16((uint16_t *)key[i], tmp, dim);
		keys_of[i] = key[i];
		value[dim - 1] = 0;
		if (!cm_put_values(value, row_of(l, row + i, head, 2), own))
			key[i][0] = CM_BF16_NAN;
		cm_simd->put_every_other(values + i / 2 * padded * 2 + i % 2, value, dim);
	}
	cm_simd->interleave(keys, GROUP, keys_of, n, dim / 2);
}

static void pack_keys(const struct cm_launch *l, const struct span *s, uint32_t head,
		      const struct room *r)
{
	uint32_t dim = paired(&l->op->span_attention), padded = TXDA_KV_DIM(dim);

	for (uint32_t b = 0; b < cm_div_up(s->n, BLOCK); b++)
		r->blocks[b] = (int32_t)b;
	for (uint32_t i = 0; i < s->n; i += GROUP) {
		uint16_t *block =
			(uint16_t *)(r->cache + i / BLOCK * txda_kv_layer_bytes(1, dim, BLOCK));
		uint64_t in = (uint64_t)(i % BLOCK) * padded;

		pack_group(l, s->first + i, s->n - i < GROUP ? s->n - i : GROUP, head,
			   (uint32_t *)(block + in), block + (uint64_t)padded * BLOCK + in, r->tmp);
	}
}

static void put_row(const struct cm_launch *l, uint64_t row, uint32_t head, const float *y)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;
	uint64_t at = (row * p->n_heads + head) * p->head_dim;

	if (l->out[0]->dtype == TXDA_F32)
		memcpy((float *)l->out[0]->ptr + at, y, p->head_dim * 4);
	else
		cm_simd->to_bf16((uint16_t *)l->out[0]->ptr + at, y, p->head_dim);
}

static void attend_rows(const struct cm_launch *l, const struct span *s, uint32_t head,
			uint32_t row, uint32_t rows, const struct room *r)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;
	unsigned padded = TXDA_KV_DIM(p->head_dim);
	struct cm_attend a = {
		.rows = rows,
		.dim = paired(p),
		.block_size = BLOCK,
		.block_stride = txda_kv_layer_bytes(1, p->head_dim, BLOCK),
		.cache = r->cache,
		.blocks = r->blocks,
		.q_f32 = true,
		.v_stride = padded,
		.to = s->n,
		.scale = p->scale,
		.max = r->max,
		.sum = r->sum,
		.acc = r->acc,
		.acc_stride = padded,
		.q_pack = r->q_pack,
		.p_pack = r->p_pack,
		.scores = r->scores,
	};

	for (uint32_t i = 0; i < rows; i++) {
		a.q[i] = r->q + (uint64_t)i * padded;
		a.pos[i] = s->n - 1;
		prefetch_row(l, s->first + row + CM_ATT_ROWS + i, head, 0);
		rotated(l, s->first + row + i, head, 0, r->q + (uint64_t)i * padded);
	}
	cm_simd->attend(&a);
	for (uint32_t i = 0; i < rows; i++) {
		float *y = r->acc + (uint64_t)i * padded;

		cm_simd->blend(y, 1.0f / r->sum[i], y, 0.0f, y, p->head_dim);
		put_row(l, s->first + row + i, head, y);
	}
}

/* Precise mode: one row, everything in double; the keys are in r->cache. */
static void precise_row(const struct cm_launch *l, const struct span *s, uint32_t head,
			uint32_t row, const struct room *r)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;
	double acc[MAX_HEAD_DIM] = {0}, max = -INFINITY, sum = 0;
	uint32_t dim = p->head_dim, stride = paired(p);

	rotated(l, s->first + row, head, 0, r->q);
	for (uint32_t i = 0; i < s->n; i++) {
		const float *k = (const float *)r->cache + (uint64_t)i * stride,
			    *v = row_of(l, s->first + i, head, 2);
		double score = 0, e;

		for (uint32_t d = 0; d < dim; d++)
			score += (double)r->q[d] * k[d];
		score *= p->scale;
		if (score > max) {
			double less = exp(max - score);

			for (uint32_t d = 0; d < dim; d++)
				acc[d] *= less;
			sum *= less;
			max = score;
		}
		e = exp(score - max);
		sum += e;
		for (uint32_t d = 0; d < dim; d++)
			acc[d] += e * v[d];
	}
	for (uint32_t d = 0; d < dim; d++)
		r->tmp[d] = (float)(acc[d] / sum);
	put_row(l, s->first + row, head, r->tmp);
}

static void span_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct txda_op_span_attention *p = &l->op->span_attention;
	const struct span *span = l->shared, *s;
	uint64_t low = 0, high = l->state.u[U_SPANS], local;
	struct room r = room_at(l->core[core], l->in[0]->dim[0], paired(p));
	uint32_t head, row, end;

	(void)phase;
	/* The last span that begins at or before the part; empty ones before it have no parts. */
	while (high - low > 1) {
		uint64_t middle = (low + high) / 2;

		if (span[middle].part <= part)
			low = middle;
		else
			high = middle;
	}
	s = &span[low];
	local = part - s->part;
	head = (uint32_t)(local % p->n_heads);
	row = (uint32_t)(local / p->n_heads * l->state.u[U_ROWS]);
	end = row + l->state.u[U_ROWS] < s->n ? (uint32_t)(row + l->state.u[U_ROWS]) : s->n;
	if (l->precise) {
		for (uint32_t i = 0; i < s->n; i++)
			rotated(l, s->first + i, head, 1,
				(float *)r.cache + (uint64_t)i * paired(p));
		for (; row < end; row++)
			precise_row(l, s, head, row, &r);
		return;
	}
	pack_keys(l, s, head, &r);
	for (; row < end; row += CM_ATT_ROWS)
		attend_rows(l, s, head, row, end - row < CM_ATT_ROWS ? end - row : CM_ATT_ROWS, &r);
}

static void span_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * (l->out[0]->dtype == TXDA_F32 ? 4 : 2);
}

const struct cm_op_impl cm_op_span_attention = {
	.n_in = 3,
	.n_out = 1,
	.check = span_check,
	.need = span_need,
	.plan = span_plan,
	.run = span_run,
	.traffic = span_traffic,
};
