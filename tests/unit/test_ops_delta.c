// SPDX-License-Identifier: MIT
/*
 * DELTA_CONV, DELTA_RULE and GATE on every SIMD path against plain loops in double; the same bits
 * alone, in pieces of any size, and behind a snapshot of another sequence; refusals.
 */
#include "ops_fixture.h"

enum { HK = 2, HV = 6, DK = 5, DV = 19, C = 2 * HK * DK + HV * DV, K = 4, BS = 16, TOKENS = 53 };
/* A state is in three blocks: the convolution's, four heads, two heads. */
enum { BLOCKS = 12, CONV_AT = 64, RULE_AT = 192, STATE = 3, PER_BLOCK = 4 };
enum { FROM = 1, TO = 1 + STATE, SNAPSHOT = 1 + 2 * STATE };

/* One sequence's inputs, and the cache. */
struct world {
	struct cm_tensor *x, *kernel, *ba, *decays, *cache, *table;
	bool precise;
};

static void world_new(struct world *w, bool precise)
{
	uint64_t stride;

	w->precise = precise;
	stride = RULE_AT + PER_BLOCK * txda_delta_state_bytes(DK, DV);
	assert_true(CONV_AT + txda_conv_state_bytes(C, K) <= stride);
	w->x = f32(TOKENS, C);
	w->kernel = f32(C, K);
	w->ba = f32(TOKENS, 2 * HV);
	w->decays = f32(2, HV);
	for (unsigned h = 0; h < HV; h++)
		floats(w->decays)[h] = -0.2f - (float)h / 5;
	w->cache = tensor(TXDA_U8, TXDA_KV_PAGED, 0, BLOCKS, stride, BLOCKS * stride * 2);
	w->cache->bytes = BLOCKS * stride * (precise ? 2 : 1);
	memset(w->cache->ptr, 0xff, w->cache->bytes); /* NaN wherever nothing is stored */
	w->table = i32(1, 1 + 3 * STATE);
	for (int b = 0; b < STATE; b++) {
		int32_t *row = w->table->ptr;

		row[FROM + b] = row[TO + b] = 2 * b + 1;
		row[SNAPSHOT + b] = 2 * b;
	}
	*(int32_t *)w->table->ptr = 2 * BS;
}

static void world_free(struct world *w)
{
	drop(w->x), drop(w->kernel), drop(w->ba), drop(w->decays), drop(w->cache), drop(w->table);
}

/* Rows [from, from + n) of @t. */
static struct cm_tensor rows_of(const struct cm_tensor *t, unsigned from, unsigned n)
{
	struct cm_tensor part = *t;

	part.dim[0] = n;
	part.ptr = (float *)t->ptr + (uint64_t)from * t->dim[1];
	return part;
}

/* Tokens [from, from + n) by both ops; the results go to their rows of @mixed and @out. */
static void step(const struct world *w, unsigned from, unsigned n, struct cm_tensor *mixed,
		 struct cm_tensor *out, unsigned cores)
{
	struct cm_tensor x = rows_of(w->x, from, n), y = rows_of(mixed, from, n),
			 ba = rows_of(w->ba, from, n), o = rows_of(out, from, n);
	struct cm_tensor *spans = i32(1, 2), *ctx = i32(1, 0);
	struct run conv = {.l = {.in = {&x, w->kernel, w->table, spans, ctx},
				 .out = {&y, w->cache},
				 .precise = w->precise}},
		   rule = {.l = {.in = {&y, &ba, w->decays, w->table, spans, ctx},
				 .out = {&o, w->cache},
				 .precise = w->precise}};

	spans->ndim = 2;
	ints(spans)[1] = (int32_t)n;
	ints(ctx)[0] = (int32_t)(from + n);
	conv.op.delta_conv = (struct txda_op_delta_conv){0, 0, CONV_AT};
	rule.op.delta_rule = (struct txda_op_delta_rule){HK, HV, DK, DV, RULE_AT, 1, PER_BLOCK};
	assert_int_equal(run_op(&conv, TXDA_OP_DELTA_CONV, cores), 0);
	assert_int_equal(run_op(&rule, TXDA_OP_DELTA_RULE, cores), 0);
	drop(spans), drop(ctx);
}

static void conv_reference(const struct world *w, double *y)
{
	const float *x = w->x->ptr, *k = w->kernel->ptr;

	for (int t = 0; t < TOKENS; t++)
		for (int c = 0; c < C; c++) {
			double sum = 0;

			for (int j = 0; j < K; j++)
				if (t - K + 1 + j >= 0)
					sum += (double)k[c * K + j] * x[(t - K + 1 + j) * C + c];
			y[t * C + c] = sum / (1 + exp(-sum));
		}
}

static void rule_reference(const struct world *w, const double *y, double *out)
{
	static double s[HV][DK][DV];

	memset(s, 0, sizeof(s));
	for (int i = 0; i < TOKENS * HV; i++) {
		const int t = i / HV, h = i % HV, g = h * HK / HV;
		const double *q = y + t * C + g * DK, *k = q + HK * DK,
			     *v = y + t * C + 2 * HK * DK + h * DV;
		const float *ba = (float *)w->ba->ptr + t * 2 * HV, *c = w->decays->ptr;
		double qq = 1e-6, kk = 1e-6, beta = 1 / (1 + exp(-ba[h])),
		       decay = exp(c[h] * log(1 + exp(ba[HV + h] + c[HV + h])));

		for (int a = 0; a < DK; a++) {
			qq += q[a] * q[a];
			kk += k[a] * k[a];
		}
		for (int d = 0; d < DV; d++) {
			double memory = 0, sum = 0;

			for (int a = 0; a < DK; a++) {
				s[h][a][d] *= decay;
				memory += s[h][a][d] * k[a] / sqrt(kk);
			}
			for (int a = 0; a < DK; a++) {
				s[h][a][d] += k[a] / sqrt(kk) * beta * (v[d] - memory);
				sum += s[h][a][d] * q[a] / sqrt(qq * DK);
			}
			out[i * DV + d] = sum;
		}
	}
}

TEST(test_delta)
{
	static const unsigned pieces[] = {TOKENS, 1, 7, 16, 32};

	for (unsigned precise = 0; precise < 2; precise++) {
		struct cm_tensor *mixed = f32(TOKENS, C), *out = f32(TOKENS, HV * DV),
				 *mixed2 = f32(TOKENS, C), *out2 = f32(TOKENS, HV * DV);
		double *y = calloc(TOKENS * C, 8), *want = calloc(TOKENS * HV * DV, 8);
		struct world w;

		world_new(&w, precise);
		step(&w, 0, TOKENS, mixed, out, 3);
		conv_reference(&w, y);
		assert_true(rel_error(mixed->ptr, y, TOKENS * C) < 1e-6);
		rule_reference(&w, y, want);
		assert_true(rel_error(out->ptr, want, TOKENS * HV * DV) < 2e-6);
		for (unsigned i = 0; i < 5; i++) {
			memset(w.cache->ptr, 0xff, w.cache->bytes);
			for (unsigned at = 0; at < TOKENS; at += pieces[i])
				step(&w, at, TOKENS - at < pieces[i] ? TOKENS - at : pieces[i],
				     mixed2, out2, 1 + i);
			assert_memory_equal(mixed2->ptr, mixed->ptr, TOKENS * C * 4);
			assert_memory_equal(out2->ptr, out->ptr, TOKENS * HV * DV * 4);
		}
		/* another one goes on behind the snapshot, with blocks of its own */
		for (int b = 0; b < STATE; b++) {
			ints(w.table)[FROM + b] = 2 * b;
			ints(w.table)[TO + b] = 2 * b + 6;
		}
		step(&w, 2 * BS, TOKENS - 2 * BS, mixed2, out2, 2);
		assert_memory_equal(mixed2->ptr, mixed->ptr, TOKENS * C * 4);
		assert_memory_equal(out2->ptr, out->ptr, TOKENS * HV * DV * 4);
		free(y), free(want);
		drop(mixed), drop(out), drop(mixed2), drop(out2);
		world_free(&w);
	}
}

/*
 * Tokens without input let a state decay until nothing is left of it, not to subnormal numbers, which
 * stay. These are part of what precise mode computes.
 */
TEST(test_forgets)
{
	for (unsigned precise = 0; precise < 2; precise++) {
		struct cm_tensor *mixed = f32(TOKENS, C), *out = f32(TOKENS, HV * DV),
				 *spans = i32(1, 2), *ctx = i32(1, 0);
		struct run rule;
		unsigned left = 0;
		struct world w;

		world_new(&w, precise);
		step(&w, 0, TOKENS, mixed, out, 2);
		memset(mixed->ptr, 0, mixed->bytes);
		rule = (struct run){.l = {.in = {mixed, w.ba, w.decays, w.table, spans, ctx},
					  .out = {out, w.cache},
					  .precise = precise}};
		rule.op.delta_rule =
			(struct txda_op_delta_rule){HK, HV, DK, DV, RULE_AT, 1, PER_BLOCK};
		spans->ndim = 2;
		ints(spans)[1] = TOKENS;
		for (int i = 1; i < 40; i++) {
			ints(ctx)[0] = TOKENS * (i + 1);
			assert_int_equal(run_op(&rule, TXDA_OP_DELTA_RULE, 2), 0);
		}
		for (unsigned h = 0; h < HV; h++) {
			const uint64_t block = ints(w.table)[TO + 1 + h / PER_BLOCK];
			const float *s =
				(float *)((uint8_t *)w.cache->ptr +
					  (block * w.cache->dim[1] + RULE_AT) * (1 + precise)) +
				h % PER_BLOCK * txda_delta_state_bytes(DK, DV) / 4;

			for (unsigned i = 0; i < DK * DV; i++)
				left += s[i] != 0;
		}
		assert_int_equal(left != 0, precise);
		drop(mixed), drop(out), drop(spans), drop(ctx);
		world_free(&w);
	}
}

TEST(test_gate)
{
	enum { T = 9, N = 36, D = 12 };
	struct cm_tensor *x = f32(T, N), *gate = f32(T, N), *norm = f32(D, 0), *out = f32(T, N),
			 *odd = f32(7, 0);

	for (unsigned i = 0; i < 4; i++) {
		struct run r = {.l = {.in = {x, gate, i & 1 ? norm : NULL}, .out = {out}}};

		r.op.gate = (struct txda_op_gate){1e-6f, i & 2 ? TXDA_GATE_SILU : 0};
		assert_int_equal(run_op(&r, TXDA_OP_GATE, 2), 0);
		for (unsigned j = 0; j < T * N; j++) {
			const float *run = (float *)x->ptr + j / D * D;
			double g = floats(gate)[j], v = run[j % D], s = 0;

			for (unsigned d = 0; d < D; d++)
				s += (double)run[d] * run[d] / D;
			if (i & 1)
				v *= floats(norm)[j % D] / sqrt(s + 1e-6);
			v *= (i & 2 ? g : 1) / (1 + exp(-g));
			assert_true(fabs(floats(out)[j] - v) < 1e-6);
		}
		r.op.gate.flags = 2;
		assert_int_equal(run_op(&r, TXDA_OP_GATE, 2), -EINVAL);
		r.op.gate.flags = 0;
		r.l.in[2] = odd;
		assert_int_equal(run_op(&r, TXDA_OP_GATE, 2), -EINVAL);
		assert_int_equal(r.fault.code, TXDA_FAULT_SHAPE);
	}
	drop(x), drop(gate), drop(norm), drop(out), drop(odd);
}

TEST(test_refuses)
{
	struct cm_tensor *y = f32(TOKENS, C), *out = f32(TOKENS, HV * DV), *spans = i32(1, 2),
			 *ctx = i32(1, 0);
	struct txda_op_delta_rule *p;
	struct world w;
	struct run r, c;

	world_new(&w, false);
	spans->ndim = 2;
	ints(spans)[1] = ints(ctx)[0] = TOKENS;
	c = (struct run){.l = {.in = {w.x, w.kernel, w.table, spans, ctx}, .out = {y, w.cache}}};
	c.op.delta_conv = (struct txda_op_delta_conv){0, 0, CONV_AT};
	r = (struct run){
		.l = {.in = {y, w.ba, w.decays, w.table, spans, ctx}, .out = {out, w.cache}}};
	r.op.delta_rule = (struct txda_op_delta_rule){HK, HV, DK, DV, RULE_AT, 1, PER_BLOCK};
	p = &r.op.delta_rule;
#define RULE(...) REFUSED(r, TXDA_OP_DELTA_RULE, __VA_ARGS__)
#define CONV(...) REFUSED(c, TXDA_OP_DELTA_CONV, __VA_ARGS__)
	RULE(p->n_k_heads, 0, PROGRAM);
	RULE(p->n_k_heads, 4, PROGRAM);
	RULE(p->n_v_heads, 0xfffffffeu, PROGRAM);
	RULE(p->n_v_heads, 8, SHAPE);
	RULE(p->k_dim, 0, PROGRAM);
	RULE(p->k_dim, 0xffffffffu, PROGRAM);
	RULE(p->v_dim, 513, PROGRAM);
	RULE(p->per_block, 0, PROGRAM);
	RULE(p->per_block, HV + 1, PROGRAM);
	RULE(p->per_block, PER_BLOCK + 1, SHAPE);
	RULE(p->per_block, 1, SHAPE);
	RULE(p->first, 2, SHAPE);
	RULE(p->first, 0xffffffffu, SHAPE);
	RULE(p->layer_offset, 32, SHAPE);
	RULE(p->layer_offset, RULE_AT + 64, SHAPE);
	RULE(ints(w.table)[2], BLOCKS, INDEX);
	RULE(ints(spans)[1], TOKENS + 1, INDEX);
	RULE(ints(ctx)[0], TOKENS - 1, INDEX);
	RULE(ints(ctx)[0], -1, INDEX);
	RULE(w.table->dim[1], 3 * STATE, SHAPE);
	CONV(c.op.delta_conv.first, STATE, SHAPE);
	CONV(c.op.delta_conv.reserved, 1, PROGRAM);
	CONV(c.op.delta_conv.layer_offset, 1ull << 40, SHAPE);
	CONV(w.kernel->dim[1], 1, SHAPE);
	CONV(w.kernel->dim[1], TXDA_DELTA_MAX_KERNEL + 1, SHAPE);
	CONV(ints(w.table)[3], -1, INDEX);
	CONV(ints(spans)[0], -1, INDEX);
	assert_int_equal(run_op(&c, TXDA_OP_DELTA_CONV, 1), 0);
	assert_int_equal(run_op(&r, TXDA_OP_DELTA_RULE, 1), 0);
	drop(y), drop(out), drop(spans), drop(ctx);
	world_free(&w);
}

OPS_MAIN(false)
