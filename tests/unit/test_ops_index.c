// SPDX-License-Identifier: MIT
/*
 * The indexer: INDEX_STORE and INDEX_SELECT on every SIMD path against plain loops in double, ties
 * and NaN included; choices that do not depend on their company; attention over listed tokens
 * against attention over all; refusals.
 */
#include "ops_fixture.h"

enum { HEADS = 3, DIM = 22, BS = 16, BLOCKS = 40, POSITIONS = 300, OFFSET = 64 };

/* A cache with the keys of one sequence, and what must be in it. */
struct keys {
	struct cm_tensor *cache, *table;
	float key[POSITIONS][DIM];
	bool precise;
};

static unsigned block_of(unsigned p)
{
	return BLOCKS - 1 - p / BS * 2;
}

static void keys_new(struct keys *k, bool precise)
{
	const uint64_t stride = txda_index_layer_bytes(DIM, BS) + 128;

	k->precise = precise;
	k->cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, BLOCKS, stride, BLOCKS * stride * 2);
	k->cache->bytes = BLOCKS * stride * (precise ? 2 : 1);
	memset(k->cache->ptr, 0xff, k->cache->bytes); /* NaN wherever nothing is stored */
	k->table = i32(1, (POSITIONS + BS - 1) / BS);
	k->table->ndim = 2;
	for (unsigned b = 0; b < k->table->dim[1]; b++)
		((uint32_t *)k->table->ptr)[b] = block_of(b * BS);
}

static void keys_free(struct keys *k)
{
	drop(k->cache), drop(k->table);
}

/* Stores positions [from, from + n) and checks what becomes of the queries. */
static void store(struct keys *k, unsigned from, unsigned n, unsigned rope)
{
	struct cm_tensor *q = f32(n, HEADS * DIM), *table = f32(n, rope), *slots = i32(n, 0),
			 *x = f32(n, DIM), *weight = f32(DIM, 0), *bias = f32(DIM, 0),
			 *out = f32(n, HEADS * DIM);
	struct run r = {.l = {.in = {q, table, slots, x, weight, bias},
			      .out = {out, k->cache},
			      .precise = k->precise}};

	for (unsigned i = 0; i < DIM; i++) { /* the same in each call */
		floats(weight)[i] = 1 + (float)i / 30;
		floats(bias)[i] = (float)i / 50 - 0.2f;
	}
	for (unsigned i = 0; i < n; i++)
		((uint32_t *)slots->ptr)[i] = block_of(from + i) * BS + (from + i) % BS;
	r.op.index_store = (struct txda_op_index_store){HEADS, DIM, BS, 0, OFFSET, 1e-6f};
	assert_int_equal(run_op(&r, TXDA_OP_INDEX_STORE, 2), 0);
	for (unsigned i = 0; i < n; i++) {
		const float *row = (const float *)x->ptr + i * DIM,
			    *cs = (const float *)table->ptr + i * rope, *sn = cs + rope / 2;
		float *key = k->key[from + i];
		double mean = 0, variance = 0;

		for (unsigned d = 0; d < DIM; d++)
			mean += row[d] / (double)DIM;
		for (unsigned d = 0; d < DIM; d++)
			variance += (row[d] - mean) * (row[d] - mean) / DIM;
		for (unsigned d = 0; d < DIM; d++)
			key[d] = (float)((row[d] - mean) / sqrt(variance + 1e-6)) *
					 floats(weight)[d] +
				 floats(bias)[d];
		for (unsigned d = 0; d < rope / 2; d++) {
			float a = key[d], b = key[d + rope / 2];

			key[d] = a * cs[d] - b * sn[d];
			key[d + rope / 2] = b * cs[d] + a * sn[d];
		}
		for (unsigned h = 0; h < HEADS; h++) {
			const float *from_q = (const float *)q->ptr + (i * HEADS + h) * DIM,
				    *to = (const float *)out->ptr + (i * HEADS + h) * DIM;

			assert_true(fabsf(to[0] - (from_q[0] * cs[0] - from_q[rope / 2] * sn[0])) <
				    1e-6f);
			assert_true(to[DIM - 1] == from_q[DIM - 1]);
		}
	}
	drop(q), drop(table), drop(slots), drop(x), drop(weight), drop(bias), drop(out);
}

static double score_of(const struct keys *k, const float *q, const float *weights, unsigned p)
{
	double score = 0;

	for (unsigned h = 0; h < HEADS; h++) {
		double x = 0;

		for (unsigned d = 0; d < DIM; d++)
			x += (double)q[h * DIM + d] *
			     (k->precise ? k->key[p][d]
					 : cm_bf16_to_f32(cm_f32_to_bf16(k->key[p][d])));
		score += weights[h] * (x > 0 ? x : 0);
	}
	return score;
}

/* Asks for the last @n tokens of a context of @context. */
static void ask(const struct keys *k, struct run *r, struct cm_tensor *const t[6], unsigned context,
		unsigned n, unsigned keys, unsigned col)
{
	*r = (struct run){.l = {.in = {t[0], t[1], k->cache, k->table, t[2], t[3]},
				.out = {t[4], t[5]},
				.precise = k->precise}};
	ints(t[2])[0] = 0;
	ints(t[2])[1] = (int32_t)n;
	ints(t[3])[0] = (int32_t)context;
	r->op.index_select = (struct txda_op_index_select){HEADS, DIM, BS, keys, OFFSET, col};
}

/* The choice of one token is the best: every one left out scores less, or as much further back. */
static void check_choice(const struct keys *k, const struct run *r, unsigned t, unsigned position,
			 unsigned keys, unsigned col)
{
	const int32_t *slots = (const int32_t *)r->l.out[0]->ptr + t * keys,
		      *got = (const int32_t *)r->l.out[1]->ptr + t * r->l.out[1]->dim[1] + col;
	const float *q = (const float *)r->l.in[0]->ptr + t * HEADS * DIM,
		    *weights = (const float *)r->l.in[1]->ptr + t * HEADS;
	unsigned n = position + 1 < keys ? position + 1 : keys, at = 0;
	double least = INFINITY;

	for (unsigned i = 0; i < keys; i++) {
		if (i >= n) {
			assert_true(slots[i] == -1 && got[i] == -1);
			continue;
		}
		assert_true(got[i] >= 0 && got[i] <= (int32_t)position &&
			    (!i || got[i] > got[i - 1]));
		assert_int_equal(slots[i], block_of((unsigned)got[i]) * BS + (unsigned)got[i] % BS);
		least = fmin(least, score_of(k, q, weights, (unsigned)got[i]));
	}
	for (unsigned p = 0; p <= position; p++) {
		if (at < n && got[at] == (int32_t)p)
			at++;
		else
			assert_true(score_of(k, q, weights, p) <= least + 1e-4);
	}
}

TEST(test_index)
{
	static const unsigned keys[] = {1, 7, 64, 400};

	for (unsigned precise = 0; precise < 2; precise++) {
		struct keys k;

		keys_new(&k, precise);
		for (unsigned at = 0; at < POSITIONS; at += 60)
			store(&k, at, 60, 14);
		for (unsigned i = 0; i < 4; i++) {
			const unsigned n = 40;
			struct cm_tensor *t[6] = {f32(n, HEADS * DIM), f32(n, HEADS),
						  i32(1, 2),	       i32(1, 0),
						  i32(n, keys[i]),     i32(n, keys[i] + 9)};
			int32_t *slots = t[4]->ptr;
			struct run r;

			t[2]->ndim = t[4]->ndim = t[5]->ndim = 2;
			ask(&k, &r, t, POSITIONS - 3, n, keys[i], 4);
			assert_int_equal(run_op(&r, TXDA_OP_INDEX_SELECT, 3), 0);
			for (unsigned j = 0; j < n; j++)
				check_choice(&k, &r, j, POSITIONS - 3 - n + j, keys[i], 4);
			/* each token alone */
			for (unsigned j = 0; j < n; j += 13) {
				struct cm_tensor one[6];
				struct cm_tensor *at[6];
				int32_t *alone = mem(keys[i] * 4);

				for (unsigned m = 0; m < 6; m++) {
					one[m] = *t[m];
					at[m] = &one[m];
				}
				one[0].dim[0] = one[1].dim[0] = one[4].dim[0] = 1;
				one[0].ptr = (float *)t[0]->ptr + j * HEADS * DIM;
				one[1].ptr = (float *)t[1]->ptr + j * HEADS;
				one[4].ptr = alone;
				at[5] = NULL;
				ask(&k, &r, at, POSITIONS - 3 - n + j + 1, 1, keys[i], 0);
				assert_int_equal(run_op(&r, TXDA_OP_INDEX_SELECT, 1), 0);
				assert_memory_equal(alone, slots + j * keys[i], keys[i] * 4);
				free(alone);
			}
			for (unsigned m = 0; m < 6; m++)
				drop(t[m]);
		}
		keys_free(&k);
	}
}

/* All scores 0: the first positions; NaN: last of all. */
TEST(test_ties)
{
	for (unsigned precise = 0; precise < 2; precise++) {
		struct cm_tensor *t[6] = {f32(1, HEADS * DIM), f32(1, HEADS), i32(1, 2),
					  i32(1, 0),	       i32(1, 20),    i32(1, 20)};
		const uint64_t stride = txda_index_layer_bytes(DIM, BS) + 128;
		struct keys k;
		struct run r;

		t[2]->ndim = t[4]->ndim = t[5]->ndim = 2;
		keys_new(&k, precise);
		memset(k.cache->ptr, 0, k.cache->bytes);
		/* a key of NaN at position 3 */
		for (unsigned d = 0; d < DIM; d++) {
			uint8_t *at = (uint8_t *)k.cache->ptr +
				      (block_of(3) * stride + OFFSET + 3 * TXDA_KV_DIM(DIM) * 2) *
					      (precise ? 2 : 1);

			if (precise)
				((float *)at)[d] = NAN;
			else
				((uint16_t *)at)[d] = 0x7fc0;
		}
		ask(&k, &r, t, 100, 1, 20, 0);
		assert_int_equal(run_op(&r, TXDA_OP_INDEX_SELECT, 1), 0);
		for (int i = 0; i < 20; i++)
			assert_int_equal(ints(t[5])[i], i < 3 ? i : i + 1);
		for (unsigned m = 0; m < 6; m++)
			drop(t[m]);
		keys_free(&k);
	}
}

TEST(test_refuses)
{
	struct cm_tensor *t[6] = {f32(2, HEADS * DIM), f32(2, HEADS), i32(1, 2),
				  i32(1, 0),	       i32(2, 5),     i32(2, 5)};
	struct txda_op_index_select *p;
	struct keys k;
	struct run r;

	t[2]->ndim = t[4]->ndim = t[5]->ndim = 2;
	keys_new(&k, false);
	store(&k, 0, 60, 4);
	ask(&k, &r, t, 50, 2, 5, 0);
	p = &r.op.index_select;
#define BAD(...) REFUSED(r, TXDA_OP_INDEX_SELECT, __VA_ARGS__)
	BAD(p->n_heads, 0, PROGRAM);
	BAD(p->n_heads, 0xffffffffu, PROGRAM);
	BAD(p->dim, 23, PROGRAM);
	BAD(p->dim, 0xfffffffeu, PROGRAM);
	BAD(p->dim, 24, SHAPE);
	BAD(p->block_size, 17, PROGRAM);
	BAD(p->keys, 0, PROGRAM);
	BAD(p->keys, 0xffffffffu, PROGRAM);
	BAD(p->keys, 6, SHAPE);
	BAD(p->out_col, 1, SHAPE);
	BAD(p->out_col, 0xffffffffu, SHAPE);
	BAD(p->layer_offset, 1ull << 40, SHAPE);
	BAD(ints(k.table)[1], BLOCKS, INDEX);
	BAD(ints(t[2])[1], 3, INDEX);
	BAD(ints(t[3])[0], 1, INDEX);
	BAD(ints(t[3])[0], 40000, INDEX);
	assert_int_equal(run_op(&r, TXDA_OP_INDEX_SELECT, 1), 0);
	for (unsigned m = 0; m < 6; m++)
		drop(t[m]);
	keys_free(&k);
}

/* ---- MLA_SPARSE ---- */

/* Attention over a list of all tokens gives the bits of attention over all; a shorter list in a
 * cache of those alone, too; an empty one zeros. */
static void sparse(bool precise, bool i8)
{
	enum { L = 40, R = 6, N = 70, H = 19, K = 90 };
	const uint64_t layer =
		i8 ? txda_mla8_layer_bytes(L, R, BS) : txda_mla_layer_bytes(L, R, BS);
	struct cm_tensor *cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, 8, layer, 8 * layer * 2),
			 *q = f32(1, H * L), *qr = f32(1, H * R), *table = i32(1, 8),
			 *spans = i32(1, 2), *ctx = i32(1, 0), *slots = i32(1, K),
			 *out = f32(1, H * L), *want = f32(1, H * L);
	struct run all = {.l = {.in = {q, qr, cache, table, spans, ctx},
				.out = {want},
				.precise = precise}},
		   r = {.l = {.in = {q, qr, cache, slots}, .out = {out}, .precise = precise}};

	for (uint64_t i = 0; i < 8 * layer / 2; i++)
		if (i8) /* codes and scales */
			floats(cache)[i] = 0.01f + frand() * 0.001f;
		else if (precise)
			floats(cache)[i] = frand();
		else
			((uint16_t *)cache->ptr)[i] = cm_f32_to_bf16(frand());
	cache->bytes = 8 * layer * (precise ? 2 : 1);
	table->ndim = spans->ndim = slots->ndim = 2;
	ints(spans)[1] = 1;
	ints(ctx)[0] = N;
	for (int b = 0; b < 8; b++)
		ints(table)[b] = 7 - b;
	for (int i = 0; i < K; i++)
		ints(slots)[i] = i < N ? (7 - i / BS) * BS + i % BS : -1;
	all.op.mla_attention = r.op.mla_attention =
		(struct txda_op_mla_attention){H, L, R, BS, 0, 0.3f, i8 ? TXDA_KV_INT8 : 0};
	assert_int_equal(run_op(&all, TXDA_OP_MLA_ATTENTION, 2), 0);
	assert_int_equal(run_op(&r, TXDA_OP_MLA_SPARSE, 3), 0);
	assert_memory_equal(out->ptr, want->ptr, H * L * 4);
	/* the first 33 alone */
	ints(ctx)[0] = 33;
	ints(slots)[33] = -1;
	assert_int_equal(run_op(&all, TXDA_OP_MLA_ATTENTION, 2), 0);
	assert_int_equal(run_op(&r, TXDA_OP_MLA_SPARSE, 1), 0);
	assert_memory_equal(out->ptr, want->ptr, H * L * 4);
	ints(slots)[0] = -1;
	assert_int_equal(run_op(&r, TXDA_OP_MLA_SPARSE, 1), 0);
	for (int i = 0; i < H * L; i++)
		assert_true(floats(out)[i] == 0);
	ints(slots)[50] = 8 * BS; /* even where no list reaches */
	assert_int_equal(run_op(&r, TXDA_OP_MLA_SPARSE, 1), -EINVAL);
	assert_int_equal(r.fault.code, TXDA_FAULT_INDEX);
	drop(cache), drop(q), drop(qr), drop(table), drop(spans), drop(ctx), drop(slots);
	drop(out), drop(want);
}

TEST(test_sparse)
{
	sparse(false, false);
	sparse(true, false);
	sparse(false, true);
	sparse(true, true);
}

OPS_MAIN(false)
