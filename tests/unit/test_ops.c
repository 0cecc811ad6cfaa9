// SPDX-License-Identifier: MIT
/*
 * The compute kernels by themselves: every SIMD path of this CPU against plain loops in double, and
 * the promise that a row's bits do not depend on its company.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "check.h"
#include "ops.h"
#include "simd.h"
#include "vec.h"

static uint64_t rng = 1;

static float frand(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (float)(int32_t)(rng >> 32) * 0x1p-31f;
}

static void *mem(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);

	assert_non_null(p);
	memset(p, 0, (bytes + 64 + 63) / 64 * 64);
	return p;
}

static struct cm_tensor *tensor(uint8_t dtype, uint8_t layout, uint16_t group, uint64_t d0,
				uint64_t d1, size_t bytes)
{
	struct cm_tensor *t = calloc(1, sizeof(*t));

	*t = (struct cm_tensor){.ptr = mem(bytes),
				.dim = {d0, d1 ? d1 : 1, 1, 1},
				.ndim = d1 ? 2 : 1,
				.dtype = dtype,
				.layout = layout,
				.group = group,
				.bytes = bytes};
	return t;
}

static struct cm_tensor *f32(uint64_t d0, uint64_t d1)
{
	struct cm_tensor *t = tensor(TXDA_F32, TXDA_ROWS, 0, d0, d1, d0 * (d1 ? d1 : 1) * 4);

	for (uint64_t i = 0; i < d0 * (d1 ? d1 : 1); i++)
		((float *)t->ptr)[i] = frand();
	return t;
}

static struct cm_tensor *bf16(uint64_t d0, uint64_t d1)
{
	struct cm_tensor *t = tensor(TXDA_BF16, TXDA_ROWS, 0, d0, d1, d0 * d1 * 2);

	for (uint64_t i = 0; i < d0 * d1; i++)
		((uint16_t *)t->ptr)[i] = cm_f32_to_bf16(frand());
	return t;
}

static struct cm_tensor *i32(uint64_t d0, uint64_t d1)
{
	return tensor(TXDA_I32, TXDA_ROWS, 0, d0, d1, d0 * (d1 ? d1 : 1) * 4);
}

static void drop(struct cm_tensor *t)
{
	if (t)
		free(t->ptr);
	free(t);
}

static uint16_t to_f16(float f)
{
	/* values of the tests are normal numbers in float16's range */
	uint32_t u;

	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16 & 0x8000) |
	       (uint16_t)((((u >> 23 & 255) - 112) << 10 | (u >> 13 & 0x3ff)));
}

/* Random tiles; padding (rows past n, K past the end) as the format says. */
static struct cm_tensor *tiles(uint8_t dtype, uint8_t layout, uint16_t group, uint64_t n,
			       uint64_t k)
{
	uint64_t panels = txda_tile_panels(layout, n),
		 bytes = txda_tile_panel_bytes(dtype, k, group);
	struct cm_tensor *t = tensor(dtype, layout, group, n, k, panels * bytes);
	uint8_t *p = t->ptr;

	for (uint64_t i = 0; i < panels * bytes / 2; i++) {
		float f = frand();

		((uint16_t *)p)[i] =
			dtype == TXDA_BF16
				? cm_f32_to_bf16(f)
				: to_f16(group	 ? (f + 2) / (float)(dtype == TXDA_W8 ? 1024 : 64)
					 : f < 0 ? f - 0.01f
						 : f + 0.01f);
	}
	if (dtype == TXDA_F32)
		for (uint64_t i = 0; i < panels * bytes / 4; i++)
			((float *)p)[i] = frand();
	if (dtype == TXDA_W8 || dtype == TXDA_W4) {
		uint64_t gb = 64 + (uint64_t)group * (dtype == TXDA_W8 ? 32 : 16);

		for (uint64_t i = 0; i < panels * bytes; i++)
			if (i % bytes % gb >= 64)
				p[i] = (uint8_t)(rng = rng * 6364136223846793005ull + 1, rng >> 40);
	}
	/* an odd K: the pair's second element meets a zero activation, but must be finite */
	return t;
}

struct run {
	struct cm_launch l;
	struct txda_op op;
	struct txda_fault fault;
};

static int run_op(struct run *r, unsigned opcode, unsigned cores)
{
	const struct cm_op_impl *impl = cm_op_impl(opcode);
	struct cm_op_need need = {0};
	int err;

	r->op.op = (uint16_t)opcode;
	r->l.op = &r->op;
	r->l.fault = &r->fault;
	r->l.cores = cores;
	if (!r->l.group_size) {
		r->l.group_size = 1;
		r->l.peer[0] = &r->l;
	}
	err = impl->check(&r->l);
	if (err)
		return err;
	impl->need(&r->l, &need);
	r->l.shared = mem(need.shared_bytes);
	r->l.shared_bytes = need.shared_bytes;
	for (unsigned i = 0; i < cores; i++)
		r->l.core[i] = mem(need.core_bytes);
	r->l.core_bytes = need.core_bytes;
	impl->plan(&r->l);
	assert_true(r->l.phases <= CM_MAX_PHASES);
	for (unsigned ph = 0; ph < r->l.phases; ph++)
		for (unsigned p = r->l.parts[ph]; p-- > 0;) /* any order will do */
			impl->run(&r->l, ph, p, p % cores);
	free(r->l.shared);
	for (unsigned i = 0; i < cores; i++)
		free(r->l.core[i]);
	return 0;
}

static double rel_error(const float *a, const double *b, size_t n)
{
	double e = 0, s = 0;

	for (size_t i = 0; i < n; i++) {
		e += (a[i] - b[i]) * (a[i] - b[i]);
		s += b[i] * b[i];
	}
	return sqrt(e / (s + 1e-30));
}

static float *as_f32(const struct cm_tensor *t)
{
	uint64_t n = t->dim[0] * t->dim[1];
	float *f = malloc(n * 4 + 4);

	for (uint64_t i = 0; i < n; i++)
		f[i] = t->dtype == TXDA_F32 ? ((float *)t->ptr)[i]
					    : cm_bf16_to_f32(((uint16_t *)t->ptr)[i]);
	return f;
}

struct linear_case {
	uint8_t dtype;
	uint16_t group;
	uint64_t m, n, k;
	bool gated, bias, norm, residual, bf16_in, bf16_out, precise, wide;
	double tol;
};

/* What the products are made with, by the rules of the instruction set: rounded to bf16, or int8
 * by 32. */
static void round_input(const struct linear_case *c, float *x)
{
	if (c->precise)
		return;
	if (c->dtype == TXDA_BF16 && !c->wide)
		for (uint64_t k = 0; k < c->k; k++)
			x[k] = cm_bf16_to_f32(cm_f32_to_bf16(x[k]));
	for (uint64_t b = 0; c->group && b < c->k; b += TXDA_QUANT_BLOCK) {
		uint64_t end = b + TXDA_QUANT_BLOCK < c->k ? b + TXDA_QUANT_BLOCK : c->k;
		float max = 0;

		for (uint64_t k = b; k < end; k++)
			max = fmaxf(max, fabsf(x[k]));
		for (uint64_t k = b; k < end && max > 0; k++)
			x[k] = rintf(x[k] * (127.0f / max)) * (max / 127.0f);
	}
}

static double *linear_reference(const struct linear_case *c, const struct cm_tensor *x,
				const struct cm_tensor *w, const struct cm_tensor *bias,
				const struct cm_tensor *norm, const struct cm_tensor *res)
{
	uint64_t width = c->gated ? c->n / 2 : c->n;
	double *y = calloc(c->m * width, sizeof(*y)), *full = calloc(c->n, sizeof(*full));
	float *xf = as_f32(x), *row = malloc(c->k * sizeof(*row));

	for (uint64_t m = 0; m < c->m; m++) {
		double s = 0;

		for (uint64_t k = 0; k < c->k; k++)
			s += (double)xf[m * c->k + k] * xf[m * c->k + k];
		s = norm ? 1 / sqrt(s / (double)c->k + 1e-6) : 1;
		for (uint64_t k = 0; k < c->k; k++)
			row[k] = (float)(xf[m * c->k + k] * s) *
				 (norm ? ((float *)norm->ptr)[k] : 1);
		round_input(c, row);
		for (uint64_t n = 0; n < c->n; n++) {
			full[n] = bias ? ((float *)bias->ptr)[n] : 0;
			for (uint64_t k = 0; k < c->k; k++)
				full[n] += (double)cm_tile_get(w, n, k) * row[k];
		}
		for (uint64_t n = 0; n < width; n++)
			y[m * width + n] =
				(c->gated ? full[n] / (1 + exp(-full[n])) * full[width + n]
					  : full[n]) +
				(res ? ((float *)res->ptr)[m * width + n] : 0);
	}
	free(full);
	free(row);
	free(xf);
	return y;
}

static void linear_one(const struct linear_case *c)
{
	uint64_t width = c->gated ? c->n / 2 : c->n;
	struct cm_tensor *x = c->bf16_in ? bf16(c->m, c->k) : f32(c->m, c->k);
	struct cm_tensor *w =
		tiles(c->dtype, c->gated ? TXDA_TILE32_GATED : TXDA_TILE32, c->group, c->n, c->k);
	struct cm_tensor *bias = c->bias ? f32(c->n, 0) : NULL,
			 *norm = c->norm ? f32(c->k, 0) : NULL;
	struct cm_tensor *res = c->residual ? f32(c->m, width) : NULL;
	struct cm_tensor *out = c->bf16_out ? bf16(c->m, width) : f32(c->m, width);
	struct run r = {.l = {.in = {x, w, bias, norm, res}, .out = {out}, .precise = c->precise}};
	double *ref = linear_reference(c, x, w, bias, norm, res), err;
	float *got;

	r.op.linear.act = c->gated ? TXDA_ACT_SILU_GATED : TXDA_ACT_NONE;
	r.op.linear.eps = 1e-6f;
	r.op.linear.flags = c->wide ? TXDA_LINEAR_F32_INPUT : 0;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 2), 0);
	got = as_f32(out);
	err = rel_error(got, ref, c->m * width);
	if (!(err <= c->tol))
		fail_msg("%s: type %d m %d n %d k %d gated %d: error %g", cm_simd->name, c->dtype,
			 (int)c->m, (int)c->n, (int)c->k, c->gated, err);
	/* each row alone gives the same bits */
	for (uint64_t m = 0; m < c->m && c->m > 1; m++) {
		size_t es = c->bf16_in ? 2 : 4, os = c->bf16_out ? 2 : 4;
		struct cm_tensor x1 = *x, o1 = *out, r1 = {0};
		struct run one = r;

		x1.dim[0] = o1.dim[0] = 1;
		x1.ptr = (uint8_t *)x->ptr + m * c->k * es;
		o1.ptr = mem(width * os);
		if (res) {
			r1 = *res;
			r1.dim[0] = 1;
			r1.ptr = (float *)res->ptr + m * width;
		}
		one.l.in[0] = &x1;
		one.l.out[0] = &o1;
		one.l.in[4] = res ? &r1 : NULL;
		assert_int_equal(run_op(&one, TXDA_OP_LINEAR, 3), 0);
		if (memcmp(o1.ptr, (uint8_t *)out->ptr + m * width * os, width * os))
			fail_msg("%s: type %d m %d n %d k %d: row %d differs alone", cm_simd->name,
				 c->dtype, (int)c->m, (int)c->n, (int)c->k, (int)m);
		free(o1.ptr);
	}
	free(ref);
	free(got);
	drop(x), drop(w), drop(bias), drop(norm), drop(res), drop(out);
}

static void test_linear(void **state)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
		double tol;
	} types[] = {
		{TXDA_BF16, 0, 1e-3}, {TXDA_F16, 0, 1e-5}, {TXDA_F32, 0, 1e-5}, {TXDA_W8, 32, 2e-3},
		{TXDA_W8, 128, 2e-3}, {TXDA_W4, 32, 2e-3}, {TXDA_W4, 64, 2e-3},
	};
	static const uint64_t shapes[][3] = {
		{1, 32, 64},   {1, 70, 96},   {3, 33, 33},    {4, 64, 100},   {5, 96, 31},
		{12, 40, 256}, {13, 32, 320}, {16, 65, 1100}, {25, 160, 130}, {210, 70, 2080}};

	(void)state;
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
			for (unsigned flags = 0; flags < 64; flags += (s > 7   ? 21
								       : s > 3 ? 11
									       : 5)) {
				struct linear_case c = {types[t].dtype,
							types[t].group,
							shapes[s][0],
							shapes[s][1],
							shapes[s][2],
							.gated = flags & 1 && shapes[s][1] % 2 == 0,
							.bias = flags & 2,
							.norm = flags & 4,
							.bf16_in = flags & 8,
							.tol = types[t].tol};

				c.residual = !c.gated && flags & 16;
				c.bf16_out = !c.residual && flags & 32;
				if (c.gated || c.bf16_out)
					c.tol = 4e-3; /* half a bf16 step; silu is steep */
				linear_one(&c);
				if (types[t].dtype == TXDA_BF16) {
					c.wide = true;
					c.tol = c.bf16_out ? 4e-3 : 4e-5;
					linear_one(&c);
				}
				if (s < 8) {
					c.precise = true;
					c.tol = c.bf16_out ? 4e-3 : 2e-6;
					linear_one(&c);
				}
			}
}

static void test_linear_refuses(void **state)
{
	struct cm_tensor *x = f32(2, 64), *w = tiles(TXDA_BF16, TXDA_TILE32, 0, 32, 64),
			 *out = f32(2, 32), *odd = f32(3, 32);
	struct run r = {.l = {.in = {x, w}, .out = {out}}};

	(void)state;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
	r.l.out[0] = odd;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), -EINVAL);
	assert_int_equal(r.fault.code, TXDA_FAULT_SHAPE);
	r.l.out[0] = out;
	r.l.in[2] = odd;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), -EINVAL);
	r.l.in[2] = NULL;
	r.op.linear.act = 7;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), -EINVAL);
	assert_int_equal(r.fault.code, TXDA_FAULT_PROGRAM);
	r.op.linear.act = TXDA_ACT_SILU_GATED; /* needs a gated layout */
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), -EINVAL);
	r.op.linear.act = TXDA_ACT_NONE;
	r.l.in[1] = NULL;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), -EINVAL);
	drop(x), drop(w), drop(out), drop(odd);
}

/* ---- attention ---- */

struct batch {
	unsigned hq, hkv, dim, bs, seqs, window;
	const unsigned *ctx, *n;
	bool precise, wide;
};

struct att {
	struct run r;
	struct cm_tensor *q, *cache, *table, *spans, *ctx, *out;
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

	return a->r.l.precise ? ((const float *)base)[at]
			      : cm_bf16_to_f32(((const uint16_t *)base)[at]);
}

static void att_new(struct att *a, const struct batch *b)
{
	unsigned tokens = 0, cols = 1, blocks = 3;
	uint64_t layer = txda_kv_layer_bytes(b->hkv, b->dim, b->bs), off = 128,
		 stride = layer + 192, at = 0, next = 0;

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
		if (b->precise)
			((float *)a->cache->ptr)[i] = frand();
		else
			((uint16_t *)a->cache->ptr)[i] = cm_f32_to_bf16(frand());
	a->table = i32(b->seqs, cols);
	a->spans = i32(b->seqs, 2);
	a->ctx = i32(b->seqs, 0);
	for (unsigned s = 0; s < b->seqs; s++) {
		((int32_t *)a->spans->ptr)[2 * s] = (int32_t)at;
		((int32_t *)a->spans->ptr)[2 * s + 1] = (int32_t)b->n[s];
		((int32_t *)a->ctx->ptr)[s] = (int32_t)b->ctx[s];
		at += b->n[s];
		for (unsigned i = 0; i < (b->ctx[s] + b->bs - 1) / b->bs; i++)
			((int32_t *)a->table->ptr)[s * cols + i] = (int32_t)(blocks - 1 - next++);
	}
	a->r = (struct run){.l = {.in = {a->q, a->cache, a->table, a->spans, a->ctx},
				  .out = {a->out},
				  .precise = b->precise}};
	a->r.op.attention = (struct txda_op_attention){.n_heads = b->hq,
						       .n_kv_heads = b->hkv,
						       .head_dim = b->dim,
						       .block_size = b->bs,
						       .layer_offset = off,
						       .scale = 1.0f / sqrtf((float)b->dim) * 3,
						       .window = b->window};
}

static void att_free(struct att *a)
{
	drop(a->q), drop(a->cache), drop(a->table), drop(a->spans), drop(a->ctx), drop(a->out);
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
					top = e[p] > top ? e[p] : top;
				}
				for (unsigned p = lo; p <= pos; p++)
					sum += e[p] = exp(e[p] - top);
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
	((int32_t *)spans->ptr)[1] = (int32_t)n;
	((int32_t *)ctx->ptr)[0] = (int32_t)(b->ctx[s] - b->n[s] + from + n);
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

static void test_attention(void **state)
{
	static const unsigned ctx[] = {1, 17, 64, 130, 90}, n[] = {1, 17, 1, 3, 90};
	static const unsigned long_ctx[] = {1537, 700}, long_n[] = {1, 1}, pre_n[] = {40, 1};

	(void)state;
	for (unsigned p = 0; p < 2; p++) {
		att_case(&(struct batch){4, 2, 64, 32, 5, 0, ctx, n, p});
		att_case(&(struct batch){8, 2, 32, 32, 5, 0, ctx, n, p, .wide = true});
		att_case(&(struct batch){6, 6, 16, 16, 5, 0, ctx, n, p});
		att_case(&(struct batch){3, 1, 40, 64, 5, 20, ctx, n, p});
		att_case(&(struct batch){8, 2, 128, 128, 5, 0, ctx, n, p});
		att_case(&(struct batch){24, 1, 32, 32, 2, 0, ctx, n, p});
		/* split over cores, and the same keys folded by one */
		att_case(&(struct batch){2, 1, 64, 32, 2, 0, long_ctx, long_n, p});
		att_case(&(struct batch){2, 1, 64, 32, 2, 600, long_ctx, pre_n, p});
	}
}

static void test_attention_refuses(void **state)
{
	static const unsigned ctx[] = {40}, n[] = {4};
	const struct batch b = {4, 2, 64, 32, 1, 0, ctx, n, false};
	struct att a;
	int32_t keep;

	(void)state;
	att_new(&a, &b);
	keep = ((int32_t *)a.table->ptr)[1];
	((int32_t *)a.table->ptr)[1] = (int32_t)a.cache->dim[0];
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	assert_int_equal(a.r.fault.code, TXDA_FAULT_INDEX);
	assert_int_equal(a.r.fault.detail, a.cache->dim[0]);
	((int32_t *)a.table->ptr)[1] = -1;
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	((int32_t *)a.table->ptr)[1] = keep;
	((int32_t *)a.ctx->ptr)[0] = 65; /* more blocks than the table has */
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	((int32_t *)a.ctx->ptr)[0] = 3; /* fewer than the step brings */
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	((int32_t *)a.ctx->ptr)[0] = 40;
	((int32_t *)a.spans->ptr)[0] = 1; /* past T */
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	((int32_t *)a.spans->ptr)[0] = 0;
	a.r.op.attention.layer_offset = a.cache->dim[1];
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	a.r.op.attention.layer_offset = 128;
	a.r.op.attention.n_kv_heads = 3;
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	a.r.op.attention.n_kv_heads = 0;
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), -EINVAL);
	a.r.op.attention.n_kv_heads = 2;
	assert_int_equal(run_op(&a.r, TXDA_OP_ATTENTION, 1), 0);
	att_free(&a);
}

/* ROPE_KV then reading the cache back: rotation, norms and the cache layout. */
static void test_rope_kv(void **state)
{
	enum { T = 21, HQ = 4, HKV = 2, D = 40, BS = 16, P = 16 };

	(void)state;
	for (unsigned precise = 0; precise < 2; precise++) {
		struct cm_tensor *pos = i32(T, 0), *freq = f32(P, 0), *table = f32(T, 2 * P),
				 *qkv = f32(T, (HQ + 2 * HKV) * D);
		struct cm_tensor *slots = i32(T, 0), *kn = f32(D, 0),
				 *q = precise ? f32(T, HQ * D) : bf16(T, HQ * D);
		uint64_t layer = txda_kv_layer_bytes(HKV, D, BS);
		struct cm_tensor *cache =
			tensor(TXDA_U8, TXDA_KV_PAGED, 0, 4, layer, 4 * layer * 2);
		struct run r = {.l = {.in = {pos, freq}, .out = {table}}};
		struct att a = {.cache = cache};
		double worst = 0;

		for (int t = 0; t < T; t++) {
			((int32_t *)pos->ptr)[t] = 3 * t;
			((int32_t *)slots->ptr)[t] = t == 5 ? -1 : 63 - 2 * t;
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
				int slot = ((int32_t *)slots->ptr)[t];
				double ss = 0;

				for (int d = 0; d < D; d++)
					ss += (double)k[d] * k[d];
				ss = 1 / sqrt(ss / D + 1e-6);
				for (int d = 0; d < D; d++) {
					int i = d % P;
					double ang = 3 * t * (double)((float *)freq->ptr)[i],
					       x = k[d] * ss * ((float *)kn->ptr)[d], want = x;
					double gk =
						cache_get(&a, slot / BS, slot % BS, h, d, false);
					double gv = cache_get(&a, slot / BS, slot % BS, h, d, true);

					if (d < P)
						want = x * cos(ang) -
						       k[d + P] * ss * ((float *)kn->ptr)[d + P] *
							       sin(ang);
					else if (d < 2 * P)
						want = x * cos(ang) +
						       k[d - P] * ss * ((float *)kn->ptr)[d - P] *
							       sin(ang);
					worst = fmax(worst, fmax(fabs(gk - want), fabs(gv - v[d])));
				}
			}
		assert_true(worst < (precise ? 2e-5 : 2e-2));
		((int32_t *)slots->ptr)[2] = 64;
		assert_int_equal(run_op(&r, TXDA_OP_ROPE_KV, 2), -EINVAL);
		assert_int_equal(r.fault.code, TXDA_FAULT_INDEX);
		drop(pos), drop(freq), drop(table), drop(qkv), drop(slots), drop(kn), drop(q),
			drop(cache);
	}
}

static void test_topk(void **state)
{
	enum { V = 1013, K = 64 };
	struct cm_tensor *x = f32(3, V), *idx = i32(3, K), *val = f32(3, K), *lse = f32(3, 0);
	struct run r = {.l = {.in = {x}, .out = {idx, val, lse}}};
	float *row = x->ptr;

	(void)state;
	row[3] = row[900] = 2.0f; /* equals: the lower index first */
	row[V + 7] = NAN;
	row[V + 500] = INFINITY;
	for (int i = 0; i < V; i++)
		row[2 * V + i] = (float)-i;
	r.op.topk.k = K;
	assert_int_equal(run_op(&r, TXDA_OP_TOPK, 2), 0);
	assert_int_equal(((int32_t *)idx->ptr)[0], 3);
	assert_int_equal(((int32_t *)idx->ptr)[1], 900);
	assert_int_equal(((int32_t *)idx->ptr)[K], 500);
	for (int i = 0; i < K; i++) {
		assert_int_equal(((int32_t *)idx->ptr)[2 * K + i], i);
		assert_true(i == 0 || ((float *)val->ptr)[i] <= ((float *)val->ptr)[i - 1]);
	}
	{
		double s = 0;

		for (int i = 0; i < V; i++)
			s += exp((double)row[i]);
		assert_true(fabs(log(s) - ((float *)lse->ptr)[0]) < 1e-5);
	}
	r.op.topk.k = TXDA_TOPK_MAX + 1;
	assert_int_equal(run_op(&r, TXDA_OP_TOPK, 2), -EINVAL);
	drop(x), drop(idx), drop(val), drop(lse);
}

static void test_rows(void **state)
{
	enum { V = 50, H = 72, T = 35 };
	struct cm_tensor *table = tiles(TXDA_W8, TXDA_TILE32, 32, V, H), *tokens = i32(T, 0),
			 *x = f32(T, H), *w = f32(H, 0);
	struct cm_tensor *rows = i32(2, 0), *got = f32(2, H), *y = f32(T, H);
	struct run r = {.l = {.in = {tokens, table}, .out = {x}}};

	(void)state;
	for (int t = 0; t < T; t++)
		((int32_t *)tokens->ptr)[t] = 10 + t;
	r.op.embed = (struct txda_op_embed){.first = 20, .vocab = 100, .scale = 2};
	assert_int_equal(run_op(&r, TXDA_OP_EMBED, 2), 0);
	for (int h = 0; h < H; h++) {
		assert_true(((float *)x->ptr)[h] == 0); /* token 10 is another chip's */
		assert_true(((float *)x->ptr)[12 * H + h] ==
			    2 * cm_tile_get(table, 2, (uint64_t)h));
	}
	((int32_t *)tokens->ptr)[34] = 100;
	assert_int_equal(run_op(&r, TXDA_OP_EMBED, 2), -EINVAL);
	assert_int_equal(r.fault.detail, 100);

	((int32_t *)rows->ptr)[0] = 34;
	((int32_t *)rows->ptr)[1] = 11;
	r = (struct run){.l = {.in = {x, rows}, .out = {got}}};
	assert_int_equal(run_op(&r, TXDA_OP_GATHER_ROWS, 2), 0);
	assert_memory_equal((float *)got->ptr + H, (float *)x->ptr + 11 * H, H * 4);
	((int32_t *)rows->ptr)[0] = -1;
	assert_int_equal(run_op(&r, TXDA_OP_GATHER_ROWS, 2), -EINVAL);

	r = (struct run){.l = {.in = {x, w}, .out = {y}}};
	r.op.rmsnorm.eps = 1e-5f;
	assert_int_equal(run_op(&r, TXDA_OP_RMSNORM, 2), 0);
	{
		float one[H];

		cm_precise_norm(one, (float *)x->ptr + 12 * H, w->ptr, H, 1e-5f);
		for (int h = 0; h < H; h++)
			assert_true(fabsf(one[h] - ((float *)y->ptr)[12 * H + h]) <
				    1e-5f * (1 + fabsf(one[h])));
	}
	drop(table), drop(tokens), drop(x), drop(w), drop(rows), drop(got), drop(y);
}

static void test_collectives(void **state)
{
	enum { M = 9, W = 40, V = 70 };
	struct cm_tensor *x[2] = {f32(M, W), f32(M, W)}, *res = f32(M, W),
			 *out[2] = {f32(M, W), f32(M, W)}, *all = f32(M, V);
	struct run r[2] = {0};

	(void)state;
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
		float sum = ((float *)x[0]->ptr)[i] + ((float *)x[1]->ptr)[i];

		assert_true(((float *)out[0]->ptr)[i] == sum);
		assert_true(((float *)out[1]->ptr)[i] == ((float *)res->ptr)[i] + sum);
	}
	r[1].l.in[1] = NULL;
	r[1].l.out[0] = NULL;
	r[0].l.out[0] = all;
	assert_int_equal(run_op(&r[0], TXDA_OP_ALL_GATHER, 2), 0);
	for (int m = 0; m < M; m++)
		for (int v = 0; v < V; v++)
			assert_true(((float *)all->ptr)[m * V + v] ==
				    ((float *)x[v / W]->ptr)[m * W + v % W]);
	r[0].l.out[0] = out[0]; /* too narrow for two ranks */
	assert_int_equal(run_op(&r[0], TXDA_OP_ALL_GATHER, 2), -EINVAL);
	drop(x[0]), drop(x[1]), drop(res), drop(out[0]), drop(out[1]), drop(all);
}

static int choose_path(void **state)
{
	const char *name;

	return cm_ops_init(*state, &name);
}

#define ON(path, f)                                                                                \
	{                                                                                          \
#f " (" path ")", f, choose_path, NULL, (void *)path                               \
	}
#define ON_PATH(path)                                                                              \
	ON(path, test_linear), ON(path, test_linear_refuses), ON(path, test_attention),            \
		ON(path, test_attention_refuses), ON(path, test_rope_kv), ON(path, test_topk),     \
		ON(path, test_rows), ON(path, test_collectives)

int main(void)
{
	static const struct CMUnitTest c[] = {ON_PATH("c")}, avx2[] = {ON_PATH("avx2")},
				       avx512[] = {ON_PATH("avx512")},
				       avx512bf16[] = {ON_PATH("avx512bf16")};
	const char *name;
	int failed = cmocka_run_group_tests_name("ops: c", c, NULL, NULL);

#define IF_HAS(path)                                                                               \
	do {                                                                                       \
		if (cm_ops_init(#path, &name))                                                     \
			printf("this CPU has no %s: that path is not tested here\n", #path);       \
		else                                                                               \
			failed += cmocka_run_group_tests_name("ops: " #path, path, NULL, NULL);    \
	} while (0)
	IF_HAS(avx2);
	IF_HAS(avx512);
	IF_HAS(avx512bf16);
	return failed;
}
