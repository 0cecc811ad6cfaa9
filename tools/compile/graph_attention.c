// SPDX-License-Identifier: MIT
/*
 * Attention with grouped query heads: one product for q, k and v, rotation, the cache, attention,
 * and the product that adds to the stream.
 */
#include "graph_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Queries and the heads' results: bf16 where that suffices for the inputs of the products, no gate
 * follows and no router's choice depends on them.
 */
static enum txda_dtype attention_dtype(const struct graph *g)
{
	return !graph_rounds(g) || g->config->attention_gate || g->config->moe.n_experts
		       ? TXDA_F32
		       : TXDA_BF16;
}

/* The rows of this chip's query heads: those that are queries, or their gates. */
static void query_pieces(const struct graph *g, uint32_t layer, bool gates,
			 struct weight_piece *piece)
{
	const struct model_config *c = g->config;
	const struct range heads = g->shard.q_heads;
	const uint32_t d = c->head_dim, step = c->attention_gate ? 2 * d : d;
	uint32_t h;

	for (h = 0; h < heads.n; h++)
		piece[h] = (struct weight_piece){
			g->names->q,
			layer,
			c->n_heads * step,
			c->hidden_size,
			{(heads.first + h) * step + (gates ? d : 0), d},
			{0, c->hidden_size},
		};
}

/* The gates of the heads' results: F32 [T, Hq D]. */
static uint32_t add_gates(struct graph *g, uint32_t layer)
{
	const struct model_config *c = g->config;
	const uint32_t heads = g->shard.q_heads.n;
	struct weight_piece *piece = calloc(heads, sizeof(*piece));
	uint32_t out, norm;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.attn.gate", layer);
	out = graph_scratch(g, program_label(g->p, "%s.out", label), TXDA_F32, PROGRAM_SYM(T),
			    heads * c->head_dim);
	if (!piece) {
		graph_fail(g, -ENOMEM);
		return out;
	}
	norm = graph_norm(g, program_label(g->p, "%s.norm", label), g->names->input_norm, layer,
			  c->hidden_size);
	query_pieces(g, layer, true, piece);
	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = piece,
				.n_pieces = heads,
				.bias = c->qkv_bias,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = norm,
				.residual = TXDA_NONE,
				.out = out,
				.flags = graph_input_flags(g),
			});
	free(piece);
	return out;
}

/* q, k and v as one product of the normalised residual stream. Returns the F32 [T, (Hq + 2 Hkv) D]
 * tensor. */
static uint32_t add_qkv(struct graph *g, uint32_t layer)
{
	const struct model_config *c = g->config;
	const struct shard *s = &g->shard;
	const uint32_t d = c->head_dim;
	const struct range all = {0, c->hidden_size},
			   kv_rows = {s->kv_heads.first * d, s->kv_heads.n * d};
	const unsigned n_q = c->attention_gate ? s->q_heads.n : 1;
	struct weight_piece *piece = calloc(n_q + 2, sizeof(*piece));
	uint32_t n = (s->q_heads.n + 2 * s->kv_heads.n) * d, qkv, norm;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.attn.qkv", layer);
	norm = graph_norm(g, program_label(g->p, "layers.%u.attn.norm", layer),
			  g->names->input_norm, layer, c->hidden_size);
	qkv = graph_scratch(g, program_label(g->p, "layers.%u.qkv", layer), TXDA_F32,
			    PROGRAM_SYM(T), n);
	if (!piece) {
		graph_fail(g, -ENOMEM);
		return qkv;
	}
	if (c->attention_gate)
		query_pieces(g, layer, false, piece);
	else
		piece[0] = (struct weight_piece){g->names->q,
						 layer,
						 c->n_heads * d,
						 c->hidden_size,
						 {s->q_heads.first * d, s->q_heads.n * d},
						 all};
	piece[n_q] = (struct weight_piece){g->names->k,	   layer,   c->n_kv_heads * d,
					   c->hidden_size, kv_rows, all};
	piece[n_q + 1] = piece[n_q];
	piece[n_q + 1].name = g->names->v;
	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = piece,
				.n_pieces = n_q + 2,
				.bias = c->qkv_bias,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = norm,
				.residual = TXDA_NONE,
				.out = qkv,
				.flags = graph_input_flags(g),
			});
	free(piece);
	return qkv;
}

static uint32_t add_rope_kv(struct graph *g, uint32_t layer, uint32_t qkv)
{
	const struct model_config *c = g->config;
	uint32_t q, q_norm = TXDA_NONE, k_norm = TXDA_NONE;
	struct txda_op *op;

	if (c->qk_norm) {
		q_norm = graph_norm(g, program_label(g->p, "layers.%u.attn.q_norm", layer),
				    g->names->q_norm, layer, c->head_dim);
		k_norm = graph_norm(g, program_label(g->p, "layers.%u.attn.k_norm", layer),
				    g->names->k_norm, layer, c->head_dim);
	}
	q = graph_scratch(g, program_label(g->p, "layers.%u.q", layer), attention_dtype(g),
			  PROGRAM_SYM(T), g->shard.q_heads.n * c->head_dim);
	op = program_add_op(g->p, TXDA_OP_ROPE_KV,
			    program_label(g->p, "layers.%u.attn.rope", layer));
	op->in[0] = qkv;
	op->in[1] = c->two_ropes && c->layer_window[layer] ? g->rope_window : g->rope;
	op->in[2] = g->slots[graph_layer_group(g, layer)];
	op->in[3] = q_norm;
	op->in[4] = k_norm;
	op->out[0] = q;
	op->out[1] = g->kv;
	op->rope_kv = (struct txda_op_rope_kv){
		.n_heads = g->shard.q_heads.n,
		.n_kv_heads = g->shard.kv_heads.n,
		.head_dim = c->head_dim,
		.block_size = g->options->block_size,
		.layer_offset = graph_layer_offset(g, layer),
		.eps = c->rms_norm_eps,
		.flags = (c->rope_interleaved ? TXDA_ROPE_INTERLEAVED : 0) |
			 (g->options->kv_int8 ? TXDA_KV_INT8 : 0),
	};
	return q;
}

static uint32_t add_attention_op(struct graph *g, uint32_t layer, uint32_t q)
{
	const struct model_config *c = g->config;
	uint32_t out, sinks = TXDA_NONE;
	struct txda_op *op;

	if (g->names->sinks)
		sinks = graph_part(g, program_label(g->p, "layers.%u.attn.sinks", layer),
				   g->names->sinks, layer, c->n_heads, g->shard.q_heads);
	out = graph_scratch(g, program_label(g->p, "layers.%u.heads", layer), attention_dtype(g),
			    PROGRAM_SYM(T), g->shard.q_heads.n * c->head_dim);
	op = program_add_op(g->p, TXDA_OP_ATTENTION, program_label(g->p, "layers.%u.attn", layer));
	op->in[0] = q;
	op->in[1] = g->kv;
	op->in[2] = g->block_table[graph_layer_group(g, layer)];
	op->in[3] = g->spans;
	op->in[4] = g->context;
	op->in[5] = sinks;
	op->out[0] = out;
	op->attention = (struct txda_op_attention){
		.n_heads = g->shard.q_heads.n,
		.n_kv_heads = g->shard.kv_heads.n,
		.head_dim = c->head_dim,
		.block_size = g->options->block_size,
		.layer_offset = graph_layer_offset(g, layer),
		.scale = 1.0f /
			 sqrtf(c->query_scalar > 0 ? (float)c->query_scalar : (float)c->head_dim),
		.window = c->layer_window[layer] ? c->sliding_window : 0,
		.flags = g->options->kv_int8 ? TXDA_KV_INT8 : 0,
		.softcap = (float)c->attention_cap,
	};
	return out;
}

void graph_attention(struct graph *g, uint32_t layer)
{
	const struct model_config *c = g->config;
	const uint32_t d = c->head_dim;
	const struct weight_piece piece = {
		g->names->o,	     layer,
		c->hidden_size,	     c->n_heads * d,
		{0, c->hidden_size}, {g->shard.q_heads.first * d, g->shard.q_heads.n * d},
	};
	uint32_t qkv, heads;

	qkv = add_qkv(g, layer);
	heads = add_attention_op(g, layer, add_rope_kv(g, layer, qkv));
	if (c->attention_gate)
		heads = graph_gate(g, program_label(g->p, "layers.%u.attn.gated", layer), heads,
				   add_gates(g, layer), TXDA_NONE, g->shard.q_heads.n * d, 0);
	graph_to_residual(g, layer, "attn.o", heads, &piece, c->o_bias, graph_input_flags(g),
			  g->names->post_attention);
}
