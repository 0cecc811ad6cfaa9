// SPDX-License-Identifier: MIT
#include "graph_internal.h"

#include <errno.h>
#include <math.h>
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

static uint32_t scratch(struct graph *g, const char *name, uint8_t dtype, struct txda_dim rows,
			uint32_t columns)
{
	return program_add_scratch(g->p, g->slot_scratch, name, dtype, rows, columns);
}

struct linear {
	const char *label;
	uint32_t x, weight, bias, norm, residual, out; /* tensors or TXDA_NONE */
	enum txda_activation act;
	uint32_t flags; /* TXDA_LINEAR_* */
};

static void add_linear(struct graph *g, const struct linear *l)
{
	struct txda_op *op = program_add_op(g->p, TXDA_OP_LINEAR, l->label);

	op->in[0] = l->x;
	op->in[1] = l->weight;
	op->in[2] = l->bias;
	op->in[3] = l->norm;
	op->in[4] = l->residual;
	op->out[0] = l->out;
	op->linear.act = l->act;
	op->linear.flags = l->flags;
	op->linear.eps = l->norm == TXDA_NONE ? 0 : g->config->rms_norm_eps;
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
			    uint32_t weight, uint32_t bias, uint32_t flags)
{
	struct linear l = {
		.label = program_label(g->p, "layers.%u.%s", layer, what),
		.x = in,
		.weight = weight,
		.bias = bias,
		.norm = TXDA_NONE,
		.residual = g->x,
		.out = g->x,
		.flags = flags,
	};
	struct txda_op *op;
	uint32_t partial;

	if (g->shard.tp == 1) {
		add_linear(g, &l);
		return;
	}
	partial = scratch(g, program_label(g->p, "layers.%u.%s.partial", layer, what), TXDA_F32,
			  PROGRAM_SYM(T), g->config->hidden_size);
	l.residual = TXDA_NONE;
	l.out = partial;
	add_linear(g, &l);
	op = program_add_op(g->p, TXDA_OP_ALL_REDUCE,
			    program_label(g->p, "layers.%u.%s.sum", layer, what));
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

	table = graph_weight(g, "embed", WEIGHT_VOCAB, TXDA_TILE32, g->shard.vocab_width, &piece,
			     1);
	if (g->shard.tp > 1)
		out = scratch(g, "embed.partial", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
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
	g->rope = scratch(g, "rope.table", TXDA_F32, PROGRAM_SYM(T), 2 * pairs);
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
	uint32_t n = (s->q_heads.n + 2 * s->kv_heads.n) * d, qkv, norm, bias = TXDA_NONE, weight;

	norm = graph_norm(g, program_label(g->p, "layers.%u.attn.norm", layer),
			  g->names->input_norm, layer, c->hidden_size);
	if (c->qkv_bias)
		bias = graph_bias(g, program_label(g->p, "layers.%u.attn.qkv.bias", layer), piece,
				  3);
	weight = graph_weight(g, program_label(g->p, "layers.%u.attn.qkv.weight", layer),
			      WEIGHT_LAYER, TXDA_TILE32, n, piece, 3);
	qkv = scratch(g, program_label(g->p, "layers.%u.qkv", layer), TXDA_F32, PROGRAM_SYM(T), n);
	add_linear(g, &(struct linear){
			      .label = program_label(g->p, "layers.%u.attn.qkv", layer),
			      .x = g->x,
			      .weight = weight,
			      .bias = bias,
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
	q = scratch(g, program_label(g->p, "layers.%u.q", layer), attention_dtype(g),
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

	out = scratch(g, program_label(g->p, "layers.%u.heads", layer), attention_dtype(g),
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
	uint32_t qkv, heads, weight, bias = TXDA_NONE;

	qkv = add_qkv(g, layer);
	heads = add_attention_op(g, layer, add_rope_kv(g, layer, qkv));
	if (adds_bias(g, c->o_bias))
		bias = graph_bias(g, program_label(g->p, "layers.%u.attn.o.bias", layer), &piece,
				  1);
	weight = graph_weight(g, program_label(g->p, "layers.%u.attn.o.weight", layer),
			      WEIGHT_LAYER, TXDA_TILE32, c->hidden_size, &piece, 1);
	add_to_residual(g, layer, "attn.o", heads, weight, bias, attention_flags(g));
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
	uint32_t norm, weight, gated, bias = TXDA_NONE;

	norm = graph_norm(g, program_label(g->p, "layers.%u.mlp.norm", layer),
			  g->names->post_attention_norm, layer, c->hidden_size);
	if (c->mlp_bias)
		bias = graph_bias(g, program_label(g->p, "layers.%u.mlp.gate_up.bias", layer),
				  gate_up, 2);
	weight = graph_weight(g, program_label(g->p, "layers.%u.mlp.gate_up.weight", layer),
			      WEIGHT_LAYER, TXDA_TILE32_GATED, 2 * inner.n, gate_up, 2);
	gated = scratch(g, program_label(g->p, "layers.%u.gated", layer), TXDA_BF16, PROGRAM_SYM(T),
			inner.n);
	add_linear(g, &(struct linear){
			      .label = program_label(g->p, "layers.%u.mlp.gate_up", layer),
			      .x = g->x,
			      .weight = weight,
			      .bias = bias,
			      .norm = norm,
			      .residual = TXDA_NONE,
			      .out = gated,
			      .act = TXDA_ACT_SILU_GATED,
		      });
	bias = TXDA_NONE;
	if (adds_bias(g, c->mlp_bias))
		bias = graph_bias(g, program_label(g->p, "layers.%u.mlp.down.bias", layer), &down,
				  1);
	weight = graph_weight(g, program_label(g->p, "layers.%u.mlp.down.weight", layer),
			      WEIGHT_LAYER, TXDA_TILE32, c->hidden_size, &down, 1);
	add_to_residual(g, layer, "mlp.down", gated, weight, bias, 0);
}

static uint32_t head_weight(struct graph *g, uint32_t table)
{
	const struct model_config *c = g->config;
	const struct weight_piece piece = {
		.name = g->names->head,
		.rows = c->vocab_size,
		.cols = c->hidden_size,
		.row = g->shard.vocab,
		.col = {0, c->hidden_size},
	};

	if (c->tie_word_embeddings)
		return table;
	return graph_weight(g, "head.weight", WEIGHT_VOCAB, TXDA_TILE32, g->shard.vocab_width,
			    &piece, 1);
}

static void add_head(struct graph *g, uint32_t table)
{
	const struct model_config *c = g->config;
	uint32_t weight, norm, chosen, out = g->logits;
	struct txda_op *op;

	norm = graph_norm(g, "head.norm", g->names->final_norm, 0, c->hidden_size);
	weight = head_weight(g, table);
	chosen = scratch(g, "head.x", TXDA_F32, PROGRAM_SYM(R), c->hidden_size);
	op = program_add_op(g->p, TXDA_OP_GATHER_ROWS, "head.gather");
	op->in[0] = g->x;
	op->in[1] = g->rows;
	op->out[0] = chosen;
	if (g->shard.tp > 1)
		out = scratch(g, "head.part", TXDA_F32, PROGRAM_SYM(R), g->shard.vocab_width);
	add_linear(g, &(struct linear){
			      .label = "head",
			      .x = chosen,
			      .weight = weight,
			      .bias = TXDA_NONE,
			      .norm = norm,
			      .residual = TXDA_NONE,
			      .out = out,
			      .flags = TXDA_LINEAR_F32_INPUT,
		      });
	if (g->shard.tp > 1) {
		op = program_add_op(g->p, TXDA_OP_ALL_GATHER, "head.all");
		op->in[0] = out;
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
	g->x = scratch(g, "x", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
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
		chip.linear_dtype = g.linear_dtype;
		chip.narrowed = g.narrowed;
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
