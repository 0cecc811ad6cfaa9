// SPDX-License-Identifier: MIT
/*
 * LINEAR and its kin by themselves: every SIMD path of this CPU, every type of weights, against
 * plain loops in double, and the promise that a row's bits do not depend on its company.
 */
#include "ops_fixture.h"

struct linear_case {
	uint8_t dtype;
	uint16_t group;
	uint64_t m, n, k;
	bool gated, bias, norm, residual, bf16_in, bf16_out, precise, wide;
	bool gelu;   /* when gated */
	float clamp; /* likewise: SWIGLU_CLAMPED */
	float softcap;
	bool floats;	/* FLOAT_INPUT */
	uint64_t width; /* of x where columns reorder it; 0: k */
	uint64_t out_col;
	double tol;
};

static bool has_i16(const struct linear_case *c)
{
	return txda_is_two_level(c->dtype) ||
	       (cm_simd->groups_i16 &&
		(c->dtype == TXDA_W8Z || c->dtype == TXDA_W4Z ||
		 (c->floats && (c->dtype == TXDA_W8 || c->dtype == TXDA_W4))));
}

static bool has_floats(const struct linear_case *c)
{
	return c->group && !has_i16(c) &&
	       (c->floats || (c->dtype != TXDA_W8 && c->dtype != TXDA_W4));
}

/* What the products are made with, by the rules of the instruction set: rounded to bf16 (for
 * groups, where the chip multiplies bf16), or int8 by 128, or int16 by 32. */
static void round_input(const struct linear_case *c, float *x)
{
	const uint64_t share = has_i16(c) ? TXDA_QUANT_BLOCK : TXDA_I8_GROUP;

	if (c->precise)
		return;
	if ((c->dtype == TXDA_BF16 || (has_floats(c) && !cm_simd->group_floats)) && !c->wide)
		for (uint64_t k = 0; k < c->k; k++)
			x[k] = cm_bf16_to_f32(cm_f32_to_bf16(x[k]));
	for (uint64_t b = 0; c->group && !has_floats(c) && b < c->k; b += share) {
		uint64_t end = b + share < c->k ? b + share : c->k;
		float max = 0, steps = has_i16(c) ? 32512 : 127;

		for (uint64_t k = b; k < end; k++)
			max = fmaxf(max, fabsf(x[k]));
		for (uint64_t k = b; k < end && max > 0; k++)
			x[k] = rintf(x[k] * (steps / max)) * (max / steps);
	}
}

static double gate(double x, bool gelu)
{
	return gelu ? 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
		    : x / (1 + exp(-x));
}

static double clamped(double gate, double up, double limit)
{
	gate = fmin(gate, limit);
	return (fmax(-limit, fmin(up, limit)) + 1) * gate / (1 + exp(-1.702 * gate));
}

static double *linear_reference(const struct linear_case *c, const struct run *r)
{
	const struct cm_tensor *const *in = r->l.in;
	const float *norm = in[3] ? in[3]->ptr : NULL, *bias = in[2] ? in[2]->ptr : NULL,
		    *res = in[4] ? in[4]->ptr : NULL;
	const int32_t *columns = in[5] ? in[5]->ptr : NULL;
	uint64_t width = c->gated ? c->n / 2 : c->n, xw = in[0]->dim[1];
	double *y = calloc(c->m * width, sizeof(*y)), *full = calloc(c->n, sizeof(*full));
	float *xf = as_f32(in[0]), *row = malloc(c->k * sizeof(*row)),
	      *w = malloc(c->n * c->k * sizeof(*w));

	/* The compiler can sum many columns at once. */
	for (uint64_t n = 0; n < c->n; n++) {
		cm_tile_row(in[1], n, row);
		for (uint64_t k = 0; k < c->k; k++)
			w[k * c->n + n] = row[k];
	}
	for (uint64_t m = 0; m < c->m; m++) {
		const float *x = xf + m * xw;
		double s = 0;

		for (uint64_t k = 0; k < xw; k++)
			s += (double)x[k] * x[k];
		s = norm ? 1 / sqrt(s / (double)xw + 1e-6) : 1;
		for (uint64_t k = 0; k < c->k; k++) {
			int64_t from = columns ? columns[k] : (int64_t)k;

			row[k] = from < 0 ? 0 : (float)(x[from] * s) * (norm ? norm[from] : 1);
		}
		round_input(c, row);
		for (uint64_t n = 0; n < c->n; n++)
			full[n] = bias ? bias[n] : 0;
		for (uint64_t k = 0; k < c->k; k++)
			for (uint64_t n = 0; n < c->n; n++)
				full[n] += (double)w[k * c->n + n] * row[k];
		for (uint64_t n = 0; n < width; n++)
			y[m * width + n] =
				(c->clamp > 0	  ? clamped(full[n], full[width + n], c->clamp)
				 : c->gated	  ? gate(full[n], c->gelu) * full[width + n]
				 : c->softcap > 0 ? c->softcap * tanh(full[n] / c->softcap)
						  : full[n]) +
				(res ? res[m * width + n] : 0);
	}
	free(full);
	free(row);
	free(w);
	free(xf);
	return y;
}

/* A random choice of columns, some of them none. */
static struct cm_tensor *random_columns(uint64_t k, uint64_t width)
{
	struct cm_tensor *t = i32(k, 0);

	for (uint64_t i = 0; i < k; i++) {
		float f = frand();

		ints(t)[i] = f < -0.9f ? -1 : (int32_t)((f + 1) * 0.49f * (float)width);
	}
	return t;
}

/* Each row alone gives the same bits. */
static void rows_alone(const struct linear_case *c, const struct run *r, uint64_t width)
{
	const struct cm_tensor *x = r->l.in[0], *res = r->l.in[4], *out = r->l.out[0];
	size_t es = c->bf16_in ? 2 : 4, os = c->bf16_out ? 2 : 4, row = out->dim[1] * os;

	for (uint64_t m = 0; m<c->m; m += c->m> 25 ? 19 : 1) {
		struct cm_tensor x1 = *x, o1 = *out, r1 = {0};
		struct run one = *r;

		x1.dim[0] = o1.dim[0] = 1;
		x1.ptr = (uint8_t *)x->ptr + m * x->dim[1] * es;
		o1.ptr = mem(row);
		if (res) {
			r1 = *res;
			r1.dim[0] = 1;
			r1.ptr = (float *)res->ptr + m * width;
		}
		one.l.in[0] = &x1;
		one.l.out[0] = &o1;
		one.l.in[4] = res ? &r1 : NULL;
		assert_int_equal(run_op(&one, TXDA_OP_LINEAR, 3), 0);
		if (memcmp((uint8_t *)o1.ptr + c->out_col * os,
			   (uint8_t *)out->ptr + m * row + c->out_col * os, width * os))
			fail_msg("%s: type %d m %d n %d k %d: row %d differs alone", cm_simd->name,
				 c->dtype, (int)c->m, (int)c->n, (int)c->k, (int)m);
		free(o1.ptr);
	}
}

static void linear_one(const struct linear_case *c)
{
	uint64_t width = c->gated ? c->n / 2 : c->n, xw = c->width ? c->width : c->k,
		 full = width + 2 * c->out_col;
	struct cm_tensor *x = c->bf16_in ? bf16(c->m, xw) : f32(c->m, xw);
	struct cm_tensor *w =
		tiles(c->dtype, c->gated ? TXDA_TILE32_GATED : TXDA_TILE32, c->group, c->n, c->k);
	struct cm_tensor *bias = c->bias ? f32(c->n, 0) : NULL, *norm = c->norm ? f32(xw, 0) : NULL;
	struct cm_tensor *res = c->residual ? f32(c->m, width) : NULL;
	struct cm_tensor *columns = c->width ? random_columns(c->k, xw) : NULL;
	struct cm_tensor *out = c->bf16_out ? bf16(c->m, full) : f32(c->m, full);
	struct run r = {
		.l = {.in = {x, w, bias, norm, res, columns}, .out = {out}, .precise = c->precise}};
	double *ref = linear_reference(c, &r), err;
	float *got, *before = as_f32(out);

	r.op.linear.act = c->clamp > 0	   ? TXDA_ACT_SWIGLU_CLAMPED
			  : c->gated	   ? c->gelu ? TXDA_ACT_GELU_GATED : TXDA_ACT_SILU_GATED
			  : c->softcap > 0 ? TXDA_ACT_SOFTCAP
					   : TXDA_ACT_NONE;
	r.op.linear.limit = c->clamp > 0 ? c->clamp : c->softcap;
	r.op.linear.eps = 1e-6f;
	r.op.linear.flags =
		(c->wide ? TXDA_LINEAR_F32_INPUT : 0) | (c->floats ? TXDA_LINEAR_FLOAT_INPUT : 0);
	r.op.linear.out_col = (uint32_t)c->out_col;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 2), 0);
	got = as_f32(out);
	for (uint64_t m = 0; m < c->m; m++) {
		/* what lies beside the columns stays; then the result side by side */
		for (uint64_t i = 0; i < full; i++)
			if (i < c->out_col || i >= c->out_col + width)
				assert_true(got[m * full + i] == before[m * full + i]);
		memmove(got + m * width, got + m * full + c->out_col, width * 4);
	}
	err = rel_error(got, ref, c->m * width);
	if (!(err <= c->tol))
		fail_msg("%s: type %d group %d m %d n %d k %d gated %d columns %d wide %d precise "
			 "%d:"
			 " error %g",
			 cm_simd->name, c->dtype, c->group, (int)c->m, (int)c->n, (int)c->k,
			 c->gated, !!c->width, c->wide, c->precise, err);
	if (c->m > 1)
		rows_alone(c, &r, width);
	free(ref);
	free(got);
	free(before);
	drop(x), drop(w), drop(bias), drop(norm), drop(res), drop(columns), drop(out);
}

/* Of the shapes, which grow, the small ones get more combinations. */
static unsigned flags_apart(size_t shape)
{
	return flag_steps() * (shape > 7 ? 21 : shape > 3 ? 11 : 5);
}

TEST(test_linear)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
		double tol;
	} types[] = {
		{TXDA_BF16, 0, 1e-3},  {TXDA_F16, 0, 1e-5},   {TXDA_F32, 0, 1e-5},
		{TXDA_W8, 32, 2e-3},   {TXDA_W8, 128, 2e-3},  {TXDA_W4, 32, 2e-3},
		{TXDA_W4, 128, 2e-3},  {TXDA_W4M, 256, 4e-5}, {TXDA_W5M, 64, 4e-5},
		{TXDA_W6S, 256, 4e-5}, {TXDA_W6S, 32, 4e-5},
	};
	static const uint64_t shapes[][3] = {
		{1, 32, 64},   {1, 70, 96},   {3, 33, 33},    {4, 64, 100},   {5, 96, 31},
		{12, 40, 256}, {13, 32, 320}, {16, 65, 1100}, {25, 160, 130}, {210, 70, 2080}};

	for (size_t t = 0; t < ARRAY_SIZE(types); t++)
		for (size_t s = 0; s < ARRAY_SIZE(shapes) && is_of_path(types[t].dtype); s++)
			for (unsigned flags = (t + s) % flag_steps(); flags < 64;
			     flags += flags_apart(s)) {
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

				c.gelu = flags & 2;
				c.clamp = c.gated && flags & 8 ? 0.6f : 0;
				c.softcap = c.gated || flags & 4 ? 0 : 0.8f;
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

/* A single panel is several parts, in pieces of K, and rows have their bits in any company. */
TEST(test_linear_pieces)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
		double tol;
	} types[] = {
		{TXDA_BF16, 0, 1e-3}, {TXDA_F16, 0, 1e-5},  {TXDA_F32, 0, 1e-5},
		{TXDA_W8, 64, 2e-3},  {TXDA_W4, 256, 2e-3}, {TXDA_W4Z, 128, 1e-3},
		{TXDA_F8, 128, 1e-3}, {TXDA_MX4, 32, 1e-3}, {TXDA_W5M, 256, 4e-5},
	};
	static const uint64_t rows[] = {1, 5, 70, 210}, k[] = {1024, 1025, 2100, 3072};

	for (size_t t = 0; t < ARRAY_SIZE(types); t++)
		for (size_t i = 0; i < 16 && is_of_path(types[t].dtype); i += flag_steps()) {
			struct linear_case c = {
				types[t].dtype,	    types[t].group, rows[i % 4],
				i & 1 ? 32 : 23,    k[i / 4],	    .bias = i & 1,
				.norm = i & 2,	    .wide = i & 4,  .gated = i % 3 == 1,
				.tol = types[t].tol};

			c.gated = c.gated && c.n % 2 == 0;
			c.residual = !c.gated && i & 4;
			c.bf16_out = !c.residual && i & 8;
			if (c.gated || c.bf16_out)
				c.tol = 4e-3;
			linear_one(&c);
		}
	for (uint64_t width = 2048; width <= 2049; width++) {
		struct cm_tensor *w = tiles(TXDA_F32, TXDA_TILE32, 0, 24, width),
				 *x = f32(1, width), *out = f32(1, 24);
		struct run r = {.l = {.in = {x, w}, .out = {out}}};

		assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 8), 0);
		assert_int_equal(r.l.phases, 2);
		assert_int_equal(r.l.parts[0], width - 2046);
		assert_int_equal(r.l.parts[1], 1);
		r.l.precise = true;
		assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 8), 0);
		assert_int_equal(r.l.phases, 1);
		assert_int_equal(r.l.parts[0], 1);
		drop(x), drop(w), drop(out);
	}
}

/* More rows than a part has: their bits are the same for any number of cores, and of few of them. */
TEST(test_linear_many_rows)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
	} types[] = {{TXDA_BF16, 0}, {TXDA_W8, 64}, {TXDA_W4, 64},  {TXDA_W8, 128},
		     {TXDA_W4, 256}, {TXDA_F16, 0}, {TXDA_F8, 128}, {TXDA_MX4, 32}};
	static const unsigned cores[] = {1, 5, 64};
	/* 15: weights are not unpacked for all rows first, with BF16; 5: nor without, with AVX-512,
	 * nor does int8 use tiles. */
	static const unsigned few[] = {15, 5};
	enum { M = 1100, N = 70, K = 288 };

	for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
		struct cm_tensor *w = tiles(types[t].dtype, TXDA_TILE32, types[t].group, N, K),
				 *x = f32(M, K), *out = f32(M, N), *other = f32(M, N);
		struct cm_tensor last = *x;
		struct run r = {.l = {.in = {x, w}, .out = {out}}};

		for (unsigned i = 0; i < 3; i++) {
			r.l.out[0] = i ? other : out;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, cores[i]), 0);
			if (memcmp(r.l.out[0]->ptr, out->ptr, M * N * 4))
				fail_msg("%s: type %d differs on %u cores", cm_simd->name,
					 types[t].dtype, cores[i]);
		}
		/* Sums of integer products are those of the path beneath. */
		const struct cm_simd *path = cm_simd, *beneath = NULL;

#if defined(__x86_64__)
		/* Those of W4 are scaled together, not each block's. */
		if (!strncmp(path->name, "avxvnni", 7) && types[t].dtype != TXDA_W4)
			beneath = &cm_simd_avx2;
#endif
#ifdef CM_AVX512
		if (path->tiles && (types[t].dtype == TXDA_W8 || types[t].dtype == TXDA_W4))
			beneath = &cm_simd_avx512bf16;
#endif
		if (beneath) {
			cm_simd = beneath;
			r.l.out[0] = other;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
			cm_simd = path;
			assert_memory_equal(other->ptr, out->ptr, M * N * 4);
		}
		for (unsigned i = 0; i < 2; i++) {
			last.ptr = (float *)x->ptr + (M - few[i]) * K;
			last.dim[0] = other->dim[0] = few[i];
			r.l.in[0] = &last;
			r.l.out[0] = other;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 2), 0);
			if (memcmp(other->ptr, (float *)out->ptr + (M - few[i]) * N,
				   few[i] * N * 4))
				fail_msg("%s: type %d: the last %u rows differ alone",
					 cm_simd->name, types[t].dtype, few[i]);
		}
		drop(x), drop(w), drop(out), drop(other);
	}
}

/* Weights in groups with float activations, in an order of their own, into part of a row. */
TEST(test_linear_groups)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
	} types[] = {{TXDA_W8, 32},  {TXDA_W4, 128},  {TXDA_W8Z, 64}, {TXDA_W8Z, 256},
		     {TXDA_W4Z, 32}, {TXDA_W4Z, 128}, {TXDA_F8, 128}, {TXDA_F8, 32},
		     {TXDA_MX4, 32}, {TXDA_MX4, 128}};
	static const uint64_t shapes[][3] = {
		{1, 32, 64},   {1, 70, 416},   {2, 34, 33},    {4, 64, 100},  {7, 96, 31},
		{8, 40, 256},  {9, 40, 96},    {12, 40, 256},  {13, 32, 320}, {17, 34, 290},
		{21, 34, 290}, {16, 66, 1100}, {210, 70, 2080}};

	for (size_t t = 0; t < ARRAY_SIZE(types); t++)
		for (size_t s = 0; s < ARRAY_SIZE(shapes) && is_of_path(types[t].dtype); s++)
			for (unsigned flags = 0; flags < 64; flags += flags_apart(s)) {
				struct linear_case c = {
					types[t].dtype,
					types[t].group,
					shapes[s][0],
					shapes[s][1],
					shapes[s][2],
					.gated = flags & 1,
					.bias = flags & 2,
					.norm = flags & 4,
					.bf16_in = flags & 8,
					.floats = types[t].dtype == TXDA_W8 || types[t].dtype == TXDA_W4};

				c.residual = !c.gated && flags & 16;
				c.bf16_out = !c.residual && flags & 32;
				c.out_col = !c.residual && flags & 8 ? 24 : 0;
				c.width = (flags ^ flags >> 2) & 2 ? c.k * 3 / 4 + 5 : 0;
				for (c.wide = false;; c.wide = true) {
					c.tol = c.gated || c.bf16_out ? 4e-3 : c.wide ? 4e-5 : 1e-3;
					linear_one(&c);
					if (c.wide)
						break;
				}
				if (s < 10) {
					c.precise = true;
					c.tol = c.bf16_out ? 4e-3 : 2e-6;
					linear_one(&c);
				}
			}
}

/* Every byte of an 8-bit float and every nibble means in the kernels what the format says. */
TEST(test_linear_codes)
{
	static const uint8_t types[] = {TXDA_F8,  TXDA_W8,  TXDA_W8Z, TXDA_W4, TXDA_W4Z,
					TXDA_MX4, TXDA_W4M, TXDA_W5M, TXDA_W6S};

	for (size_t t = 0; t < sizeof(types); t++)
		for (unsigned k = 0; k < 32; k++) {
			struct cm_tensor *w = tiles(types[t], TXDA_TILE32, 32, 256, 32),
					 *x = f32(1, 32), *out = f32(1, 256);
			struct run r = {.l = {.in = {x, w}, .out = {out}}};
			uint64_t panel = txda_tile_panel_bytes(types[t], 32, 32);

			for (uint64_t i = 0; i < 8 * panel; i++)
				if (i % panel >= txda_tile_group_header(types[t]))
					((uint8_t *)w->ptr)[i] = (uint8_t)(i * 37 + i / panel * 11);
			memset(x->ptr, 0, 128);
			floats(x)[k] = 1;
			r.op.linear.flags = TXDA_LINEAR_FLOAT_INPUT;
			for (uint64_t i = 0; i < 8 * panel && types[t] == TXDA_F8; i++)
				if (i % panel >= 128 && (((uint8_t *)w->ptr)[i] & 0x7f) == 0x7f)
					((uint8_t *)w->ptr)[i] = 0x7e;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
			for (unsigned n = 0; n < 256; n++) {
				float want = cm_tile_get(w, n, k), got = floats(out)[n];

				/* With minimums and a quantised 1: less than a step of the codes. */
				if (!(fabsf(got - want) <=
				      1e-6f * fabsf(want) +
					      (txda_is_two_level(types[t]) ? 3e-5f : 1e-9f)))
					fail_msg("%s: type %d n %d k %d: %g instead of %g",
						 cm_simd->name, types[t], n, k, (double)got,
						 (double)want);
			}
			drop(w), drop(x), drop(out);
		}
}

/* A weight of NaN makes its column NaN in all rows, few or many, and no other column. */
TEST(test_linear_nan)
{
	enum { ROWS = 20, N = 64, K = 64, COLUMN = 43 };
	struct cm_tensor *w = tiles(TXDA_F8, TXDA_TILE32, 32, N, K);
	uint8_t *codes = w->ptr;
	uint64_t bytes = 2 * txda_tile_panel_bytes(TXDA_F8, K, 32), at = 0;

	for (uint64_t i = 0; i < bytes; i++)
		if (i % (bytes / 4) >= 128)
			codes[i] = (uint8_t)(i * 37 % 127);
	for (unsigned k = 0; k < K; k += 9, codes[at] = 1) {
		for (at = 128;; at++) {
			uint8_t code = codes[at];

			assert_true(at < bytes);
			codes[at] = at % (bytes / 4) < 128 ? code : 0xff;
			if (isnan(cm_tile_get(w, COLUMN, k)))
				break;
			codes[at] = code;
		}
		for (unsigned m = 1; m <= ROWS; m = m < 4 ? m + 1 : m + 8) {
			struct cm_tensor *x = f32(m, K), *out = f32(m, N);
			struct run r = {.l = {.in = {x, w}, .out = {out}}};

			r.op.linear.flags = TXDA_LINEAR_FLOAT_INPUT;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
			for (unsigned i = 0; i < m * N; i++)
				assert_int_equal(!!isnan(floats(out)[i]), i % N == COLUMN);
			drop(x), drop(out);
		}
	}
	drop(w);
}

/* The largest and smallest scales that a format has: exact products, and zeros stay zeros. A subnormal
 * scale counts as 0. */
TEST(test_linear_scales)
{
	static const struct {
		uint8_t dtype;
		float scale, x;
	} all[] = {{TXDA_F8, 0x1p127f, 1},
		   {TXDA_F8, 0x1p-126f, 0x1p20f},
		   {TXDA_MX4, 0x1p127f, 1},
		   {TXDA_MX4, 0x1p-126f, 0x1p20f},
		   {TXDA_MX4, 0x1p-127f, 0x1p20f}};
	enum { ROWS = 20, N = 32, K = 32 };

	for (size_t t = 0; t < ARRAY_SIZE(all); t++) {
		struct cm_tensor *w = tiles(all[t].dtype, TXDA_TILE32, 32, N, K);
		const uint32_t header = txda_tile_group_header(all[t].dtype);
		uint8_t *at = w->ptr;

		for (unsigned n = 0; n < N; n++) {
			uint16_t half = cm_f32_to_bf16(all[t].scale);

			if (all[t].dtype == TXDA_MX4)
				memcpy(at + 2 * n, &half, 2);
			else
				memcpy(at + 4 * n, &all[t].scale, 4);
		}
		for (uint64_t i = 0; i < txda_tile_block_bytes(all[t].dtype); i++)
			at[header + i] = (uint8_t)(i % 2);
		for (unsigned m = 1; m <= ROWS; m += m < 3 ? 1 : 17) {
			struct cm_tensor *x = f32(m, K), *out = f32(m, N);
			struct run r = {.l = {.in = {x, w}, .out = {out}}};

			for (unsigned i = 0; i < m * K; i++)
				floats(x)[i] = i % K == i / K ? all[t].x : 0;
			r.op.linear.flags = TXDA_LINEAR_FLOAT_INPUT;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
			for (unsigned i = 0; i < m * N; i++) {
				float want = all[t].scale < 0x1p-126f
						     ? 0
						     : cm_tile_get(w, i % N, i / N) * all[t].x;

				if (floats(out)[i] != want)
					fail_msg("%s: type %d row %u of %u: %g instead of %g",
						 cm_simd->name, all[t].dtype, i / N, m,
						 (double)floats(out)[i], (double)want);
			}
			drop(x), drop(out);
		}
		drop(w);
	}
}

TEST(test_linear_refuses)
{
	static const float caps[] = {0, -1, INFINITY, NAN};
	struct cm_tensor *x = f32(2, 64), *w = tiles(TXDA_BF16, TXDA_TILE32, 0, 32, 64),
			 *out = f32(2, 32), *odd = f32(3, 32), *columns = i32(64, 0),
			 *short_columns = i32(63, 0), *wider = f32(2, 33);
	struct run r = {.l = {.in = {x, w}, .out = {out}}};
	struct txda_op_linear *p = &r.op.linear;

#define BAD(...) REFUSED(r, TXDA_OP_LINEAR, __VA_ARGS__)
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
	BAD(r.l.out[0], odd, SHAPE);
	BAD(r.l.in[2], odd, SHAPE);
	BAD(r.l.in[1], NULL, SHAPE);
	BAD(p->flags, 4, PROGRAM);
	BAD(p->act, TXDA_ACT_COUNT, PROGRAM);
	BAD(p->act, TXDA_ACT_SILU_GATED, SHAPE); /* needs a gated layout */
	BAD(p->act, TXDA_ACT_GELU_GATED, SHAPE);
	/* a cap is a number above 0, and nothing without SOFTCAP */
	p->act = TXDA_ACT_SOFTCAP;
	for (unsigned i = 0; i < 4; i++)
		BAD(p->limit, caps[i], PROGRAM);
	p->limit = 1;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
	BAD(p->act, TXDA_ACT_SILU_GATED, PROGRAM);
	BAD(p->act, TXDA_ACT_NONE, PROGRAM);
	p->act = TXDA_ACT_NONE;
	p->limit = 0;
	/* columns: as many as K, each of x or none */
	for (int i = 0; i < 64; i++)
		ints(columns)[i] = i % 3 ? i : -1;
	BAD(r.l.in[5], short_columns, SHAPE);
	r.l.in[5] = columns;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
	BAD(ints(columns)[63], 64, INDEX);
	assert_int_equal(r.fault.detail, 64);
	r.l.in[5] = NULL;
	/* the output's columns */
	BAD(p->out_col, 1, SHAPE);
	r.l.out[0] = wider;
	p->out_col = 1;
	assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 1), 0);
	BAD(p->out_col, 0xffffffff, SHAPE);
	p->out_col = 0;
	BAD(r.l.in[4], out, SHAPE); /* a residual as wide as the weights, an output that is wider */
#undef BAD
	drop(columns), drop(short_columns), drop(wider);
	drop(x), drop(w), drop(out), drop(odd);
}

/* ---- SILU_MUL ---- */

TEST(test_silu_mul)
{
	static const unsigned widths[] = {1, 16, 31, 100};

	for (unsigned i = 0; i < 4 * 3 * 2; i++) {
		bool gelu = i >= 4 * 3;
		unsigned n = widths[i / 3 % 4], rows = i % 3 * 17 + 1;
		struct cm_tensor *x = f32(rows, 2ull * n),
				 *out = i & 1 ? bf16(rows, n) : f32(rows, n);
		struct run r = {.l = {.in = {x}, .out = {out}, .precise = i % 3 == 2}};
		double *want = malloc(rows * n * sizeof(*want));
		float *got;

		for (unsigned m = 0; m < rows; m++)
			for (unsigned j = 0; j < n; j++) {
				const float *row = (const float *)x->ptr + m * 2 * n;

				want[m * n + j] = gate(row[j], gelu) * row[n + j];
			}
		r.op.silu_mul.act = gelu ? TXDA_ACT_GELU_GATED : 0;
		assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 3), 0);
		got = as_f32(out);
		assert_true(rel_error(got, want, rows * n) < (i & 1 ? 4e-3 : 1e-6));
		r.op.silu_mul.act = TXDA_ACT_SOFTCAP;
		assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 3), -EINVAL);
		r.op.silu_mul.act = TXDA_ACT_SILU_GATED;
		assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 3), 0);
		out->dim[1]++;
		assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 3), -EINVAL);
		free(want), free(got);
		drop(x), drop(out);
	}
}

/* A gate and an up beyond the limit, on both sides. */
TEST(test_clamped)
{
	static const float gates[] = {-90, -3, -0.5f, 0, 2, 6.9f, 7, 8, 90, INFINITY},
			   ups[] = {-INFINITY, -50, -7, 0.25f, 7, 1e30f};
	struct cm_tensor *x = f32(1, 2), *out = f32(1, 1);
	struct run r = {.l = {.in = {x}, .out = {out}}};

	r.op.silu_mul.act = TXDA_ACT_SWIGLU_CLAMPED;
	assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 1), -EINVAL);
	assert_int_equal(r.fault.code, TXDA_FAULT_PROGRAM);
	r.op.silu_mul.limit = 7;
	for (unsigned i = 0; i < 10 * 6 * 2; i++) {
		double want = clamped(gates[i % 10], ups[i / 10 % 6], 7);
		float *pair = x->ptr;

		pair[0] = gates[i % 10];
		pair[1] = ups[i / 10 % 6];
		r.l.precise = i >= 60;
		assert_int_equal(run_op(&r, TXDA_OP_SILU_MUL, 1), 0);
		assert_true(fabs(*(float *)out->ptr - want) <= 1e-6 * fabs(want) + 1e-30);
	}
	drop(x), drop(out);
}

OPS_MAIN(true)
