// SPDX-License-Identifier: MIT
/*
 * ATTENTION over a paged cache, ragged batch.
 *
 * The query rows of one sequence that share a KV head (token i, head h of its group: row i * g + h)
 * are cut into items of CM_ATT_ROWS. An item walks its keys split by split (TXDA_ATTENTION_SPLIT
 * positions from 0) and folds the splits' results from left to right. When a launch has too few
 * items for the cores and long contexts, each split becomes an item of its own and a second phase
 * does the same fold, so both ways give the same bits.
 *
 * The leader copies spans, contexts and block tables into chip scratch before the cores start: the
 * client's memory may change meanwhile.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define MAX_SPLIT_ITEMS 256 /* room for partial results */

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
	uint32_t partial; /* where its result goes, or TXDA_NONE: folded and written */
	uint32_t pad;
};

/* state.u[] */
enum { U_SEQS, U_TABLE, U_ITEMS, U_PARTIALS, U_N_ITEMS, U_SPLIT, U_MERGES };

static uint64_t geometry_group(const struct cm_launch *l)
{
	return l->op->attention.n_heads / l->op->attention.n_kv_heads;
}

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

/* Bytes of one item's partial result: max, sum and accumulators of CM_ATT_ROWS rows. */
static uint64_t partial_bytes(const struct cm_launch *l)
{
	return CM_ATT_ROWS * (2 + (uint64_t)TXDA_KV_DIM(l->op->attention.head_dim)) * 4;
}

static int attention_check(const struct cm_launch *l)
{
	const struct txda_op_attention *p = &l->op->attention;
	const struct cm_tensor *q = l->in[0], *cache = l->in[1], *table = l->in[2],
			       *spans = l->in[3], *ctx = l->in[4];
	/* precise_row() has float32 alone; BF16 that is not an activation stays BF16 */
	unsigned types = l->precise ? DT(TXDA_F32) : DT_ACT;
	uint64_t seqs, width, end = 0;

	if (cm_want_cache(l, cache, p->n_heads, p->n_kv_heads, p->head_dim, p->block_size,
			  p->layer_offset))
		return -EINVAL;
	width = (uint64_t)p->n_heads * p->head_dim;
	if (cm_want(l, q, types, CM_ANY, width) || cm_want(l, l->out[0], types, q->dim[0], width) ||
	    cm_want(l, table, DT(TXDA_I32), CM_ANY, CM_ANY))
		return -EINVAL;
	seqs = table->dim[0];
	if (cm_want(l, spans, DT(TXDA_I32), seqs, 2) ||
	    cm_want(l, ctx, DT(TXDA_I32), seqs, CM_VECTOR))
		return -EINVAL;
	for (uint64_t s = 0; s < seqs; s++) {
		uint32_t first = cm_index_at(spans, 2 * s), n = cm_index_at(spans, 2 * s + 1),
			 c = cm_index_at(ctx, s);
		uint64_t blocks = cm_div_up(c, p->block_size);

		if (first < end || (uint64_t)first + n > q->dim[0])
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

static uint64_t max_items(const struct cm_launch *l)
{
	const struct txda_op_attention *p = &l->op->attention;

	return l->in[0]->dim[0] * p->n_heads / CM_ATT_ROWS +
	       (l->in[2]->dim[0] + 1) * p->n_kv_heads + MAX_SPLIT_ITEMS;
}

static void attention_need(const struct cm_launch *l, struct cm_op_need *need)
{
	const struct txda_op_attention *p = &l->op->attention;
	uint64_t seqs = l->in[2]->dim[0], dim = TXDA_KV_DIM(p->head_dim);

	need->shared_bytes = align64(seqs * sizeof(struct seq)) +
			     align64(seqs * l->in[2]->dim[1] * 4) +
			     align64(max_items(l) * sizeof(struct item)) +
			     MAX_SPLIT_ITEMS * partial_bytes(l) + 64;
	/* packed q and p, scores, two partial results */
	need->core_bytes = 2 * dim * CM_ATT_ROWS * 4 + CM_ATT_TILE * CM_ATT_ROWS * 4 +
			   CM_ATT_ROWS * CM_ATT_TILE * 4 + 2 * partial_bytes(l) + 64;
}

/*
 * Copies what the client might change; values that went bad since check() become harmless. Spans
 * must still not overlap: there is room for the items of T tokens, whoever they belong to.
 */
static void copy_batch(struct cm_launch *l)
{
	const struct txda_op_attention *p = &l->op->attention;
	const struct cm_tensor *q = l->in[0], *cache = l->in[1], *table = l->in[2];
	uint64_t seqs = table->dim[0], cols = table->dim[1], end = 0;
	struct seq *sq = l->shared;
	int32_t *copy = (int32_t *)((uint8_t *)l->shared + l->state.u[U_TABLE]);

	for (uint64_t s = 0; s < seqs; s++) {
		uint64_t blocks;

		sq[s].first = cm_index_at(l->in[3], 2 * s);
		sq[s].n = cm_index_at(l->in[3], 2 * s + 1);
		sq[s].context = cm_index_at(l->in[4], s);
		blocks = cm_div_up(sq[s].context, p->block_size);
		if (sq[s].first < end || (uint64_t)sq[s].first + sq[s].n > q->dim[0] ||
		    sq[s].context < sq[s].n || sq[s].context > INT32_MAX || blocks > cols)
			sq[s].n = 0;
		else
			end = (uint64_t)sq[s].first + sq[s].n;
		for (uint64_t b = 0; sq[s].n && b < blocks; b++) {
			uint32_t v = cm_index_at(table, s * cols + b);

			copy[s * cols + b] = v < cache->dim[0] ? (int32_t)v : 0;
		}
	}
}

static void attention_plan(struct cm_launch *l)
{
	const struct txda_op_attention *p = &l->op->attention;
	uint64_t seqs = l->in[2]->dim[0], g = geometry_group(l), n = 0, items = 0, split_items = 0,
		 most = 1;
	struct seq *sq = l->shared;
	struct item *it;
	bool split;

	l->phases = 0;
	if (!seqs || !l->in[0]->dim[0])
		return;
	l->state.u[U_TABLE] = align64(seqs * sizeof(struct seq));
	l->state.u[U_ITEMS] = l->state.u[U_TABLE] + align64(seqs * l->in[2]->dim[1] * 4);
	l->state.u[U_PARTIALS] = l->state.u[U_ITEMS] + align64(max_items(l) * sizeof(struct item));
	copy_batch(l);
	for (uint64_t s = 0; s < seqs; s++) {
		uint64_t rows = cm_div_up(sq[s].n * g, CM_ATT_ROWS) * p->n_kv_heads;
		uint64_t splits = cm_div_up(sq[s].context, TXDA_ATTENTION_SPLIT);

		items += rows;
		split_items += rows * splits;
		most = splits > most ? splits : most;
	}
	split = !l->precise && most > 1 && items < 4ull * l->cores &&
		split_items <= MAX_SPLIT_ITEMS;
	it = (struct item *)((uint8_t *)l->shared + l->state.u[U_ITEMS]);
	for (uint64_t s = 0; s < seqs; s++) {
		uint64_t rows = sq[s].n * g,
			 splits = cm_div_up(sq[s].context, TXDA_ATTENTION_SPLIT);

		/* The last rows see the most keys: they go first, so that no core starts a long
		 * item at the end. */
		for (uint64_t b = cm_div_up(rows, CM_ATT_ROWS); b-- > 0;)
			for (uint32_t h = 0; h < p->n_kv_heads; h++)
				for (uint64_t i = 0; i < (split ? splits : 1); i++, n++) {
					uint64_t row = b * CM_ATT_ROWS;

					it[n] = (struct item){
						.seq = (uint32_t)s,
						.head = h,
						.row = (uint32_t)row,
						.rows = (uint32_t)(rows - row < CM_ATT_ROWS
									   ? rows - row
									   : CM_ATT_ROWS),
						.split = (uint32_t)i,
						.n_splits = (uint32_t)(split ? 1 : splits),
						.partial = split ? (uint32_t)n : TXDA_NONE,
					};
				}
	}
	l->state.u[U_N_ITEMS] = n;
	l->state.u[U_SPLIT] = split;
	if (!n)
		return;
	l->parts[l->phases++] = (unsigned)n;
	if (split)
		l->parts[l->phases++] = (unsigned)n;
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
static void merge(const struct cm_launch *l, struct partial to, struct partial from, unsigned rows)
{
	unsigned dim = TXDA_KV_DIM(l->op->attention.head_dim);

	for (unsigned r = 0; r < rows; r++) {
		float top, a, b;

		if (from.max[r] == -INFINITY)
			continue;
		top = to.max[r] > from.max[r] ? to.max[r] : from.max[r];
		a = expf(to.max[r] - top);
		b = expf(from.max[r] - top);
		to.sum[r] = to.sum[r] * a + from.sum[r] * b;
		to.max[r] = top;
		cm_simd->blend(to.acc + r * dim, a, to.acc + r * dim, b, from.acc + r * dim, dim);
	}
}

static void write_rows(const struct cm_launch *l, const struct item *it, struct partial p)
{
	const struct txda_op_attention *op = &l->op->attention;
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint64_t g = geometry_group(l), padded = TXDA_KV_DIM(op->head_dim);

	for (unsigned r = 0; r < it->rows; r++) {
		uint64_t row = it->row + r, token = sq->first + row / g,
			 head = it->head * g + row % g;
		uint64_t at = (token * op->n_heads + head) * op->head_dim;
		float *row_out = p.acc + r * padded;

		cm_simd->blend(row_out, 1.0f / p.sum[r], row_out, 0.0f, row_out, op->head_dim);
		if (l->out[0]->dtype == TXDA_F32)
			memcpy((float *)l->out[0]->ptr + at, row_out, op->head_dim * 4);
		else
			cm_simd->to_bf16((uint16_t *)l->out[0]->ptr + at, row_out, op->head_dim);
	}
}

static void run_item(const struct cm_launch *l, const struct item *it, uint8_t *scratch)
{
	const struct txda_op_attention *op = &l->op->attention;
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint64_t g = geometry_group(l), padded = TXDA_KV_DIM(op->head_dim);
	uint32_t last = 0, lowest = UINT32_MAX;
	struct partial total, part;
	struct cm_attend a = {
		.rows = it->rows,
		.dim = op->head_dim,
		.block_size = op->block_size,
		.block_stride = l->in[1]->dim[1],
		.cache = (const uint8_t *)l->in[1]->ptr + op->layer_offset +
			 it->head * padded * op->block_size * 4,
		.blocks = (const int32_t *)((const uint8_t *)l->shared + l->state.u[U_TABLE]) +
			  it->seq * l->in[2]->dim[1],
		.scale = op->scale,
		.q_f32 = l->in[0]->dtype == TXDA_F32,
		.acc_stride = (unsigned)padded,
	};

	a.q_pack = (uint32_t *)scratch;
	a.p_pack = a.q_pack + 2 * padded * CM_ATT_ROWS;
	a.scores = (float *)(a.p_pack + CM_ATT_TILE * CM_ATT_ROWS);
	part = partial_at(a.scores + CM_ATT_ROWS * CM_ATT_TILE);
	total = partial_at((uint8_t *)part.max + partial_bytes(l));
	if (it->partial != TXDA_NONE)
		total = partial_at((uint8_t *)l->shared + l->state.u[U_PARTIALS] +
				   it->partial * partial_bytes(l));
	for (unsigned r = 0; r < it->rows; r++) {
		uint64_t row = it->row + r, token = row / g;

		a.q[r] = (const uint8_t *)l->in[0]->ptr +
			 ((sq->first + token) * op->n_heads + it->head * g + row % g) *
				 op->head_dim * (a.q_f32 ? 4 : 2);
		a.pos[r] = sq->context - sq->n + (uint32_t)token;
		a.first[r] = op->window && a.pos[r] >= op->window ? a.pos[r] - op->window + 1 : 0;
		last = a.pos[r] > last ? a.pos[r] : last;
		lowest = a.first[r] < lowest ? a.first[r] : lowest;
	}
	for (uint32_t s = it->split; s < it->split + it->n_splits; s++) {
		uint64_t end = ((uint64_t)s + 1) * TXDA_ATTENTION_SPLIT;

		a.from = s * TXDA_ATTENTION_SPLIT;
		if (lowest > a.from)
			a.from = lowest / CM_ATT_TILE * CM_ATT_TILE;
		a.to = (uint64_t)last + 1 < end ? last + 1 : (uint32_t)end;
		a.max = s == it->split ? total.max : part.max;
		a.sum = s == it->split ? total.sum : part.sum;
		a.acc = s == it->split ? total.acc : part.acc;
		cm_simd->attend(&a);
		if (s != it->split)
			merge(l, total, part, it->rows);
	}
	if (it->partial == TXDA_NONE)
		write_rows(l, it, total);
}

/* Precise mode: one row, everything in double, cache elements float32. */
static void precise_row(const struct cm_launch *l, const struct item *it, uint64_t row)
{
	const struct txda_op_attention *op = &l->op->attention;
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint64_t g = geometry_group(l), dim = op->head_dim, padded = TXDA_KV_DIM(dim),
		 bs = op->block_size;
	uint64_t at = ((sq->first + row / g) * op->n_heads + it->head * g + row % g) * dim;
	const float *q = (const float *)l->in[0]->ptr + at;
	const int32_t *blocks =
		(const int32_t *)((const uint8_t *)l->shared + l->state.u[U_TABLE]) +
		it->seq * l->in[2]->dim[1];
	uint32_t pos = sq->context - sq->n + (uint32_t)(row / g);
	uint32_t first = op->window && pos >= op->window ? pos - op->window + 1 : 0;
	double acc[512] = {0}, max = -INFINITY, sum = 0;

	for (uint32_t p = first; p <= pos; p++) {
		const float *base =
			(const float *)((const uint8_t *)l->in[1]->ptr +
					2 * ((uint64_t)(uint32_t)blocks[p / bs] * l->in[1]->dim[1] +
					     op->layer_offset + it->head * padded * bs * 4));
		const float *k = base + p % bs / 16 * padded * 16 + p % 16 * 2;
		const float *v = base + padded * bs + p % bs / 2 * padded * 2 + p % 2;
		double s = 0, e, corr;

		for (uint64_t d = 0; d < dim; d++)
			s += (double)q[d] * k[d / 2 * 32 + d % 2];
		s *= op->scale;
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
			acc[d] += e * v[d * 2];
	}
	for (uint64_t d = 0; d < dim; d++)
		((float *)l->out[0]->ptr)[at + d] = (float)(acc[d] / sum);
}

static void attention_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct item *it =
		(const struct item *)((const uint8_t *)l->shared + l->state.u[U_ITEMS]) + part;
	const struct seq *sq = (const struct seq *)l->shared + it->seq;
	uint8_t *partials = (uint8_t *)l->shared + l->state.u[U_PARTIALS];
	uint64_t splits = cm_div_up(sq->context, TXDA_ATTENTION_SPLIT);
	struct partial total;

	if (l->precise) {
		for (uint64_t r = 0; r < it->rows; r++)
			precise_row(l, it, it->row + r);
		return;
	}
	if (phase == 0) {
		run_item(l, it, l->core[core]);
		return;
	}
	/* The merge of one (sequence, head, rows) belongs to the item of its first split. */
	if (it->split)
		return;
	total = partial_at(partials + it->partial * partial_bytes(l));
	for (uint64_t s = 1; s < splits; s++)
		merge(l, total, partial_at(partials + (it->partial + s) * partial_bytes(l)),
		      it->rows);
	write_rows(l, it, total);
}

static void attention_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct txda_op_attention *p = &l->op->attention;
	uint64_t keys = 0;

	for (uint64_t s = 0; s < l->in[2]->dim[0]; s++)
		keys += cm_index_at(l->in[4], s);
	*read = keys * p->n_kv_heads * p->head_dim * 4;
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * 2;
}

const struct cm_op_impl cm_op_attention = {
	.name = "ATTENTION",
	.n_in = 5,
	.n_out = 1,
	.check = attention_check,
	.need = attention_need,
	.plan = attention_plan,
	.run = attention_run,
	.traffic = attention_traffic,
};
