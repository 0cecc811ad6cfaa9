// SPDX-License-Identifier: MIT
/*
 * INDEX_STORE and INDEX_SELECT: an indexer's keys, and the selection of tokens by them.
 *
 * A part is one token. Its scores with its whole sequence are computed in the core's scratch; the
 * lowest selected score is found with four histograms of a byte each, so that the selection takes a
 * few passes whatever the scores are.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

/* A cache with room for an indexer's layer. */
static int want_keys(const struct cm_launch *l, const struct cm_tensor *t, uint32_t heads,
		     uint32_t dim, uint32_t block_size, uint64_t layer_offset)
{
	if (!t || t->layout != TXDA_KV_PAGED || t->ndim != 2)
		return cm_bad(l, TXDA_FAULT_SHAPE, t, t ? t->va : 0, 0);
	if (!heads || heads > 65536 || !dim || dim % 2 || dim > TXDA_INDEX_MAX_DIM ||
	    !txda_is_block_size(block_size))
		return cm_bad(l, TXDA_FAULT_PROGRAM, t, t->va, block_size);
	return cm_want_room(l, t, txda_index_layer_bytes(dim, block_size), layer_offset);
}

/* Where the key of a slot is. */
static uint8_t *key_at(const struct cm_launch *l, const struct cm_tensor *cache, uint64_t block,
		       uint64_t in, uint32_t dim, uint64_t layer_offset)
{
	return (uint8_t *)cache->ptr +
	       (block * cache->dim[1] + layer_offset + in * TXDA_KV_DIM(dim) * 2) *
		       (l->precise ? 2 : 1);
}

/* ---- INDEX_STORE ---- */

static int store_check(const struct cm_launch *l)
{
	const struct txda_op_index_store *p = &l->op->index_store;
	const struct cm_tensor *q = l->in[0], *table = l->in[1], *cache = l->out[1];
	uint64_t tokens, width = (uint64_t)p->n_heads * p->dim;

	if (p->flags & ~TXDA_ROPE_INTERLEAVED)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->flags);
	if (want_keys(l, cache, p->n_heads, p->dim, p->block_size, p->layer_offset) ||
	    cm_want(l, q, DT(TXDA_F32), CM_ANY, width))
		return -EINVAL;
	tokens = q->dim[0];
	if (cm_want(l, table, DT(TXDA_F32), tokens, CM_ANY) ||
	    cm_want(l, l->in[2], DT(TXDA_I32), tokens, CM_VECTOR) ||
	    cm_want(l, l->in[3], DT(TXDA_F32), tokens, p->dim) ||
	    cm_want(l, l->in[4], DT(TXDA_F32), p->dim, CM_VECTOR) ||
	    cm_want(l, l->in[5], DT(TXDA_F32), p->dim, CM_VECTOR) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), tokens, width))
		return -EINVAL;
	if (table->dim[1] % 2 || table->dim[1] > p->dim)
		return cm_bad(l, TXDA_FAULT_SHAPE, table, table->va, table->dim[1]);
	return cm_want_index(l, l->in[2], tokens, cache->dim[0] * p->block_size, TXDA_NONE);
}

static void store_need(const struct cm_launch *l, struct cm_op_need *need)
{
	(void)l;
	need->shared_bytes = 0;
	need->core_bytes = 0;
}

static void token_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = l->in[0]->dim[0];
}

static void normalise(float *out, const float *x, const float *weight, const float *bias,
		      unsigned n, float eps)
{
	double mean = 0, variance = 0;

	for (unsigned i = 0; i < n; i++)
		mean += x[i];
	mean /= n;
	for (unsigned i = 0; i < n; i++)
		variance += (x[i] - mean) * (x[i] - mean);
	variance = 1 / sqrt(variance / n + eps);
	for (unsigned i = 0; i < n; i++)
		out[i] = (float)((x[i] - mean) * variance) * weight[i] + bias[i];
}

static void store_run(const struct cm_launch *l, unsigned phase, unsigned t, unsigned core)
{
	const struct txda_op_index_store *p = &l->op->index_store;
	const unsigned pairs = (unsigned)l->in[1]->dim[1] / 2, padded = TXDA_KV_DIM(p->dim);
	const float *table = (const float *)l->in[1]->ptr + (uint64_t)t * 2 * pairs;
	const bool inter = p->flags & TXDA_ROPE_INTERLEAVED;
	uint32_t slot = cm_index_at(l->in[2], t);
	float k[TXDA_INDEX_MAX_DIM], turned[TXDA_INDEX_MAX_DIM + 16] = {0};
	void *to;

	(void)phase;
	(void)core;
	for (unsigned h = 0; h < p->n_heads; h++) {
		uint64_t at = ((uint64_t)t * p->n_heads + h) * p->dim;

		cm_rotate((const float *)l->in[0]->ptr + at, table, pairs, p->dim, inter,
			  (float *)l->out[0]->ptr + at);
	}
	if (slot == TXDA_NONE || slot >= l->out[1]->dim[0] * p->block_size)
		return;
	normalise(k, (const float *)l->in[3]->ptr + (uint64_t)t * p->dim, l->in[4]->ptr,
		  l->in[5]->ptr, p->dim, p->eps);
	cm_rotate(k, table, pairs, p->dim, inter, turned);
	to = key_at(l, l->out[1], slot / p->block_size, slot % p->block_size, p->dim,
		    p->layer_offset);
	if (l->precise)
		memcpy(to, turned, padded * 4);
	else
		cm_simd->to_bf16(to, turned, padded);
}

static void store_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct txda_op_index_store *p = &l->op->index_store;

	*read = l->in[0]->dim[0] * ((uint64_t)p->n_heads + 1) * p->dim * 4;
	*written = l->in[0]->dim[0] * ((uint64_t)p->n_heads * 4 + 2) * p->dim;
}

const struct cm_op_impl cm_op_index_store = {
	.n_in = 6,
	.n_out = 2,
	.check = store_check,
	.need = store_need,
	.plan = token_plan,
	.run = store_run,
	.traffic = store_traffic,
};

/* ---- INDEX_SELECT ---- */

/* A token, in shared scratch: copies of what the client may change meanwhile. */
struct token {
	uint32_t seq, keys; /* keys: positions to select from; 0: the token is in no sequence */
};

static int select_check(const struct cm_launch *l)
{
	const struct txda_op_index_select *p = &l->op->index_select;
	const struct cm_tensor *q = l->in[0], *cache = l->in[2], *positions = l->out[1];

	if (!p->keys || p->keys > TXDA_INDEX_MAX_KEYS)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->keys);
	if (want_keys(l, cache, p->n_heads, p->dim, p->block_size, p->layer_offset) ||
	    cm_want(l, q, DT(TXDA_F32), CM_ANY, (uint64_t)p->n_heads * p->dim) ||
	    cm_want(l, l->in[1], DT(TXDA_F32), q->dim[0], p->n_heads) ||
	    cm_want(l, l->out[0], DT(TXDA_I32), q->dim[0], p->keys) ||
	    cm_may(l, positions, DT(TXDA_I32), q->dim[0], CM_ANY))
		return -EINVAL;
	if (positions ? positions->dim[1] < p->keys || p->out_col > positions->dim[1] - p->keys
		      : p->out_col != 0)
		return cm_bad(l, TXDA_FAULT_SHAPE, positions, 0, p->out_col);
	return cm_want_batch(l, q->dim[0], cache, l->in[3], l->in[4], l->in[5], p->block_size);
}

static uint64_t queries_bytes(const struct txda_op_index_select *p)
{
	return align64((uint64_t)p->n_heads * TXDA_KV_DIM(p->dim) * 4);
}

static void select_need(const struct cm_launch *l, struct cm_op_need *need)
{
	const struct txda_op_index_select *p = &l->op->index_select;

	need->shared_bytes = align64(l->in[0]->dim[0] * sizeof(struct token));
	need->core_bytes = queries_bytes(p) + align64(l->in[3]->dim[1] * p->block_size * 4);
}

static void select_plan(struct cm_launch *l)
{
	const struct txda_op_index_select *p = &l->op->index_select;
	const struct cm_tensor *table = l->in[3], *spans = l->in[4], *ctx = l->in[5];
	struct token *token = l->shared;
	uint64_t end = 0;

	token_plan(l);
	memset(token, 0, l->in[0]->dim[0] * sizeof(*token));
	for (uint64_t s = 0; s < table->dim[0]; s++) {
		uint64_t first = cm_index_at(spans, 2 * s), n = cm_index_at(spans, 2 * s + 1),
			 context = cm_index_at(ctx, s);

		/* Invalid since check(). Overlapping spans would take time for each of them. */
		if (first < end || first + n > l->in[0]->dim[0] || context < n ||
		    context > INT32_MAX || context > table->dim[1] * p->block_size ||
		    !l->in[2]->dim[0])
			continue;
		end = first + n;
		for (uint64_t i = 0; i < n; i++)
			token[first + i] =
				(struct token){(uint32_t)s, (uint32_t)(context - n + i + 1)};
	}
}

static uint64_t block_at(const struct cm_launch *l, uint64_t seq, uint64_t index)
{
	uint32_t block = cm_index_at(l->in[3], seq * l->in[3]->dim[1] + index);

	return block < l->in[2]->dim[0] ? block : 0;
}

static float precise_score(const struct txda_op_index_select *p, const float *q,
			   const float *weights, const float *key)
{
	double score = 0;

	for (unsigned h = 0; h < p->n_heads; h++) {
		double x = 0;

		for (unsigned d = 0; d < p->dim; d++)
			x += (double)q[h * p->dim + d] * key[d];
		score += weights[h] * (x < 0 ? 0 : x);
	}
	return (float)score;
}

/* The scores of @token's keys. */
static void score(const struct cm_launch *l, uint64_t t, const struct token *token, float *padded_q,
		  float *scores)
{
	const struct txda_op_index_select *p = &l->op->index_select;
	const float *q = (const float *)l->in[0]->ptr + t * p->n_heads * p->dim,
		    *weights = (const float *)l->in[1]->ptr + t * p->n_heads;
	const unsigned padded = TXDA_KV_DIM(p->dim);

	memset(padded_q, 0, queries_bytes(p));
	for (unsigned h = 0; h < p->n_heads; h++)
		memcpy(padded_q + h * padded, q + h * p->dim, p->dim * 4);
	for (uint32_t at = 0; at < token->keys; at += p->block_size) {
		uint32_t n = token->keys - at < p->block_size ? token->keys - at : p->block_size;
		const void *keys = key_at(l, l->in[2], block_at(l, token->seq, at / p->block_size),
					  0, p->dim, p->layer_offset);

		if (!l->precise)
			cm_simd->index_scores(scores + at, padded_q, weights, p->n_heads, padded,
					      keys, n);
		for (uint32_t i = 0; l->precise && i < n; i++)
			scores[at + i] =
				precise_score(p, q, weights, (const float *)keys + i * padded);
	}
}

/* An integer in the order of scores; NaN as -infinity, -0 as 0. */
static uint32_t rank(float score)
{
	uint32_t u;

	score = score == score ? score + 0.0f : -INFINITY;
	memcpy(&u, &score, 4);
	return u >> 31 ? ~u : u | 0x80000000u;
}

/* The rank of the @keys-th best score of @n, and how many scores of that rank are selected. */
static uint32_t last_rank(const float *scores, uint32_t n, uint32_t keys, uint32_t *ret_equal)
{
	uint32_t found = 0, mask = 0;

	for (int shift = 24; shift >= 0; shift -= 8) {
		uint32_t count[256] = {0}, byte = 255;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t r = rank(scores[i]);

			count[r >> shift & 255] += (r & mask) == found;
		}
		for (; count[byte] < keys; byte--)
			keys -= count[byte];
		found |= byte << shift;
		mask |= 255u << shift;
	}
	*ret_equal = keys;
	return found;
}

static void select_run(const struct cm_launch *l, unsigned phase, unsigned t, unsigned core)
{
	const struct txda_op_index_select *p = &l->op->index_select;
	const struct token *token = (const struct token *)l->shared + t;
	float *scores = (float *)((uint8_t *)l->core[core] + queries_bytes(p));
	int32_t *slots = (int32_t *)l->out[0]->ptr + (uint64_t)t * p->keys, *positions = NULL;
	uint32_t last = 0, equal = UINT32_MAX, n = 0;

	(void)phase;
	if (l->out[1])
		positions = (int32_t *)l->out[1]->ptr + t * l->out[1]->dim[1] + p->out_col;
	if (token->keys > p->keys) {
		score(l, t, token, l->core[core], scores);
		last = last_rank(scores, token->keys, p->keys, &equal);
	}
	for (uint32_t i = 0; i < token->keys && n < p->keys; i++) {
		uint32_t r = token->keys > p->keys ? rank(scores[i]) : 1;

		if (r < last || (r == last && !equal))
			continue;
		equal -= r == last;
		if (positions)
			positions[n] = (int32_t)i;
		slots[n++] = (int32_t)(block_at(l, token->seq, i / p->block_size) * p->block_size +
				       i % p->block_size);
	}
	memset(slots + n, 0xff, (p->keys - n) * sizeof(*slots));
	if (positions)
		memset(positions + n, 0xff, (p->keys - n) * sizeof(*positions));
}

static void select_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct txda_op_index_select *p = &l->op->index_select;

	*read = 0;
	for (uint64_t s = 0; s < l->in[3]->dim[0]; s++)
		*read += (uint64_t)cm_index_at(l->in[5], s) * p->dim * 2;
	*written = l->in[0]->dim[0] * p->keys * 4;
}

const struct cm_op_impl cm_op_index_select = {
	.n_in = 6,
	.n_out = 2,
	.check = select_check,
	.need = select_need,
	.plan = select_plan,
	.run = select_run,
	.traffic = select_traffic,
};
