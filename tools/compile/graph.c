// SPDX-License-Identifier: MIT
#include "graph_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_slots(struct graph *g)
{
	struct program *p = g->p;
	uint32_t v = g->config->vocab_size, k = g->options->topk;
	const struct txda_dim none = {0};

	g->slot_weights = program_add_slot(p, "weights", TXDA_SLOT_WEIGHTS, 0);
	g->slot_kv =
		program_add_slot(p, "kv", TXDA_SLOT_KV, g->kv_layer_bytes * g->config->n_layers);
	g->slot_scratch = program_add_slot(p, "scratch", TXDA_SLOT_SCRATCH, 0);
	g->tokens = program_add_io(p, "tokens", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(T), none);
	g->positions =
		program_add_io(p, "positions", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(T), none);
	g->slots = program_add_io(p, "slots", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(T), none);
	g->spans = program_add_io(p, "spans", TXDA_SLOT_INPUT, TXDA_I32, 2, PROGRAM_SYM(S),
				  PROGRAM_DIM(2));
	g->context =
		program_add_io(p, "context", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(S), none);
	g->block_table = program_add_io(p, "block_table", TXDA_SLOT_INPUT, TXDA_I32, 2,
					PROGRAM_SYM(S), PROGRAM_SYM(B));
	g->rows = program_add_io(p, "rows", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(R), none);
	if (g->shard.rank)
		return;
	g->logits = program_add_io(p, "logits", TXDA_SLOT_OUTPUT, TXDA_F32, 2, PROGRAM_SYM(R),
				   PROGRAM_DIM(v));
	g->topk_ids = program_add_io(p, "topk_ids", TXDA_SLOT_OUTPUT, TXDA_I32, 2, PROGRAM_SYM(R),
				     PROGRAM_DIM(k));
	g->topk_logits = program_add_io(p, "topk_logits", TXDA_SLOT_OUTPUT, TXDA_F32, 2,
					PROGRAM_SYM(R), PROGRAM_DIM(k));
	g->lse = program_add_io(p, "lse", TXDA_SLOT_OUTPUT, TXDA_F32, 1, PROGRAM_SYM(R), none);
}

/*
 * Without norms on queries and keys, scores grow large and the softmax amplifies every rounding
 * before it: such models keep their attention's activations in float32 (keys and values in the
 * cache aside).
 */
static bool wide_attention(const struct graph *g)
{
	return !g->config->qk_norm;
}

static uint8_t attention_dtype(const struct graph *g)
{
	return wide_attention(g) ? TXDA_F32 : TXDA_BF16;
}

static uint32_t attention_flags(const struct graph *g)
{
	return wide_attention(g) ? TXDA_LINEAR_F32_INPUT : 0;
}

/* Of a sum over chips, one adds the bias. */
static bool adds_bias(const struct graph *g, bool wanted)
{
	return wanted && !g->shard.rank;
}

/* x += in W^T, by one LINEAR; with several chips by a partial product and an ALL_REDUCE. */
static void add_to_residual(struct graph *g, uint32_t layer, const char *what, uint32_t in,
			    const struct weight_piece *piece, bool bias, uint32_t flags)
{
	char label[64];
	struct linear l = {
		.label = label,
		.pieces = piece,
		.n_pieces = 1,
		.bias = adds_bias(g, bias),
		.weight = TXDA_NONE,
		.x = in,
		.norm = TXDA_NONE,
		.residual = g->x,
		.out = g->x,
		.flags = flags,
	};
	struct txda_op *op;
	uint32_t partial;

	snprintf(label, sizeof(label), "layers.%u.%s", layer, what);
	if (g->shard.tp == 1) {
		graph_linear(g, &l);
		return;
	}
	partial = graph_scratch(g, program_label(g->p, "%s.partial", label), TXDA_F32, PROGRAM_SYM(T),
				g->config->hidden_size);
	l.residual = TXDA_NONE;
	l.out = partial;
	graph_linear(g, &l);
	op = program_add_op(g->p, TXDA_OP_ALL_REDUCE, program_label(g->p, "%s.sum", label));
	op->in[0] = partial;
	op->in[1] = g->x;
	op->out[0] = g->x;
}

/* The embedding's table; with tied weights the head uses the same tiles. */
static uint32_t add_embedding(struct graph *g)
{
	const struct model_config *c = g->config;
	const struct weight_piece piece = {
		.name = g->names->embed,
		.rows = c->vocab_size,
		.cols = c->hidden_size,
		.row = g->shard.vocab,
		.col = {0, c->hidden_size},
	};
	uint32_t table, out = g->x;
	struct txda_op *op;

	table = graph_weight(g, "embed", WEIGHT_VOCAB, g->shard.vocab_width, &piece, 1);
	if (g->shard.tp > 1)
		out = graph_scratch(g, "embed.partial", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
	op = program_add_op(g->p, TXDA_OP_EMBED, "embed");
	op->in[0] = g->tokens;
	op->in[1] = table;
	op->out[0] = out;
	op->embed.first = g->shard.vocab.first;
	op->embed.vocab = c->vocab_size;
	op->embed.scale = 1;
	if (g->shard.tp > 1) {
		op = program_add_op(g->p, TXDA_OP_ALL_REDUCE, "embed.sum");
		op->in[0] = out;
		op->out[0] = g->x;
	}
	return table;
}

static void add_rope_table(struct graph *g)
{
	uint32_t pairs = g->config->head_dim / 2, tensor;
	struct txda_op_rope_table params;
	float inv_freq[256];
	struct txda_op *op;

	rope_compute(&g->config->rope, pairs, g->config->max_position, inv_freq, &params);
	params.max_position = g->options->max_context;
	tensor = graph_constant(g, "rope.inv_freq", inv_freq, pairs);
	g->rope = graph_scratch(g, "rope.table", TXDA_F32, PROGRAM_SYM(T), 2 * pairs);
	op = program_add_op(g->p, TXDA_OP_ROPE_TABLE, "rope");
	op->in[0] = g->positions;
	op->in[1] = tensor;
	op->out[0] = g->rope;
	op->rope_table = params;
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
	const struct weight_piece piece[3] = {
		{g->names->q,
		 layer,
		 c->n_heads * d,
		 c->hidden_size,
		 {s->q_heads.first * d, s->q_heads.n * d},
		 all},
		{g->names->k, layer, c->n_kv_heads * d, c->hidden_size, kv_rows, all},
		{g->names->v, layer, c->n_kv_heads * d, c->hidden_size, kv_rows, all},
	};
	uint32_t n = (s->q_heads.n + 2 * s->kv_heads.n) * d, qkv, norm;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.attn.qkv", layer);
	norm = graph_norm(g, program_label(g->p, "layers.%u.attn.norm", layer),
			  g->names->input_norm, layer, c->hidden_size);
	qkv = graph_scratch(g, program_label(g->p, "layers.%u.qkv", layer), TXDA_F32,
			    PROGRAM_SYM(T), n);
	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = piece,
				.n_pieces = 3,
				.bias = c->qkv_bias,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = norm,
				.residual = TXDA_NONE,
				.out = qkv,
				.flags = attention_flags(g),
			});
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
	op->in[1] = g->rope;
	op->in[2] = g->slots;
	op->in[3] = q_norm;
	op->in[4] = k_norm;
	op->out[0] = q;
	op->out[1] = g->kv;
	op->rope_kv = (struct txda_op_rope_kv){
		.n_heads = g->shard.q_heads.n,
		.n_kv_heads = g->shard.kv_heads.n,
		.head_dim = c->head_dim,
		.block_size = g->options->block_size,
		.layer_offset = layer * g->kv_layer_bytes,
		.eps = c->rms_norm_eps,
	};
	return q;
}

static uint32_t add_attention_op(struct graph *g, uint32_t layer, uint32_t q)
{
	const struct model_config *c = g->config;
	struct txda_op *op;
	uint32_t out;

	out = graph_scratch(g, program_label(g->p, "layers.%u.heads", layer), attention_dtype(g),
		      PROGRAM_SYM(T), g->shard.q_heads.n * c->head_dim);
	op = program_add_op(g->p, TXDA_OP_ATTENTION, program_label(g->p, "layers.%u.attn", layer));
	op->in[0] = q;
	op->in[1] = g->kv;
	op->in[2] = g->block_table;
	op->in[3] = g->spans;
	op->in[4] = g->context;
	op->out[0] = out;
	op->attention = (struct txda_op_attention){
		.n_heads = g->shard.q_heads.n,
		.n_kv_heads = g->shard.kv_heads.n,
		.head_dim = c->head_dim,
		.block_size = g->options->block_size,
		.layer_offset = layer * g->kv_layer_bytes,
		.scale = 1.0f / sqrtf((float)c->head_dim),
		.window = c->layer_window[layer] ? c->sliding_window : 0,
	};
	return out;
}

static void add_attention(struct graph *g, uint32_t layer)
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
	add_to_residual(g, layer, "attn.o", heads, &piece, c->o_bias, attention_flags(g));
}

static void add_mlp(struct graph *g, uint32_t layer)
{
	const struct model_config *c = g->config;
	const struct range inner = g->shard.inner, all = {0, c->hidden_size};
	const struct weight_piece gate_up[2] = {
		{g->names->gate, layer, c->intermediate_size, c->hidden_size, inner, all},
		{g->names->up, layer, c->intermediate_size, c->hidden_size, inner, all},
	};
	const struct weight_piece down = {
		g->names->down, layer, c->hidden_size, c->intermediate_size, all, inner,
	};
	uint32_t norm, gated;
	char label[64];

	snprintf(label, sizeof(label), "layers.%u.mlp.gate_up", layer);
	norm = graph_norm(g, program_label(g->p, "layers.%u.mlp.norm", layer),
			  g->names->post_attention_norm, layer, c->hidden_size);
	gated = graph_scratch(g, program_label(g->p, "layers.%u.gated", layer), TXDA_BF16,
			      PROGRAM_SYM(T), inner.n);
	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = gate_up,
				.n_pieces = 2,
				.gated = true,
				.bias = c->mlp_bias,
				.weight = TXDA_NONE,
				.x = g->x,
				.norm = norm,
				.residual = TXDA_NONE,
				.out = gated,
			});
	add_to_residual(g, layer, "mlp.down", gated, &down, c->mlp_bias, 0);
}

static void add_head(struct graph *g, uint32_t table)
{
	const struct model_config *c = g->config;
	const struct weight_piece piece = {
		.name = g->names->head,
		.rows = c->vocab_size,
		.cols = c->hidden_size,
		.row = g->shard.vocab,
		.col = {0, c->hidden_size},
	};
	struct linear head = {
		.label = "head",
		.role = WEIGHT_VOCAB,
		.pieces = &piece,
		.n_pieces = 1,
		.n = g->shard.vocab_width,
		.weight = c->tie_word_embeddings ? table : TXDA_NONE,
		.residual = TXDA_NONE,
		.out = g->logits,
		.flags = TXDA_LINEAR_F32_INPUT,
	};
	struct txda_op *op;

	head.norm = graph_norm(g, "head.norm", g->names->final_norm, 0, c->hidden_size);
	head.x = graph_scratch(g, "head.x", TXDA_F32, PROGRAM_SYM(R), c->hidden_size);
	op = program_add_op(g->p, TXDA_OP_GATHER_ROWS, "head.gather");
	op->in[0] = g->x;
	op->in[1] = g->rows;
	op->out[0] = head.x;
	if (g->shard.tp > 1)
		head.out = graph_scratch(g, "head.part", TXDA_F32, PROGRAM_SYM(R),
					 g->shard.vocab_width);
	graph_linear(g, &head);
	if (g->shard.tp > 1) {
		op = program_add_op(g->p, TXDA_OP_ALL_GATHER, "head.all");
		op->in[0] = head.out;
		op->out[0] = g->shard.rank ? TXDA_NONE : g->logits;
	}
	if (g->shard.rank)
		return;
	op = program_add_op(g->p, TXDA_OP_TOPK, "head.topk");
	op->in[0] = g->logits;
	op->out[0] = g->topk_ids;
	op->out[1] = g->topk_logits;
	op->out[2] = g->lse;
	op->topk.k = g->options->topk;
}

static void build(struct graph *g)
{
	const struct model_config *c = g->config;
	uint32_t table, layer;

	add_slots(g);
	g->kv = program_add_tensor(
		g->p, &(struct program_tensor){
			      .name = "kv",
			      .slot = g->slot_kv,
			      .dtype = TXDA_U8,
			      .layout = TXDA_KV_PAGED,
			      .flags = TXDA_TENSOR_ACTIVATION,
			      .ndim = 2,
			      .dim = {PROGRAM_SYM(N),
				      PROGRAM_DIM((uint32_t)(g->kv_layer_bytes * c->n_layers))},
		      });
	g->x = graph_scratch(g, "x", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
	table = add_embedding(g);
	add_rope_table(g);
	for (layer = 0; layer < c->n_layers; layer++) {
		add_attention(g, layer);
		add_mlp(g, layer);
	}
	add_head(g, table);
	program_set_slot_bytes(g->p, g->slot_weights, param_finish(&g->params));
}

/*
 * The most KV blocks: their slots fit into 31 bits, and the cache, doubled in precise mode, into 40
 * bits of address, which the smallest chips have.
 */
static uint32_t max_blocks(uint32_t block_size, uint64_t block_bytes)
{
	uint64_t n = (1ull << 31) / block_size, fit = (1ull << 39) / block_bytes;

	n = n < 1u << 24 ? n : 1u << 24;
	n = n < fit ? n : fit;
	return n ? (uint32_t)n : 1;
}

static int prepare(struct graph *g, const struct compile_options *o, uint32_t rank)
{
	const struct model_config *c = g->config;
	uint32_t sym_max[TXDA_SYM_COUNT] = {
		[TXDA_SYM_T] = o->max_tokens,
		[TXDA_SYM_S] = o->max_seqs,
		[TXDA_SYM_R] = o->max_rows,
		[TXDA_SYM_B] = (o->max_context + o->block_size - 1) / o->block_size,
	};
	int r;

	r = shard_make(c, o->tp, rank, o->group, &g->shard, g->error);
	if (r)
		return r;
	g->names = family_find(c->model_type)->names;
	g->kv_layer_bytes = txda_kv_layer_bytes(g->shard.kv_heads.n, c->head_dim, o->block_size);
	if (g->kv_layer_bytes * c->n_layers > UINT32_MAX)
		return tool_fail(g->error, -E2BIG, "a KV block of %llu bytes, the limit is %u",
				 (unsigned long long)(g->kv_layer_bytes * c->n_layers), UINT32_MAX);
	sym_max[TXDA_SYM_N] = max_blocks(o->block_size, g->kv_layer_bytes * c->n_layers);
	g->p = program_new("step", o->tp, rank, sym_max);
	return g->p ? 0 : tool_fail(g->error, -ENOMEM, "no memory");
}

int graph_build(const struct model_config *config, const struct source *source,
		const struct compile_options *options, uint32_t rank, struct compiled_chip *ret,
		struct tool_error *error)
{
	struct graph g = {.config = config, .source = source, .options = options, .error = error};
	struct compiled_chip chip = {0};
	int r;

	r = prepare(&g, options, rank);
	if (r)
		return r;
	build(&g);
	r = g.failed;
	if (!r && g.params.failed)
		r = tool_fail(error, g.params.failed, "no memory for the weight list");
	if (!r)
		r = program_finish(g.p, &chip.kcore, &chip.kcore_bytes, error);
	if (r) {
		param_free(&g.params);
	} else {
		chip.params = g.params;
		chip.scratch_bytes = program_slot_bytes(g.p, g.slot_scratch);
		chip.io_bytes = program_io_bytes(g.p);
		chip.kv_block_bytes = program_slot_bytes(g.p, g.slot_kv);
		chip.weights = g.weights;
		chip.expanded = g.expanded;
		*ret = chip;
	}
	program_free(g.p);
	return r;
}

void compiled_chip_free(struct compiled_chip *chip)
{
	free(chip->kcore);
	param_free(&chip->params);
	*chip = (struct compiled_chip){0};
}
