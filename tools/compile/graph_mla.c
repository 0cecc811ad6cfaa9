// SPDX-License-Identifier: MIT
/*
 * Multi-head latent attention with absorbed matrices (DeepSeek-V2, section 2.1): each head's keys
 * and values are products of one latent vector per token, so the key half of kv_b is applied to the
 * query and the value half to the result, and attention itself is over the latent vectors, which
 * are all that the cache holds.
 */
#include "graph_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A default of its class in the reference implementation, independent of the config's other norms.
 */
#define LATENT_EPS 1e-6f

/* A layer's tensors while its block is built. */
struct latent {
	uint32_t layer;
	uint32_t norm;	    /* of the block's input */
	uint32_t q, q_norm; /* the inputs of the query product */
	uint32_t q_cols;
	float q_eps;
};

static const struct mla_config *mla(const struct graph *g)
{
	return &g->config->mla;
}

/* out = x W^T of one matrix as a whole, from the layer's input. */
static uint32_t add_down(struct graph *g, const struct latent *a, const char *what,
			 const char *name, uint32_t rows, enum weight_role role, bool bias)
{
	const struct weight_piece piece = {
		name,	   a->layer,
		rows,	   g->config->hidden_size,
		{0, rows}, {0, g->config->hidden_size},
	};
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.%s", a->layer, what);
	return graph_product(g,
			     &(struct linear){
				     .label = label,
				     .role = role,
				     .pieces = &piece,
				     .n_pieces = 1,
				     .bias = bias,
				     .x = g->x,
				     .norm = a->norm,
				     .flags = graph_input_flags(g),
			     },
			     rows);
}

/* The rows [first, first + n) of each of this chip's heads of the query matrix: F32 [T, Hq n]. */
static uint32_t add_queries(struct graph *g, const struct latent *a, const char *what,
			    uint32_t first, uint32_t n)
{
	const struct mla_config *m = mla(g);
	const uint32_t head = m->nope + m->rope;
	const struct range heads = g->shard.q_heads;
	struct weight_piece *pieces = calloc(heads.n, sizeof(*pieces));
	uint32_t out, h;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.attn.%s", a->layer, what);
	for (h = 0; pieces && h < heads.n; h++)
		pieces[h] = (struct weight_piece){
			m->q_lora ? g->names->q_b : g->names->q,
			a->layer,
			g->config->n_heads * head,
			a->q_cols,
			{(heads.first + h) * head + first, n},
			{0, a->q_cols},
		};
	out = graph_product(g,
			    &(struct linear){
				    .label = label,
				    .pieces = pieces,
				    .n_pieces = heads.n,
				    .x = a->q,
				    .norm = a->q_norm,
				    .eps = a->q_eps,
				    .flags = graph_input_flags(g),
			    },
			    heads.n * n);
	free(pieces);
	return out;
}

/* Applies each head's part of kv_b: F32 [T, Hq n] from F32 [T, Hq k]. */
static uint32_t add_heads(struct graph *g, const struct latent *a, const char *what, uint32_t x,
			  const struct weight_piece *piece, uint32_t n)
{
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.attn.%s", a->layer, what);
	return graph_product(g,
			     &(struct linear){
				     .label = label,
				     .pieces = piece,
				     .n_pieces = 1,
				     .x = x,
				     .norm = TXDA_NONE,
				     .flags = graph_input_flags(g),
				     .matrices = g->shard.q_heads.n,
				     .experts = TXDA_NONE,
				     .rows = PROGRAM_SYM(T),
			     },
			     g->shard.q_heads.n * n);
}

/* Multiplies queries by the key half of kv_b, transposed, for scores with latent vectors. */
static uint32_t add_key_half(struct graph *g, const struct latent *a, uint32_t q)
{
	const struct mla_config *m = mla(g);
	const uint32_t head = m->nope + m->v;
	struct weight_piece piece = {
		.name = g->names->kv_b,
		.layer = a->layer,
		.rows = g->config->n_heads * head,
		.cols = m->latent,
		.row = {0, m->latent},
		.col = {g->shard.q_heads.first * head, m->nope},
		.row_step = head,
		.transposed = true,
	};

	if (graph_has(g, g->names->k_b, a->layer, ".weight"))
		piece = (struct weight_piece){
			.name = g->names->k_b,
			.layer = a->layer,
			.expert = g->shard.q_heads.first,
			.rows = m->latent,
			.cols = m->nope,
			.row = {0, m->latent},
			.col = {0, m->nope},
		};
	return add_heads(g, a, "q_latent", q, &piece, m->latent);
}

/* Multiplies latent results by the value half of kv_b. */
static uint32_t add_value_half(struct graph *g, const struct latent *a, uint32_t x)
{
	const struct mla_config *m = mla(g);
	const uint32_t head = m->nope + m->v;
	struct weight_piece piece = {
		.name = g->names->kv_b,
		.layer = a->layer,
		.rows = g->config->n_heads * head,
		.cols = m->latent,
		.row = {g->shard.q_heads.first * head + m->nope, m->v},
		.col = {0, m->latent},
		.row_step = head,
	};

	if (graph_has(g, g->names->v_b, a->layer, ".weight"))
		piece = (struct weight_piece){
			.name = g->names->v_b,
			.layer = a->layer,
			.expert = g->shard.q_heads.first,
			.rows = m->v,
			.cols = m->latent,
			.row = {0, m->v},
			.col = {0, m->latent},
		};
	return add_heads(g, a, "v", x, &piece, m->v);
}

/* ---- the indexer ---- */

static uint32_t add_index_queries(struct graph *g, const struct latent *a)
{
	const uint32_t rows = mla(g)->index_heads * mla(g)->index_dim;
	const struct weight_piece piece = {
		g->names->index_q, a->layer, rows, a->q_cols, {0, rows}, {0, a->q_cols},
	};
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.index.q", a->layer);
	return graph_product(g,
			     &(struct linear){
				     .label = label,
				     .pieces = &piece,
				     .n_pieces = 1,
				     .x = a->q,
				     .norm = a->q_norm,
				     .eps = a->q_eps,
				     .flags = TXDA_LINEAR_F32_INPUT,
			     },
			     rows);
}

/* Stores the tokens' keys; returns the rotated queries. */
static uint32_t add_index_store(struct graph *g, const struct latent *a)
{
	const struct mla_config *m = mla(g);
	const char *name = g->names->index_k_norm;
	uint32_t q = add_index_queries(g, a), norm, bias, k, out;
	struct txda_op *op;

	k = add_down(g, a, "index.k", g->names->index_k, m->index_dim, WEIGHT_LAYER, false);
	norm = graph_norm(g, program_label(g->p, "layers.%u.index.norm", a->layer), name, a->layer,
			  m->index_dim);
	bias = graph_norm_bias(g, program_label(g->p, "layers.%u.index.norm.bias", a->layer), name,
			       a->layer, m->index_dim);
	out = graph_scratch(g, program_label(g->p, "layers.%u.index.turned", a->layer), TXDA_F32,
			    PROGRAM_SYM(T), m->index_heads * m->index_dim);
	op = program_add_op(g->p, TXDA_OP_INDEX_STORE,
			    program_label(g->p, "layers.%u.index.store", a->layer));
	op->in[0] = q;
	op->in[1] = g->rope;
	op->in[2] = g->slots[0];
	op->in[3] = k;
	op->in[4] = norm;
	op->in[5] = bias;
	op->out[0] = out;
	op->out[1] = g->kv;
	op->index_store = (struct txda_op_index_store){
		.n_heads = m->index_heads,
		.dim = m->index_dim,
		.block_size = g->options->block_size,
		.layer_offset = graph_layer_offset(g, a->layer) + g->index_offset,
		.eps = LATENT_EPS,
	};
	return out;
}

/*
 * The slots of the keys that each token attends to, or TXDA_NONE for all. Every chip makes the same
 * choice by itself.
 */
static uint32_t add_index(struct graph *g, const struct latent *a)
{
	const struct mla_config *m = mla(g);
	uint32_t q, weights, slots;
	struct txda_op *op;

	if (!m->index_keys)
		return TXDA_NONE;
	q = add_index_store(g, a);
	weights = add_down(g, a, "index.weights", g->names->index_weights, m->index_heads,
			   WEIGHT_EXACT, false);
	slots = program_add_ids(g->p, g->slot_scratch,
				program_label(g->p, "layers.%u.index.slots", a->layer),
				PROGRAM_SYM(T), m->index_keys);
	op = program_add_op(g->p, TXDA_OP_INDEX_SELECT,
			    program_label(g->p, "layers.%u.index.select", a->layer));
	op->in[0] = q;
	op->in[1] = weights;
	op->in[2] = g->kv;
	op->in[3] = g->block_table[0];
	op->in[4] = g->spans;
	op->in[5] = g->context;
	op->out[0] = slots;
	op->out[1] = g->keys;
	op->index_select = (struct txda_op_index_select){
		.n_heads = m->index_heads,
		.dim = m->index_dim,
		.block_size = g->options->block_size,
		.keys = m->index_keys,
		.layer_offset = graph_layer_offset(g, a->layer) + g->index_offset,
		.out_col = g->keys == TXDA_NONE ? 0 : (a->layer - g->first_layer) * m->index_keys,
	};
	return slots;
}

/* Stores the tokens' latent vectors and keys; returns the rotated part of the queries. */
static uint32_t add_store(struct graph *g, const struct latent *a, uint32_t q_rope, uint32_t kv)
{
	const struct mla_config *m = mla(g);
	uint32_t norm, out;
	struct txda_op *op;

	norm = graph_norm(g, program_label(g->p, "layers.%u.attn.kv_norm", a->layer),
			  g->names->kv_a_norm, a->layer, m->latent);
	out = graph_scratch(g, program_label(g->p, "layers.%u.q", a->layer), TXDA_F32,
			    PROGRAM_SYM(T), g->shard.q_heads.n * m->rope);
	op = program_add_op(g->p, TXDA_OP_MLA_STORE,
			    program_label(g->p, "layers.%u.attn.store", a->layer));
	op->in[0] = q_rope;
	op->in[1] = g->rope;
	op->in[2] = g->slots[0];
	op->in[3] = kv;
	op->in[4] = norm;
	op->out[0] = out;
	op->out[1] = g->kv;
	op->mla_store = (struct txda_op_mla_store){
		.n_heads = g->shard.q_heads.n,
		.latent = m->latent,
		.rope = m->rope,
		.block_size = g->options->block_size,
		.layer_offset = graph_layer_offset(g, a->layer),
		.eps = LATENT_EPS,
		.flags = (g->config->rope_interleaved ? TXDA_ROPE_INTERLEAVED : 0) |
			 (g->options->kv_int8 ? TXDA_KV_INT8 : 0),
	};
	return out;
}

/* Attention over the tokens in @slots; TXDA_NONE: over all. */
static uint32_t add_latent_attention(struct graph *g, const struct latent *a, uint32_t q_latent,
				     uint32_t q_rope, uint32_t slots)
{
	const struct mla_config *m = mla(g);
	uint32_t out;
	struct txda_op *op;

	out = graph_scratch(g, program_label(g->p, "layers.%u.latents", a->layer), TXDA_F32,
			    PROGRAM_SYM(T), g->shard.q_heads.n * m->latent);
	op = program_add_op(g->p, slots == TXDA_NONE ? TXDA_OP_MLA_ATTENTION : TXDA_OP_MLA_SPARSE,
			    program_label(g->p, "layers.%u.attn", a->layer));
	op->in[0] = q_latent;
	op->in[1] = q_rope;
	op->in[2] = g->kv;
	op->in[3] = slots;
	if (slots == TXDA_NONE) {
		op->in[3] = g->block_table[0];
		op->in[4] = g->spans;
		op->in[5] = g->context;
	}
	op->out[0] = out;
	op->mla_attention = (struct txda_op_mla_attention){
		.n_heads = g->shard.q_heads.n,
		.latent = m->latent,
		.rope = m->rope,
		.block_size = g->options->block_size,
		.layer_offset = graph_layer_offset(g, a->layer),
		.scale = (float)(m->mscale * m->mscale / sqrt(m->nope + m->rope)),
		.flags = g->options->kv_int8 ? TXDA_KV_INT8 : 0,
	};
	return out;
}

void graph_mla(struct graph *g, uint32_t layer)
{
	const struct model_config *c = g->config;
	const struct mla_config *m = mla(g);
	const struct weight_piece o = {
		g->names->o,	     layer,
		c->hidden_size,	     c->n_heads * m->v,
		{0, c->hidden_size}, {g->shard.q_heads.first * m->v, g->shard.q_heads.n * m->v},
	};
	struct latent a = {.layer = layer};
	uint32_t kv, q, q_rope, slots, x;

	a.norm = graph_norm(g, program_label(g->p, "layers.%u.attn.norm", layer),
			    g->names->input_norm, layer, c->hidden_size);
	a.q = g->x;
	a.q_norm = a.norm;
	a.q_cols = c->hidden_size;
	if (m->q_lora) {
		a.q = add_down(g, &a, "attn.q_a", g->names->q_a, m->q_lora, WEIGHT_LAYER,
			       c->o_bias);
		a.q_norm = graph_norm(g, program_label(g->p, "layers.%u.attn.q_norm", layer),
				      g->names->q_a_norm, layer, m->q_lora);
		a.q_cols = m->q_lora;
		a.q_eps = LATENT_EPS;
	}
	kv = add_down(g, &a, "attn.kv_a", g->names->kv_a, m->latent + m->rope, WEIGHT_LAYER,
		      c->o_bias);
	q = add_queries(g, &a, "q_nope", 0, m->nope);
	q_rope = add_queries(g, &a, "q_rope", m->nope, m->rope);
	q_rope = add_store(g, &a, q_rope, kv);
	slots = add_index(g, &a);
	q = add_key_half(g, &a, q);
	x = add_latent_attention(g, &a, q, q_rope, slots);
	x = add_value_half(g, &a, x);
	graph_to_residual(g, layer, "attn.o", x, &o, c->o_bias, graph_input_flags(g), NULL);
}
