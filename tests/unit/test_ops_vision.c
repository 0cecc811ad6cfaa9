// SPDX-License-Identifier: MIT
/*
 * What towers that see images compute: LAYERNORM, INTERPOLATE, SPAN_ATTENTION, MERGE_ROWS, plain
 * activations and positions with several coordinates. Every SIMD path of this CPU against loops in
 * double, spans whose bits do not depend on their neighbours, shapes and indices from hostile
 * clients.
 */
#include "ops_fixture.h"

static double activation(unsigned act, double x)
{
	switch (act) {
	case TXDA_ACT_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
	case TXDA_ACT_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	case TXDA_ACT_GELU_QUICK: return x / (1 + exp(-1.702 * x));
	case TXDA_ACT_SILU: return x / (1 + exp(-x));
	default: return x;
	}
}

/* ---- LAYERNORM ---- */

TEST(test_layernorm)
{
	static const unsigned widths[] = {1, 7, 40, 64, 129, 1280};

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++)
		for (unsigned act = 0; act <= TXDA_ACT_SILU; act++) {
			unsigned n = widths[i], rows = 19;
			struct cm_tensor *x = f32(rows, n), *w = f32(n, 0), *b = f32(n, 0),
					 *y = f32(rows, n);
			double *want = calloc((size_t)rows * n, sizeof(*want));
			bool bias = act != TXDA_ACT_SILU;

			if (act && !txda_is_plain_act(act)) {
				drop(x), drop(w), drop(b), drop(y), free(want);
				continue;
			}
			for (unsigned r = 0; r < rows; r++) {
				const float *row = (const float *)x->ptr + (size_t)r * n;
				double mean = 0, var = 0;

				for (unsigned k = 0; k < n; k++)
					mean += row[k] / (double)n;
				for (unsigned k = 0; k < n; k++)
					var += (row[k] - mean) * (row[k] - mean) / n;
				for (unsigned k = 0; k < n; k++)
					want[(size_t)r * n + k] =
						activation(act, (row[k] - mean) / sqrt(var + 1e-3) *
										floats(w)[k] +
									(bias ? floats(b)[k] : 0));
			}
			for (int precise = 0; precise < 2; precise++) {
				struct run r = {.l = {.in = {x, w, bias ? b : NULL},
						      .out = {y},
						      .precise = precise}};

				r.op.layernorm = (struct txda_op_layernorm){1e-3f, act};
				assert_int_equal(run_op(&r, TXDA_OP_LAYERNORM, 2), 0);
				assert_true(rel_error(y->ptr, want, (size_t)rows * n) < 2e-6);
			}
			drop(x), drop(w), drop(b), drop(y), free(want);
		}
}

TEST(test_layernorm_hostile)
{
	struct cm_tensor *x = f32(4, 8), *w = f32(8, 0), *shorter = f32(7, 0), *y = f32(4, 8);
	struct run r = {.l = {.in = {x, w}, .out = {y}}};

	REFUSED(r, TXDA_OP_LAYERNORM, r.op.layernorm.act, TXDA_ACT_SILU_GATED, PROGRAM);
	REFUSED(r, TXDA_OP_LAYERNORM, r.op.layernorm.act, TXDA_ACT_COUNT, PROGRAM);
	REFUSED(r, TXDA_OP_LAYERNORM, r.l.in[2], shorter, SHAPE);
	REFUSED(r, TXDA_OP_LAYERNORM, r.l.in[1], shorter, SHAPE);
	assert_int_equal(run_op(&r, TXDA_OP_LAYERNORM, 1), 0);
	drop(x), drop(w), drop(shorter), drop(y);
}

/* ---- plain activations of LINEAR ---- */

TEST(test_activations)
{
	enum { M = 5, N = 37, K = 16 };
	struct cm_tensor *x = f32(M, K), *w = tiles(TXDA_F32, TXDA_TILE32, 0, N, K), *y = f32(M, N);
	double want[M * N];

	for (unsigned act = TXDA_ACT_GELU; act <= TXDA_ACT_SILU; act++)
		for (int precise = 0; precise < 2; precise++) {
			struct run r = {.l = {.in = {x, w}, .out = {y}, .precise = precise}};

			for (unsigned i = 0; i < M * N; i++) {
				double sum = 0;

				for (unsigned k = 0; k < K; k++)
					sum += (double)floats(x)[i / N * K + k] *
					       cm_tile_get(w, i % N, k);
				want[i] = activation(act, sum);
			}
			r.op.linear.act = act;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 2), 0);
			assert_true(rel_error(y->ptr, want, M * N) < 2e-6);
			r.op.linear.limit = 1;
			assert_int_equal(run_op(&r, TXDA_OP_LINEAR, 2), -EINVAL);
		}
	drop(x), drop(w), drop(y);
}

/* ---- INTERPOLATE ---- */

TEST(test_interpolate)
{
	enum { M = 21, H = 45, N = 9, K = 5 };
	struct cm_tensor *x = f32(M, H), *table = f32(N, H), *taps = i32(M, K), *w = f32(M, K),
			 *y = f32(M, H);
	double want[M * H];
	struct run r = {.l = {.in = {x, table, taps, w}, .out = {y}}};

	for (unsigned i = 0; i < M * K; i++)
		ints(taps)[i] = (int32_t)(i * 7 % N);
	for (unsigned i = 0; i < M * H; i++) {
		want[i] = floats(x)[i];
		for (unsigned j = 0; j < K; j++)
			want[i] += (double)floats(w)[i / H * K + j] *
				   ((float *)table->ptr)[ints(taps)[i / H * K + j] * H + i % H];
	}
	assert_int_equal(run_op(&r, TXDA_OP_INTERPOLATE, 2), 0);
	assert_true(rel_error(y->ptr, want, M * H) < 1e-6);
	r.l.out[0] = x; /* in place */
	assert_int_equal(run_op(&r, TXDA_OP_INTERPOLATE, 2), 0);
	assert_memory_equal(x->ptr, y->ptr, M * H * 4);
	for (int32_t bad = -1; bad <= N; bad += N + 1) {
		ints(taps)[M * K - 1] = bad;
		assert_int_equal(run_op(&r, TXDA_OP_INTERPOLATE, 2), -EINVAL);
		assert_int_equal(r.fault.code, TXDA_FAULT_INDEX);
		assert_int_equal(r.fault.detail, (uint32_t)bad);
	}
	drop(x), drop(table), drop(taps), drop(w), drop(y);
}

/* ---- MERGE_ROWS ---- */

TEST(test_merge)
{
	enum { M = 21, H = 19, E = 6, COL = 4 };
	struct cm_tensor *x = f32(M, H), *line = f32(H, 0), *source = f32(E, H + COL + 1),
			 *rows = i32(M, 0), *y = f32(M, H);
	struct run r = {.l = {.out = {y}}};

	for (unsigned i = 0; i < M; i++)
		ints(rows)[i] = i % 3 ? (int32_t)(i * 5 % E) : -1;
	for (unsigned add = 0; add < 2; add++)
		for (unsigned wide = 0; wide < 2; wide++) {
			r.l.in[0] = wide ? x : line;
			r.l.in[1] = source;
			r.l.in[2] = rows;
			r.op.merge_rows = (struct txda_op_merge_rows){add, COL};
			assert_int_equal(run_op(&r, TXDA_OP_MERGE_ROWS, 2), 0);
			for (unsigned i = 0; i < M * H; i++) {
				int32_t row = ints(rows)[i / H];
				float own = wide ? floats(x)[i] : floats(line)[i % H];
				float seen =
					row < 0 ? 0
						: floats(source)[row * (H + COL + 1) + COL + i % H];

				assert_true(floats(y)[i] == (row < 0 || add ? own + seen : seen));
			}
		}
	REFUSED(r, TXDA_OP_MERGE_ROWS, r.op.merge_rows.col, COL + 2, SHAPE);
	REFUSED(r, TXDA_OP_MERGE_ROWS, r.op.merge_rows.flags, 2, PROGRAM);
	REFUSED(r, TXDA_OP_MERGE_ROWS, ints(rows)[3], E, INDEX);
	drop(x), drop(line), drop(source), drop(rows), drop(y);
}

/* ---- SPAN_ATTENTION ---- */

struct span_case {
	unsigned heads, dim, pairs, n;
	int32_t spans[4][2];
	unsigned n_spans;
};

static const struct span_case span_cases[] = {
	{2, 20, 10, 40, {{0, 16}, {16, 24}}, 2}, {3, 16, 0, 33, {{0, 17}, {17, 0}, {17, 16}}, 3},
	{1, 80, 40, 700, {{5, 690}}, 1},	 {4, 12, 4, 90, {{0, 1}, {2, 63}, {65, 25}}, 3},
	{1, 72, 36, 300, {{0, 300}}, 1},	 {2, 48, 24, 135, {{0, 130}}, 1},
	{3, 15, 0, 81, {{0, 50}, {50, 31}}, 2},	 {16, 1, 0, 40, {{0, 13}, {13, 25}, {38, 2}}, 3},
	{1, 33, 16, 90, {{3, 87}}, 1},		 {2, 511, 0, 20, {{0, 20}}, 1},
};

static void span_reference(const struct span_case *c, const float *qkv, const float *table,
			   double *want)
{
	unsigned width = c->heads * c->dim;
	double *turned = malloc((size_t)c->n * 2 * width * sizeof(*turned)), *score;

	score = malloc(c->n * sizeof(*score));
	for (unsigned i = 0; i < c->n * 2 * width; i++) {
		unsigned row = i / (2 * width), at = i % (2 * width), d = at % c->dim;
		const float *head = qkv + (size_t)row * 3 * width + at - d;
		const float *cs = table + (size_t)row * 2 * c->pairs, *sn = cs + c->pairs;

		turned[i] =
			d < c->pairs ? (double)head[d] * cs[d] - (double)head[d + c->pairs] * sn[d]
			: d < 2 * c->pairs ? (double)head[d] * cs[d - c->pairs] +
						     (double)head[d - c->pairs] * sn[d - c->pairs]
					   : head[d];
	}
	for (unsigned s = 0; s < c->n_spans; s++)
		for (int32_t i = 0; i < c->spans[s][1] * (int32_t)c->heads; i++) {
			unsigned row = (unsigned)(c->spans[s][0] + i / (int32_t)c->heads),
				 head = (unsigned)i % c->heads, n = (unsigned)c->spans[s][1];
			double sum = 0, top = -1e300;

			for (unsigned k = 0; k < n; k++) {
				unsigned key = (unsigned)c->spans[s][0] + k;

				score[k] = 0;
				for (unsigned d = 0; d < c->dim; d++)
					score[k] += turned[(size_t)row * 2 * width + head * c->dim +
							   d] *
						    turned[(size_t)key * 2 * width + width +
							   head * c->dim + d];
				score[k] *= 0.25;
				top = score[k] > top ? score[k] : top;
			}
			for (unsigned k = 0; k < n; k++)
				sum += exp(score[k] - top);
			for (unsigned d = 0; d < c->dim; d++) {
				double y = 0;

				for (unsigned k = 0; k < n; k++)
					y += exp(score[k] - top) / sum *
					     qkv[((size_t)c->spans[s][0] + k) * 3 * width +
						 2 * width + head * c->dim + d];
				want[(size_t)row * width + head * c->dim + d] = y;
			}
		}
	free(turned);
	free(score);
}

static struct run span_run_of(const struct span_case *c, struct cm_tensor *qkv,
			      struct cm_tensor *spans, struct cm_tensor *table, struct cm_tensor *y)
{
	struct run r = {.l = {.in = {qkv, spans, c->pairs ? table : NULL}, .out = {y}}};

	r.op.span_attention = (struct txda_op_span_attention){c->heads, c->dim, 0.25f};
	return r;
}

TEST(test_span_attention)
{
	for (size_t i = 0; i < ARRAY_SIZE(span_cases); i++) {
		const struct span_case *c = &span_cases[i];
		unsigned width = c->heads * c->dim;
		struct cm_tensor *qkv = f32(c->n, 3 * width), *spans = i32(c->n_spans, 2),
				 *table = f32(c->n, 2 * (c->pairs ? c->pairs : 1)),
				 *y = f32(c->n, width);
		double *want = calloc((size_t)c->n * width, sizeof(*want));

		memcpy(spans->ptr, c->spans, c->n_spans * 8);
		span_reference(c, qkv->ptr, table->ptr, want);
		for (int precise = 0; precise < 2; precise++) {
			struct run r = span_run_of(c, qkv, spans, table, y);

			memset(y->ptr, 0, (size_t)c->n * width * 4);
			r.l.precise = precise;
			assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 3), 0);
			assert_true(rel_error(y->ptr, want, (size_t)c->n * width) <
				    (precise ? 1e-6 : 6e-3));
		}
		drop(qkv), drop(spans), drop(table), drop(y), free(want);
	}
}

/* A span has its bits wherever it lies and however many cores there are. */
static void check_span_bits(unsigned dim)
{
	const unsigned turned = dim / 2 * 2;
	const struct span_case c = {2, dim, dim / 2, 900, {{0, 100}, {101, 700}}, 2},
			       alone = {2, dim, dim / 2, 700, {{0, 700}}, 1};
	struct cm_tensor *qkv = f32(c.n, 6 * dim), *spans = i32(2, 2), *table = f32(c.n, turned),
			 *y = f32(c.n, 2 * dim), *one = f32(700, 2 * dim), *own = i32(1, 2);
	struct cm_tensor part_qkv = *qkv, part_table = *table;
	struct run r;

	memcpy(spans->ptr, c.spans, sizeof(c.spans[0]) * 2);
	memcpy(own->ptr, alone.spans, sizeof(alone.spans[0]));
	part_qkv.ptr = (float *)qkv->ptr + (size_t)101 * 6 * dim;
	part_table.ptr = (float *)table->ptr + (size_t)101 * turned;
	part_qkv.dim[0] = part_table.dim[0] = 700;
	r = span_run_of(&c, qkv, spans, table, y);
	assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 1), 0);
	for (unsigned cores = 1; cores <= 16; cores *= 4) {
		r = span_run_of(&alone, &part_qkv, own, &part_table, one);
		assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, cores), 0);
		assert_memory_equal(one->ptr, (float *)y->ptr + (size_t)101 * 2 * dim,
				    700 * 2 * dim * 4);
	}
	drop(qkv), drop(spans), drop(table), drop(y), drop(one), drop(own);
}

TEST(test_span_bits)
{
	check_span_bits(24);
	check_span_bits(80);
	check_span_bits(13);
}

TEST(test_span_hostile)
{
	static const int32_t bad[][2][2] = {
		{{0, 41}, {41, 0}}, {{8, 8}, {15, 4}}, {{-1, 1}, {4, 4}},
		{{0, 8}, {40, 1}},  {{4, -1}, {8, 8}}, {{0, INT32_MAX}, {INT32_MAX, 2}},
	};
	const struct span_case c = {2, 20, 10, 40, {{0, 16}, {16, 24}}, 2};
	struct cm_tensor *qkv = f32(40, 120), *spans = i32(2, 2), *table = f32(40, 20),
			 *wide = f32(40, 22), *y = f32(40, 40);
	struct run r = span_run_of(&c, qkv, spans, table, y);

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		memcpy(spans->ptr, bad[i], sizeof(bad[i]));
		assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 1), -EINVAL);
		assert_int_equal(r.fault.code, TXDA_FAULT_INDEX);
	}
	memcpy(spans->ptr, c.spans, 16);
	assert_int_equal(run_op(&r, TXDA_OP_SPAN_ATTENTION, 1), 0);
	REFUSED(r, TXDA_OP_SPAN_ATTENTION, r.l.in[2], wide, SHAPE); /* more than a head has */
	REFUSED(r, TXDA_OP_SPAN_ATTENTION, r.op.span_attention.head_dim, 15, SHAPE);
	REFUSED(r, TXDA_OP_SPAN_ATTENTION, r.op.span_attention.head_dim, 1024, PROGRAM);
	REFUSED(r, TXDA_OP_SPAN_ATTENTION, r.op.span_attention.n_heads, 0, PROGRAM);
	drop(qkv), drop(spans), drop(table), drop(wide), drop(y);
}

/* ---- ROPE_TABLE with several coordinates ---- */

TEST(test_axes)
{
	enum { T = 11, P = 6, A = 3 };
	static const int32_t axes[P] = {0, 1, 2, 2, 1, 0};
	struct cm_tensor *pos = i32(T, A), *freq = f32(P, 0), *axis = i32(P, 0), *y = f32(T, 2 * P);
	struct run r = {.l = {.in = {pos, freq, axis}, .out = {y}}};

	memcpy(axis->ptr, axes, sizeof(axes));
	for (unsigned i = 0; i < T * A; i++)
		ints(pos)[i] = (int32_t)(i * i % 50);
	r.op.rope_table = (struct txda_op_rope_table){.scale = 1, .max_position = 50};
	assert_int_equal(run_op(&r, TXDA_OP_ROPE_TABLE, 2), 0);
	for (unsigned i = 0; i < T * P; i++) {
		float angle =
			(float)ints(pos)[i / P * A + (unsigned)axes[i % P]] * floats(freq)[i % P];

		assert_true(floats(y)[i / P * 2 * P + i % P] == cosf(angle));
		assert_true(floats(y)[i / P * 2 * P + P + i % P] == sinf(angle));
	}
	REFUSED(r, TXDA_OP_ROPE_TABLE, ints(axis)[P - 1], A, INDEX);
	REFUSED(r, TXDA_OP_ROPE_TABLE, ints(axis)[P - 1], -1, INDEX);
	REFUSED(r, TXDA_OP_ROPE_TABLE, ints(pos)[T * A - 1], 50, INDEX); /* past the limit */
	/* one coordinate only */
	REFUSED(r, TXDA_OP_ROPE_TABLE, r.op.rope_table.dynamic_from, 8, SHAPE);
	drop(pos), drop(freq), drop(axis), drop(y);
}

OPS_MAIN(false)
