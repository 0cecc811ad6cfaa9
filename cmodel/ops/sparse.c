// SPDX-License-Identifier: MIT
/*
 * MLA_SPARSE: latent attention over listed tokens.
 *
 * An item is up to CM_ATT_ROWS heads of one token. It gathers the listed vectors in scratch, in the
 * layout of a cache, and runs ATTENTION's kernel on it: the list takes the place of the sequence,
 * and its order is that of the keys.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define BLOCK 128 /* vectors of a block in scratch */

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

static const struct txda_op_mla_attention *params(const struct cm_launch *l)
{
	return &l->op->mla_attention;
}

static uint64_t padded(const struct cm_launch *l)
{
	return TXDA_KV_DIM((uint64_t)params(l)->latent + params(l)->rope);
}

static int sparse_check(const struct cm_launch *l)
{
	const struct txda_op_mla_attention *p = params(l);
	const struct cm_tensor *q = l->in[0], *cache = l->in[2], *slots = l->in[3];
	uint64_t width = (uint64_t)p->n_heads * p->latent;

	if (p->flags & ~TXDA_KV_INT8)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->flags);
	if (cm_want_latent_cache(l, cache, p->n_heads, p->latent, p->rope, p->block_size,
				 p->layer_offset, p->flags & TXDA_KV_INT8) ||
	    cm_want(l, q, DT(TXDA_F32), CM_ANY, width) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), q->dim[0], (uint64_t)p->n_heads * p->rope) ||
	    cm_want(l, slots, DT(TXDA_I32), q->dim[0], CM_ANY) ||
	    cm_want(l, l->out[0], l->precise ? DT(TXDA_F32) : DT_ACT, q->dim[0], width))
		return -EINVAL;
	if (slots->dim[1] > TXDA_INDEX_MAX_KEYS)
		return cm_bad(l, TXDA_FAULT_SHAPE, slots, slots->va, slots->dim[1]);
	return cm_want_index(l, slots, slots->dim[0] * slots->dim[1], cache->dim[0] * p->block_size,
			     TXDA_NONE);
}

/* Parts of a core's scratch, in order. */
enum { VECTORS, BLOCKS, Q_PACK, P_PACK, SCORES, PARTIAL, N_PIECES };

static uint64_t scratch_bytes(const struct cm_launch *l, unsigned pieces)
{
	const uint64_t dim = padded(l), blocks = cm_div_up(l->in[3]->dim[1], BLOCK) + 1,
		       acc = TXDA_KV_DIM((uint64_t)params(l)->latent);
	const uint64_t bytes[N_PIECES] = {
		[VECTORS] = blocks * BLOCK * dim * 2,	  [BLOCKS] = align64(blocks * 4),
		[Q_PACK] = 2 * dim * CM_ATT_ROWS * 4,	  [P_PACK] = CM_ATT_TILE * CM_ATT_ROWS * 4,
		[SCORES] = CM_ATT_ROWS * CM_ATT_TILE * 4, [PARTIAL] = CM_ATT_ROWS * (2 + acc) * 4,
	};
	uint64_t sum = 0;

	for (unsigned i = 0; i < pieces; i++)
		sum += bytes[i];
	return sum;
}

static void *piece(const struct cm_launch *l, void *scratch, unsigned i)
{
	return (uint8_t *)scratch + scratch_bytes(l, i);
}

static void sparse_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes = 0;
	need->core_bytes = scratch_bytes(l, N_PIECES) + 64;
}

static uint64_t items_of_token(const struct cm_launch *l)
{
	return cm_div_up(params(l)->n_heads, CM_ATT_ROWS);
}

static void sparse_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = l->in[0]->dim[0] * items_of_token(l);
}

/* One vector of the cache: int8 elements have a scale for the latent part and one for the key. */
struct vector {
	const void *at; /* every second element */
	float latent_scale, key_scale;
};

static struct vector vector_at(const struct cm_launch *l, uint32_t slot)
{
	const struct txda_op_mla_attention *p = params(l);
	uint64_t in = slot % p->block_size, dim = padded(l), first = in / 2 * dim * 2 + in % 2;
	const uint8_t *base =
		(const uint8_t *)l->in[2]->ptr +
		(slot / p->block_size * l->in[2]->dim[1] + p->layer_offset) * (l->precise ? 2 : 1);
	const float *scale = (const float *)(base + dim * p->block_size);

	if (p->flags & TXDA_KV_INT8)
		return (struct vector){base + first, scale[in], scale[p->block_size + in]};
	return (struct vector){base + first * (l->precise ? 4 : 2), 1, 1};
}

/* The slot of key @i of token @t, or TXDA_NONE; read once. */
static uint32_t slot_of(const struct cm_launch *l, uint64_t t, uint64_t i)
{
	const struct cm_tensor *slots = l->in[3];
	uint32_t slot = i < slots->dim[1] ? cm_index_at(slots, t * slots->dim[1] + i) : TXDA_NONE;

	return slot < l->in[2]->dim[0] * params(l)->block_size ? slot : TXDA_NONE;
}

/* Copies the token's vectors as bf16; returns how many there are. */
static uint32_t gather(const struct cm_launch *l, uint64_t t, uint16_t *to)
{
	const uint64_t dim = padded(l), latent = params(l)->latent;
	const bool i8 = params(l)->flags & TXDA_KV_INT8;
	uint32_t n = 0, slot;

	for (; (slot = slot_of(l, t, n)) != TXDA_NONE; n++) {
		struct vector v = vector_at(l, slot);
		uint16_t *pair = to + n / 2 * dim * 2 + n % 2;

		for (uint64_t d = 0; d < dim; d++) {
			float scale = d < latent ? v.latent_scale : v.key_scale;

			pair[2 * d] = i8 ? cm_f32_to_bf16(((const int8_t *)v.at)[2 * d] * scale)
					 : ((const uint16_t *)v.at)[2 * d];
		}
	}
	for (uint64_t d = 0; n % 2 && d < dim; d++)
		to[(n / 2 * dim + d) * 2 + 1] = 0;
	return n;
}

static void put_row(const struct cm_launch *l, uint64_t row, const float *acc, float factor)
{
	const uint64_t latent = params(l)->latent;
	float out[TXDA_MLA_MAX_LATENT];

	cm_simd->blend(out, factor, acc, 0.0f, acc, latent);
	if (l->out[0]->dtype == TXDA_F32)
		memcpy((float *)l->out[0]->ptr + row * latent, out, latent * 4);
	else
		cm_simd->to_bf16((uint16_t *)l->out[0]->ptr + row * latent, out, latent);
}

static void run_rows(const struct cm_launch *l, uint64_t t, unsigned head, unsigned rows,
		     void *scratch)
{
	const struct txda_op_mla_attention *p = params(l);
	const uint64_t first = t * p->n_heads + head;
	float *max = piece(l, scratch, PARTIAL), *sum = max + CM_ATT_ROWS, *acc = sum + CM_ATT_ROWS;
	int32_t *blocks = piece(l, scratch, BLOCKS);
	uint32_t n = gather(l, t, scratch);
	struct cm_attend a = {
		.rows = rows,
		.dim = p->latent,
		.rope = p->rope,
		.block_size = BLOCK,
		.block_stride = BLOCK * padded(l) * 2,
		.cache = scratch,
		.blocks = blocks,
		.scale = p->scale,
		.q_f32 = true,
		.to = n,
		.max = max,
		.sum = sum,
		.acc = acc,
		.acc_stride = TXDA_KV_DIM(p->latent),
		.v_stride = (unsigned)padded(l),
		.q_pack = piece(l, scratch, Q_PACK),
		.p_pack = piece(l, scratch, P_PACK),
		.scores = piece(l, scratch, SCORES),
	};

	memset(acc, 0, (uint64_t)rows * a.acc_stride * 4);
	for (uint32_t b = 0; b * BLOCK < n; b++)
		blocks[b] = (int32_t)b;
	for (unsigned r = 0; r < rows; r++) {
		a.q[r] = (const float *)l->in[0]->ptr + (first + r) * p->latent;
		a.q_rope[r] = (const float *)l->in[1]->ptr + (first + r) * p->rope;
		a.pos[r] = n - 1;
	}
	if (n)
		cm_simd->attend(&a);
	for (unsigned r = 0; r < rows; r++)
		put_row(l, first + r, acc + (uint64_t)r * a.acc_stride, n ? 1 / sum[r] : 0);
}

static double precise_element(const struct cm_launch *l, const struct vector *v, uint64_t d)
{
	if (params(l)->flags & TXDA_KV_INT8)
		return (double)((const int8_t *)v->at)[2 * d] *
		       (d < params(l)->latent ? v->latent_scale : v->key_scale);
	return ((const float *)v->at)[2 * d];
}

/* Precise mode: one head, everything in double. */
static void precise_row(const struct cm_launch *l, uint64_t t, uint64_t row)
{
	const struct txda_op_mla_attention *p = params(l);
	const float *q = (const float *)l->in[0]->ptr + row * p->latent,
		    *qr = (const float *)l->in[1]->ptr + row * p->rope;
	double acc[TXDA_MLA_MAX_LATENT] = {0}, max = -INFINITY, sum = 0;
	float *out = (float *)l->out[0]->ptr + row * p->latent;
	uint32_t slot;

	for (uint64_t i = 0; (slot = slot_of(l, t, i)) != TXDA_NONE; i++) {
		struct vector v = vector_at(l, slot);
		double s = 0, e, corr = 1;

		for (uint64_t d = 0; d < p->latent; d++)
			s += q[d] * precise_element(l, &v, d);
		for (uint64_t d = 0; d < p->rope; d++)
			s += qr[d] * precise_element(l, &v, p->latent + d);
		s *= p->scale;
		if (s > max) {
			corr = exp(max - s);
			max = s;
		}
		e = exp(s - max);
		sum = sum * corr + e;
		for (uint64_t d = 0; d < p->latent; d++)
			acc[d] = acc[d] * corr + e * precise_element(l, &v, d);
	}
	for (uint64_t d = 0; d < p->latent; d++)
		out[d] = sum > 0 ? (float)(acc[d] / sum) : 0;
}

static void sparse_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t t = part / items_of_token(l);
	unsigned head = (unsigned)(part % items_of_token(l)) * CM_ATT_ROWS,
		 left = params(l)->n_heads - head, rows = left < CM_ATT_ROWS ? left : CM_ATT_ROWS;

	(void)phase;
	if (!l->precise) {
		run_rows(l, t, head, rows, l->core[core]);
		return;
	}
	for (unsigned r = 0; r < rows; r++)
		precise_row(l, t, t * params(l)->n_heads + head + r);
}

static void sparse_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	/* A vector of the cache and its slot number. */
	uint64_t bytes = (params(l)->flags & TXDA_KV_INT8 ? padded(l) + 8 : padded(l) * 2) + 4;

	*read = l->in[3]->dim[0] * l->in[3]->dim[1] * bytes;
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * 4;
}

const struct cm_op_impl cm_op_mla_sparse = {
	.n_in = 4,
	.n_out = 1,
	.check = sparse_check,
	.need = sparse_need,
	.plan = sparse_plan,
	.run = sparse_run,
	.traffic = sparse_traffic,
};
