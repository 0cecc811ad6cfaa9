// SPDX-License-Identifier: MIT
/* ROPE_TABLE, ROPE_KV and MLA_STORE: rotary embedding (Su et al. 2021), head norms and the store
 * into the paged cache. */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define PART_TOKENS    16 /* most tokens of a part: their keys share cache lines */
#define PARTS_PER_CORE 4  /* fewest parts, if there are enough tokens */
#define MAX_HEAD_DIM   512

/* state.u[] */
enum { U_TOKENS };

static void tokens_plan(struct cm_launch *l)
{
	uint64_t tokens = l->out[0]->dim[0], per = tokens / ((uint64_t)PARTS_PER_CORE * l->cores);

	l->phases = 0;
	if (!tokens)
		return;
	per = per < 1 ? 1 : per < PART_TOKENS ? per : PART_TOKENS;
	l->state.u[U_TOKENS] = per;
	l->parts[l->phases++] = cm_div_up(tokens, per);
}

/* The tokens [first, ret) of a part. */
static uint64_t part_tokens(const struct cm_launch *l, unsigned part, uint64_t *first)
{
	*first = part * l->state.u[U_TOKENS];
	return cm_part_end(part, l->state.u[U_TOKENS], l->out[0]->dim[0]);
}

static void no_need(const struct cm_launch *l, struct cm_op_need *need)
{
	(void)l;
	need->shared_bytes = 0;
	need->core_bytes = 0;
}

static void tokens_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = *written = l->in[0]->dim[0] * (l->in[0]->ndim > 1 ? l->in[0]->dim[1] * 4 : 4);
}

/* ---- ROPE_TABLE ---- */

static int table_check(const struct cm_launch *l)
{
	const struct cm_tensor *pos = l->in[0], *freq = l->in[1], *axes = l->in[2];
	const struct txda_op_rope_table *p = &l->op->rope_table;

	if (cm_want(l, pos, DT(TXDA_I32), CM_ANY, axes ? CM_ANY : CM_VECTOR) ||
	    cm_want(l, freq, DT(TXDA_F32), CM_ANY, CM_VECTOR) ||
	    cm_may(l, axes, DT(TXDA_I32), freq->dim[0], CM_VECTOR) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), pos->dim[0], freq->dim[0] * 2))
		return -EINVAL;
	if (!freq->dim[0] || freq->dim[0] > MAX_HEAD_DIM / 2 ||
	    (p->dynamic_from && (freq->dim[0] < 2 || axes)))
		return cm_bad(l, TXDA_FAULT_SHAPE, freq, freq->va, freq->dim[0]);
	if (axes && cm_want_index(l, axes, axes->dim[0], pos->dim[1], 0))
		return -EINVAL;
	return cm_want_index(l, pos, pos->dim[0] * (axes ? pos->dim[1] : 1), p->max_position, 0);
}

static void table_pair(const struct txda_op_rope_table *p, float angle, float *cs, float *sn)
{
	*cs = cosf(angle) * p->scale;
	*sn = sinf(angle) * p->scale;
}

static void table_row(const struct txda_op_rope_table *p, const float *freq, unsigned pairs,
		      uint32_t pos, float *out)
{
	bool dynamic = p->dynamic_from && pos >= p->dynamic_from;
	double base = p->base;

	if (dynamic)
		base *= pow(p->factor * (pos + 1.0) / p->dynamic_from - (p->factor - 1.0),
			    2.0 * pairs / (2.0 * pairs - 2.0));
	for (unsigned i = 0; i < pairs; i++) {
		float f = dynamic ? (float)(1.0 / pow(base, (double)i / pairs)) : freq[i];

		table_pair(p, (float)pos * f, &out[i], &out[pairs + i]);
	}
}

/* Positions with several coordinates. */
static void table_row_axes(const struct cm_launch *l, uint64_t row, unsigned pairs, float *out)
{
	uint64_t n = l->in[0]->dim[1];

	for (unsigned i = 0; i < pairs; i++) {
		uint32_t axis = cm_index_at(l->in[2], i);
		uint32_t pos = cm_index_at(l->in[0], row * n + (axis < n ? axis : 0));

		table_pair(&l->op->rope_table, (float)pos * ((const float *)l->in[1]->ptr)[i],
			   &out[i], &out[pairs + i]);
	}
}

static void table_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	unsigned pairs = (unsigned)l->in[1]->dim[0];
	uint64_t t, end = part_tokens(l, part, &t);

	(void)phase;
	(void)core;
	for (; t < end; t++) {
		float *out = (float *)l->out[0]->ptr + t * 2 * pairs;

		if (l->in[2])
			table_row_axes(l, t, pairs, out);
		else
			table_row(&l->op->rope_table, l->in[1]->ptr, pairs,
				  cm_index_at(l->in[0], t), out);
	}
}

const struct cm_op_impl cm_op_rope_table = {
	.n_in = 3,
	.n_out = 1,
	.check = table_check,
	.need = no_need,
	.plan = tokens_plan,
	.run = table_run,
	.traffic = tokens_traffic,
};

/* ---- ROPE_KV ---- */

int cm_want_room(const struct cm_launch *l, const struct cm_tensor *t, uint64_t bytes,
		 uint64_t layer_offset)
{
	uint64_t block = t->dim[1];

	if (layer_offset % 64 || block % 64 || bytes > block || layer_offset > block - bytes)
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t->va, layer_offset);
	/* In precise mode elements are float32: a cache that is not an activation, whose size is
	 * not doubled then, is too small. */
	if (t->bytes < t->dim[0] * block * (l->precise ? 2 : 1))
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t->va, t->bytes);
	return 0;
}

int cm_want_cache(const struct cm_launch *l, const struct cm_tensor *t, uint32_t heads,
		  uint32_t kv_heads, uint32_t dim, uint32_t block_size, uint64_t layer_offset,
		  bool i8)
{
	if (!t || t->layout != TXDA_KV_PAGED || t->ndim != 2)
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t ? t->va : 0, 0);
	if (!kv_heads || heads < kv_heads || heads % kv_heads || heads > 65536 || !dim || dim % 2 ||
	    dim > MAX_HEAD_DIM || !txda_is_block_size(block_size))
		return cm_bad(l, TXDA_FAULT_PROGRAM, t, t->va, block_size);
	return cm_want_room(l, t,
			    i8 ? txda_kv8_layer_bytes(kv_heads, dim, block_size)
			       : txda_kv_layer_bytes(kv_heads, dim, block_size),
			    layer_offset);
}

int cm_want_latent_cache(const struct cm_launch *l, const struct cm_tensor *t, uint32_t heads,
			 uint32_t latent, uint32_t rope, uint32_t block_size, uint64_t layer_offset,
			 bool i8)
{
	if (!t || t->layout != TXDA_KV_PAGED || t->ndim != 2)
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t ? t->va : 0, 0);
	if (!heads || heads > 65536 || !latent || latent > TXDA_MLA_MAX_LATENT || !rope ||
	    rope % 2 || rope > TXDA_MLA_MAX_ROPE || !txda_is_block_size(block_size))
		return cm_bad(l, TXDA_FAULT_PROGRAM, t, t->va, block_size);
	return cm_want_room(l, t,
			    i8 ? txda_mla8_layer_bytes(latent, rope, block_size)
			       : txda_mla_layer_bytes(latent, rope, block_size),
			    layer_offset);
}

static int rope_kv_check(const struct cm_launch *l)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	const struct cm_tensor *qkv = l->in[0], *cache = l->out[1];
	uint64_t tokens, pairs;

	if (cm_want_cache(l, cache, p->n_heads, p->n_kv_heads, p->head_dim, p->block_size,
			  p->layer_offset, p->flags & TXDA_KV_INT8) ||
	    cm_want(l, qkv, DT_ACT, CM_ANY,
		    ((uint64_t)p->n_heads + 2ull * p->n_kv_heads) * p->head_dim))
		return -EINVAL;
	tokens = qkv->dim[0];
	if (cm_want(l, l->in[1], DT(TXDA_F32), tokens, CM_ANY) ||
	    cm_want(l, l->in[2], DT(TXDA_I32), tokens, CM_VECTOR) ||
	    cm_may(l, l->in[3], DT(TXDA_F32), p->head_dim, CM_VECTOR) ||
	    cm_may(l, l->in[4], DT(TXDA_F32), p->head_dim, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT_ACT, tokens, (uint64_t)p->n_heads * p->head_dim))
		return -EINVAL;
	pairs = l->in[1]->dim[1] / 2;
	if (l->in[1]->dim[1] % 2 || 2 * pairs > p->head_dim)
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[1], l->in[1]->va, pairs);
	if (p->flags & ~(TXDA_ROPE_INTERLEAVED | TXDA_KV_INT8))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->flags);
	return cm_want_index(l, l->in[2], tokens, cache->dim[0] * p->block_size, TXDA_NONE);
}

void cm_rotate(const float *x, const float *table, unsigned pairs, unsigned dim, bool inter,
	       float *y)
{
	const float *cs = table, *sn = table + pairs;

	if (!inter)
		cm_simd->rotate(y, x, cs, sn, pairs);
	for (unsigned i = 0; inter && i < pairs; i++) {
		float xa = x[2 * i], xb = x[2 * i + 1];

		y[2 * i] = xa * cs[i] - xb * sn[i];
		y[2 * i + 1] = xb * cs[i] + xa * sn[i];
	}
	for (unsigned i = 2 * pairs; i < dim; i++)
		y[i] = x[i];
}

static void norm(const struct cm_launch *l, float *out, const float *x, const float *w, size_t n,
		 float eps)
{
	if (l->precise)
		cm_precise_norm(out, x, w, n, eps);
	else
		cm_simd->rmsnorm(out, x, w, n, eps);
}

/* Norms (w may be NULL) and rotates one head into y[D]. */
static void rotate(const struct cm_launch *l, const float *x, const float *w, const float *table,
		   float *y)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	float tmp[MAX_HEAD_DIM];

	if (w) {
		norm(l, tmp, x, w, p->head_dim, p->eps);
		x = tmp;
	}
	cm_rotate(x, table, (unsigned)l->in[1]->dim[1] / 2, p->head_dim,
		  p->flags & TXDA_ROPE_INTERLEAVED, y);
}

/* One head's elements as int8; returns their scale, NaN if an element is not finite. */
static float quantise(int8_t *q, const float *x, unsigned n)
{
	float max = 0, inverse;

	for (unsigned i = 0; i < n; i++)
		max = fabsf(x[i]) > max || x[i] != x[i] ? fabsf(x[i]) : max;
	if (!(max <= 3e38f)) {
		memset(q, 0, n);
		return NAN;
	}
	inverse = max > 1e-36f ? 127.0f / max : 0;
	for (unsigned i = 0; i < n; i++)
		q[i] = (int8_t)rintf(x[i] * inverse);
	return max / 127.0f;
}

/* As cm_put_values(), whose @scale quantise() has returned: it becomes 0, and that of the key NaN. */
static void mark_int8(float *scale, float *key_scale)
{
	if (*scale == *scale)
		return;
	*scale = 0;
	*key_scale = NAN;
}

static void store_int8(const struct cm_launch *l, unsigned head, uint32_t slot, const float *k,
		       const float *v)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	unsigned dim = p->head_dim, padded = TXDA_KV_DIM(dim), bs = p->block_size,
		 times = l->precise ? 2 : 1;
	uint32_t in = slot % bs;
	int8_t *base = (int8_t *)l->out[1]->ptr + (slot / bs * l->out[1]->dim[1] + p->layer_offset +
						   head * txda_kv8_layer_bytes(1, dim, bs)) *
							  times;
	int8_t *kq = base + (uint64_t)in / 16 * padded * 16 + in % 16 * 2,
	       *vq = base + (uint64_t)padded * bs + (uint64_t)in / 2 * padded * 2 + in % 2;
	float *scale = (float *)(base + 2 * (uint64_t)padded * bs);
	int8_t q[MAX_HEAD_DIM];

	scale[in] = quantise(q, k, dim);
	for (unsigned d = 0; d < dim; d++)
		kq[d / 2 * 32 + d % 2] = q[d];
	scale[bs + in] = quantise(q, v, dim);
	for (unsigned d = 0; d < dim; d++)
		vq[2 * d] = q[d];
	mark_int8(&scale[bs + in], &scale[in]);
}

/* Precise mode. */
static void store_f32(const struct cm_launch *l, unsigned head, uint32_t slot, const float *k,
		      const float *v)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	unsigned dim = p->head_dim, padded = TXDA_KV_DIM(dim);
	uint32_t in = slot % p->block_size;
	float *base = (float *)((uint8_t *)l->out[1]->ptr +
				slot / p->block_size * l->out[1]->dim[1] * 2) +
		      p->layer_offset / 2 + (uint64_t)head * padded * p->block_size * 2;
	float *to_k = base + (uint64_t)in / 16 * padded * 16 + in % 16 * 2,
	      *to_v = base + (uint64_t)padded * p->block_size + (uint64_t)in / 2 * padded * 2 +
		      in % 2;

	for (unsigned d = 0; d < dim; d++) {
		to_k[d / 2 * 32 + d % 2] = k[d];
		to_v[d * 2] = v[d];
	}
}

/* The bf16 keys of a head in the block of @slot. */
static uint16_t *keys_at(const struct cm_launch *l, unsigned head, uint32_t slot)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;

	return (uint16_t *)((uint8_t *)l->out[1]->ptr + slot / p->block_size * l->out[1]->dim[1] +
			    p->layer_offset) +
	       (uint64_t)head * TXDA_KV_DIM(p->head_dim) * p->block_size * 2;
}

/* Stores the keys of @n tokens in consecutive slots from @slot on, all in one group of 16. */
static void store_keys(const struct cm_launch *l, unsigned head, uint32_t slot,
		       const uint32_t *const *k, unsigned n)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	uint32_t in = slot % p->block_size;
	uint32_t *to = (uint32_t *)keys_at(l, head, slot) +
		       (uint64_t)in / 16 * TXDA_KV_DIM(p->head_dim) * 8 + in % 16;

	if (n > 1)
		cm_simd->interleave(to, 16, k, n, p->head_dim / 2);
	for (unsigned i = 0; n == 1 && i < p->head_dim / 2; i++)
		to[i * 16] = k[0][i];
}

bool cm_put_values(uint16_t *h, const float *v, size_t n)
{
	int16_t top = 0;

	cm_simd->to_bf16(h, v, n);
	for (size_t i = 0; i < n; i++) {
		int16_t magnitude = h[i] & 0x7fff;

		top = magnitude > top ? magnitude : top;
	}
	if (top < 0x7f80)
		return true;
	memset(h, 0, n * sizeof(*h));
	return false;
}

/* False: the key must be NaN. */
static bool store_value(const struct cm_launch *l, unsigned head, uint32_t slot, const float *v)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	uint64_t padded = TXDA_KV_DIM(p->head_dim);
	uint32_t in = slot % p->block_size;
	uint16_t h[MAX_HEAD_DIM];
	bool finite = cm_put_values(h, v, p->head_dim);

	cm_simd->put_every_other(keys_at(l, head, slot) + padded * p->block_size +
					 in / 2 * padded * 2 + in % 2,
				 h, p->head_dim);
	return finite;
}

/* A head of a row of in[0], as float32: in place, or in @tmp. */
static const float *head_at(const struct cm_launch *l, uint64_t t, uint64_t head, float *tmp)
{
	const struct cm_tensor *qkv = l->in[0];
	uint64_t dim = l->op->rope_kv.head_dim, at = t * qkv->dim[1] + head * dim;

	if (qkv->dtype == TXDA_F32)
		return (const float *)qkv->ptr + at;
	cm_simd->from_bf16(tmp, (const uint16_t *)qkv->ptr + at, dim);
	return tmp;
}

static const float *table_at(const struct cm_launch *l, uint64_t t)
{
	return (const float *)l->in[1]->ptr + t * l->in[1]->dim[1];
}

static void rotate_queries(const struct cm_launch *l, uint64_t t)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	const struct cm_tensor *out = l->out[0];
	float x[MAX_HEAD_DIM], y[MAX_HEAD_DIM];

	for (unsigned h = 0; h < p->n_heads; h++) {
		uint64_t to = (t * p->n_heads + h) * p->head_dim;

		rotate(l, head_at(l, t, h, x), l->in[3] ? l->in[3]->ptr : NULL, table_at(l, t), y);
		if (out->dtype == TXDA_F32)
			memcpy((float *)out->ptr + to, y, p->head_dim * 4);
		else
			cm_simd->to_bf16((uint16_t *)out->ptr + to, y, p->head_dim);
	}
}

/* A KV head of tokens [t, t + n), which go into @slot[n]. */
static void store_head(const struct cm_launch *l, unsigned head, uint64_t t, const uint32_t *slot,
		       unsigned n)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	uint32_t key[PART_TOKENS][MAX_HEAD_DIM / 2];
	const uint32_t *row[PART_TOKENS];
	unsigned from = 0, i;

	for (i = 0; i < n; i++) {
		float x[MAX_HEAD_DIM], k[MAX_HEAD_DIM];
		const float *v;

		/* Keys of consecutive slots are stored together. */
		if (from < i && (slot[i] != slot[i - 1] + 1 || slot[i] % 16 == 0)) {
			store_keys(l, head, slot[from], row + from, i - from);
			from = i;
		}
		if (slot[i] == TXDA_NONE) {
			from = i + 1;
			continue;
		}
		rotate(l, head_at(l, t + i, p->n_heads + head, x), l->in[4] ? l->in[4]->ptr : NULL,
		       table_at(l, t + i), k);
		v = head_at(l, t + i, p->n_heads + p->n_kv_heads + head, x);
		if (l->precise || p->flags & TXDA_KV_INT8) {
			from = i + 1;
			if (p->flags & TXDA_KV_INT8)
				store_int8(l, head, slot[i], k, v);
			else
				store_f32(l, head, slot[i], k, v);
			continue;
		}
		cm_simd->to_bf16((uint16_t *)key[i], k, p->head_dim);
		row[i] = key[i];
		if (!store_value(l, head, slot[i], v))
			key[i][0] = CM_BF16_NAN;
	}
	if (from < n)
		store_keys(l, head, slot[from], row + from, n - from);
}

static void rope_kv_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct txda_op_rope_kv *p = &l->op->rope_kv;
	uint64_t t, end = part_tokens(l, part, &t), slots = l->out[1]->dim[0] * p->block_size;
	uint32_t slot[PART_TOKENS];
	unsigned n = 0;

	(void)phase;
	(void)core;
	for (; t + n < end; n++) {
		slot[n] = cm_index_at(l->in[2], t + n);
		if (slot[n] >= slots)
			slot[n] = TXDA_NONE;
		rotate_queries(l, t + n);
	}
	for (unsigned h = 0; h < p->n_kv_heads; h++)
		store_head(l, h, t, slot, n);
}

const struct cm_op_impl cm_op_rope_kv = {
	.n_in = 5,
	.n_out = 2,
	.check = rope_kv_check,
	.need = no_need,
	.plan = tokens_plan,
	.run = rope_kv_run,
	.traffic = tokens_traffic,
};

/* ---- MLA_STORE ---- */

static int mla_store_check(const struct cm_launch *l)
{
	const struct txda_op_mla_store *p = &l->op->mla_store;
	const struct cm_tensor *q = l->in[0], *cache = l->out[1];
	uint64_t tokens, width = (uint64_t)p->n_heads * p->rope;

	if (cm_want_latent_cache(l, cache, p->n_heads, p->latent, p->rope, p->block_size,
				 p->layer_offset, p->flags & TXDA_KV_INT8) ||
	    cm_want(l, q, DT(TXDA_F32), CM_ANY, width))
		return -EINVAL;
	tokens = q->dim[0];
	if (cm_want(l, l->in[1], DT(TXDA_F32), tokens, p->rope) ||
	    cm_want(l, l->in[2], DT(TXDA_I32), tokens, CM_VECTOR) ||
	    cm_want(l, l->in[3], DT(TXDA_F32), tokens, (uint64_t)p->latent + p->rope) ||
	    cm_want(l, l->in[4], DT(TXDA_F32), p->latent, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT_ACT, tokens, width))
		return -EINVAL;
	if (p->flags & ~(TXDA_ROPE_INTERLEAVED | TXDA_KV_INT8))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->flags);
	return cm_want_index(l, l->in[2], tokens, cache->dim[0] * p->block_size, TXDA_NONE);
}

static void store_latent_int8(const struct cm_launch *l, uint32_t slot, const float *v)
{
	const struct txda_op_mla_store *p = &l->op->mla_store;
	unsigned padded = TXDA_KV_DIM(p->latent + p->rope), bs = p->block_size,
		 times = l->precise ? 2 : 1;
	uint32_t in = slot % bs;
	int8_t *base = (int8_t *)l->out[1]->ptr +
		       (slot / bs * l->out[1]->dim[1] + p->layer_offset) * times,
	       *to = base + (uint64_t)in / 2 * padded * 2 + in % 2;
	float *scale = (float *)(base + (uint64_t)padded * bs);
	int8_t q[TXDA_MLA_MAX_LATENT + TXDA_MLA_MAX_ROPE + 16];

	scale[in] = quantise(q, v, p->latent);
	scale[bs + in] = quantise(q + p->latent, v + p->latent, p->rope);
	mark_int8(&scale[in], &scale[bs + in]);
	memset(q + p->latent + p->rope, 0, 16);
	for (unsigned d = 0; d < padded; d++)
		to[2 * d] = q[d];
}

static void store_latent(const struct cm_launch *l, uint32_t slot, const float *v)
{
	const struct txda_op_mla_store *p = &l->op->mla_store;
	unsigned padded = TXDA_KV_DIM(p->latent + p->rope), es = l->precise ? 4 : 2;
	uint32_t in = slot % p->block_size;
	uint8_t *base = (uint8_t *)l->out[1]->ptr +
			(slot / p->block_size * l->out[1]->dim[1] + p->layer_offset) * (es / 2);
	uint64_t at = (uint64_t)in / 2 * padded * 2 + in % 2;
	uint16_t h[TXDA_MLA_MAX_LATENT + TXDA_MLA_MAX_ROPE];

	if (l->precise) {
		for (unsigned d = 0; d < padded; d++)
			((float *)base)[at + (uint64_t)d * 2] = v[d];
		return;
	}
	cm_simd->to_bf16(h + p->latent, v + p->latent, padded - p->latent);
	if (!cm_put_values(h, v, p->latent))
		h[p->latent] = CM_BF16_NAN;
	cm_simd->put_every_other((uint16_t *)base + at, h, padded);
}

static void mla_store_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct txda_op_mla_store *p = &l->op->mla_store;
	const struct cm_tensor *out = l->out[0];
	bool inter = p->flags & TXDA_ROPE_INTERLEAVED;
	float v[TXDA_MLA_MAX_LATENT + TXDA_MLA_MAX_ROPE + 16], y[TXDA_MLA_MAX_ROPE];
	uint64_t t, end = part_tokens(l, part, &t);

	(void)phase;
	(void)core;
	for (; t < end; t++) {
		const float *table = (const float *)l->in[1]->ptr + t * p->rope;
		const float *kv = (const float *)l->in[3]->ptr + t * (p->latent + p->rope);
		uint32_t slot = cm_index_at(l->in[2], t);

		for (unsigned h = 0; h < p->n_heads; h++) {
			uint64_t at = (t * p->n_heads + h) * p->rope;

			cm_rotate((const float *)l->in[0]->ptr + at, table, p->rope / 2, p->rope,
				  inter, y);
			if (out->dtype == TXDA_F32)
				memcpy((float *)out->ptr + at, y, p->rope * 4);
			else
				cm_simd->to_bf16((uint16_t *)out->ptr + at, y, p->rope);
		}
		if (slot == TXDA_NONE || slot >= l->out[1]->dim[0] * p->block_size)
			continue;
		norm(l, v, kv, l->in[4]->ptr, p->latent, p->eps);
		cm_rotate(kv + p->latent, table, p->rope / 2, p->rope, inter, v + p->latent);
		memset(v + p->latent + p->rope, 0, 16 * 4);
		if (p->flags & TXDA_KV_INT8)
			store_latent_int8(l, slot, v);
		else
			store_latent(l, slot, v);
	}
}

const struct cm_op_impl cm_op_mla_store = {
	.n_in = 5,
	.n_out = 2,
	.check = mla_store_check,
	.need = no_need,
	.plan = tokens_plan,
	.run = mla_store_run,
	.traffic = tokens_traffic,
};
