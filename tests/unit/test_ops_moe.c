// SPDX-License-Identifier: MIT
/*
 * ROUTE, MOE_LINEAR and MOE_COMBINE by themselves: every SIMD path of this CPU against plain loops
 * in double; rows whose bits do not depend on who else chose their expert; choices and shapes from
 * hostile clients.
 */
#include "ops_fixture.h"

/* ---- ROUTE ---- */

struct route_case {
	unsigned experts, k, groups, top;
	uint32_t flags;
	bool bias;
};

/* The same by sorting, in double. */
static void route_reference(const struct route_case *c, const float *x, const float *bias,
			    double scale, int *ids, double *weights)
{
	double score[64], choice[64], group[64], sum = 0, max = -1e300;
	unsigned size = c->experts / c->groups;
	bool taken[64] = {false};

	for (unsigned i = 0; i < c->experts; i++)
		max = x[i] > max ? x[i] : max;
	for (unsigned i = 0; i < c->experts; i++) {
		score[i] = c->flags & TXDA_ROUTE_SIGMOID ? 1 / (1 + exp(-x[i])) : exp(x[i] - max);
		sum += score[i];
	}
	for (unsigned i = 0; i < c->experts; i++) {
		if (!(c->flags & TXDA_ROUTE_SIGMOID))
			score[i] /= sum;
		choice[i] = score[i] + (bias ? bias[i] : 0);
	}
	for (unsigned g = 0; g < c->groups; g++) {
		double a = -1e300, b = -1e300;

		for (unsigned i = g * size; i < (g + 1) * size; i++) {
			if (choice[i] > a) {
				b = a;
				a = choice[i];
			} else if (choice[i] > b) {
				b = choice[i];
			}
		}
		group[g] = c->flags & TXDA_ROUTE_TOP2 && size > 1 ? a + b : a;
	}
	for (unsigned i = 0; i < c->experts; i++) {
		unsigned better = 0;

		for (unsigned g = 0; g < c->groups; g++)
			better += group[g] > group[i / size];
		if (better >= c->top)
			choice[i] = 0;
	}
	sum = 0;
	for (unsigned j = 0; j < c->k; j++) {
		int best = -1;

		for (unsigned i = 0; i < c->experts; i++)
			if (!taken[i] && (best < 0 || choice[i] > choice[best]))
				best = (int)i;
		taken[best] = true;
		ids[j] = best;
		weights[j] = score[best];
		sum += score[best];
	}
	for (unsigned j = 0; j < c->k; j++)
		weights[j] *= scale / (c->flags & TXDA_ROUTE_NORMALISE ? sum + 1e-20 : 1);
}

TEST(test_route)
{
	static const struct route_case cases[] = {
		{8, 2, 1, 1, 0, false},
		{8, 3, 1, 1, TXDA_ROUTE_NORMALISE, false},
		{60, 4, 1, 1, 0, false},
		{64, 6, 8, 3, 0, false},
		{8, 2, 4, 2, TXDA_ROUTE_SIGMOID | TXDA_ROUTE_TOP2 | TXDA_ROUTE_NORMALISE, true},
		{64, 8, 8, 4, TXDA_ROUTE_SIGMOID | TXDA_ROUTE_TOP2 | TXDA_ROUTE_NORMALISE, true},
		{5, 5, 1, 1, TXDA_ROUTE_SIGMOID, true},
		{6, 2, 6, 2, TXDA_ROUTE_TOP2, false},
		{1, 1, 1, 1, 0, false},
	};
	enum { T = 19 };

	for (size_t n = 0; n < ARRAY_SIZE(cases); n++) {
		const struct route_case *c = &cases[n];
		struct cm_tensor *x = f32(T, c->experts),
				 *bias = c->bias ? f32(c->experts, 0) : NULL, *ids = i32(T, c->k),
				 *weights = f32(T, c->k);
		struct run r = {.l = {.in = {x, bias}, .out = {ids, weights}}};

		ids->ndim = 2;
		x->ndim = 2;
		weights->ndim = 2;
		for (unsigned i = 0; i < T * c->experts; i++)
			floats(x)[i] *= 4;
		r.op.route = (struct txda_op_route){c->k, c->groups, c->top, c->flags, 2.5f};
		assert_int_equal(run_op(&r, TXDA_OP_ROUTE, 3), 0);
		for (unsigned t = 0; t < T; t++) {
			double want[64];
			int want_ids[64];

			route_reference(c, (const float *)x->ptr + t * c->experts,
					bias ? bias->ptr : NULL, 2.5, want_ids, want);
			for (unsigned j = 0; j < c->k; j++) {
				float got = floats(weights)[t * c->k + j];

				assert_int_equal(ints(ids)[t * c->k + j], want_ids[j]);
				assert_true(fabs(got - want[j]) < 1e-6 * want[j] + 1e-9);
			}
		}
		drop(x), drop(bias), drop(ids), drop(weights);
	}
}

/* Whatever the logits are, the experts are distinct and exist. */
TEST(test_route_hostile)
{
	struct cm_tensor *x = f32(4, 12), *ids = i32(4, 5), *weights = f32(4, 5);
	struct run r = {.l = {.in = {x}, .out = {ids, weights}}};
	struct txda_op_route *p = &r.op.route;
	float *v = x->ptr;

	for (unsigned i = 0; i < 12; i++) {
		v[i] = NAN;
		v[12 + i] = -INFINITY;
		v[24 + i] = i % 2 ? INFINITY : NAN;
		v[36 + i] = 0;
	}
	r.op.route = (struct txda_op_route){5, 4, 1, TXDA_ROUTE_TOP2, 1};
	assert_int_equal(run_op(&r, TXDA_OP_ROUTE, 1), 0);
	for (unsigned t = 0; t < 4; t++)
		for (unsigned j = 0; j < 5; j++) {
			int32_t id = ints(ids)[t * 5 + j];

			assert_in_range(id, 0, 11);
			for (unsigned i = 0; i < j; i++)
				assert_int_not_equal(ints(ids)[t * 5 + i], id);
		}
	for (unsigned j = 0; j < 3; j++) /* equals: the lower index first */
		assert_int_equal(ints(ids)[15 + j], j);
#define BAD(...) REFUSED(r, TXDA_OP_ROUTE, __VA_ARGS__)
	BAD(p->k, 0, PROGRAM);
	BAD(p->k, 13, PROGRAM);
	BAD(p->k, 4, SHAPE); /* not what the outputs have */
	BAD(p->n_groups, 0, PROGRAM);
	BAD(p->n_groups, 5, PROGRAM);
	BAD(p->n_groups, 24, PROGRAM);
	BAD(p->top_groups, 0, PROGRAM);
	BAD(p->top_groups, 5, PROGRAM);
	BAD(p->flags, 8, PROGRAM);
#undef BAD
	drop(x), drop(ids), drop(weights);
}

/* ---- MOE_LINEAR ---- */

struct moe_case {
	uint8_t dtype;
	uint16_t group;
	unsigned experts, tokens, k, n, kk, width; /* width of x where columns reorder it, or 0 */
	bool i8;				   /* activations, if weights are in groups */
	bool gated, norm, per_row, bf16_in, bf16_out, precise, heads, biased;
	unsigned first, all; /* of the experts of all chips */
	double tol;
};

/* E matrices as one tensor. */
static struct cm_tensor *stack(const struct moe_case *c)
{
	uint8_t layout = c->gated ? TXDA_TILE32_GATED : TXDA_TILE32;
	uint64_t bytes =
		txda_tile_panels(layout, c->n) * txda_tile_panel_bytes(c->dtype, c->kk, c->group);
	struct cm_tensor *t =
		tensor(c->dtype, layout, c->group, c->experts, c->n, bytes * c->experts);

	t->ndim = 3;
	t->dim[2] = c->kk;
	for (unsigned e = 0; e < c->experts; e++) {
		struct cm_tensor *one = tiles(c->dtype, layout, c->group, c->n, c->kk);

		memcpy((uint8_t *)t->ptr + e * bytes, one->ptr, bytes);
		drop(one);
	}
	return t;
}

/* One row by a LINEAR of the expert's matrix: the same bits are promised. */
static void expert_row(const struct moe_case *c, const struct run *r, uint64_t row, void *out)
{
	const struct cm_tensor *x = r->l.in[0], *w = r->l.in[1], *ids = r->l.in[2],
			       *columns = r->l.in[4];
	uint64_t e = c->heads ? row % c->experts : ((uint32_t *)ids->ptr)[row] - c->first;
	uint64_t from = c->heads || c->per_row ? row : row / c->k,
		 width = c->gated ? c->n / 2 : c->n, xw = c->heads ? c->kk : x->dim[1];
	uint64_t bytes = txda_tile_panels(w->layout, c->n) *
			 txda_tile_panel_bytes(c->dtype, c->kk, c->group);
	struct cm_tensor x1 = *x, w1 = *w, out1 = *r->l.out[0], columns1, bias1;
	struct run one = {
		.l = {.in = {&x1, &w1, NULL, r->l.in[3]}, .out = {&out1}, .precise = r->l.precise}};

	x1.dim[0] = out1.dim[0] = 1;
	x1.dim[1] = xw;
	out1.dim[1] = width;
	x1.ptr = (uint8_t *)x->ptr + from * xw * (c->bf16_in ? 2 : 4);
	out1.ptr = out;
	w1.ptr = (uint8_t *)w->ptr + e * bytes;
	w1.ndim = 2;
	w1.dim[0] = c->n;
	w1.dim[1] = c->kk;
	if (columns) {
		columns1 = *columns;
		columns1.ndim = 1;
		columns1.dim[0] = c->kk;
		columns1.ptr = (int32_t *)columns->ptr + e * c->kk;
		one.l.in[5] = &columns1;
	}
	if (r->l.in[5]) {
		bias1 = *r->l.in[5];
		bias1.ndim = 1;
		bias1.dim[0] = c->n;
		bias1.ptr = (float *)r->l.in[5]->ptr + e * c->n;
		one.l.in[2] = &bias1;
	}
	one.op.linear.act = r->op.moe_linear.act;
	one.op.linear.limit = r->op.moe_linear.limit;
	one.op.linear.eps = r->op.moe_linear.eps;
	one.op.linear.flags = r->op.moe_linear.flags;
	assert_int_equal(run_op(&one, TXDA_OP_LINEAR, 1), 0);
}

static void moe_one(const struct moe_case *c)
{
	uint64_t rows = c->heads ? (uint64_t)c->tokens * c->experts : (uint64_t)c->tokens * c->k;
	uint64_t width = c->gated ? c->n / 2 : c->n, xw = c->width ? c->width : c->kk,
		 os = c->bf16_out ? 2 : 4;
	uint64_t x_rows = c->per_row ? rows : c->tokens;
	uint64_t out_width = c->heads ? c->experts * width : width + 5;
	uint64_t out_rows = c->heads ? c->tokens : rows;
	struct cm_tensor *x = c->bf16_in ? bf16(x_rows, c->heads ? xw * c->experts : xw)
					 : f32(x_rows, c->heads ? xw * c->experts : xw);
	struct cm_tensor *w = stack(c), *ids = c->heads ? NULL : i32(c->tokens, c->k),
			 *norm = c->norm ? f32(xw, 0) : NULL,
			 *columns = c->width ? i32(c->experts, c->kk) : NULL,
			 *bias = c->biased && !c->heads ? f32(c->experts, c->n) : NULL;
	struct cm_tensor *out = c->bf16_out ? bf16(out_rows, out_width) : f32(out_rows, out_width);
	struct run r = {
		.l = {.in = {x, w, ids, norm, columns, bias}, .out = {out}, .precise = c->precise}};
	uint8_t *before = malloc(out_rows * out_width * os), *want = mem(width * os);

	memcpy(before, out->ptr, out_rows * out_width * os);
	if (ids)
		ids->ndim = 2;
	if (columns)
		columns->ndim = 2;
	for (uint64_t i = 0; ids && i < rows; i++)
		ints(ids)[i] =
			(int32_t)((frand() + 1) * 0.499f * (float)c->all); /* repeats are fine */
	for (uint64_t i = 0; columns && i < (uint64_t)c->experts * c->kk; i++)
		ints(columns)[i] = i % 7 ? (int32_t)((frand() + 1) * 0.49f * (float)xw) : -1;
	r.op.moe_linear = (struct txda_op_moe_linear){
		.act = !c->gated   ? TXDA_ACT_NONE
		       : c->biased ? TXDA_ACT_SWIGLU_CLAMPED
		       : c->k % 2  ? TXDA_ACT_GELU_GATED
				   : TXDA_ACT_SILU_GATED,
		.eps = 1e-6f,
		.flags = c->group && !c->i8 ? TXDA_LINEAR_FLOAT_INPUT : 0,
		.out_col = c->heads ? 0 : 3,
		.first = c->heads ? 0 : c->first,
		.n_experts = c->heads ? 0 : c->all,
		.limit = c->gated && c->biased ? 0.7f : 0,
	};
	assert_int_equal(run_op(&r, TXDA_OP_MOE_LINEAR, 3), 0);
	for (uint64_t row = 0; row < rows; row++) {
		uint8_t *got =
			(uint8_t *)out->ptr + (c->heads ? row * width : row * out_width + 3) * os;
		uint32_t id = c->heads ? 0 : ((uint32_t *)ids->ptr)[row];

		if (!c->heads && (id < c->first || id - c->first >= c->experts)) {
			/* another chip's: as it was */
			assert_memory_equal((uint8_t *)out->ptr + row * out_width * os,
					    before + row * out_width * os, out_width * os);
			continue;
		}
		expert_row(c, &r, row, want);
		if (memcmp(got, want, width * os))
			fail_msg("%s: type %d, %u experts, %u tokens, k %u: row %d is another than "
				 "by LINEAR",
				 cm_simd->name, c->dtype, c->experts, c->tokens, c->k, (int)row);
		if (!c->heads)
			assert_memory_equal((uint8_t *)out->ptr + row * out_width * os,
					    before + row * out_width * os, 3 * os);
	}
	free(before), free(want);
	drop(x), drop(w), drop(ids), drop(norm), drop(columns), drop(bias), drop(out);
}

TEST(test_moe_linear)
{
	static const struct {
		uint8_t dtype;
		uint16_t group;
		bool i8;
	} types[] = {{TXDA_BF16, 0},	  {TXDA_F32, 0},	{TXDA_F16, 0},
		     {TXDA_W4, 32},	  {TXDA_W4Z, 64},	{TXDA_F8, 128},
		     {TXDA_MX4, 32},	  {TXDA_W4M, 256},	{TXDA_W6S, 64},
		     {TXDA_W4, 32, true}, {TXDA_W8, 128, true}, {TXDA_W4, 256, true}};
	static const unsigned shapes[][5] = {/* experts, tokens, k, n, kk */
					     {8, 1, 3, 64, 96},	  {5, 7, 2, 34, 33},
					     {4, 60, 2, 96, 160}, {60, 9, 4, 32, 128},
					     {1, 30, 1, 70, 64},  {3, 230, 3, 32, 1090}};

	for (size_t t = 0; t < ARRAY_SIZE(types); t++)
		for (size_t s = 0; s < ARRAY_SIZE(shapes) && is_of_path(types[t].dtype); s++)
			for (unsigned flags = (t + s) % flag_steps() * 7; flags < 64;
			     flags += 7 * flag_steps()) {
				struct moe_case c = {
					types[t].dtype,
					types[t].group,
					shapes[s][0],
					shapes[s][1],
					shapes[s][2],
					shapes[s][3],
					shapes[s][4],
					.i8 = types[t].i8,
					.gated = flags & 1,
					.norm = flags & 2,
					.per_row = flags & 4,
					.bf16_in = flags & 8,
					.bf16_out = flags & 16,
					.biased = flags % 4 == 3 || flags == 14,
					.precise = flags & 32 && s < 2,
				};

				c.all = c.experts;
				if (flags % 3 == 1) { /* a chip's share of more */
					c.first = 2;
					c.all = c.experts + 5;
				}
				c.width = flags % 5 == 2 ? c.kk * 2 / 3 + 2 : 0;
				moe_one(&c);
				c.heads = true;
				c.norm = c.per_row = false;
				c.width = c.first = c.all = 0;
				moe_one(&c);
			}
}

TEST(test_moe_refuses)
{
	struct moe_case c = {TXDA_BF16, 0, 4, 3, 2, 32, 64};
	struct cm_tensor *x = f32(3, 64), *w = stack(&c), *ids = i32(3, 2), *out = f32(6, 32),
			 *flat = tiles(TXDA_BF16, TXDA_TILE32, 0, 32, 64), *columns = i32(4, 64),
			 *wide = f32(3, 256), *wide_out = f32(3, 128);
	struct run r = {.l = {.in = {x, w, ids}, .out = {out}}};
	struct txda_op_moe_linear *p = &r.op.moe_linear;

#define BAD(...) REFUSED(r, TXDA_OP_MOE_LINEAR, __VA_ARGS__)
	p->n_experts = 4;
	assert_int_equal(run_op(&r, TXDA_OP_MOE_LINEAR, 1), 0);
	BAD(ints(ids)[5], 4, INDEX);
	BAD(ints(ids)[5], -1, INDEX);
	BAD(p->first, 1, PROGRAM); /* matrices beyond the last expert */
	BAD(p->first, 0xffffffff, PROGRAM);
	BAD(p->out_col, 1, SHAPE);
	BAD(p->flags, 8, PROGRAM);
	BAD(r.l.in[1], flat, SHAPE); /* one matrix is no stack */
	BAD(r.l.in[5], wide, SHAPE); /* biases: of each matrix's outputs */
	BAD(p->limit, 1, PROGRAM);   /* of nothing */
	r.l.in[4] = columns;
	BAD(ints(columns)[255], 64, INDEX);
	ints(columns)[255] = 63;
	assert_int_equal(run_op(&r, TXDA_OP_MOE_LINEAR, 1), 0);
	r.l.in[4] = NULL;
	/* heads: no experts, and widths that are as many */
	BAD(r.l.in[2], NULL, PROGRAM);
	r.l.in[2] = NULL;
	BAD(p->n_experts, 0, SHAPE);
	p->n_experts = 0;
	BAD(r.l.in[0], wide, SHAPE);
	r.l.in[0] = wide;
	r.l.out[0] = wide_out;
	assert_int_equal(run_op(&r, TXDA_OP_MOE_LINEAR, 1), 0);
#undef BAD
	drop(x), drop(w), drop(ids), drop(out), drop(flat), drop(columns), drop(wide),
		drop(wide_out);
}

/* Only what is chosen is counted as read. */
TEST(test_moe_traffic)
{
	struct moe_case c = {TXDA_BF16, 0, 64, 4, 2, 32, 64};
	struct cm_tensor *x = f32(4, 64), *w = stack(&c), *ids = i32(4, 2), *out = f32(8, 32);
	struct run r = {.l = {.in = {x, w, ids}, .out = {out}}};
	uint64_t matrix = txda_tile_panel_bytes(TXDA_BF16, 64, 0), read, written;

	for (int i = 0; i < 8; i++)
		ints(ids)[i] = i % 3 * 20;
	r.op.moe_linear.n_experts = 64;
	assert_int_equal(run_op(&r, TXDA_OP_MOE_LINEAR, 1), 0);
	cm_op_impl(TXDA_OP_MOE_LINEAR)->traffic(&r.l, &read, &written);
	assert_int_equal(read, 3 * matrix + 4 * 64 * 4);
	assert_int_equal(written, 8 * 32 * 4);
	drop(x), drop(w), drop(ids), drop(out);
}

/* ---- MOE_COMBINE ---- */

TEST(test_combine)
{
	enum { T = 11, K = 3, H = 37, E = 8 };
	struct cm_tensor *y = f32(T * K, H), *ids = i32(T, K), *weights = f32(T, K),
			 *res = f32(T, H), *shared = f32(T, H), *gate = f32(T, 1), *out = f32(T, H);

	for (int i = 0; i < T * K; i++)
		ints(ids)[i] = i * 5 % E;
	gate->ndim = 2;
	for (unsigned n = 0; n < 8; n++) {
		unsigned first = n & 4 ? 3 : 0, count = n & 4 ? 4 : E;
		struct run r = {.l = {.in = {y, ids, weights, n & 1 ? res : NULL,
					     n & 2 ? shared : NULL, n == 3 ? gate : NULL},
				      .out = {out}}};

		r.op.moe_combine = (struct txda_op_moe_combine){first, count};
		assert_int_equal(run_op(&r, TXDA_OP_MOE_COMBINE, 2), 0);
		for (int i = 0; i < T * H; i++) {
			double want = n & 1 ? floats(res)[i] : 0;
			int t = i / H;

			for (int j = 0; j < K; j++) {
				unsigned id = (unsigned)ints(ids)[t * K + j];

				if (id >= first && id < first + count)
					want += (double)floats(weights)[t * K + j] *
						floats(y)[(t * K + j) * H + i % H];
			}
			if (n & 2)
				want += floats(shared)[i] *
					(n == 3 ? 1 / (1 + exp(-floats(gate)[t])) : 1);
			assert_true(fabs(floats(out)[i] - want) < 1e-5);
		}
	}
	{
		struct run r = {.l = {.in = {y, ids, weights, NULL, NULL, gate}, .out = {out}}};

		assert_int_equal(run_op(&r, TXDA_OP_MOE_COMBINE, 1),
				 -EINVAL); /* a gate of nothing */
		r.l.in[5] = NULL;
		y->dim[0]--;
		assert_int_equal(run_op(&r, TXDA_OP_MOE_COMBINE, 1), -EINVAL);
	}
	drop(y), drop(ids), drop(weights), drop(res), drop(shared), drop(gate), drop(out);
}

OPS_MAIN(true)
