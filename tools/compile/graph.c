// SPDX-License-Identifier: MIT
#include "graph_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floats.h"

/* The index of a layer among those of its kind, with a window or without. */
static uint32_t layer_number(const struct graph *g, uint32_t layer)
{
	const bool *window = g->config->layer_window;
	uint32_t n = 0, i;

	for (i = g->first_layer; i < layer; i++)
		n += window[i] == window[layer];
	return n;
}

bool graph_rounds(const struct graph *g)
{
	const struct model_config *c = g->config;

	if (c->mla.latent)
		return c->mla.q_lora && !c->mla.index_keys;
	return c->qk_norm && !g->names->post_attention;
}

uint32_t graph_input_flags(const struct graph *g)
{
	return graph_rounds(g) ? 0 : TXDA_LINEAR_F32_INPUT;
}

uint32_t graph_layer_group(const struct graph *g, uint32_t layer)
{
	if (g->n_groups == 1 || !g->config->layer_window[layer])
		return 0;
	return 1 + layer_number(g, layer) / g->group_layers;
}

uint64_t graph_layer_offset(const struct graph *g, uint32_t layer)
{
	uint64_t at = 0;
	uint32_t i;

	if (g->n_groups > 1)
		return layer_number(g, layer) % g->group_layers * g->kv_layer_bytes;
	for (i = g->first_layer; i < layer; i++)
		at += g->config->delta.layer[i] ? 0 : g->kv_layer_bytes;
	return at;
}

/* Bytes of a block, which contains the layers of a group. */
static uint64_t block_bytes(const struct graph *g)
{
	uint64_t bytes;

	if (g->n_groups > 1)
		return g->group_layers * g->kv_layer_bytes;
	bytes = graph_layer_offset(g, g->first_layer + g->n_layers);
	bytes = bytes > g->conv_bytes ? bytes : g->conv_bytes;
	return bytes > g->head_bytes ? bytes : g->head_bytes;
}

/* Assigns the states of the layers to the blocks of a sequence's state. */
static void place_states(struct graph *g)
{
	const uint64_t block = block_bytes(g);
	uint64_t at = 0; /* within the last of state_blocks */

	for (uint32_t i = g->first_layer; i < g->first_layer + g->n_layers; i++) {
		struct state_place *p = &g->state[i];
		uint32_t heads = g->shard.v_heads_most;

		if (!g->config->delta.layer[i])
			continue;
		if (!g->state_blocks || at + g->conv_bytes > block) {
			g->state_blocks++;
			at = 0;
		}
		p->conv_block = g->state_blocks - 1;
		p->conv_offset = at;
		at += g->conv_bytes;
		p->per_block = heads;
		if (at + heads * g->head_bytes > block) {
			p->per_block = (uint32_t)(block / g->head_bytes);
			p->per_block = p->per_block < heads ? p->per_block : heads;
			g->state_blocks += (heads + p->per_block - 1) / p->per_block;
			at = 0;
		}
		p->rule_block = g->state_blocks - (heads + p->per_block - 1) / p->per_block;
		p->rule_offset = at;
		at += ((heads - 1) % p->per_block + 1) * g->head_bytes;
	}
}

/*
 * Without context beyond the window, or without layers that attend to everything, one group is
 * enough.
 */
static void make_groups(struct graph *g)
{
	const struct model_config *c = g->config;
	uint32_t with = 0, all, i;

	for (i = g->first_layer; i < g->first_layer + g->n_layers; i++)
		with += c->layer_window[i];
	all = g->n_layers - with;
	g->n_groups = 1;
	g->group_layers = g->n_layers;
	if (!with || !all || c->delta.n_k_heads || g->options->max_context <= c->sliding_window)
		return;
	g->group_layers = (with + TXDA_KV_MAX_GROUPS - 2) / (TXDA_KV_MAX_GROUPS - 1);
	if (g->group_layers < all)
		g->group_layers = all;
	g->n_groups = 1 + (with + g->group_layers - 1) / g->group_layers;
}

/* Positions of tokens have three coordinates: time, row, column. */
static bool has_axes(const struct model_config *c)
{
	return c->mrope.section[0] + c->mrope.section[1] + c->mrope.section[2] > 0;
}

/* Inputs: embeddings of images in this step, and each token's row in them, or none. */
static void add_image_inputs(struct graph *g)
{
	const uint32_t hidden = g->config->hidden_size, deep = g->config->vision.n_deep;

	g->image_rows = program_add_io(g->p, "image_rows", TXDA_SLOT_INPUT, TXDA_I32, 1,
				       PROGRAM_SYM(T), PROGRAM_DIM(0));
	g->image_embeds = program_add_io(g->p, "image_embeds", TXDA_SLOT_INPUT, TXDA_F32, 2,
					 PROGRAM_SYM(T), PROGRAM_DIM(hidden));
	if (deep)
		g->deepstack = program_add_io(g->p, "image_deepstack", TXDA_SLOT_INPUT, TXDA_F32, 2,
					      PROGRAM_SYM(T), PROGRAM_DIM(deep * hidden));
}

/* The rows of @source from column @col on replace those of the tokens, or are added to them. */
static void merge_images(struct graph *g, const char *label, uint32_t source, uint32_t col,
			 uint32_t flags)
{
	struct txda_op *op = program_add_op(g->p, TXDA_OP_MERGE_ROWS, label);

	op->in[0] = g->x;
	op->in[1] = source;
	op->in[2] = g->image_rows;
	op->out[0] = g->x;
	op->merge_rows = (struct txda_op_merge_rows){flags, col};
}

static void add_slots(struct graph *g)
{
	struct program *p = g->p;
	uint32_t v = g->config->vocab_size, k = g->options->topk, i;
	const struct txda_dim none = {0};

	g->slot_weights = program_add_slot(p, "weights", TXDA_SLOT_WEIGHTS, 0);
	g->slot_kv = program_add_slot(p, "kv", TXDA_SLOT_KV, block_bytes(g));
	g->slot_scratch = program_add_slot(p, "scratch", TXDA_SLOT_SCRATCH, 0);
	if (g->options->embeds)
		g->x = program_add_io(p, "inputs_embeds", TXDA_SLOT_INPUT, TXDA_F32, 2,
				      PROGRAM_SYM(T), PROGRAM_DIM(g->config->hidden_size));
	else
		g->tokens = program_add_io(p, "tokens", TXDA_SLOT_INPUT, TXDA_I32, 1,
					   PROGRAM_SYM(T), none);
	g->positions = program_add_io(p, "positions", TXDA_SLOT_INPUT, TXDA_I32,
				      has_axes(g->config) ? 2 : 1, PROGRAM_SYM(T),
				      has_axes(g->config) ? PROGRAM_DIM(3) : none);
	g->spans = program_add_io(p, "spans", TXDA_SLOT_INPUT, TXDA_I32, 2, PROGRAM_SYM(S),
				  PROGRAM_DIM(2));
	g->context =
		program_add_io(p, "context", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(S), none);
	for (i = 0; i < g->n_groups; i++) {
		g->slots[i] = program_add_io(p, i ? program_label(p, "slots_%u", i) : "slots",
					     TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(T), none);
		g->block_table[i] = program_add_io(
			p, i ? program_label(p, "block_table_%u", i) : "block_table",
			TXDA_SLOT_INPUT, TXDA_I32, 2, PROGRAM_SYM(S), PROGRAM_SYM(B));
	}
	if (g->state_blocks)
		g->state_table =
			program_add_io(p, "state_table", TXDA_SLOT_INPUT, TXDA_I32, 2,
				       PROGRAM_SYM(S), PROGRAM_DIM(1 + 3 * g->state_blocks));
	g->rows = program_add_io(p, "rows", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(R), none);
	if (g->config->vision.family)
		add_image_inputs(g);
	if (g->options->mtp)
		g->before = program_add_io(p, "hidden_before", TXDA_SLOT_INPUT, TXDA_F32, 2,
					   PROGRAM_SYM(T), PROGRAM_DIM(g->config->hidden_size));
	if (g->shard.rank)
		return;
	if (g->options->hidden)
		g->hidden = program_add_io(p, "hidden", TXDA_SLOT_OUTPUT, TXDA_F32, 2,
					   PROGRAM_SYM(R), PROGRAM_DIM(g->config->hidden_size));
	if (g->options->states)
		g->states = program_add_io(p, "states", TXDA_SLOT_OUTPUT, TXDA_F32, 2,
					   PROGRAM_SYM(T), PROGRAM_DIM(g->config->hidden_size));
	if (g->options->keys)
		g->keys = program_add_io(p, "keys", TXDA_SLOT_OUTPUT, TXDA_I32, 2, PROGRAM_SYM(T),
					 PROGRAM_DIM(g->n_layers * g->config->mla.index_keys));
	g->logits = program_add_io(p, "logits", TXDA_SLOT_OUTPUT, TXDA_F32, 2, PROGRAM_SYM(R),
				   PROGRAM_DIM(v));
	g->topk_ids = program_add_io(p, "topk_ids", TXDA_SLOT_OUTPUT, TXDA_I32, 2, PROGRAM_SYM(R),
				     PROGRAM_DIM(k));
	g->topk_logits = program_add_io(p, "topk_logits", TXDA_SLOT_OUTPUT, TXDA_F32, 2,
					PROGRAM_SYM(R), PROGRAM_DIM(k));
	g->lse = program_add_io(p, "lse", TXDA_SLOT_OUTPUT, TXDA_F32, 1, PROGRAM_SYM(R), none);
}

/* The embedding's table. */
static struct weight_piece table_piece(const struct graph *g)
{
	const struct model_config *c = g->config;
	const char *name = g->names->embed;

	if (g->options->mtp && graph_has_matrix(g, g->names->mtp_embed, g->first_layer))
		name = g->names->mtp_embed;
	return (struct weight_piece){
		.name = name,
		.layer = g->first_layer,
		.rows = c->vocab_size,
		.cols = c->hidden_size,
		.row = g->shard.vocab,
		.col = {0, c->hidden_size},
	};
}

/* With tied weights the head uses the same tiles. */
static uint32_t add_table(struct graph *g)
{
	const struct weight_piece piece = table_piece(g);

	return graph_weight(g, "embed", WEIGHT_VOCAB, g->shard.vocab_width, &piece, 1);
}

static float embed_scale(struct graph *g)
{
	float scale = 1;
	int r = g->failed;

	if (!r)
		r = graph_embed_scale(g->config, g->source, &scale, g->error);
	if (r)
		graph_fail(g, r);
	return scale;
}

static uint32_t add_embedding(struct graph *g, uint32_t x)
{
	const struct model_config *c = g->config;
	uint32_t table = add_table(g), out = x;
	struct txda_op *op;

	if (g->shard.tp > 1)
		out = graph_scratch(g, "embed.partial", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
	op = program_add_op(g->p, TXDA_OP_EMBED, "embed");
	op->in[0] = g->tokens;
	op->in[1] = table;
	op->out[0] = out;
	op->embed.first = g->shard.vocab.first;
	op->embed.vocab = c->vocab_size;
	op->embed.scale = embed_scale(g);
	if (g->shard.tp > 1) {
		op = program_add_op(g->p, TXDA_OP_ALL_REDUCE, "embed.sum");
		op->in[0] = out;
		op->out[0] = x;
	}
	return table;
}

/* GGUF files give the divisors of the frequencies instead of a scaling scheme. */
static void divide_frequencies(struct graph *g, uint32_t pairs, float *inv_freq)
{
	float factor[256];

	if (!g->source->gguf || !source_has(g->source, "rope_freqs.weight"))
		return;
	graph_read(g, "rope_freqs.weight", 0, pairs, (struct range){0, pairs}, factor);
	for (uint32_t i = 0; i < pairs && !g->failed; i++) {
		if (!(factor[i] > 0 && factor[i] < INFINITY))
			graph_fail(g, tool_fail(g->error, -ERANGE,
						"rope_freqs.weight: factor %u is %g", i,
						(double)factor[i]));
		inv_freq[i] /= factor[i];
	}
}

static uint32_t add_rope_table(struct graph *g, const struct rope_config *rope, const char *label)
{
	uint32_t pairs = g->config->rope_dim / 2, tensor, table, axes = TXDA_NONE, axis[256];
	struct txda_op_rope_table params;
	float inv_freq[256];
	struct txda_op *op;

	rope_compute(rope, pairs, g->config->max_position, inv_freq, &params);
	divide_frequencies(g, pairs, inv_freq);
	params.max_position = g->options->max_context;
	if (has_axes(g->config)) {
		if (!g->failed && mrope_axes(&g->config->mrope, pairs, axis, g->error))
			graph_fail(g, -EINVAL);
		if (!g->failed && params.dynamic_from)
			graph_fail(g, tool_fail(g->error, -ENOTSUP,
						"rope_type: dynamic is not supported with "
						"mrope_section"));
		axes = graph_indices(g, program_label(g->p, "%s.axes", label), axis, 0, pairs);
	}
	tensor = graph_constant(g, program_label(g->p, "%s.inv_freq", label), inv_freq, 0, pairs);
	table = graph_scratch(g, program_label(g->p, "%s.table", label), TXDA_F32, PROGRAM_SYM(T),
			      2 * pairs);
	op = program_add_op(g->p, TXDA_OP_ROPE_TABLE, label);
	op->in[0] = g->positions;
	op->in[1] = tensor;
	op->in[2] = axes;
	op->out[0] = table;
	op->rope_table = params;
	return table;
}

/* Whether both are stored as the same numbers. */
static bool same_elements(const struct source_tensor *a, const struct source_tensor *b)
{
	return a->format == SOURCE_PLAIN && b->format == SOURCE_PLAIN && a->dtype == b->dtype &&
	       !memcmp(a->data, b->data, a->rows * a->cols * (a->dtype == TXDA_F32 ? 4 : 2));
}

/*
 * Where the head comes from: g->head, or the embedding's table, in checkpoints without a head if the
 * config says so or they are embedding models. A head that is stored is used, whatever the config
 * says, as the reference implementation does; if it equals the table there is one copy.
 */
static void find_head(struct graph *g)
{
	const struct model_config *c = g->config;
	const struct weight_piece table = table_piece(g);
	struct source_tensor head, embedding;

	g->head = table;
	g->head.name = g->options->mtp && graph_has_matrix(g, g->names->mtp_head, g->first_layer)
			       ? g->names->mtp_head
			       : g->names->head;
	if (!graph_has_matrix(g, g->head.name, g->head.layer)) {
		g->shares_head = c->tie_word_embeddings ||
				 (g->options->hidden && !source_made_up(g->source));
		return;
	}
	if (!c->tie_word_embeddings)
		return;
	if (!graph_find(g, &g->head, &head) && !graph_find(g, &table, &embedding))
		g->shares_head = same_elements(&head, &embedding);
	g->untied = !g->shares_head;
}

/*
 * One half of the matrix that combines a token's embedding and the previous hidden state: x = W e,
 * then x += W' h.
 */
static void add_join(struct graph *g, const char *label, const char *norm, uint32_t in,
		     uint32_t half)
{
	const struct model_config *c = g->config;
	const uint32_t layer = g->first_layer, h = c->hidden_size;
	const struct weight_piece piece = {
		.name = g->names->mtp_join,
		.layer = layer,
		.rows = h,
		.cols = 2 * h,
		.row = {0, h},
		.col = {half * h, h},
	};

	graph_linear(g, &(struct linear){
				.label = label,
				.pieces = &piece,
				.n_pieces = 1,
				.weight = TXDA_NONE,
				.x = in,
				.norm = graph_norm(g, program_label(g->p, "%s.norm", label), norm,
						   layer, h),
				.residual = half ? g->x : TXDA_NONE,
				.out = g->x,
				.flags = TXDA_LINEAR_F32_INPUT,
			});
}

/* @out = norm(@x), for consumers of the last hidden states. */
static void add_states(struct graph *g, const char *label, uint32_t x, uint32_t norm, uint32_t out)
{
	struct txda_op *op = program_add_op(g->p, TXDA_OP_RMSNORM, label);

	op->in[0] = x;
	op->in[1] = norm;
	op->out[0] = out;
	op->rmsnorm.eps = g->config->rms_norm_eps;
}

static void add_head(struct graph *g, uint32_t table)
{
	const struct model_config *c = g->config;
	struct linear head = {
		.label = "head",
		.role = WEIGHT_VOCAB,
		.pieces = &g->head,
		.n_pieces = 1,
		.n = g->shard.vocab_width,
		.weight = g->shares_head ? table : TXDA_NONE,
		.residual = TXDA_NONE,
		.out = g->logits,
		.softcap = (float)c->logit_cap,
	};
	struct txda_op *op;

	head.norm = graph_norm(g, "head.norm",
			       g->options->mtp ? g->names->mtp_norm : g->names->final_norm,
			       g->first_layer, c->hidden_size);
	head.x = graph_scratch(g, "head.x", TXDA_F32, PROGRAM_SYM(R), c->hidden_size);
	op = program_add_op(g->p, TXDA_OP_GATHER_ROWS, "head.gather");
	op->in[0] = g->x;
	op->in[1] = g->rows;
	op->out[0] = head.x;
	if (g->options->hidden && !g->shard.rank)
		add_states(g, "hidden", head.x, head.norm, g->hidden);
	if (g->options->states && !g->shard.rank)
		add_states(g, "states", g->x, head.norm, g->states);
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
	uint32_t table, layer, embedded;

	find_head(g);
	add_slots(g);
	g->kv = program_add_tensor(
		g->p, &(struct program_tensor){
			      .name = "kv",
			      .slot = g->slot_kv,
			      .dtype = TXDA_U8,
			      .layout = TXDA_KV_PAGED,
			      .flags = TXDA_TENSOR_ACTIVATION,
			      .ndim = 2,
			      .dim = {PROGRAM_SYM(N), PROGRAM_DIM((uint32_t)block_bytes(g))},
		      });
	g->stream = graph_scratch(g, "x", TXDA_F32, PROGRAM_SYM(T), c->hidden_size);
	if (!g->options->embeds)
		g->x = g->stream;
	/* A product must not write to its input. */
	embedded = g->options->mtp
			   ? graph_scratch(g, "embedded", TXDA_F32, PROGRAM_SYM(T), c->hidden_size)
			   : g->x;
	if (!g->options->embeds)
		table = add_embedding(g, embedded);
	else
		table = g->shares_head ? add_table(g) : TXDA_NONE;
	g->rope = add_rope_table(g, &c->rope, "rope");
	if (c->two_ropes)
		g->rope_window = add_rope_table(g, &c->rope_window, "rope_window");
	if (g->options->mtp) {
		add_join(g, "join.token", g->names->mtp_embed_norm, embedded, 0);
		add_join(g, "join.hidden", g->names->mtp_hidden_norm, g->before, 1);
	}
	/* With inputs_embeds the host has inserted them. */
	if (c->vision.family && !g->options->embeds)
		merge_images(g, "images", g->image_embeds, 0, 0);
	for (layer = g->first_layer; layer < g->first_layer + g->n_layers; layer++) {
		if (c->delta.layer[layer])
			graph_delta(g, layer);
		else if (c->mla.latent)
			graph_mla(g, layer);
		else
			graph_attention(g, layer);
		graph_mlp(g, layer);
		if (layer < c->vision.n_deep)
			merge_images(g, program_label(g->p, "layers.%u.images", layer),
				     g->deepstack, layer * c->hidden_size, TXDA_MERGE_ADD);
	}
	add_head(g, table);
	program_set_slot_bytes(g->p, g->slot_weights, param_finish(&g->params));
}

/*
 * Maximum number of KV blocks: their slots fit into 31 bits, and the cache, doubled in precise
 * mode, into the 40 address bits of the smallest chips.
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

	r = shard_make(c, o->tp, rank, o->group ? o->group : 32, o->expert_parallel, &g->shard,
		       g->error);
	if (r)
		return r;
	g->names = c->family->names;
	g->n_layers = o->mtp ? 1 : c->n_layers;
	g->first_layer = o->mtp ? c->n_layers : 0;
	if (o->mtp && (!c->n_mtp || !g->names->mtp_join))
		return tool_fail(g->error, -EINVAL,
				 "--mtp: the model has no layer that predicts further tokens "
				 "(num_nextn_predict_layers)");
	g->spelling = graph_spelling(g->source);
	if (c->mla.latent)
		g->kv_layer_bytes =
			o->kv_int8
				? txda_mla8_layer_bytes(c->mla.latent, c->mla.rope, o->block_size)
				: txda_mla_layer_bytes(c->mla.latent, c->mla.rope, o->block_size);
	else if (o->kv_int8)
		g->kv_layer_bytes =
			txda_kv8_layer_bytes(g->shard.kv_heads_most, c->head_dim, o->block_size);
	else
		g->kv_layer_bytes =
			txda_kv_layer_bytes(g->shard.kv_heads_most, c->head_dim, o->block_size);
	make_groups(g);
	g->keys = TXDA_NONE;
	if (o->keys && (!c->mla.index_keys || o->role != PROGRAM_STEP))
		return tool_fail(g->error, -EINVAL, "no indexer chooses keys in this program");
	if (c->mla.index_keys) {
		g->index_offset = g->kv_layer_bytes;
		g->kv_layer_bytes += txda_index_layer_bytes(c->mla.index_dim, o->block_size);
	}
	if (c->delta.n_k_heads) {
		g->conv_bytes =
			txda_conv_state_bytes(2 * g->shard.k_heads_most * c->delta.k_dim +
						      g->shard.v_heads_most * c->delta.v_dim,
					      c->delta.kernel);
		g->head_bytes = txda_delta_state_bytes(c->delta.k_dim, c->delta.v_dim);
		place_states(g);
	}
	if (block_bytes(g) > UINT32_MAX)
		return tool_fail(g->error, -E2BIG, "a KV block of %llu bytes, the limit is %u",
				 (unsigned long long)block_bytes(g), UINT32_MAX);
	sym_max[TXDA_SYM_N] = max_blocks(o->block_size, block_bytes(g));
	g->p = program_new(o->mtp ? "mtp" : program_role_name(o->role), o->tp, rank, sym_max);
	return g->p ? 0 : tool_fail(g->error, -ENOMEM, "no memory");
}

static struct compiled_cache cache_kinds(const struct graph *g)
{
	const uint32_t size = g->options->block_size;
	struct compiled_cache kinds = {
		.groups = g->n_groups,
		.token_bytes = g->kv_layer_bytes / size,
		.index_bytes = g->index_offset ? (g->kv_layer_bytes - g->index_offset) / size : 0,
		.state_bytes = g->conv_bytes + g->shard.v_heads_most * g->head_bytes,
		.state_blocks = g->state_blocks,
	};

	for (uint32_t i = g->first_layer; i < g->first_layer + g->n_layers; i++) {
		if (g->config->delta.layer[i])
			kinds.state_layers++;
		else if (g->config->layer_window[i])
			kinds.window_layers++;
		else
			kinds.layers++;
	}
	return kinds;
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
	if (!r && config->vision.family)
		r = graph_build_vision(config, source, options, &g.params, &chip.vision, error);
	if (!r && g.params.failed)
		r = tool_fail(error, g.params.failed, "no memory for the weight list");
	if (!r)
		r = program_finish(g.p, &chip.kcore, &chip.kcore_bytes, error);
	if (r) {
		free(chip.vision.kcore);
		param_free(&g.params);
	} else {
		chip.params = g.params;
		chip.scratch_bytes = program_slot_bytes(g.p, g.slot_scratch);
		chip.io_bytes = program_io_bytes(g.p);
		chip.kv_block_bytes = program_slot_bytes(g.p, g.slot_kv);
		chip.cache = cache_kinds(&g);
		chip.weights = g.weights;
		chip.expanded = g.expanded;
		chip.untied = g.untied;
		*ret = chip;
	}
	program_free(g.p);
	return r;
}

int graph_find_embedding(const struct model_config *config, const struct source *source,
			 struct source_tensor *ret, struct tool_error *error)
{
	char full[96];

	/* In every family it has this name after "model.". */
	snprintf(full, sizeof(full), "%sembed_tokens.weight", graph_spelling(source)->model);
	return source_find(source, full, config->vocab_size, config->hidden_size, ret, error);
}

int graph_embed_scale(const struct model_config *config, const struct source *source, float *ret,
		      struct tool_error *error)
{
	struct source_tensor table;
	float root = (float)sqrt(config->hidden_size);
	int r;

	if (!config->embed_by_root) {
		*ret = 1;
		return 0;
	}
	r = graph_find_embedding(config, source, &table, error);
	if (r)
		return r;
	switch (table.dtype) {
	case TXDA_BF16: *ret = bf16_to_float(float_to_bf16(root)); break;
	case TXDA_F16: *ret = f16_to_float(float_to_f16(root)); break;
	default: *ret = root;
	}
	return 0;
}

void compiled_chip_free(struct compiled_chip *chip)
{
	free(chip->kcore);
	free(chip->vision.kcore);
	param_free(&chip->params);
	*chip = (struct compiled_chip){0};
}
