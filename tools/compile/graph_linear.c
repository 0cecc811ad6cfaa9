// SPDX-License-Identifier: MIT
/*
 * Products of the graph: weights in the type of their sources or in the requested type, and the ops
 * that use them.
 */
#include "graph_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml.h"
#include "k_order.h"
#include "quant.h"

/* How the weights of some pieces are stored; several matrices one after another. */
struct plan {
	uint32_t matrices;
	unsigned n;		      /* pieces of a matrix */
	struct source_tensor *source; /* [matrices][n] */
	struct k_order *order;	      /* [matrices][n] */
	uint8_t dtype;
	bool keep;	/* codes and scales unchanged */
	bool mixed;	/* the pieces have suitable tiles, but not the same for all */
	uint32_t flags; /* TXDA_LINEAR_FLOAT_INPUT */
};

/* The tiles that can hold a matrix unchanged; F32 tiles can hold everything. */
static uint8_t own_dtype(const struct source_tensor *t)
{
	switch (t->format) {
	case SOURCE_PLAIN: return t->dtype;
	case SOURCE_F8: return TXDA_F8;
	case SOURCE_MX4: return TXDA_MX4;
	case SOURCE_GGML: return ggml_format(t->block_type)->tiles;
	default:
		if (quant_symmetric(t))
			return t->bits == 4 ? TXDA_W4 : TXDA_W8;
		return t->bits == 4 ? TXDA_W4Z : TXDA_W8Z;
	}
}

/* The tiles that can hold both. */
static uint8_t common_dtype(uint8_t a, uint8_t b)
{
	if (a == b)
		return a;
	if ((a == TXDA_W4 && b == TXDA_W4Z) || (a == TXDA_W4Z && b == TXDA_W4))
		return TXDA_W4Z;
	if ((a == TXDA_W8 && b == TXDA_W8Z) || (a == TXDA_W8Z && b == TXDA_W8))
		return TXDA_W8Z;
	return TXDA_F32;
}

static const char *dtype_label(uint8_t dtype, bool keep)
{
	switch (dtype) {
	case TXDA_F32: return "f32";
	case TXDA_F16: return "f16";
	case TXDA_W8:
	case TXDA_W8Z: return keep ? "w8a16" : "w8";
	case TXDA_W4:
	case TXDA_W4Z: return keep ? "w4a16" : "w4";
	case TXDA_W4M: return "w4a16";
	case TXDA_W5M: return "w5a16";
	case TXDA_W6S: return "w6a16";
	case TXDA_F8: return "fp8";
	case TXDA_MX4: return "mxfp4";
	default: return "bf16";
	}
}

static void choose_dtype(struct graph *g, enum weight_role role, struct plan *p)
{
	bool formats = false;
	uint32_t i;

	p->keep = p->mixed = false;
	switch (role == WEIGHT_EXACT ? WEIGHTS_KEEP : g->options->weights) {
	case WEIGHTS_BF16: p->dtype = TXDA_BF16; return;
	case WEIGHTS_F16: p->dtype = TXDA_F16; return;
	case WEIGHTS_W8: p->dtype = TXDA_W8; return;
	case WEIGHTS_W4: p->dtype = role == WEIGHT_VOCAB ? TXDA_W8 : TXDA_W4; return;
	default: break;
	}
	p->dtype = own_dtype(&p->source[0]);
	for (i = 0; i < p->matrices * p->n; i++) {
		p->dtype = common_dtype(p->dtype, own_dtype(&p->source[i]));
		formats |= p->source[i].format != SOURCE_PLAIN;
		/*
		 * For a transposed matrix only formats with blocks of rows and columns are
		 * supported.
		 */
		if (p->source[i].transposed && p->source[i].format != SOURCE_PLAIN &&
		    p->source[i].format != SOURCE_F8)
			p->dtype = TXDA_F32;
	}
	p->keep = txda_is_grouped(p->dtype);
	p->mixed = formats && !p->keep && p->n > 1;
	g->expanded |= formats && !p->keep && !p->mixed;
}

static void free_orders(struct plan *p)
{
	uint32_t i;

	for (i = 0; p->order && i < p->matrices * p->n; i++) {
		free(p->order[i].columns);
		p->order[i].columns = NULL;
	}
}

static void free_plan(struct plan *p)
{
	free_orders(p);
	free(p->order);
	free(p->source);
}

/* Orders of all matrices, with the tile group @group, or each with its own. */
static int make_orders(const struct weight_piece *pieces, struct plan *p, uint16_t group)
{
	uint32_t i;
	int r = 0;

	free_orders(p);
	for (i = 0; i < p->matrices * p->n && !r; i++) {
		struct range col = pieces[i % p->n].col;

		if (p->source[i].transposed)
			col.first = 0;
		r = k_order_make(&p->source[i], col, p->dtype, group, &p->order[i]);
	}
	return r;
}

/* Whether pieces [first, first + n) of all matrices have one order of K, or all are in order. */
static bool same_orders(const struct plan *p)
{
	bool in_order = true, same = true;
	uint32_t m;
	unsigned i;

	for (m = 0; m < p->matrices; m++) {
		for (i = 0; i < p->n; i++) {
			in_order &= !p->order[m * p->n + i].columns;
			same &= k_order_equal(&p->order[m * p->n], &p->order[m * p->n + i]);
		}
	}
	return in_order || same;
}

/*
 * Matrices that follow one another have one K and one tile group: in order with the smallest tile
 * group (runs that fit a large group also fit a smaller one), otherwise all are sorted and padded.
 */
static int join_orders(const struct weight_piece *pieces, struct plan *p)
{
	uint32_t count = p->matrices * p->n, n = 0, i;
	uint16_t least = p->order[0].group;
	bool in_order = true;
	int r = 0;

	for (i = 0; i < count; i++) {
		in_order &= !p->order[i].columns;
		least = p->order[i].group < least ? p->order[i].group : least;
	}
	if (!in_order && p->matrices > 1)
		r = make_orders(pieces, p, least);
	for (i = 0; i < count; i++) {
		if (in_order)
			p->order[i].group = least;
		n = p->order[i].n > n ? p->order[i].n : n;
	}
	for (i = 0; i < count && !r && p->matrices > 1 && !in_order; i++)
		r = k_order_pad(&p->order[i], n);
	return r;
}

/*
 * Weights that share a scale. Without a choice, 8 bits lose nothing measurable by as many as the
 * activations have, where these fill K; 4 bits do.
 */
static uint16_t tile_group(const struct compile_options *o, uint8_t dtype, uint32_t k)
{
	if (!txda_is_grouped(dtype))
		return 0;
	if (o->group)
		return (uint16_t)o->group;
	return dtype == TXDA_W8 && k % TXDA_I8_GROUP == 0 ? TXDA_I8_GROUP : TXDA_QUANT_BLOCK;
}

static int plan_orders(struct graph *g, const struct weight_piece *pieces, struct plan *p)
{
	uint32_t i;
	int r;

	if (p->keep) {
		r = make_orders(pieces, p, 0);
		return r ? r : join_orders(pieces, p);
	}
	free_orders(p);
	for (i = 0; i < p->matrices * p->n; i++)
		p->order[i] = (struct k_order){
			.n = pieces[i % p->n].col.n,
			.group = tile_group(g->options, p->dtype, pieces[i % p->n].col.n),
		};
	return 0;
}

/* Finds the matrices of all pieces. */
static int find_sources(struct graph *g, const struct weight_piece *pieces, struct plan *p)
{
	uint32_t m;
	unsigned i;
	int r = g->failed;

	for (m = 0; m < p->matrices; m++) {
		for (i = 0; i < p->n && !r; i++) {
			struct weight_piece one = pieces[i];

			one.expert += m;
			r = graph_find(g, &one, &p->source[m * p->n + i]);
			if (one.transposed)
				source_transpose(&p->source[m * p->n + i],
						 one.col.first + m * one.row_step);
		}
	}
	return r;
}

/* Everything except the results of the plan: 0, or an error, which is recorded. */
static int make_plan(struct graph *g, enum weight_role role, const struct weight_piece *pieces,
		     unsigned n, uint32_t matrices, struct plan *p)
{
	size_t count = (size_t)matrices * n;
	int r;

	*p = (struct plan){.matrices = matrices, .n = n};
	p->source = calloc(count, sizeof(*p->source));
	p->order = calloc(count, sizeof(*p->order));
	r = p->source && p->order ? find_sources(g, pieces, p) : -ENOMEM;
	if (!r) {
		choose_dtype(g, role, p);
		r = plan_orders(g, pieces, p);
	}
	if (r) {
		if (r == -ENOMEM && !g->failed)
			tool_fail(g->error, r, "no memory for the list of weights");
		graph_fail(g, r);
		free_plan(p);
		return r;
	}
	if (p->keep && (p->dtype == TXDA_W8 || p->dtype == TXDA_W4))
		p->flags = TXDA_LINEAR_FLOAT_INPUT;
	if (role == WEIGHT_LAYER)
		g->weights = dtype_label(p->dtype, p->keep);
	return 0;
}

/* [matrices][k] indices, or NULL if K is in order. */
static uint32_t *all_columns(struct graph *g, const struct plan *p, unsigned first)
{
	const struct k_order *order = &p->order[first];
	uint32_t *all, m;

	if (!order->columns)
		return NULL;
	all = malloc((size_t)p->matrices * order->n * sizeof(*all));
	if (!all) {
		graph_fail(g, -ENOMEM);
		return NULL;
	}
	for (m = 0; m < p->matrices; m++)
		memcpy(all + (size_t)m * order->n, p->order[m * p->n + first].columns,
		       (size_t)order->n * sizeof(*all));
	return all;
}

/* Pieces [first, first + n) of each matrix of the plan, @rows rows; *ret_columns: their order. */
static uint32_t add_tiles(struct graph *g, const char *label, const struct plan *p,
			  const struct weight_piece *pieces, unsigned first, unsigned n,
			  uint8_t layout, uint32_t rows, bool stack, uint32_t *ret_columns)
{
	const struct k_order *order = &p->order[first];
	uint32_t *columns = all_columns(g, p, first), m, i, tensor;
	struct param_part *part = calloc((size_t)p->matrices * n, sizeof(*part));
	struct program_tensor t = {
		.name = label,
		.slot = g->slot_weights,
		.dtype = p->dtype,
		.layout = layout,
		.group = order->group,
		.ndim = stack ? 3 : 2,
		.dim = {PROGRAM_DIM(rows), PROGRAM_DIM(order->n)},
	};
	char name[192];

	if (stack) {
		t.dim[2] = t.dim[1];
		t.dim[1] = t.dim[0];
		t.dim[0] = PROGRAM_DIM(p->matrices);
	}
	for (m = 0; part && m < p->matrices; m++) {
		for (i = 0; i < n; i++) {
			const struct weight_piece *w = &pieces[first + i];

			part[m * n + i] = (struct param_part){
				.source = p->source[m * p->n + first + i],
				.row = w->row.first + (w->transposed ? 0 : m * w->row_step),
				.rows = w->row.n,
				.row_by = w->row_by,
				.col = w->transposed ? 0 : w->col.first,
			};
		}
	}
	if (part)
		t.offset = param_add_tiles(&g->params, &(struct param_tiles){
							       .name = label,
							       .dtype = p->dtype,
							       .layout = layout,
							       .group = order->group,
							       .keep = p->keep,
							       .n = rows,
							       .k = order->n,
							       .matrices = p->matrices,
							       .n_parts = n,
							       .part = part,
							       .columns = columns,
						       });
	else
		graph_fail(g, -ENOMEM);
	tensor = program_add_tensor(g->p, &t);
	*ret_columns = TXDA_NONE;
	if (columns) {
		snprintf(name, sizeof(name), "%s.columns", label);
		*ret_columns = graph_indices(g, name, columns, stack ? p->matrices : 0, order->n);
	}
	free(columns);
	free(part);
	return tensor;
}

uint32_t graph_weight(struct graph *g, const char *label, enum weight_role role, uint32_t n,
		      const struct weight_piece *pieces, unsigned n_pieces)
{
	uint32_t tensor, columns;
	struct plan p;

	if (make_plan(g, role, pieces, n_pieces, 1, &p))
		return 0;
	if (!same_orders(&p) || p.order[0].columns) {
		p.dtype = TXDA_F32;
		p.keep = false;
		g->expanded = true;
		plan_orders(g, pieces, &p);
	}
	tensor = add_tiles(g, label, &p, pieces, 0, n_pieces, TXDA_TILE32, n, false, &columns);
	free_plan(&p);
	return tensor;
}

static enum txda_activation gate_act(const struct graph *g)
{
	if (g->config->swiglu_limit > 0)
		return TXDA_ACT_SWIGLU_CLAMPED;
	return g->config->gelu ? TXDA_ACT_GELU_GATED : TXDA_ACT_SILU_GATED;
}

/* The op that computes columns [col, …) of the output; @gated: in pairs of panels. */
static void add_op(struct graph *g, const struct linear *l, const char *label, uint32_t weight,
		   uint32_t bias, uint32_t columns, bool gated, uint32_t flags, uint32_t col)
{
	float eps = l->norm == TXDA_NONE ? 0 : l->eps > 0 ? l->eps : g->config->rms_norm_eps;
	enum txda_activation act = TXDA_ACT_NONE;
	float limit = l->softcap;
	struct txda_op *op =
		program_add_op(g->p, l->matrices ? TXDA_OP_MOE_LINEAR : TXDA_OP_LINEAR, label);

	if (gated)
		act = gate_act(g);
	else if (l->softcap > 0)
		act = TXDA_ACT_SOFTCAP;
	else if (l->act)
		act = l->act;
	if (txda_is_gated(act))
		limit = (float)g->config->swiglu_limit;
	if (l->columns)
		columns = graph_indices(g, program_label(g->p, "%s.columns", label), l->columns, 0,
					l->pieces[0].col.n);
	op->in[0] = l->x;
	op->in[1] = weight;
	op->out[0] = l->out;
	if (l->matrices) {
		op->in[2] = l->experts;
		op->in[3] = l->norm;
		op->in[4] = columns;
		op->in[5] = bias;
		op->moe_linear = (struct txda_op_moe_linear){
			.act = act,
			.eps = eps,
			.flags = l->flags | flags,
			.out_col = col,
			.first = l->first,
			.n_experts = l->n_experts,
			.limit = limit,
		};
		return;
	}
	op->in[2] = bias;
	op->in[3] = l->norm;
	op->in[4] = l->residual;
	op->in[5] = columns;
	op->linear = (struct txda_op_linear){
		.act = act, .eps = eps, .flags = l->flags | flags, .out_col = col, .limit = limit};
}

static uint32_t rows_of(const struct linear *l)
{
	uint32_t n = 0;
	unsigned i;

	for (i = 0; i < l->n_pieces; i++)
		n += l->pieces[i].row.n;
	return n;
}

static uint32_t bias_of(struct graph *g, const struct linear *l, const char *label, unsigned first,
			unsigned n)
{
	char name[160];

	if (!l->bias)
		return TXDA_NONE;
	snprintf(name, sizeof(name), "%s.bias", label);
	return graph_bias(g, name, l->pieces + first, n, l->matrices);
}

static void add_fused(struct graph *g, const struct linear *l, struct plan *p)
{
	uint8_t layout = l->gated ? TXDA_TILE32_GATED : TXDA_TILE32;
	uint32_t weight, columns;
	char name[160];

	snprintf(name, sizeof(name), "%s.weight", l->label);
	weight = add_tiles(g, name, p, l->pieces, 0, l->n_pieces, layout, l->n ? l->n : rows_of(l),
			   l->matrices > 0, &columns);
	add_op(g, l, l->label, weight, bias_of(g, l, l->label, 0, l->n_pieces), columns, l->gated,
	       p->flags, l->out_col);
}

/* One op per piece, each with its own tiles for its columns of the output. */
static void add_apart(struct graph *g, const struct linear *l)
{
	struct linear one = *l;
	uint32_t at = l->gated ? 0 : l->out_col;
	unsigned i;

	if (l->gated)
		one.out = graph_scratch(g, program_label(g->p, "%s.parts", l->label), TXDA_F32,
					l->matrices ? l->rows : PROGRAM_SYM(T), rows_of(l));
	for (i = 0; i < l->n_pieces; i++) {
		uint32_t weight, columns;
		char label[128], name[160];
		struct plan p;

		if (make_plan(g, l->role, &l->pieces[i], 1, l->matrices ? l->matrices : 1, &p))
			return;
		snprintf(label, sizeof(label), "%s.%u", l->label, i);
		snprintf(name, sizeof(name), "%s.weight", label);
		weight = add_tiles(g, name, &p, &l->pieces[i], 0, 1, TXDA_TILE32,
				   l->pieces[i].row.n, l->matrices > 0, &columns);
		add_op(g, &one, label, weight, bias_of(g, l, label, i, 1), columns, false, p.flags,
		       at);
		free_plan(&p);
		at += l->pieces[i].row.n;
	}
	if (l->gated) {
		struct txda_op *op = program_add_op(g->p, TXDA_OP_SILU_MUL, l->label);

		op->in[0] = one.out;
		op->out[0] = l->out;
		op->silu_mul.act = gate_act(g);
		op->silu_mul.limit = (float)g->config->swiglu_limit;
	}
}

void graph_linear(struct graph *g, const struct linear *l)
{
	struct plan p;

	if (l->weight != TXDA_NONE) {
		add_op(g, l, l->label, l->weight, TXDA_NONE, TXDA_NONE, false, 0, 0);
		return;
	}
	if (make_plan(g, l->role, l->pieces, l->n_pieces, l->matrices ? l->matrices : 1, &p))
		return;
	if (same_orders(&p) && !p.mixed) {
		add_fused(g, l, &p);
		free_plan(&p);
	} else {
		free_plan(&p);
		add_apart(g, l);
	}
}

uint32_t graph_product(struct graph *g, const struct linear *l, uint32_t columns)
{
	struct linear product = *l;

	product.weight = product.residual = TXDA_NONE;
	product.out = graph_scratch(g, program_label(g->p, "%s.out", l->label), TXDA_F32,
				    PROGRAM_SYM(T), columns);
	if (l->pieces)
		graph_linear(g, &product);
	else
		graph_fail(g, -ENOMEM);
	return product.out;
}
