// SPDX-License-Identifier: MIT
/*
 * ATTENTION and MLA_ATTENTION over a paged cache, ragged batch.
 *
 * The query rows of one sequence that share a KV head (token i, head h of its group: row i * g + h)
 * are cut into items of CM_ATT_ROWS. An item walks its keys split by split (TXDA_ATTENTION_SPLIT
 * positions each, counted from 0), the splits in which a row sees a key, and folds their results from
 * left to right. When a launch has too few items for the cores and long contexts, each split becomes
 * an item of its own and a second phase does the same fold, so both ways give the same bits.
 *
 * The leader copies spans, contexts and block tables into chip scratch before the cores start: the
 * client's memory may change meanwhile.
 */
#include "check.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define MAX_SPLIT_ITEMS 256 /* room for partial results */
#define PART_ITEMS	8   /* most items of a part, within which the next one is prefetched */
#define PARTS_PER_CORE	16  /* fewest parts, if there are enough items */

struct seq {
	uint32_t first, n; /* tokens of the step */
	uint32_t context;
	uint32_t blocks; /* of its table in the copy */
};

struct item {
	uint32_t seq;
	uint32_t head;	    /* KV head */
	uint32_t row, rows; /* query rows of (sequence, head) */
	uint32_t split;	    /* first split */
	uint32_t n_splits;
	uint32_t partial; /* index of its partial result, or TXDA_NONE: it writes the output */
	uint32_t merges;  /* items, with it, of the same rows; 0 in those that follow the first */
};

/* state.u[] */
enum { U_SEQS, U_TABLE, U_ITEMS, U_PARTIALS, U_N_ITEMS, U_PER_PART };

/* Common form of both ops. Latent attention has one KV head whose values are part of its keys. */
struct geometry {
	bool latent, i8;
	uint32_t n_heads, n_kv_heads;
	uint32_t dim;	  /* of values */
	uint32_t key_dim; /* of keys */
	uint32_t block_size;
	uint64_t layer_offset, head_bytes; /* of the cache */
	float scale, softcap;
	uint32_t window;
	uint64_t group;	 /* query heads of a KV head */
	uint64_t padded; /* dim of accumulators */
	const struct cm_tensor *q, *q_rope, *cache, *table, *spans, *ctx, *sinks;
};

static struct geometry geometry(const struct cm_launch *l)
{
	const struct txda_op_attention *p = &l->op->attention;
	const struct txda_op_mla_attention *m = &l->op->mla_attention;
	const struct cm_tensor *const *in = l->in;

	if (l->op->op == TXDA_OP_MLA_ATTENTION)
		return (struct geometry){
			.latent = true,
			.i8 = m->flags & TXDA_KV_INT8,
			.n_heads = m->n_heads,
			.n_kv_heads = 1,
			.dim = m->latent,
			.key_dim = m->latent + m->rope,
			.block_size = m->block_size,
			.layer_offset = m->layer_offset,
			.scale = m->scale,
			.group = m->n_heads,
			.padded = TXDA_KV_DIM(m->latent),
			.q = in[0],
			.q_rope = in[1],
			.cache = in[2],
			.table = in[3],
			.spans = in[4],
			.ctx = in[5],
		};
	return (struct geometry){
		.i8 = p->flags & TXDA_KV_INT8,
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.dim = p->head_dim,
		.key_dim = p->head_dim,
		.block_size = p->block_size,
		.layer_offset = p->layer_offset,
		.head_bytes = p->flags & TXDA_KV_INT8
				      ? txda_kv8_layer_bytes(1, p->head_dim, p->block_size)
				      : txda_kv_layer_bytes(1, p->head_dim, p->block_size),
		.scale = p->scale,
		.softcap = p->softcap,
		.window = p->window,
		.group = p->n_kv_heads ? p->n_heads / p->n_kv_heads : 1,
		.padded = TXDA_KV_DIM(p->head_dim),
		.q = in[0],
		.cache = in[1],
		.table = in[2],
		.spans = in[3],
		.ctx = in[4],
		.sinks = in[5],
	};
}

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

/* Bytes of one item's partial result: max, sum and accumulators of CM_ATT_ROWS rows. */
static uint64_t partial_bytes(const struct geometry *g)
{
	return CM_ATT_ROWS * (2 + g->padded) * 4;
}

int cm_want_batch(const struct cm_launch *l, uint64_t tokens, const struct cm_tensor *cache,
		  const struct cm_tensor *table, const struct cm_tensor *spans,
		  const struct cm_tensor *ctx, uint32_t block_size)
{
	uint64_t seqs, end = 0;

	if (cm_want(l, table, DT(TXDA_I32), CM_ANY, CM_ANY))
		return -EINVAL;
	seqs = table->dim[0];
	if (cm_want(l, spans, DT(TXDA_I32), seqs, 2) ||
	    cm_want(l, ctx, DT(TXDA_I32), seqs, CM_VECTOR))
		return -EINVAL;
	for (uint64_t s = 0; s < seqs; s++) {
		uint32_t first = cm_index_at(spans, 2 * s), n = cm_index_at(spans, 2 * s + 1),
			 c = cm_index_at(ctx, s);
		uint64_t blocks = cm_div_up(c, block_size);

		if (first < end || (uint64_t)first + n > tokens)
			return cm_bad(l, TXDA_FAULT_INDEX, spans, spans->va + s * 8, first);
		end = (uint64_t)first + n;
		if (c < n || c > INT32_MAX || blocks > table->dim[1])
			return cm_bad(l, TXDA_FAULT_INDEX, ctx, ctx->va + s * 4, c);
		for (uint64_t b = 0; n && b < blocks; b++) {
			uint64_t at = s * table->dim[1] + b;
			uint32_t v = cm_index_at(table, at);

			if (v >= cache->dim[0])
				return cm_bad(l, TXDA_FAULT_INDEX, table, table->va + at * 4, v);
		}
	}
	return 0;
}

static int attention_check(const struct cm_launch *l)
{
	struct geometry g = geometry(l);
	/* precise_row() only takes float32; BF16 that is not an activation stays BF16 */
	unsigned types = l->precise || g.latent ? DT(TXDA_F32) : DT_ACT;
	uint64_t width = (uint64_t)g.n_heads * g.dim;

	if (g.latent ? cm_want_latent_cache(l, g.cache, g.n_heads, g.dim, g.key_dim - g.dim,
					    g.block_size, g.layer_offset, g.i8)
		     : cm_want_cache(l, g.cache, g.n_heads, g.n_kv_heads, g.dim, g.block_size,
				     g.layer_offset, g.i8))
		return -EINVAL;
	if (!g.latent && l->op->attention.flags & ~TXDA_KV_INT8)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, l->op->attention.flags);
	if (g.latent && l->op->mla_attention.flags & ~TXDA_KV_INT8)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, 1);
	if (!(g.softcap >= 0 && g.softcap <= FLT_MAX))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, 1);
	if (cm_want(l, g.q, types, CM_ANY, width) ||
	    (g.latent &&
	     cm_want(l, g.q_rope, types, g.q->dim[0], (uint64_t)g.n_heads * (g.key_dim - g.dim))) ||
	    cm_may(l, g.sinks, DT(TXDA_F32), g.n_heads, CM_VECTOR) ||
	    cm_want(l, l->out[0], l->precise ? DT(TXDA_F32) : DT_ACT, g.q->dim[0], width))
		return -EINVAL;
	/* Rows of an item have 32 bits. */
	if (g.q->dim[0] > UINT32_MAX / g.group)
		return cm_bad(l, TXDA_FAULT_SHAPE, g.q, g.q->va, g.q->dim[0]);
	return cm_want_batch(l, g.q->dim[0], g.cache, g.table, g.spans, g.ctx, g.block_size);
}

static uint64_t max_items(const struct geometry *g)
{
	return g->q->dim[0] * g->n_heads / CM_ATT_ROWS + (g->table->dim[0] + 1) * g->n_kv_heads +
	       MAX_SPLIT_ITEMS;
}

static void attention_need(const struct cm_launch *l, struct cm_op_need *need)
{
	struct geometry g = geometry(l);
	uint64_t seqs = g.table->dim[0], dim = TXDA_KV_DIM((uint64_t)g.key_dim);

	need->shared_bytes = align64(seqs * sizeof(struct seq)) +
			     align64(seqs * g.table->dim[1] * 4) +
			     align64(max_items(&g) * sizeof(struct item)) +
			     MAX_SPLIT_ITEMS * partial_bytes(&g) + 64;
	/* packed q and p, scores, two partial results */
	need->core_bytes = 2 * dim * CM_ATT_ROWS * 4 + CM_ATT_TILE * CM_ATT_ROWS * 4 +
			   CM_ATT_ROWS * CM_ATT_TILE * 4 + 2 * partial_bytes(&g) + 64;
	if (g.i8) /* a tile of keys and values as bf16 */
		need->core_bytes += 2 * CM_ATT_TILE * dim * 2 + 64;
}

/*
 * Copies what the client might change; values that it made invalid since check() are replaced by
 * harmless ones. Spans must not overlap, since there is room for the items of T tokens only.
 */
static void copy_batch(struct cm_launch *l, const struct geometry *g)
{
	uint64_t seqs = g->table->dim[0], cols = g->table->dim[1], end = 0;
	struct seq *sq = l->shared;
	int32_t *copy = (int32_t *)((uint8_t *)l->shared + l->state.u[U_TABLE]);

	for (uint64_t s = 0; s < seqs; s++) {
		uint64_t blocks;

		sq[s].first = cm_index_at(g->spans, 2 * s);
		sq[s].n = cm_index_at(g->spans, 2 * s + 1);
		sq[s].context = cm_index_at(g->ctx, s);
		blocks = cm_div_up(sq[s].context, g->block_size);
		if (sq[s].first < end || (uint64_t)sq[s].first + sq[s].n > g->q->dim[0] ||
		    sq[s].context < sq[s].n || sq[s].context > INT32_MAX || blocks > cols ||
		    !g->cache->dim[0])
			sq[s].n = 0;
		else
			end = (uint64_t)sq[s].first + sq[s].n;
		for (uint64_t b = 0; sq[s].n && b < blocks; b++) {
			uint32_t v = cm_index_at(g->table, s * cols + b);

			copy[s * cols + b] = v < g->cache->dim[0] ? (int32_t)v : 0;
		}
	}
}

/* The first key that the query at @pos sees. */
static uint32_t first_key(const struct geometry *g, uint32_t pos)
{
	return g->window && pos >= g->window ? pos - g->window + 1 : 0;
}

/* An item of all splits of which rows [@row, @row + CM_ATT_ROWS) of a sequence see keys. */
static struct item item_of(const struct geometry *g, const struct seq *sq, uint64_t row)
{
	const uint64_t left = sq->n * g->group - row;
	const uint32_t rows = left < CM_ATT_ROWS ? (uint32_t)left : CM_ATT_ROWS;
	const uint32_t before = sq->context - sq->n,
		       last = before + (uint32_t)((row + rows - 1) / g->group),
		       split = first_key(g, before + (uint32_t)(row / g->group)) /
			       TXDA_ATTENTION_SPLIT;

	return (struct item){
		.row = (uint32_t)row,
		.rows = rows,
		.split = split,
		.n_splits = last / TXDA_ATTENTION_SPLIT + 1 - split,
		.partial = TXDA_NONE,
	};
}

/* Puts @item, of one head, to @it[]; or each of its splits, if @split. Returns how many. */
static uint32_t put_items(struct item *it, struct item item, bool split, uint64_t n)
{
	const uint32_t splits = item.n_splits;

	if (!split) {
		it[n] = item;
		return 1;
	}
	item.n_splits = 1;
	item.merges = splits;
	for (uint32_t i = 0; i < splits; i++, item.split++, item.merges = 0) {
		item.partial = (uint32_t)n + i;
		it[item.partial] = item;
	}
	return splits;
}

static void attention_plan(struct cm_launch *l)
{
	struct geometry g = geometry(l);
	uint64_t seqs = g.table->dim[0], n = 0, items = 0, split_items = 0, per;
	struct seq *sq = l->shared;
	struct item *it;
	bool split;

	l->phases = 0;
	if (!seqs || !g.q->dim[0])
		return;
	l->state.u[U_TABLE] = align64(seqs * sizeof(struct seq));
	l->state.u[U_ITEMS] = l->state.u[U_TABLE] + align64(seqs * g.table->dim[1] * 4);
	l->state.u[U_PARTIALS] = l->state.u[U_ITEMS] + align64(max_items(&g) * sizeof(struct item));
	copy_batch(l, &g);
	for (uint64_t s = 0; s < seqs; s++)
		for (uint64_t row = 0; row < sq[s].n * g.group; row += CM_ATT_ROWS) {
			items += g.n_kv_heads;
			split_items += (uint64_t)item_of(&g, &sq[s], row).n_splits * g.n_kv_heads;
		}
	split = !l->precise && split_items > items && items < 4ull * l->cores &&
		split_items <= MAX_SPLIT_ITEMS;
	it = (struct item *)((uint8_t *)l->shared + l->state.u[U_ITEMS]);
	/*
	 * Items of one head follow each other, so that its keys and values stay cached. The last rows
	 * see the most keys and go first, so that no core starts a long item at the end.
	 */
	for (uint64_t s = 0; s < seqs; s++)
		for (uint32_t h = 0; h < g.n_kv_heads; h++)
			for (uint64_t b = cm_div_up(sq[s].n * g.group, CM_ATT_ROWS); b-- > 0;) {
				struct item item = item_of(&g, &sq[s], b * CM_ATT_ROWS);

				item.seq = (uint32_t)s;
				item.head = h;
				n += put_items(it, item, split, n);
			}
	l->state.u[U_N_ITEMS] = n;
	if (!n)
		return;
	per = n / ((uint64_t)PARTS_PER_CORE * l->cores);
	per = l->precise || per < 1 ? 1 : per < PART_ITEMS ? per : PART_ITEMS;
	l->state.u[U_PER_PART] = per;
	l->parts[l->phases++] = cm_div_up(n, per);
	if (split)
		l->parts[l->phases++] = n;
}

/* A partial result: max[CM_ATT_ROWS], sum[CM_ATT_ROWS], acc[CM_ATT_ROWS][D']. */
struct partial {
	float *max, *sum, *acc;
};

static struct partial partial_at(void *p)
{
	float *f = p;

	return (struct partial){f, f + CM_ATT_ROWS, f + 2 * CM_ATT_ROWS};
}

/* to = to merged with from, which covers later keys. */
static void merge(const struct geometry *g, struct partial to, struct partial from, unsigned rows)
{
	unsigned dim = (unsigned)g->padded;

	for (unsigned r = 0; r < rows; r++) {
		float top, a, b;

		/* Of no keys; -INFINITY as maximum may also be that of keys that are NaN. */
		if (from.sum[r] == 0)
			continue;
		/* As if the row began here, whatever rows it shares the item with. */
		if (to.sum[r] == 0) {
			to.max[r] = from.max[r];
			to.sum[r] = from.sum[r];
			memcpy(to.acc + r * dim, from.acc + r * dim, dim * sizeof(*to.acc));
			continue;
		}
		top = to.max[r] > from.max[r] ? to.max[r] : from.max[r];
		a = expf(to.max[r] - top);
		b = expf(from.max[r] - top);
		to.sum[r] = to.sum[r] * a + from.sum[r] * b;
		to.max[r] = top;
		cm_simd->blend(to.acc + r * dim, a, to.acc + r * dim, b, from.acc + r * dim, dim);
	}
}

/* 1 / the sum of a row's probabilities, the sink's included. */
static float inverse_sum(const struct geometry *g, uint64_t head, float max, float sum)
{
	float sink, top;

	if (!g->sinks)
		return 1.0f / sum;
	sink = ((const float *)g->sinks->ptr)[head];
	top = sink > max ? sink : max;
	return expf(max - top) / (sum * expf(max - top) + expf(sink - top));
}

static void write_rows(const struct cm_launch *l, const struct geometry *g, const struct item *it,
		       struct partial p)
{
	const struct seq *sq = (const struct seq *)l->shared + it->seq;

	for (unsigned r = 0; r < it->rows; r++) {
		uint64_t row = it->row + r, token = sq->first + row / g->group,
			 head = it->head * g->group + row % g->group;
		uint64_t at = (token * g->n_heads + head) * g->dim;
		float *row_out = p.acc + r * g->padded;

		cm_simd->blend(row_out, inverse_sum(g, head, p.max[r], p.sum[r]), row_out, 0.0f,
			       row_out, g->dim);
		if (l->out[0]->dtype == TXDA_F32)
			memcpy((float *)l->out[0]->ptr + at, row_out, g->dim * 4);
		else
			cm_simd->to_bf16((uint16_t *)l->out[0]->ptr + at, row_out, g->dim);
	}
}

/* The query rows of an item: where they are and which keys they see. */
static void find_rows(const struct cm_launch *l, const struct geometry *g, const struct item *it,
		      struct cm_attend *a, uint32_t *ret_last, uint32_t *ret_lowest)
{
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint32_t last = 0, lowest = UINT32_MAX;

	for (unsigned r = 0; r < it->rows; r++) {
		uint64_t row = it->row + r, token = row / g->group,
			 head = (sq->first + token) * g->n_heads + it->head * g->group +
				row % g->group;

		a->q[r] = (const uint8_t *)g->q->ptr + head * g->dim * (a->q_f32 ? 4 : 2);
		if (g->latent)
			a->q_rope[r] = (const float *)g->q_rope->ptr + head * (g->key_dim - g->dim);
		a->pos[r] = sq->context - sq->n + (uint32_t)token;
		a->first[r] = first_key(g, a->pos[r]);
		last = a->pos[r] > last ? a->pos[r] : last;
		lowest = a->first[r] < lowest ? a->first[r] : lowest;
	}
	*ret_last = last;
	*ret_lowest = lowest;
}

/* Where the keys of an item are. */
static struct cm_attend_keys keys_of(const struct cm_launch *l, const struct geometry *g,
				     const struct item *it)
{
	return (struct cm_attend_keys){
		.cache =
			(const uint8_t *)g->cache->ptr + g->layer_offset + it->head * g->head_bytes,
		.blocks = (const int32_t *)((const uint8_t *)l->shared + l->state.u[U_TABLE]) +
			  it->seq * g->table->dim[1],
		.to = ((const struct seq *)l->shared)[it->seq].context,
	};
}

/* @next: the next item of this core, to be prefetched, or NULL. */
static void run_item(const struct cm_launch *l, const struct geometry *g, const struct item *it,
		     const struct item *next, uint8_t *scratch)
{
	const struct cm_attend_keys keys = keys_of(l, g, it);
	uint64_t key_padded = TXDA_KV_DIM(g->key_dim);
	struct partial total, part;
	uint32_t last, lowest;
	struct cm_attend a = {
		.rows = it->rows,
		.dim = g->dim,
		.rope = g->key_dim - g->dim,
		.block_size = g->block_size,
		.block_stride = g->cache->dim[1],
		.cache = keys.cache,
		.blocks = keys.blocks,
		.scale = g->scale,
		.softcap = g->softcap,
		.q_f32 = g->q->dtype == TXDA_F32,
		.acc_stride = (unsigned)g->padded,
		.v_stride = (unsigned)key_padded,
		.i8 = g->i8 && !g->latent,
		.latent_i8 = g->i8 && g->latent,
	};

	a.q_pack = (uint32_t *)scratch;
	a.p_pack = a.q_pack + 2 * key_padded * CM_ATT_ROWS;
	a.scores = (float *)(a.p_pack + CM_ATT_TILE * CM_ATT_ROWS);
	part = partial_at(a.scores + CM_ATT_ROWS * CM_ATT_TILE);
	total = partial_at((uint8_t *)part.max + partial_bytes(g));
	a.kv_pack = (uint16_t *)(((uintptr_t)total.max + partial_bytes(g) + 63) & ~63ull);
	if (it->partial != TXDA_NONE)
		total = partial_at((uint8_t *)l->shared + l->state.u[U_PARTIALS] +
				   it->partial * partial_bytes(g));
	find_rows(l, g, it, &a, &last, &lowest);
	for (uint32_t s = it->split; s < it->split + it->n_splits; s++) {
		uint64_t end = ((uint64_t)s + 1) * TXDA_ATTENTION_SPLIT;

		a.from = s * TXDA_ATTENTION_SPLIT;
		if (lowest > a.from)
			a.from = lowest / CM_ATT_TILE * CM_ATT_TILE;
		a.to = (uint64_t)last + 1 < end ? last + 1 : (uint32_t)end;
		a.max = s == it->split ? total.max : part.max;
		a.sum = s == it->split ? total.sum : part.sum;
		a.acc = s == it->split ? total.acc : part.acc;
		if (next && s + 1 == it->split + it->n_splits) {
			a.next = keys_of(l, g, next);
			a.next_from = next->split * TXDA_ATTENTION_SPLIT;
			if (next->seq == it->seq && lowest > a.next_from)
				a.next_from = lowest / CM_ATT_TILE * CM_ATT_TILE;
		}
		cm_simd->attend(&a);
		if (s != it->split)
			merge(g, total, part, it->rows);
	}
	if (it->partial == TXDA_NONE)
		write_rows(l, g, it, total);
}

/* Precise mode: key and value of one position. */
struct precise_kv {
	const void *k, *v;
	float k_scale, v_scale;
	bool latent, i8;
	uint64_t dim; /* latent: elements that v_scale is for */
};

static double precise_key(const struct precise_kv *kv, uint64_t d)
{
	uint64_t at = kv->latent ? 2 * d : d / 2 * 32 + d % 2;

	return kv->i8 ? (double)((const int8_t *)kv->k)[at] *
				(d < kv->dim ? kv->v_scale : kv->k_scale)
		      : ((const float *)kv->k)[at];
}

static double precise_value(const struct precise_kv *kv, uint64_t d)
{
	return kv->i8 ? (double)((const int8_t *)kv->v)[2 * d] * kv->v_scale
		      : ((const float *)kv->v)[2 * d];
}

static struct precise_kv precise_at(const struct geometry *g, const int32_t *blocks, uint32_t head,
				    uint32_t p)
{
	uint64_t bs = g->block_size, block = (uint32_t)blocks[p / bs], in = p % bs,
		 k = in / 16 * g->padded * 16 + in % 16 * 2,
		 v = g->padded * bs + in / 2 * g->padded * 2 + in % 2;
	const uint8_t *base =
		(const uint8_t *)g->cache->ptr +
		2 * (block * g->cache->dim[1] + g->layer_offset + head * g->head_bytes);
	const float *f = (const float *)base, *scale = (const float *)(base + 2 * g->padded * bs);

	if (g->latent && g->i8) {
		uint64_t padded = TXDA_KV_DIM(g->key_dim);
		const int8_t *q = (const int8_t *)base + in / 2 * padded * 2 + in % 2;

		scale = (const float *)(base + padded * bs);
		return (struct precise_kv){q, q, scale[bs + in], scale[in], true, true, g->dim};
	}
	if (g->latent) {
		f += in / 2 * TXDA_KV_DIM(g->key_dim) * 2 + in % 2;
		return (struct precise_kv){.k = f, .v = f, .latent = true};
	}
	if (g->i8)
		return (struct precise_kv){base + k, base + v, scale[in], scale[bs + in],
					   false,    true,     0};
	return (struct precise_kv){.k = f + k, .v = f + v};
}

/* Precise mode: one row, everything in double. */
static void precise_row(const struct cm_launch *l, const struct geometry *g, const struct item *it,
			uint64_t row)
{
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint64_t dim = g->dim, rope = g->key_dim - g->dim;
	uint64_t head =
		(sq->first + row / g->group) * g->n_heads + it->head * g->group + row % g->group;
	const float *q = (const float *)g->q->ptr + head * dim;
	const float *qr = g->latent ? (const float *)g->q_rope->ptr + head * rope : NULL;
	const int32_t *blocks =
		(const int32_t *)((const uint8_t *)l->shared + l->state.u[U_TABLE]) +
		it->seq * g->table->dim[1];
	uint32_t pos = sq->context - sq->n + (uint32_t)(row / g->group);
	uint32_t first = first_key(g, pos);
	double acc[TXDA_MLA_MAX_LATENT], max = -INFINITY, sum = 0;

	memset(acc, 0, dim * sizeof(*acc));
	for (uint32_t p = first; p <= pos; p++) {
		struct precise_kv kv = precise_at(g, blocks, it->head, p);
		double s = 0, e, corr;

		for (uint64_t d = 0; d < dim; d++)
			s += q[d] * precise_key(&kv, d);
		for (uint64_t d = 0; d < rope; d++)
			s += qr[d] * precise_key(&kv, dim + d);
		s *= g->scale;
		if (g->softcap > 0)
			s = g->softcap * tanh(s / g->softcap);
		if (s > max) {
			corr = exp(max - s);
			for (uint64_t d = 0; d < dim; d++)
				acc[d] *= corr;
			sum *= corr;
			max = s;
		}
		e = exp(s - max);
		sum += e;
		for (uint64_t d = 0; d < dim; d++)
			acc[d] += e * precise_value(&kv, d);
	}
	if (g->sinks)
		sum += exp(((const float *)g->sinks->ptr)[head % g->n_heads] - max);
	for (uint64_t d = 0; d < dim; d++)
		((float *)l->out[0]->ptr)[head * dim + d] = (float)(acc[d] / sum);
}

/* One phase 0 part. */
static void run_items(const struct cm_launch *l, const struct geometry *g, unsigned part,
		      unsigned core)
{
	const struct item *all =
		(const struct item *)((const uint8_t *)l->shared + l->state.u[U_ITEMS]);
	uint64_t per = l->state.u[U_PER_PART], n = part * per, end = n + per;

	end = end < l->state.u[U_N_ITEMS] ? end : l->state.u[U_N_ITEMS];
	for (; n < end; n++) {
		for (uint64_t r = 0; l->precise && r < all[n].rows; r++)
			precise_row(l, g, &all[n], all[n].row + r);
		if (!l->precise)
			run_item(l, g, &all[n], n + 1 < end ? &all[n + 1] : NULL, l->core[core]);
	}
}

static void attention_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct item *it =
		(const struct item *)((const uint8_t *)l->shared + l->state.u[U_ITEMS]) + part;
	uint8_t *partials = (uint8_t *)l->shared + l->state.u[U_PARTIALS];
	struct geometry g = geometry(l);
	struct partial total;

	if (phase == 0) {
		run_items(l, &g, part, core);
		return;
	}
	if (!it->merges)
		return;
	total = partial_at(partials + it->partial * partial_bytes(&g));
	for (uint64_t s = 1; s < it->merges; s++)
		merge(&g, total, partial_at(partials + (it->partial + s) * partial_bytes(&g)),
		      it->rows);
	write_rows(l, &g, it, total);
}

/* The positions that tokens of sequence @s attend to. */
static uint64_t keys_read(const struct geometry *g, uint64_t s)
{
	uint64_t n = cm_index_at(g->spans, 2 * s + 1), context = cm_index_at(g->ctx, s);

	if (!n || !g->window || context < g->window + n)
		return n ? context : 0;
	return g->window + n - 1;
}

static void attention_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	struct geometry g = geometry(l);
	uint64_t keys = 0, vectors = g.latent ? 1 : 2 * (uint64_t)g.n_kv_heads,
		 scales = g.latent ? 2 : 1;

	for (uint64_t s = 0; s < g.table->dim[0]; s++)
		keys += keys_read(&g, s);
	*read = keys * vectors * (g.i8 ? g.key_dim + scales * 4 : g.key_dim * 2);
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * (l->out[0]->dtype == TXDA_F32 ? 4 : 2);
}

const struct cm_op_impl cm_op_attention = {
	.n_in = 6,
	.n_out = 1,
	.check = attention_check,
	.need = attention_need,
	.plan = attention_plan,
	.run = attention_run,
	.traffic = attention_traffic,
};

const struct cm_op_impl cm_op_mla_attention = {
	.n_in = 6,
	.n_out = 1,
	.check = attention_check,
	.need = attention_need,
	.plan = attention_plan,
	.run = attention_run,
	.traffic = attention_traffic,
};
