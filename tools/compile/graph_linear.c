// SPDX-License-Identifier: MIT
/* Products of the graph: the weights in the type that their sources have or that was asked for, and
 * the ops that multiply with them. */
#include "graph_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "k_order.h"

#define MAX_PIECES 3

/* What the weights of some pieces become. */
struct plan {
	struct source_tensor source[MAX_PIECES];
	struct k_order order[MAX_PIECES];
	uint8_t dtype;
	bool keep;    /* codes and scales as they are */
	uint32_t flags; /* TXDA_LINEAR_FLOAT_INPUT */
};

/* The tiles that hold a matrix as it is; F32 ones hold everything. */
static uint8_t own_dtype(const struct source_tensor *t)
{
	switch (t->format) {
	case SOURCE_PLAIN: return t->dtype;
	case SOURCE_F8: return TXDA_F8;
	default:
		if (quant_symmetric(t))
			return t->bits == 4 ? TXDA_W4 : TXDA_W8;
		return t->bits == 4 ? TXDA_W4Z : TXDA_W8Z;
	}
}

/* The tiles that hold both. */
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
	case TXDA_F8: return "fp8";
	default: return "bf16";
	}
}

static void choose_dtype(struct graph *g, enum weight_role role, struct plan *p, unsigned n)
{
	bool formats = false;
	unsigned i;

	p->keep = false;
	switch (g->options->weights) {
	case WEIGHTS_BF16: p->dtype = TXDA_BF16; return;
	case WEIGHTS_F16: p->dtype = TXDA_F16; return;
	case WEIGHTS_W8: p->dtype = TXDA_W8; return;
	case WEIGHTS_W4: p->dtype = role == WEIGHT_VOCAB ? TXDA_W8 : TXDA_W4; return;
	default: break;
	}
	p->dtype = own_dtype(&p->source[0]);
	for (i = 0; i < n; i++) {
		p->dtype = common_dtype(p->dtype, own_dtype(&p->source[i]));
		formats |= p->source[i].format != SOURCE_PLAIN;
	}
	p->keep = txda_is_grouped(p->dtype);
	g->expanded |= formats && !p->keep;
}

static int make_orders(struct graph *g, const struct weight_piece *pieces, unsigned n,
		       struct plan *p)
{
	unsigned i;
	int r;

	for (i = 0; i < n; i++) {
		p->order[i] = (struct k_order){.n = pieces[i].col.n};
		if (!p->keep) {
			if (txda_is_grouped(p->dtype))
				p->order[i].group = (uint16_t)g->options->group;
			continue;
		}
		r = k_order_make(&p->source[i], pieces[i].col, p->dtype, &p->order[i]);
		if (r)
			return tool_fail(g->error, r, "no memory for the order of weights");
	}
	return 0;
}

static void free_plan(struct plan *p)
{
	unsigned i;

	for (i = 0; i < MAX_PIECES; i++)
		free(p->order[i].columns);
}

/* Runs that fit a large tile group fit a smaller one too. */
static bool same_orders(struct plan *p, unsigned n)
{
	uint16_t least = p->order[0].group;
	bool in_order = true, same = true;
	unsigned i;

	for (i = 0; i < n; i++) {
		in_order &= !p->order[i].columns;
		least = p->order[i].group < least ? p->order[i].group : least;
		same &= k_order_equal(&p->order[0], &p->order[i]);
	}
	for (i = 0; in_order && i < n; i++)
		p->order[i].group = least;
	return in_order || same;
}

/* All but where the plan ends up: 0, or an error that is remembered. */
static int make_plan(struct graph *g, enum weight_role role, const struct weight_piece *pieces,
		     unsigned n, struct plan *p)
{
	unsigned i;
	int r = g->failed;

	*p = (struct plan){0};
	for (i = 0; i < n && !r; i++)
		r = graph_find(g, &pieces[i], &p->source[i]);
	if (r)
		return r;
	choose_dtype(g, role, p, n);
	r = make_orders(g, pieces, n, p);
	if (r) {
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

/* Pieces [first, first + n) of the plan as one matrix of @rows rows. */
static uint32_t add_tiles(struct graph *g, const char *label, const struct plan *p,
			  const struct weight_piece *pieces, unsigned first, unsigned n,
			  uint8_t layout, uint32_t rows)
{
	const struct k_order *order = &p->order[first];
	struct param_part part[MAX_PIECES];
	struct param_tiles tiles = {
		.name = label,
		.dtype = p->dtype,
		.layout = layout,
		.group = order->group,
		.keep = p->keep,
		.n = rows,
		.k = order->n,
		.n_parts = n,
		.part = part,
		.columns = order->columns,
	};
	unsigned i;

	for (i = 0; i < n; i++)
		part[i] = (struct param_part){.source = p->source[first + i],
					      .row = pieces[first + i].row.first,
					      .rows = pieces[first + i].row.n,
					      .col = pieces[first + i].col.first};
	return program_add_tensor(g->p, &(struct program_tensor){
						.name = label,
						.slot = g->slot_weights,
						.dtype = tiles.dtype,
						.layout = layout,
						.group = tiles.group,
						.offset = param_add_tiles(&g->params, &tiles),
						.ndim = 2,
						.dim = {PROGRAM_DIM(rows), PROGRAM_DIM(tiles.k)},
					});
}

uint32_t graph_weight(struct graph *g, const char *label, enum weight_role role, uint32_t n,
		      const struct weight_piece *pieces, unsigned n_pieces)
{
	struct plan p;
	uint32_t tensor;
	unsigned i;

	if (make_plan(g, role, pieces, n_pieces, &p))
		return 0;
	if (!same_orders(&p, n_pieces) || p.order[0].columns) {
		free_plan(&p);
		p.dtype = TXDA_F32;
		p.keep = false;
		g->expanded = true;
		for (i = 0; i < n_pieces; i++)
			p.order[i] = (struct k_order){.n = pieces[i].col.n};
	}
	tensor = add_tiles(g, label, &p, pieces, 0, n_pieces, TXDA_TILE32, n);
	free_plan(&p);
	return tensor;
}

static struct txda_op *add_op(struct graph *g, const struct linear *l, const char *label,
			      uint32_t weight, uint32_t bias, uint32_t columns)
{
	struct txda_op *op = program_add_op(g->p, TXDA_OP_LINEAR, label);

	op->in[0] = l->x;
	op->in[1] = weight;
	op->in[2] = bias;
	op->in[3] = l->norm;
	op->in[4] = l->residual;
	op->in[5] = columns;
	op->out[0] = l->out;
	op->linear.flags = l->flags;
	op->linear.eps = l->norm == TXDA_NONE ? 0 : g->config->rms_norm_eps;
	return op;
}

static uint32_t add_columns(struct graph *g, const char *label, const struct k_order *order)
{
	char name[128];

	if (!order->columns)
		return TXDA_NONE;
	snprintf(name, sizeof(name), "%s.columns", label);
	return graph_indices(g, name, order->columns, order->n);
}

static uint32_t rows_of(const struct linear *l)
{
	uint32_t n = 0;
	unsigned i;

	for (i = 0; i < l->n_pieces; i++)
		n += l->pieces[i].row.n;
	return n;
}

static void add_fused(struct graph *g, const struct linear *l, struct plan *p)
{
	uint8_t layout = l->gated ? TXDA_TILE32_GATED : TXDA_TILE32;
	uint32_t weight, columns, bias = TXDA_NONE;
	struct txda_op *op;
	char name[128];

	snprintf(name, sizeof(name), "%s.weight", l->label);
	weight = add_tiles(g, name, p, l->pieces, 0, l->n_pieces, layout,
			   l->n ? l->n : rows_of(l));
	columns = add_columns(g, l->label, &p->order[0]);
	if (l->bias) {
		snprintf(name, sizeof(name), "%s.bias", l->label);
		bias = graph_bias(g, name, l->pieces, l->n_pieces);
	}
	op = add_op(g, l, l->label, weight, bias, columns);
	op->linear.act = l->gated ? TXDA_ACT_SILU_GATED : TXDA_ACT_NONE;
	op->linear.flags |= p->flags;
}

/* A LINEAR a piece, each into its columns of the output. */
static void add_apart(struct graph *g, const struct linear *l, struct plan *p)
{
	struct linear one = *l;
	uint32_t at = 0;
	unsigned i;

	if (l->gated)
		one.out = graph_scratch(g, program_label(g->p, "%s.parts", l->label), TXDA_F32,
					PROGRAM_SYM(T), rows_of(l));
	for (i = 0; i < l->n_pieces; i++) {
		uint32_t weight, columns, bias = TXDA_NONE, n = l->pieces[i].row.n;
		struct txda_op *op;
		char label[100], name[128];

		snprintf(label, sizeof(label), "%s.%u", l->label, i);
		snprintf(name, sizeof(name), "%s.weight", label);
		weight = add_tiles(g, name, p, l->pieces, i, 1, TXDA_TILE32, n);
		columns = add_columns(g, label, &p->order[i]);
		if (l->bias) {
			snprintf(name, sizeof(name), "%s.bias", label);
			bias = graph_bias(g, name, l->pieces + i, 1);
		}
		op = add_op(g, &one, label, weight, bias, columns);
		op->linear.flags |= p->flags;
		op->linear.out_col = at;
		at += n;
	}
	if (l->gated) {
		struct txda_op *op = program_add_op(g->p, TXDA_OP_SILU_MUL, l->label);

		op->in[0] = one.out;
		op->out[0] = l->out;
	}
}

void graph_linear(struct graph *g, const struct linear *l)
{
	struct plan p;

	if (l->weight != TXDA_NONE) {
		add_op(g, l, l->label, l->weight, TXDA_NONE, TXDA_NONE);
		return;
	}
	if (make_plan(g, l->role, l->pieces, l->n_pieces, &p))
		return;
	if (same_orders(&p, l->n_pieces))
		add_fused(g, l, &p);
	else
		add_apart(g, l, &p);
	free_plan(&p);
}
