// SPDX-License-Identifier: MIT
/*
 * Gated delta nets (Yang et al. 2024): queries, keys and values pass through a short convolution
 * and then through a state, which serves as their cache; a norm, a gate and a product add the
 * result to the stream. Chips share the value heads, and the key heads like KV heads.
 */
#include "graph_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of one layer's block under construction. */
struct delta {
	uint32_t layer, norm;
};

/* Kinds of rows of the input matrices. */
enum rows { QUERY, KEY, VALUE, GATE, BETA, DECAY };

static const struct delta_config *config(const struct graph *g)
{
	return &g->config->delta;
}

/* Channels of this chip's convolution. */
static uint32_t channels(const struct graph *g)
{
	return 2 * g->shard.k_heads.n * config(g)->k_dim + g->shard.v_heads.n * config(g)->v_dim;
}

/* The first row of one head's @what if all are combined in two matrices, key head by key head. */
static uint32_t first_joint(const struct delta_config *d, enum rows what, uint32_t head)
{
	const uint32_t r = d->n_v_heads / d->n_k_heads, group = 2 * d->k_dim + 2 * r * d->v_dim;

	switch (what) {
	case QUERY: return head * group;
	case KEY: return head * group + d->k_dim;
	case VALUE: return head / r * group + 2 * d->k_dim + head % r * d->v_dim;
	case GATE: return head / r * group + 2 * d->k_dim + (r + head % r) * d->v_dim;
	case BETA: return head / r * 2 * r + head % r;
	default: return head / r * 2 * r + r + head % r;
	}
}

/* The same for separate matrices: all queries, all keys, all values. */
static uint32_t first_apart(const struct delta_config *d, enum rows what, uint32_t head)
{
	switch (what) {
	case QUERY: return head * d->k_dim;
	case KEY: return (d->n_k_heads + head) * d->k_dim;
	case VALUE: return 2 * d->n_k_heads * d->k_dim + head * d->v_dim;
	case GATE: return head * d->v_dim;
	default: return head;
	}
}

static struct weight_piece piece_of(const struct graph *g, uint32_t layer, enum rows what,
				    uint32_t head)
{
	const struct family_names *names = g->names;
	const struct delta_config *d = config(g);
	const uint32_t keys = d->n_k_heads * d->k_dim, values = d->n_v_heads * d->v_dim;
	const bool joint = names->delta_qkvz != NULL, scalar = what == BETA || what == DECAY;
	struct weight_piece p = {.layer = layer, .cols = g->config->hidden_size};

	p.col.n = p.cols;
	p.row.n = scalar ? 1 : what == QUERY || what == KEY ? d->k_dim : d->v_dim;
	if (joint) {
		p.name = scalar ? names->delta_ba : names->delta_qkvz;
		p.rows = scalar ? 2 * d->n_v_heads : 2 * keys + 2 * values;
		p.row.first = first_joint(d, what, head);
		return p;
	}
	p.row.first = first_apart(d, what, head);
	switch (what) {
	case GATE: p.name = names->delta_z; break;
	case BETA: p.name = names->delta_b; break;
	case DECAY: p.name = names->delta_a; break;
	default: p.name = names->delta_qkv; break;
	}
	p.rows = scalar ? d->n_v_heads : what == GATE ? values : 2 * keys + values;
	return p;
}

/* The product with the rows @what[0 .. n) of this chip's heads, in that order: F32 [T, columns]. */
static uint32_t add_input(struct graph *g, const struct delta *a, const char *name,
			  const enum rows *what, unsigned n, uint32_t columns)
{
	struct weight_piece *pieces;
	unsigned i, count = 0, h;
	char label[64];
	uint32_t out;

	snprintf(label, sizeof(label), "layers.%u.delta.%s", a->layer, name);
	pieces = calloc((size_t)n * (g->shard.k_heads.n + g->shard.v_heads.n), sizeof(*pieces));
	for (i = 0; pieces && i < n; i++) {
		const bool key = what[i] == QUERY || what[i] == KEY;
		const struct range heads = key ? g->shard.k_heads : g->shard.v_heads;

		for (h = 0; h < heads.n; h++)
			pieces[count++] = piece_of(g, a->layer, what[i], heads.first + h);
	}
	out = graph_product(g,
			    &(struct linear){
				    .label = label,
				    .role = what[0] == BETA ? WEIGHT_EXACT : WEIGHT_LAYER,
				    .pieces = pieces,
				    .n_pieces = count,
				    .x = g->x,
				    .norm = a->norm,
				    .flags = TXDA_LINEAR_F32_INPUT,
			    },
			    columns);
	free(pieces);
	return out;
}

/* The convolution's weights of this chip's channels: F32 [C, K]. */
static uint32_t add_kernel(struct graph *g, const struct delta *a)
{
	const struct delta_config *d = config(g);
	const struct range k = g->shard.k_heads, v = g->shard.v_heads;
	const uint32_t keys = d->n_k_heads * d->k_dim, all = 2 * keys + d->n_v_heads * d->v_dim,
		       own = k.n * d->k_dim;
	float *data = calloc((size_t)channels(g) * d->kernel, sizeof(*data));
	uint32_t c, row, tensor;

	if (!data) {
		graph_fail(g, -ENOMEM);
		return 0;
	}
	for (c = 0; c < channels(g); c++) {
		if (c < own)
			row = k.first * d->k_dim + c;
		else if (c < 2 * own)
			row = keys + k.first * d->k_dim + c - own;
		else
			row = 2 * keys + v.first * d->v_dim + c - 2 * own;
		graph_read_channel(g, g->names->delta_conv, a->layer, all, row, d->kernel,
				   data + (size_t)c * d->kernel);
	}
	tensor = graph_constant(g, program_label(g->p, "layers.%u.delta.kernel", a->layer), data,
				channels(g), d->kernel);
	free(data);
	return tensor;
}

static uint32_t add_conv(struct graph *g, const struct delta *a, uint32_t x)
{
	uint32_t out = graph_scratch(g, program_label(g->p, "layers.%u.delta.mixed", a->layer),
				     TXDA_F32, PROGRAM_SYM(T), channels(g)),
		 kernel = add_kernel(g, a);
	struct txda_op *op = program_add_op(g->p, TXDA_OP_DELTA_CONV,
					    program_label(g->p, "layers.%u.delta.conv", a->layer));

	op->in[0] = x;
	op->in[1] = kernel;
	op->in[2] = g->state_table;
	op->in[3] = g->spans;
	op->in[4] = g->context;
	op->out[0] = out;
	op->out[1] = g->kv;
	op->delta_conv = (struct txda_op_delta_conv){
		.first = g->state[a->layer].conv_block,
		.layer_offset = g->state[a->layer].conv_offset,
	};
	return out;
}

/* Parameters of each head's decay: F32 [2, Hv]. */
static uint32_t add_decays(struct graph *g, const struct delta *a)
{
	const struct range heads = g->shard.v_heads;
	float *data = calloc(2 * heads.n, sizeof(*data));
	uint32_t tensor, h;

	if (!data) {
		graph_fail(g, -ENOMEM);
		return 0;
	}
	graph_read(g, g->names->delta_a_log, a->layer, config(g)->n_v_heads, heads, data);
	graph_read(g, g->names->delta_dt, a->layer, config(g)->n_v_heads, heads, data + heads.n);
	for (h = 0; h < heads.n; h++)
		data[h] = -expf(data[h]);
	tensor = graph_constant(g, program_label(g->p, "layers.%u.delta.decays", a->layer), data, 2,
				heads.n);
	free(data);
	return tensor;
}

static uint32_t add_rule(struct graph *g, const struct delta *a, uint32_t x, uint32_t ba)
{
	const struct delta_config *d = config(g);
	/* Another chip may have more heads. */
	const uint32_t heads = g->shard.v_heads.n, per_block = g->state[a->layer].per_block;
	uint32_t out = graph_scratch(g, program_label(g->p, "layers.%u.delta.heads", a->layer),
				     TXDA_F32, PROGRAM_SYM(T), g->shard.v_heads.n * d->v_dim),
		 decays = add_decays(g, a);
	struct txda_op *op = program_add_op(g->p, TXDA_OP_DELTA_RULE,
					    program_label(g->p, "layers.%u.delta.rule", a->layer));

	op->in[0] = x;
	op->in[1] = ba;
	op->in[2] = decays;
	op->in[3] = g->state_table;
	op->in[4] = g->spans;
	op->in[5] = g->context;
	op->out[0] = out;
	op->out[1] = g->kv;
	op->delta_rule = (struct txda_op_delta_rule){
		.n_k_heads = g->shard.k_heads.n,
		.n_v_heads = g->shard.v_heads.n,
		.k_dim = d->k_dim,
		.v_dim = d->v_dim,
		.layer_offset = g->state[a->layer].rule_offset,
		.first = g->state[a->layer].rule_block,
		.per_block = per_block < heads ? per_block : heads,
	};
	return out;
}

uint32_t graph_gate(struct graph *g, const char *label, uint32_t x, uint32_t gate, uint32_t norm,
		    uint32_t n, uint32_t flags)
{
	uint32_t out = graph_scratch(g, label, TXDA_F32, PROGRAM_SYM(T), n);
	struct txda_op *op = program_add_op(g->p, TXDA_OP_GATE, label);

	op->in[0] = x;
	op->in[1] = gate;
	op->in[2] = norm;
	op->out[0] = out;
	op->gate = (struct txda_op_gate){
		.eps = norm == TXDA_NONE ? 0 : g->config->rms_norm_eps,
		.flags = flags,
	};
	return out;
}

void graph_delta(struct graph *g, uint32_t layer)
{
	static const enum rows qkv[] = {QUERY, KEY, VALUE}, z[] = {GATE}, ba[] = {BETA, DECAY};
	const struct delta_config *d = config(g);
	const struct range heads = g->shard.v_heads;
	const uint32_t values = heads.n * d->v_dim;
	const struct weight_piece out = {
		g->names->delta_out,	     layer,
		g->config->hidden_size,	     d->n_v_heads * d->v_dim,
		{0, g->config->hidden_size}, {heads.first * d->v_dim, values},
	};
	struct delta a = {.layer = layer};
	uint32_t x, gates, scalars, norm;

	a.norm = graph_norm(g, program_label(g->p, "layers.%u.delta.norm", layer),
			    g->names->input_norm, layer, g->config->hidden_size);
	x = add_input(g, &a, "qkv", qkv, 3, channels(g));
	gates = add_input(g, &a, "z", z, 1, values);
	scalars = add_input(g, &a, "ba", ba, 2, 2 * heads.n);
	x = add_rule(g, &a, add_conv(g, &a, x), scalars);
	norm = graph_vector(g, program_label(g->p, "layers.%u.delta.out_norm", layer),
			    g->names->delta_norm, layer, d->v_dim);
	x = graph_gate(g, program_label(g->p, "layers.%u.delta.gated", layer), x, gates, norm,
		       values, TXDA_GATE_SILU);
	graph_to_residual(g, layer, "delta.out", x, &out, false, TXDA_LINEAR_F32_INPUT, NULL);
}
