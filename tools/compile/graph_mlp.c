// SPDX-License-Identifier: MIT
/* The part of a layer after attention: a gated MLP, or a router and experts. */
#include "graph_internal.h"

#include <stdio.h>

/*
 * A router's decision depends on the layers before it, and a rounding error can change it: models
 * with experts keep the activations of their MLPs in float32 if attention amplifies such errors.
 */
static uint32_t mlp_flags(const struct graph *g)
{
	return g->config->moe.n_experts ? graph_input_flags(g) : 0;
}

static uint8_t mlp_dtype(const struct graph *g)
{
	return mlp_flags(g) ? TXDA_F32 : TXDA_BF16;
}

/* In a sum over chips, only one chip adds the bias. */
static bool adds_bias(const struct graph *g, bool wanted)
{
	return wanted && !g->shard.rank;
}

/* The stream before an addition; afterwards it is the written tensor. */
static uint32_t take_stream(struct graph *g)
{
	uint32_t before = g->x;

	g->x = g->stream;
	return before;
}

/* x += norm(y) */
static void add_normed(struct graph *g, const char *label, uint32_t y, const char *name,
		       uint32_t layer)
{
	uint32_t norm = graph_norm(g, program_label(g->p, "%s.post_norm", label), name, layer,
				   g->config->hidden_size);
	struct txda_op *op =
		program_add_op(g->p, TXDA_OP_RMSNORM, program_label(g->p, "%s.post", label));

	op->in[0] = y;
	op->in[1] = norm;
	op->in[2] = take_stream(g);
	op->out[0] = g->x;
	op->rmsnorm.eps = g->config->rms_norm_eps;
}

void graph_sum_to_residual(struct graph *g, uint32_t layer, const char *what, uint32_t partial,
			   const char *post_norm)
{
	char label[64];
	struct txda_op *op;

	snprintf(label, sizeof(label), "layers.%u.%s", layer, what);
	if (g->shard.tp > 1) {
		op = program_add_op(g->p, TXDA_OP_ALL_REDUCE, program_label(g->p, "%s.sum", label));
		op->in[0] = partial;
		op->in[1] = post_norm ? TXDA_NONE : take_stream(g);
		op->out[0] = post_norm ? partial : g->x;
	}
	if (post_norm)
		add_normed(g, label, partial, post_norm, layer);
}

void graph_to_residual(struct graph *g, uint32_t layer, const char *what, uint32_t in,
		       const struct weight_piece *piece, bool bias, uint32_t flags,
		       const char *post_norm)
{
	bool apart = g->shard.tp > 1 || post_norm;
	char label[64];
	struct linear l = {
		.label = label,
		.pieces = piece,
		.n_pieces = 1,
		.bias = adds_bias(g, bias),
		.weight = TXDA_NONE,
		.x = in,
		.norm = TXDA_NONE,
		.residual = apart ? TXDA_NONE : take_stream(g),
		.flags = flags,
	};

	snprintf(label, sizeof(label), "layers.%u.%s", layer, what);
	l.out = g->x;
	if (apart)
		l.out = graph_scratch(g, program_label(g->p, "%s.partial", label), TXDA_F32,
				      PROGRAM_SYM(T), g->config->hidden_size);
	graph_linear(g, &l);
	if (apart)
		graph_sum_to_residual(g, layer, what, l.out, post_norm);
}

/* Gates and ups of @inner columns, from two matrices or from one that holds both. */
static void gate_up_pieces(const struct graph *g, uint32_t layer, uint32_t full, struct range inner,
			   const char *gate, const char *up, struct weight_piece piece[2])
{
	const uint32_t hidden = g->config->hidden_size;
	const struct range all = {0, hidden};

	piece[0] = (struct weight_piece){gate, layer, full, hidden, inner, all};
	piece[1] = (struct weight_piece){up, layer, full, hidden, inner, all};
	if (gate == up) {
		piece[0].rows = piece[1].rows = 2 * full;
		piece[1].row.first += full;
	}
}

static uint32_t add_gate_up(struct graph *g, const char *label, uint32_t norm,
			    const struct weight_piece *pieces, bool bias)
{
	uint32_t gated = graph_scratch(g, program_label(g->p, "%s.out", label), mlp_dtype(g),
				       PROGRAM_SYM(T), pieces[0].row.n);

	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = pieces,
				.n_pieces = 2,
				.gated = true,
				.bias = bias,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = norm,
				.residual = TXDA_NONE,
				.out = gated,
				.flags = mlp_flags(g),
			});
	return gated;
}

static void add_dense(struct graph *g, uint32_t layer, uint32_t norm)
{
	const struct model_config *c = g->config;
	const struct family_names *names = g->names;
	const struct weight_piece down = {
		names->down,	     layer,	     c->hidden_size, c->intermediate_size,
		{0, c->hidden_size}, g->shard.inner,
	};
	struct weight_piece gate_up[2];
	uint32_t gated;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.mlp.gate_up", layer);
	gate_up_pieces(g, layer, c->intermediate_size, g->shard.inner,
		       names->gate_up ? names->gate_up : names->gate,
		       names->gate_up ? names->gate_up : names->up, gate_up);
	gated = add_gate_up(g, label, norm, gate_up, c->mlp_bias);
	graph_to_residual(g, layer, "mlp.down", gated, &down, c->mlp_bias, mlp_flags(g),
			  names->post_mlp);
}

/* ---- experts ---- */

/* Tensors passed between the parts of one layer with experts. */
struct experts {
	uint32_t layer, norm;
	uint32_t ids, weights; /* of ROUTE */
	uint32_t shared, gate; /* or TXDA_NONE */
};

static void add_router(struct graph *g, struct experts *e)
{
	const struct model_config *c = g->config;
	const struct moe_config *m = &c->moe;
	const struct weight_piece piece = {
		g->names->router, e->layer,	     m->n_experts,
		c->hidden_size,	  {0, m->n_experts}, {0, c->hidden_size},
	};
	uint32_t logits, bias = TXDA_NONE;
	struct txda_op *op;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.router", e->layer);
	logits = graph_scratch(g, program_label(g->p, "%s.logits", label), TXDA_F32, PROGRAM_SYM(T),
			       m->n_experts);
	graph_linear(g, &(struct linear){
				.label = label,
				.role = WEIGHT_EXACT,
				.pieces = &piece,
				.n_pieces = 1,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = e->norm,
				.residual = TXDA_NONE,
				.out = logits,
				.bias = m->router_bias,
				.flags = TXDA_LINEAR_F32_INPUT,
			});
	if (m->correction_bias)
		bias = graph_vector(g, program_label(g->p, "%s.bias", label), g->names->router_bias,
				    e->layer, m->n_experts);
	e->ids = program_add_ids(g->p, g->slot_scratch, program_label(g->p, "%s.experts", label),
				 PROGRAM_SYM(T), m->top_k);
	e->weights = graph_scratch(g, program_label(g->p, "%s.weights", label), TXDA_F32,
				   PROGRAM_SYM(T), m->top_k);
	op = program_add_op(g->p, TXDA_OP_ROUTE, program_label(g->p, "layers.%u.route", e->layer));
	op->in[0] = logits;
	op->in[1] = bias;
	op->out[0] = e->ids;
	op->out[1] = e->weights;
	op->route = (struct txda_op_route){
		.k = m->top_k,
		.n_groups = m->n_groups,
		.top_groups = m->top_groups,
		.flags = (m->sigmoid ? TXDA_ROUTE_SIGMOID : 0) | (m->top2 ? TXDA_ROUTE_TOP2 : 0) |
			 (m->normalise ? TXDA_ROUTE_NORMALISE : 0),
		.scale = (float)m->scale,
	};
}

/* The expert that all tokens use: F32 [T, H], partial with several chips. */
static void add_shared(struct graph *g, struct experts *e)
{
	const struct model_config *c = g->config;
	const struct family_names *names = g->names;
	const struct weight_piece down = {
		names->shared_down,  e->layer,
		c->hidden_size,	     c->moe.shared_inner,
		{0, c->hidden_size}, g->shard.shared_inner,
	};
	const struct weight_piece gate = {
		names->shared_expert_gate, e->layer, 1, c->hidden_size, {0, 1}, {0, c->hidden_size},
	};
	struct linear l = {
		.pieces = &down,
		.n_pieces = 1,
		.weight = TXDA_NONE,
		.flags = mlp_flags(g),
		.norm = TXDA_NONE,
		.residual = TXDA_NONE,
	};
	struct weight_piece gate_up[2];
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.shared.gate_up", e->layer);
	gate_up_pieces(g, e->layer, c->moe.shared_inner, g->shard.shared_inner, names->shared_gate,
		       names->shared_up, gate_up);
	l.x = add_gate_up(g, label, e->norm, gate_up, false);
	snprintf(label, sizeof(label), "layers.%u.shared.down", e->layer);
	l.label = label;
	l.out = e->shared = graph_scratch(g, program_label(g->p, "%s.out", label), TXDA_F32,
					  PROGRAM_SYM(T), c->hidden_size);
	graph_linear(g, &l);
	if (!c->moe.shared_gate)
		return;
	snprintf(label, sizeof(label), "layers.%u.shared.weight", e->layer);
	e->gate =
		graph_scratch(g, program_label(g->p, "%s.out", label), TXDA_F32, PROGRAM_SYM(T), 1);
	graph_linear(g, &(struct linear){
				.label = label,
				.role = WEIGHT_EXACT,
				.pieces = &gate,
				.n_pieces = 1,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = e->norm,
				.residual = TXDA_NONE,
				.out = e->gate,
				.flags = TXDA_LINEAR_F32_INPUT,
			});
}

/* Whether the checkpoint has the layer's experts in one tensor. */
static bool are_stacked(const struct graph *g, uint32_t layer)
{
	return graph_has(g, g->names->experts_down, layer, "") ||
	       graph_has(g, g->names->experts_down, layer, "_blocks");
}

/* This chip's gates, ups and downs of the experts, from the tensors of all of them. */
static void stacked_pieces(const struct graph *g, uint32_t layer, struct weight_piece gate_up[2],
			   struct weight_piece *down)
{
	const struct family_names *names = g->names;
	const struct moe_config *m = &g->config->moe;
	const struct range inner = g->shard.expert_inner;
	unsigned i;

	gate_up_pieces(g, layer, m->inner, inner, names->experts_gate_up, names->experts_gate_up,
		       gate_up);
	for (i = 0; i < 2 && names->experts_interleaved; i++) {
		gate_up[i].row.first = 2 * inner.first + i;
		gate_up[i].row_by = 2;
	}
	down->name = names->experts_down;
	gate_up[0].stack = gate_up[1].stack = down->stack = m->n_experts;
}

/* The products of the experts: F32 [T k, H]. */
static uint32_t add_expert_mlp(struct graph *g, const struct experts *e)
{
	const struct model_config *c = g->config;
	const struct shard *s = &g->shard;
	const struct txda_dim rows = {TXDA_SYM_T, c->moe.top_k};
	struct weight_piece gate_up[2];
	struct weight_piece down = {
		.name = g->names->expert_down,
		.layer = e->layer,
		.rows = c->hidden_size,
		.cols = c->moe.inner,
		.row = {0, c->hidden_size},
		.col = s->expert_inner,
		.expert = s->experts.first,
	};
	struct linear l = {
		.pieces = gate_up,
		.n_pieces = 2,
		.gated = true,
		.weight = TXDA_NONE,
		.x = g->x,
		.norm = e->norm,
		.residual = TXDA_NONE,
		.matrices = s->experts.n,
		.experts = e->ids,
		.first = s->experts.first,
		.n_experts = c->moe.n_experts,
		.rows = rows,
		.bias = c->moe.bias,
		.flags = mlp_flags(g),
	};
	char label[64];

	gate_up_pieces(g, e->layer, c->moe.inner, s->expert_inner, g->names->expert_gate,
		       g->names->expert_up, gate_up);
	if (are_stacked(g, e->layer))
		stacked_pieces(g, e->layer, gate_up, &down);
	gate_up[0].expert = gate_up[1].expert = s->experts.first;
	snprintf(label, sizeof(label), "layers.%u.experts.gate_up", e->layer);
	l.label = label;
	l.out = graph_scratch(g, program_label(g->p, "%s.out", label), mlp_dtype(g), rows,
			      s->expert_inner.n);
	graph_linear(g, &l);
	snprintf(label, sizeof(label), "layers.%u.experts.down", e->layer);
	l.x = l.out;
	l.norm = TXDA_NONE;
	l.pieces = &down;
	l.n_pieces = 1;
	l.gated = false;
	/* If several chips have parts of an expert, one of them adds the bias. */
	l.bias = c->moe.bias && (s->experts.n < c->moe.n_experts || !s->rank);
	l.out = graph_scratch(g, program_label(g->p, "%s.out", label), TXDA_F32, rows,
			      c->hidden_size);
	graph_linear(g, &l);
	return l.out;
}

static void add_experts(struct graph *g, uint32_t layer, uint32_t norm)
{
	struct experts e = {layer, norm, .shared = TXDA_NONE, .gate = TXDA_NONE};
	const char *post = g->names->post_mlp;
	bool apart = g->shard.tp > 1 || post;
	uint32_t y, out = g->x;
	struct txda_op *op;

	add_router(g, &e);
	y = add_expert_mlp(g, &e);
	if (g->config->moe.shared_inner)
		add_shared(g, &e);
	if (apart)
		out = graph_scratch(g, program_label(g->p, "layers.%u.experts.partial", layer),
				    TXDA_F32, PROGRAM_SYM(T), g->config->hidden_size);
	op = program_add_op(g->p, TXDA_OP_MOE_COMBINE,
			    program_label(g->p, "layers.%u.experts.combine", layer));
	op->in[0] = y;
	op->in[1] = e.ids;
	op->in[2] = e.weights;
	op->in[3] = apart ? TXDA_NONE : g->x;
	op->in[4] = e.shared;
	op->in[5] = e.gate;
	op->out[0] = out;
	op->moe_combine.first = g->shard.experts.first;
	op->moe_combine.count = g->shard.experts.n;
	if (apart)
		graph_sum_to_residual(g, layer, "experts", out, post);
}

void graph_mlp(struct graph *g, uint32_t layer)
{
	uint32_t norm = graph_norm(g, program_label(g->p, "layers.%u.mlp.norm", layer),
				   g->names->before_mlp ? g->names->before_mlp
							: g->names->post_attention_norm,
				   layer, g->config->hidden_size);

	if (g->config->moe.layer[layer])
		add_experts(g, layer, norm);
	else
		add_dense(g, layer, norm);
}
