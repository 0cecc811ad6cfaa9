// SPDX-License-Identifier: MIT
/*
 * The compute kernels by themselves: every SIMD path of this CPU against plain loops in double, and
 * the promise that a row's bits do not depend on its company.
 */
#include "ops_fixture.h"

/* ---- attention ---- */

struct batch {
	unsigned hq, hkv, dim, bs, seqs, window;
	const unsigned *ctx, *n;
	bool precise, wide, i8;
	float softcap;
	bool sinks;
};

struct att {
	struct run r;
	struct cm_tensor *q, *cache, *table, *spans, *ctx, *sinks, *out;
};

/* K and V as stored: element of (sequence position, head, d). */
static float cache_get(const struct att *a, unsigned block, unsigned in, unsigned h, unsigned d,
		       bool v)
{
	const struct txda_op_attention *p = &a->r.op.attention;
	unsigned pad = TXDA_KV_DIM(p->head_dim), bs = p->block_size;
	uint64_t at = v ? (uint64_t)pad * bs + in / 2 * pad * 2 + d * 2 + in % 2
			: (uint64_t)in / 16 * pad * 16 + d / 2 * 32 + in % 16 * 2 + d % 2;
	const uint8_t *base =
		(const uint8_t *)a->cache->ptr +
		(a->r.l.precise ? 2 : 1) *
			(block * a->cache->dim[1] + p->layer_offset + (uint64_t)h * pad * bs * 4);

	if (p->flags & TXDA_KV_INT8) {
		base = (const uint8_t *)a->cache->ptr +
		       (a->r.l.precise ? 2 : 1) * (block * a->cache->dim[1] + p->layer_offset +
						   h * txda_kv8_layer_bytes(1, p->head_dim, bs));
		return (float)((const int8_t *)base)[at] *
		       ((const float *)(base + 2ull * pad * bs))[(v ? bs : 0) + in];
	}
	return a->r.l.precise ? ((const float *)base)[at]
			      : cm_bf16_to_f32(((const uint16_t *)base)[at]);
}

static void att_new(struct att *a, const struct batch *b)
{
	unsigned tokens = 0, cols = 1, blocks = 3;
	uint64_t layer = b->i8 ? txda_kv8_layer_bytes(b->hkv, b->dim, b->bs)
			       : txda_kv_layer_bytes(b->hkv, b->dim, b->bs),
		 off = 128, stride = layer + 192, at = 0, next = 0;

	memset(a, 0, sizeof(*a));
	for (unsigned s = 0; s < b->seqs; s++) {
		unsigned c = (b->ctx[s] + b->bs - 1) / b->bs;

		tokens += b->n[s];
		cols = c > cols ? c : cols;
		blocks += c;
	}
	a->q = b->precise || b->wide ? f32(tokens, b->hq * b->dim) : bf16(tokens, b->hq * b->dim);
	a->out = b->precise || b->wide ? f32(tokens, b->hq * b->dim) : bf16(tokens, b->hq * b->dim);
	a->cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, blocks, stride,
			  blocks * stride * (b->precise ? 2 : 1));
	for (uint64_t i = 0; i < blocks * stride / 2; i++)
		if (b->i8)
			((int16_t *)a->cache->ptr)[i] = (int16_t)(frand() * 32767);
		else if (b->precise)
			floats(a->cache)[i] = frand();
		else
			((uint16_t *)a->cache->ptr)[i] = cm_f32_to_bf16(frand());
	a->table = i32(b->seqs, cols);
	a->spans = i32(b->seqs, 2);
	a->ctx = i32(b->seqs, 0);
	for (unsigned s = 0; s < b->seqs; s++) {
		ints(a->spans)[2 * s] = (int32_t)at;
		ints(a->spans)[2 * s + 1] = (int32_t)b->n[s];
		ints(a->ctx)[s] = (int32_t)b->ctx[s];
		at += b->n[s];
		for (unsigned i = 0; i < (b->ctx[s] + b->bs - 1) / b->bs; i++)
			ints(a->table)[s * cols + i] = (int32_t)(blocks - 1 - next++);
	}
	a->sinks = b->sinks ? f32(b->hq, 0) : NULL;
	for (unsigned h = 0; b->sinks && h < b->hq; h++) /* a small share, and nearly all */
		floats(a->sinks)[h] = (float)h * 5 - 8;
	a->r = (struct run){.l = {.in = {a->q, a->cache, a->table, a->spans, a->ctx, a->sinks},
				  .out = {a->out},
				  .precise = b->precise}};
	a->r.op.attention = (struct txda_op_attention){.n_heads = b->hq,
						       .n_kv_heads = b->hkv,
						       .head_dim = b->dim,
						       .block_size = b->bs,
						       .layer_offset = off,
						       .scale = 1.0f / sqrtf((float)b->dim) * 3,
						       .window = b->window,
						       .flags = b->i8 ? TXDA_KV_INT8 : 0,
						       .softcap = b->softcap};
	for (unsigned i = 0; b->i8 && i < blocks * b->hkv; i++) {
		unsigned m = b->precise ? 2 : 1, pad = TXDA_KV_DIM(b->dim);
		uint8_t *head = (uint8_t *)a->cache->ptr +
				m * (i / b->hkv * stride + off +
				     i % b->hkv * txda_kv8_layer_bytes(1, b->dim, b->bs));
		float *scale = (float *)(head + 2ull * pad * b->bs);

		if (b->precise) /* the second half of the doubled cache */
			for (unsigned j = 0; j < 2 * pad * b->bs; j++)
				head[j] = (uint8_t)(int)(frand() * 127);
		for (unsigned j = 0; j < 2 * b->bs; j++)
			scale[j] = (frand() + 1.5f) / 128;
	}
}

static void att_free(struct att *a)
{
	drop(a->q), drop(a->cache), drop(a->table), drop(a->spans), drop(a->ctx), drop(a->sinks),
		drop(a->out);
}

static void att_reference(const struct att *a, const struct batch *b, double *out)
{
	float *q = as_f32(a->q);
	uint64_t t = 0, cols = a->table->dim[1];

	for (unsigned s = 0; s < b->seqs; s++)
		for (unsigned i = 0; i < b->n[s]; i++, t++)
			for (unsigned h = 0; h < b->hq; h++) {
				unsigned pos = b->ctx[s] - b->n[s] + i, kvh = h * b->hkv / b->hq;
				unsigned lo =
					b->window && pos >= b->window ? pos - b->window + 1 : 0;
				double *o = out + (t * b->hq + h) * b->dim, sum = 0, top = -1e30,
				       *e = calloc(pos + 1, 8);

				for (unsigned p = lo; p <= pos; p++) {
					unsigned blk =
						(unsigned)((int32_t *)a->table
								   ->ptr)[s * cols + p / b->bs];

					for (unsigned d = 0; d < b->dim; d++)
						e[p] += (double)q[(t * b->hq + h) * b->dim + d] *
							cache_get(a, blk, p % b->bs, kvh, d, false);
					e[p] *= a->r.op.attention.scale;
					if (b->softcap > 0)
						e[p] = b->softcap * tanh(e[p] / b->softcap);
					top = e[p] > top ? e[p] : top;
				}
				for (unsigned p = lo; p <= pos; p++)
					sum += e[p] = exp(e[p] - top);
				if (b->sinks)
					sum += exp(floats(a->sinks)[h] - top);
				for (unsigned d = 0; d < b->dim; d++)
					o[d] = 0;
				for (unsigned p = lo; p <= pos; p++) {
					unsigned blk =
						(unsigned)((int32_t *)a->table
								   ->ptr)[s * cols + p / b->bs];

					for (unsigned d = 0; d < b->dim; d++)
						o[d] += e[p] / sum *
							cache_get(a, blk, p % b->bs, kvh, d, true);
				}
				free(e);
			}
	free(q);
}

/* Runs tokens [from, from + n) of sequence @s alone and compares bits. */
static void att_alone(const struct att *a, const struct batch *b, unsigned s, uint64_t token0,
		      unsigned from, unsigned n)
{
	size_t es = b->precise || b->wide ? 4 : 2, row = b->hq * b->dim * es;
	struct cm_tensor q = *a->q, out = *a->out, table = *a->table;
	struct cm_tensor *spans = i32(1, 2), *ctx = i32(1, 0);
	struct run r = a->r;

	q.dim[0] = out.dim[0] = n;
	q.ptr = (uint8_t *)a->q->ptr + (token0 + from) * row;
	out.ptr = mem(n * row);
	table.dim[0] = 1;
	table.ptr = (int32_t *)a->table->ptr + s * a->table->dim[1];
	ints(spans)[1] = (int32_t)n;
	ints(ctx)[0] = (int32_t)(b->ctx[s] - b->n[s] + from + n);
	r.l.in[0] = &q;
	r.l.in[2] = &table;
	r.l.in[3] = spans;
	r.l.in[4] = ctx;
	r.l.out[0] = &out;
	assert_int_equal(run_op(&r, TXDA_OP_ATTENTION, 4), 0);
	if (memcmp(out.ptr, (uint8_t *)a->out->ptr + (token0 + from) * row, n * row))
		fail_msg("%s: sequence %u: tokens %u to %u differ when run alone", cm_simd->name, s,
			 from, from + n);
	free(out.ptr);
	drop(spans), drop(ctx);
}

static void att_case(const struct batch *b)
{
	struct att a;
	double *ref, err;
	float *got;
	uint64_t at = 0;

	att_new(&a, b);
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 2), 0);
	ref = calloc(a.q->dim[0] * b->hq * b->dim, 8);
	att_reference(&a, b, ref);
	got = as_f32(a.out);
	err = rel_error(got, ref, a.q->dim[0] * b->hq * b->dim);
	if (!(err < (b->precise ? 1e-6 : 6e-3)))
		fail_msg("%s: attention dim %u: error %g", cm_simd->name, b->dim, err);
	for (unsigned s = 0; s < b->seqs; at += b->n[s], s++) {
		static const unsigned chunks[] = {1, 7, 64};

		for (unsigned c = 0; c < 3; c++)
			for (unsigned i = 0; i < b->n[s]; i += chunks[c])
				att_alone(&a, b, s, at, i,
					  b->n[s] - i < chunks[c] ? b->n[s] - i : chunks[c]);
	}
	free(ref);
	free(got);
	att_free(&a);
}

TEST(test_attention)
{
	static const unsigned ctx[] = {1, 17, 64, 130, 90}, n[] = {1, 17, 1, 3, 90};
	static const unsigned long_ctx[] = {1537, 700}, long_n[] = {1, 1}, pre_n[] = {40, 1};

	for (unsigned p = 0; p < 2; p++) {
		att_case(&(struct batch){4, 2, 64, 32, 5, 0, ctx, n, p});
		att_case(&(struct batch){8, 2, 32, 32, 5, 0, ctx, n, p, .wide = true});
		att_case(&(struct batch){8, 2, 32, 32, 5, 0, ctx, n, p, .i8 = true});
		att_case(&(struct batch){3, 1, 40, 64, 5, 20, ctx, n, p, .wide = true, .i8 = true});
		att_case(&(struct batch){2, 1, 128, 16, 2, 600, long_ctx, pre_n, p, .i8 = true});
		att_case(&(struct batch){6, 6, 16, 16, 5, 0, ctx, n, p});
		att_case(&(struct batch){3, 1, 40, 64, 5, 20, ctx, n, p});
		att_case(&(struct batch){8, 2, 128, 128, 5, 0, ctx, n, p});
		att_case(&(struct batch){24, 1, 32, 32, 2, 0, ctx, n, p});
		/* split over cores; the second has items enough not to be, but alone */
		att_case(&(struct batch){2, 1, 64, 32, 2, 0, long_ctx, long_n, p});
		att_case(&(struct batch){8, 4, 64, 32, 2, 0, long_ctx, long_n, p, .wide = true});
		att_case(&(struct batch){2, 1, 64, 32, 2, 600, long_ctx, pre_n, p});
		/* scores far into the cap, and hardly touched by it */
		att_case(&(struct batch){8, 2, 24, 32, 5, 0, ctx, n, p, .softcap = 0.7f});
		att_case(&(struct batch){3, 1, 40, 64, 5, 20, ctx, n, p, .wide = true,
					 .softcap = 50});
		att_case(&(struct batch){4, 1, 32, 32, 5, 9, ctx, n, p, .i8 = true, .softcap = 2});
		att_case(&(struct batch){2, 1, 64, 32, 2, 600, long_ctx, long_n, p, .softcap = 3});
		att_case(&(struct batch){8, 2, 24, 32, 5, 0, ctx, n, p, .sinks = true});
		att_case(&(struct batch){4, 1, 40, 64, 5, 20, ctx, n, p, .wide = true,
					 .sinks = true});
		att_case(&(struct batch){4, 1, 32, 32, 5, 9, ctx, n, p, .i8 = true, .sinks = true});
		att_case(&(struct batch){2, 1, 64, 32, 2, 0, long_ctx, long_n, p, .sinks = true});
	}
}

/* What the kernel of the path is asked for. */
static const struct cm_simd *real;
static unsigned calls, empty_calls;

static void counted_attend(const struct cm_attend *a)
{
	calls++;
	empty_calls += a->from >= a->to;
	real->attend(a);
}

/* Splits in which no row of an item sees a key take no time, those before a window or behind rows. */
TEST(test_attention_splits)
{
	static const unsigned far[] = {5000}, one[] = {1}, all[] = {2000}, some[] = {40};
	static const struct {
		struct batch b;
		unsigned cores, calls;
	} cases[] = {
		/* positions 4488 to 4999, in two splits; on one core, and split over cores */
		{{2, 1, 32, 32, 1, 512, far, one}, 1, 2},
		{{2, 1, 32, 32, 1, 512, far, one}, 8, 2},
		{{2, 1, 32, 32, 1, 0, far, one}, 1, 10},
		{{2, 1, 32, 32, 1, 0, far, one}, 8, 10},
		/* rows of two tokens each 8, the last of them before, in and behind a split */
		{{2, 1, 32, 32, 1, 0, all, all}, 1, 64 * (1 + 2 + 3) + 58 * 4},
		{{2, 1, 32, 32, 1, 64, far, some}, 2, 5},
	};
	struct cm_simd counted = *cm_simd;

	real = cm_simd;
	counted.attend = counted_attend;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct att a;

		att_new(&a, &cases[i].b);
		calls = empty_calls = 0;
		cm_simd = &counted;
		assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, cases[i].cores), 0);
		cm_simd = real;
		assert_int_equal(calls, cases[i].calls);
		assert_int_equal(empty_calls, 0);
		att_free(&a);
	}
}

/* Only positions within the window are counted as read, in the size of the cache's format. */
TEST(test_attention_traffic)
{
	static const unsigned ctx[] = {40, 7, 300}, n[] = {4, 7, 1};
	static const struct {
		struct batch b;
		uint64_t read, written;
	} cases[] = {
		{{4, 2, 64, 32, 3, 0, ctx, n, .wide = false},
		 (40 + 7 + 300) * 2 * 2 * 64 * 2,
		 12 * 256 * 2},
		{{4, 2, 64, 32, 3, 20, ctx, n, .wide = true},
		 (23 + 7 + 20) * 2 * 2 * 64 * 2,
		 12 * 256 * 4},
		{{4, 1, 64, 32, 3, 20, ctx, n, .i8 = true},
		 (23 + 7 + 20) * 2 * (64 + 4),
		 12 * 256 * 2},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t read, written;
		struct att a;

		att_new(&a, &cases[i].b);
		assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), 0);
		cm_op_impl(TXDA_OP_ATTENTION)->traffic(&a.r.l, &read, &written);
		assert_int_equal(read, cases[i].read);
		assert_int_equal(written, cases[i].written);
		att_free(&a);
	}
}

TEST(test_attention_refuses)
{
	static const unsigned ctx[] = {40}, n[] = {4};
	static const float caps[] = {-1, INFINITY, NAN};
	const struct batch b = {4, 2, 64, 32, 1, 0, ctx, n, false};
	struct txda_op_attention *p;
	struct att a;

	att_new(&a, &b);
	p = &a.r.op.attention;
#define BAD(...) REFUSED(a.r, TXDA_OP_ATTENTION, __VA_ARGS__)
	BAD(ints(a.table)[1], (int32_t)a.cache->dim[0], INDEX);
	assert_int_equal(a.r.fault.detail, a.cache->dim[0]);
	BAD(ints(a.table)[1], -1, INDEX);
	BAD(ints(a.ctx)[0], 65, INDEX);	 /* more blocks than the table has */
	BAD(ints(a.ctx)[0], 3, INDEX);	 /* fewer than the step brings */
	BAD(ints(a.spans)[0], 1, INDEX); /* past T */
	BAD(p->layer_offset, a.cache->dim[1], SHAPE);
	BAD(p->n_kv_heads, 3, PROGRAM);
	BAD(p->n_kv_heads, 0, PROGRAM);
	for (unsigned i = 0; i < 3; i++)
		BAD(p->softcap, caps[i], PROGRAM);
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), 0);
	BAD(a.r.l.in[5], a.ctx, SHAPE); /* not as many as heads, nor floats */
	/* rows, two for each token and KV head, that have no number of 32 bits */
	a.out->dim[0] = 1ull << 31;
	BAD(a.q->dim[0], 1ull << 31, SHAPE);
	assert_int_equal(a.r.fault.detail, 1ull << 31);
	a.q->dim[0] = a.out->dim[0] = (1ull << 31) - 1;
	assert_int_equal(cm_op_impl(TXDA_OP_ATTENTION)->check(&a.r.l), 0);
#undef BAD
	att_free(&a);
}

/* int8: what is read back is what was given, within half a step of each head's own scale. */
TEST(test_kv_int8)
{
	enum { T = 21, HQ = 2, HKV = 2, D = 40, BS = 16, P = 20 };

	for (unsigned precise = 0; precise < 2; precise++) {
		struct cm_tensor *table = f32(T, 2 * P), *qkv = f32(T, (HQ + 2 * HKV) * D),
				 *slots = i32(T, 0), *q = f32(T, HQ * D);
		uint64_t layer = txda_kv8_layer_bytes(HKV, D, BS);
		struct cm_tensor *cache =
			tensor(TXDA_U8, TXDA_KV_PAGED, 0, 3, layer, 3 * layer * 2);
		struct run r = {
			.l = {.in = {qkv, table, slots}, .out = {q, cache}, .precise = precise}};
		struct att a = {.cache = cache, .r = r};

		cache->bytes = 3 * layer * (1 + precise);
		a.r.op.attention = (struct txda_op_attention){
			.head_dim = D, .block_size = BS, .flags = TXDA_KV_INT8};
		for (int t = 0; t < T; t++) {
			ints(slots)[t] = 2 * BS - 1 - t;
			for (int i = 0; i < P; i++) { /* no rotation */
				floats(table)[t * 2 * P + i] = 1;
				floats(table)[t * 2 * P + P + i] = 0;
			}
		}
		floats(qkv)[(HQ + 2 * HKV) * D * 3 + HQ * D] = INFINITY; /* a key of token 3 */
		r.op.rope_kv = (struct txda_op_rope_kv){.n_heads = HQ,
							.n_kv_heads = HKV,
							.head_dim = D,
							.block_size = BS,
							.flags = TXDA_KV_INT8};
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_KV, 2), 0);
		for (int i = 0; i < T * HKV * 2; i++) {
			int t = i / (HKV * 2), h = i % HKV, v = i / HKV % 2, slot = 2 * BS - 1 - t;
			const float *x = (const float *)qkv->ptr + t * (HQ + 2 * HKV) * D +
					 (HQ + (v ? HKV : 0) + h) * D;
			float max = 0;

			for (int d = 0; d < D; d++)
				max = fmaxf(max, fabsf(x[d]));
			for (int d = 0; d < D; d++) {
				float got = cache_get(&a, (unsigned)slot / BS, (unsigned)slot % BS,
						      (unsigned)h, (unsigned)d, v);

				if (isinf(max))
					assert_true(isnan(got));
				else
					assert_true(fabsf(got - x[d]) <= max / 253);
			}
		}
		r.op.rope_kv.flags = 4;
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_KV, 2), -EINVAL);
		drop(table), drop(qkv), drop(slots), drop(q), drop(cache);
	}
}

/*
 * ROPE_KV then reading the cache back: rotation, norms and the cache layout. Slots that follow each
 * other, from the middle of a group on, with a gap; or none that do.
 */
TEST(test_rope_kv)
{
	enum { T = 150, HQ = 4, HKV = 2, D = 40, BS = 16, P = 16, BLOCKS = 20 };

	for (unsigned way = 0; way < 4; way++) {
		const unsigned precise = way % 2, follow = way / 2;
		struct cm_tensor *pos = i32(T, 0), *freq = f32(P, 0), *table = f32(T, 2 * P),
				 *qkv = f32(T, (HQ + 2 * HKV) * D);
		struct cm_tensor *slots = i32(T, 0), *kn = f32(D, 0),
				 *q = precise ? f32(T, HQ * D) : bf16(T, HQ * D);
		uint64_t layer = txda_kv_layer_bytes(HKV, D, BS);
		struct cm_tensor *cache =
			tensor(TXDA_U8, TXDA_KV_PAGED, 0, BLOCKS, layer, BLOCKS * layer * 2);
		struct run r = {.l = {.in = {pos, freq}, .out = {table}}};
		struct att a = {.cache = cache};
		double worst = 0;

		for (int t = 0; t < T; t++) {
			int slot = follow ? 5 + t + (t < 70 ? 0 : 3) : BLOCKS * BS - 1 - 2 * t;

			ints(pos)[t] = t % 20 * 3;
			ints(slots)[t] = t == 5 ? -1 : slot;
		}
		r.op.rope_table = (struct txda_op_rope_table){
			.scale = 1, .base = 10000, .factor = 1, .max_position = 100};
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_TABLE, 2), 0);
		r = (struct run){.l = {.in = {qkv, table, slots, NULL, kn},
				       .out = {q, cache},
				       .precise = precise}};
		r.op.rope_kv = (struct txda_op_rope_kv){.n_heads = HQ,
							.n_kv_heads = HKV,
							.head_dim = D,
							.block_size = BS,
							.eps = 1e-6f};
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_KV, 2), 0);
		a.r.l.precise = precise;
		a.r.op.attention = (struct txda_op_attention){
			.n_kv_heads = HKV, .head_dim = D, .block_size = BS};
		for (int t = 0; t < T; t++)
			for (unsigned h = 0; h < HKV && t != 5; h++) {
				const float *k = (float *)qkv->ptr +
						 (t * (HQ + 2 * HKV) + HQ + h) * D,
					    *v = k + HKV * D;
				int slot = ints(slots)[t];
				double ss = 0;

				for (int d = 0; d < D; d++)
					ss += (double)k[d] * k[d];
				ss = 1 / sqrt(ss / D + 1e-6);
				for (int d = 0; d < D; d++) {
					int i = d % P;
					double ang = t % 20 * 3 * (double)floats(freq)[i],
					       x = k[d] * ss * floats(kn)[d], want = x;
					double gk =
						cache_get(&a, slot / BS, slot % BS, h, d, false);
					double gv = cache_get(&a, slot / BS, slot % BS, h, d, true);

					if (d < P)
						want = x * cos(ang) -
						       k[d + P] * ss * floats(kn)[d + P] * sin(ang);
					else if (d < 2 * P)
						want = x * cos(ang) +
						       k[d - P] * ss * floats(kn)[d - P] * sin(ang);
					worst = fmax(worst, fmax(fabs(gk - want), fabs(gv - v[d])));
				}
			}
		assert_true(worst < (precise ? 2e-5 : 2e-2));
		ints(slots)[2] = BLOCKS * BS;
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_KV, 2), -EINVAL);
		assert_int_equal(r.fault.code, TXDA_FAULT_INDEX);
		drop(pos), drop(freq), drop(table), drop(qkv), drop(slots), drop(kn), drop(q),
			drop(cache);
	}
}

TEST(test_topk)
{
	enum { V = 1013, K = 64 };
	struct cm_tensor *x = f32(3, V), *idx = i32(3, K), *val = f32(3, K), *lse = f32(3, 0);
	struct run r = {.l = {.in = {x}, .out = {idx, val, lse}}};
	float *row = x->ptr;

	row[3] = row[900] = 2.0f; /* equals: the lower index first */
	row[V + 7] = NAN;
	row[V + 500] = INFINITY;
	for (int i = 0; i < V; i++)
		row[2 * V + i] = (float)-i;
	r.op.topk.k = K;
	assert_int_equal(run_op(&r, TXDA_OP_TOPK, 2), 0);
	assert_int_equal(ints(idx)[0], 3);
	assert_int_equal(ints(idx)[1], 900);
	assert_int_equal(ints(idx)[K], 500);
	for (int i = 0; i < K; i++) {
		assert_int_equal(ints(idx)[2 * K + i], i);
		assert_true(i == 0 || floats(val)[i] <= floats(val)[i - 1]);
	}
	{
		double s = 0;

		for (int i = 0; i < V; i++)
			s += exp((double)row[i]);
		assert_true(fabs(log(s) - floats(lse)[0]) < 1e-5);
	}
	r.op.topk.k = TXDA_TOPK_MAX + 1;
	assert_int_equal(run_op(&r, TXDA_OP_TOPK, 2), -EINVAL);
	drop(x), drop(idx), drop(val), drop(lse);
}

TEST(test_rows)
{
	enum { V = 50, H = 72, T = 35 };
	struct cm_tensor *table = tiles(TXDA_W8, TXDA_TILE32, 32, V, H), *tokens = i32(T, 0),
			 *x = f32(T, H), *w = f32(H, 0);
	struct cm_tensor *rows = i32(2, 0), *got = f32(2, H), *y = f32(T, H);
	struct run r = {.l = {.in = {tokens, table}, .out = {x}}};

	for (int t = 0; t < T; t++)
		ints(tokens)[t] = 10 + t;
	r.op.embed = (struct txda_op_embed){.first = 20, .vocab = 100, .scale = 2};
	assert_int_equal(run_op(&r, TXDA_OP_EMBED, 2), 0);
	for (int h = 0; h < H; h++) {
		assert_true(floats(x)[h] == 0); /* token 10 is another chip's */
		assert_true(floats(x)[12 * H + h] == 2 * cm_tile_get(table, 2, (uint64_t)h));
	}
	ints(tokens)[34] = 100;
	assert_int_equal(run_op(&r, TXDA_OP_EMBED, 2), -EINVAL);
	assert_int_equal(r.fault.detail, 100);

	ints(rows)[0] = 34;
	ints(rows)[1] = 11;
	r = (struct run){.l = {.in = {x, rows}, .out = {got}}};
	assert_int_equal(run_op(&r, TXDA_OP_GATHER_ROWS, 2), 0);
	assert_memory_equal((float *)got->ptr + H, (float *)x->ptr + 11 * H, H * 4);
	ints(rows)[0] = -1;
	assert_int_equal(run_op(&r, TXDA_OP_GATHER_ROWS, 2), -EINVAL);

	r = (struct run){.l = {.in = {x, w}, .out = {y}}};
	r.op.rmsnorm.eps = 1e-5f;
	assert_int_equal(run_op(&r, TXDA_OP_RMSNORM, 2), 0);
	{
		float one[H];

		cm_precise_norm(one, (float *)x->ptr + 12 * H, w->ptr, H, 1e-5f);
		for (int h = 0; h < H; h++)
			assert_true(fabsf(one[h] - floats(y)[12 * H + h]) <
				    1e-5f * (1 + fabsf(one[h])));
	}
	drop(table), drop(tokens), drop(x), drop(w), drop(rows), drop(got), drop(y);
}

TEST(test_collectives)
{
	enum { M = 9, W = 40, V = 70 };
	struct cm_tensor *x[2] = {f32(M, W), f32(M, W)}, *res = f32(M, W),
			 *out[2] = {f32(M, W), f32(M, W)}, *all = f32(M, V);
	struct run r[2] = {0};

	for (unsigned i = 0; i < 2; i++) {
		r[i].l.in[0] = x[i];
		r[i].l.out[0] = out[i];
		r[i].l.group_size = 2;
		r[i].l.rank = i;
		r[i].l.peer[0] = r[1].l.peer[0] = &r[0].l;
		r[i].l.peer[1] = r[0].l.peer[1] = &r[1].l;
	}
	r[1].l.in[1] = res;
	assert_int_equal(run_op(&r[1], TXDA_OP_ALL_REDUCE, 2), 0);
	for (int i = 0; i < M * W; i++) {
		float sum = floats(x[0])[i] + floats(x[1])[i];

		assert_true(floats(out[0])[i] == sum);
		assert_true(floats(out[1])[i] == floats(res)[i] + sum);
	}
	r[1].l.in[1] = NULL;
	r[1].l.out[0] = NULL;
	r[0].l.out[0] = all;
	assert_int_equal(run_op(&r[0], TXDA_OP_ALL_GATHER, 2), 0);
	for (int m = 0; m < M; m++)
		for (int v = 0; v < V; v++)
			assert_true(floats(all)[m * V + v] ==
				    ((float *)x[v / W]->ptr)[m * W + v % W]);
	r[0].l.out[0] = out[0]; /* too narrow for two ranks */
	assert_int_equal(run_op(&r[0], TXDA_OP_ALL_GATHER, 2), -EINVAL);
	drop(x[0]), drop(x[1]), drop(res), drop(out[0]), drop(out[1]), drop(all);
}

OPS_MAIN(false)
