// SPDX-License-Identifier: MIT
/*
 * Values that are not finite: a query that sees one gets NaN from its head, and what it does not see
 * leaves no trace. So the bits of earlier rows are those without the later token, on every SIMD path,
 * in every kind of attention, in one step and in chunks.
 */
#include "ops_fixture.h"

#include <float.h>

enum { T = 560, FIRST = 490, BS = 32, BLOCKS = T / BS + 1 };

/* The first of a split, and one in the middle of a tile. */
static const unsigned tokens[] = {TXDA_ATTENTION_SPLIT, TXDA_ATTENTION_SPLIT + 19};

static const float spoils[] = {INFINITY, -INFINITY, NAN, FLT_MAX /* infinite as bf16 */};

/* What stores a token's key and value, and what attends. */
struct world {
	struct run store, attend;
	struct cm_tensor *in, *table, *slots, *norm, *q, *cache, *q_latent, *blocks, *lists, *out;
	uint32_t sees; /* keys that a row sees; 0: all */
};

static void world_new(struct world *w, uint64_t layer, bool precise)
{
	w->slots = i32(T, 0);
	w->blocks = i32(1, BLOCKS);
	w->cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, BLOCKS, layer, BLOCKS * layer * 2);
	w->cache->bytes = BLOCKS * layer * (1 + precise);
	for (int b = 0; b < BLOCKS; b++)
		ints(w->blocks)[b] = BLOCKS - 1 - b;
	for (int t = 0; t < T; t++)
		ints(w->slots)[t] = (BLOCKS - 1 - t / BS) * BS + t % BS;
	w->store.l.precise = w->attend.l.precise = precise;
}

static void world_free(struct world *w)
{
	drop(w->in), drop(w->table), drop(w->slots), drop(w->norm), drop(w->q), drop(w->cache);
	drop(w->q_latent), drop(w->blocks), drop(w->lists), drop(w->out);
}

static struct cm_tensor rows_of(const struct cm_tensor *t, unsigned from, unsigned n)
{
	struct cm_tensor part = *t;

	part.dim[0] = n;
	part.ptr = (float *)t->ptr + (uint64_t)from * t->dim[1];
	return part;
}

/* Tokens [from, from + n) as a step. */
static void step(const struct world *w, unsigned from, unsigned n)
{
	struct cm_tensor *spans = i32(1, 2), *ctx = i32(1, 0);
	struct run r[2] = {w->store, w->attend};
	struct cm_tensor row[16];
	unsigned rows = 0;

	spans->ndim = 2;
	ints(spans)[1] = (int32_t)n;
	ints(ctx)[0] = (int32_t)(from + n);
	for (unsigned i = 0; i < 2; i++) {
		const struct cm_tensor **t[] = {r[i].l.in,     r[i].l.in + 1, r[i].l.in + 2,
						r[i].l.in + 3, r[i].l.out,    NULL};

		for (unsigned j = 0; t[j]; j++)
			if (*t[j] && (*t[j])->dim[0] == T) {
				row[rows] = rows_of(*t[j], from, n);
				*t[j] = &row[rows++];
			}
		for (unsigned j = 0; i && j < 5; j++)
			if (r[i].l.in[j] == w->blocks) {
				r[i].l.in[j + 1] = spans;
				r[i].l.in[j + 2] = ctx;
			}
		assert_int_equal(run_op(&r[i], r[i].op.op, 3), 0);
	}
	drop(spans), drop(ctx);
}

/* All tokens at once, or, behind the first ones, in chunks. */
static void run_chunks(const struct world *w, unsigned chunk)
{
	memset(w->cache->ptr, 0, w->cache->bytes);
	if (chunk < T)
		step(w, 0, FIRST);
	for (unsigned at = chunk < T ? FIRST : 0; at < T; at += chunk)
		step(w, at, T - at < chunk ? T - at : chunk);
}

/* Element @at of the input of token @spoiled goes through the first @n of @spoils; heads of @out are @dim
 * wide, and those in [first, end) see it. */
static void check_token(const struct world *w, unsigned spoiled, unsigned at, unsigned n,
			unsigned dim, unsigned first, unsigned end)
{
	static const unsigned chunks[] = {1, 25};
	const unsigned width = (unsigned)w->out->dim[1];
	float *element = floats(w->in) + spoiled * w->in->dim[1] + at, was = *element;
	uint32_t *clean = malloc(T * width * 4);

	run_chunks(w, T);
	memcpy(clean, w->out->ptr, T * width * 4);
	/* The first one in chunks, too. */
	for (unsigned i = 0; i < n + ARRAY_SIZE(chunks); i++) {
		*element = spoils[i < n ? i : 0];
		run_chunks(w, i < n ? T : chunks[i - n]);
		for (unsigned j = 0; j < T * width; j++) {
			const unsigned t = j / width, head = j % width / dim;
			const bool sees = t >= spoiled && (!w->sees || t - spoiled < w->sees) &&
					  head >= first && head < end;

			/* Precise mode keeps what is infinite; there the largest float is not. */
			if (sees ? !w->attend.l.precise && !isnan(floats(w->out)[j])
				 : ((uint32_t *)w->out->ptr)[j] != clean[j])
				fail_msg("%s: %g: token %u head %u: %g", cm_simd->name,
					 (double)*element, t, head, (double)floats(w->out)[j]);
		}
	}
	*element = was;
	free(clean);
}

static void check(const struct world *w, unsigned at, unsigned n, unsigned dim, unsigned first,
		  unsigned end)
{
	check_token(w, tokens[0], at, w->attend.l.precise ? 1 : n, dim, first, end);
	check_token(w, tokens[1], at, 1, dim, first, end);
}

/* ATTENTION with values of dimension @dim. */
static void dense(unsigned dim, uint32_t window, bool i8, bool precise)
{
	enum { HQ = 4, HKV = 2 };
	const uint32_t flags = i8 ? TXDA_KV_INT8 : 0;
	struct world w = {.sees = window};

	world_new(&w, i8 ? txda_kv8_layer_bytes(HKV, dim, BS) : txda_kv_layer_bytes(HKV, dim, BS),
		  precise);
	w.in = f32(T, (HQ + 2 * HKV) * dim);
	w.table = f32(T, 2);
	w.q = f32(T, HQ * dim);
	w.out = f32(T, HQ * dim);
	w.store.l.in[0] = w.in;
	w.store.l.in[1] = w.table;
	w.store.l.in[2] = w.slots;
	w.store.l.out[0] = w.q;
	w.store.l.out[1] = w.cache;
	w.store.op.op = TXDA_OP_ROPE_KV;
	w.store.op.rope_kv = (struct txda_op_rope_kv){HQ, HKV, dim, BS, .flags = flags};
	w.attend.l.in[0] = w.q;
	w.attend.l.in[1] = w.cache;
	w.attend.l.in[2] = w.blocks;
	w.attend.l.out[0] = w.out;
	w.attend.op.op = TXDA_OP_ATTENTION;
	w.attend.op.attention = (struct txda_op_attention){
		HQ, HKV, dim, BS, .scale = 0.3f, .window = window, .flags = flags};
	/* the second head's value, element 3 */
	check(&w, (HQ + HKV + 1) * dim + 3, ARRAY_SIZE(spoils), dim, HQ / 2, HQ);
	world_free(&w);
}

TEST(test_dense)
{
	for (unsigned i = 0; i < 8; i++)
		dense(i % 2 ? 40 : 32, i & 2 ? 9 : 0, i & 4, false);
	dense(40, 9, false, true);
	dense(40, 0, true, true);
}

/* MLA_ATTENTION, or MLA_SPARSE over lists of the last @listed tokens. */
static void latent(uint32_t listed, bool i8, bool precise)
{
	enum { HEADS = 3, L = 23, R = 6 };
	const uint32_t flags = i8 ? TXDA_KV_INT8 : 0;
	struct world w = {.sees = listed};

	world_new(&w, i8 ? txda_mla8_layer_bytes(L, R, BS) : txda_mla_layer_bytes(L, R, BS),
		  precise);
	w.in = f32(T, L + R);
	w.table = f32(T, R);
	w.norm = f32(L, 0);
	w.q = f32(T, HEADS * R);
	w.q_latent = f32(T, HEADS * L);
	w.out = f32(T, HEADS * L);
	w.lists = i32(T, 9);
	for (unsigned i = 0; i < T * 9; i++) {
		unsigned t = i / 9, back = 8 - i % 9;

		ints(w.lists)[i] = ints(w.slots)[t < back ? t : t - back];
	}
	w.store.op.op = TXDA_OP_MLA_STORE;
	w.store.op.mla_store = (struct txda_op_mla_store){HEADS, L, R, BS, 0, 1e-6f, flags};
	w.store.l.in[0] = w.q;
	w.store.l.in[1] = w.table;
	w.store.l.in[2] = w.slots;
	w.store.l.in[3] = w.in;
	w.store.l.in[4] = w.norm;
	w.store.l.out[0] = w.q;
	w.store.l.out[1] = w.cache;
	w.attend.op.op = listed ? TXDA_OP_MLA_SPARSE : TXDA_OP_MLA_ATTENTION;
	w.attend.op.mla_attention = (struct txda_op_mla_attention){HEADS, L, R, BS, 0, 0.3f, flags};
	w.attend.l.in[0] = w.q_latent;
	w.attend.l.in[1] = w.q;
	w.attend.l.in[2] = w.cache;
	w.attend.l.in[3] = listed ? w.lists : w.blocks;
	w.attend.l.out[0] = w.out;
	/* Queries that are rotated again would differ. */
	for (unsigned i = 0; i < T * R; i++)
		floats(w.table)[i] = i % R < R / 2;
	/* The norm makes nothing of the largest float. */
	check(&w, 5, ARRAY_SIZE(spoils) - 1, L, 0, HEADS);
	world_free(&w);
}

TEST(test_latent)
{
	for (unsigned i = 0; i < 4; i++)
		latent(0, i & 1, i & 2);
}

TEST(test_sparse)
{
	for (unsigned i = 0; i < 4; i++)
		latent(9, i & 1, i & 2);
}

/* SPAN_ATTENTION: all rows of a span see each other, and none of another one. */
TEST(test_spans)
{
	enum { ROWS = 90, HEADS = 2, D = 20, W = HEADS * D };
	static const int32_t span[] = {0, 45, 45, 44};
	struct cm_tensor *qkv = f32(ROWS, 3 * W), *spans = i32(2, 2), *clean = f32(ROWS, W),
			 *out = f32(ROWS, W);
	struct run r = {.l = {.in = {qkv, spans}, .out = {clean}}};
	float *element = floats(qkv) + 46 * 3 * W + 2 * W + D + 3;

	memcpy(spans->ptr, span, sizeof(span));
	r.op.span_attention = (struct txda_op_span_attention){HEADS, D, 0.3f};
	assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 2), 0);
	r.l.out[0] = out;
	for (unsigned i = 0; i < ARRAY_SIZE(spoils); i++) {
		*element = spoils[i];
		assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 2), 0);
		for (unsigned j = 0; j < 89 * W; j++) {
			if (j / W >= 45 && j % W >= D)
				assert_true(isnan(floats(out)[j]));
			else
				assert_memory_equal(floats(out) + j, floats(clean) + j, 4);
		}
	}
	drop(qkv), drop(spans), drop(clean), drop(out);
}

OPS_MAIN(false)
