/* SPDX-License-Identifier: MIT */
/* Shared by the graph's blocks while one program is built. */
#ifndef TXDA_COMPILE_GRAPH_INTERNAL_H
#define TXDA_COMPILE_GRAPH_INTERNAL_H

#include <errno.h>

#include "graph.h"
#include "program.h"

/* One matrix of the checkpoint, or the rows and columns of it that this chip has. */
struct weight_piece {
	const char *name; /* without ".weight"; %u is the layer, a second one the expert */
	uint32_t layer;
	uint32_t rows, cols; /* of the checkpoint's tensor */
	struct range row, col;
	/* For several matrices: matrix m is expert + m, and its rows start m * row_step later. */
	uint32_t expert, row_step;
	bool transposed; /* @row are columns of the checkpoint's tensor, @col its rows */
	uint32_t row_by; /* distance between rows; 0: 1 */
	/*
	 * The checkpoint's tensor consists of this many matrices, of which this is number @expert;
	 * 0: one.
	 */
	uint32_t stack;
};

struct graph {
	const struct model_config *config;
	const struct family_names *names;
	const struct source *source;
	const struct compile_options *options;
	struct shard shard;
	struct program *p;
	struct param_list params;
	struct tool_error *error;
	int failed; /* the first error; later ones are not reported */

	uint32_t slot_weights, slot_kv, slot_scratch;
	/* Tensor indices. */
	uint32_t tokens, positions, spans, context, rows;
	uint32_t slots[TXDA_KV_MAX_GROUPS], block_table[TXDA_KV_MAX_GROUPS]; /* of each group */
	uint32_t logits, topk_ids, topk_logits, lse, hidden, states;
	/*
	 * The prefixes of tensor names in the checkpoint: of the text model, or of the tower if not
	 * NULL.
	 */
	const struct spelling *spelling;
	const char *tower;
	/*
	 * Of vision models: rows of embeddings for tokens, and what is added after the first
	 * layers.
	 */
	uint32_t image_rows, image_embeds, deepstack;
	uint32_t kv, rope, rope_window;
	uint32_t x;	 /* the stream of hidden states, as read by the next op */
	uint32_t stream; /* and as written: a different tensor only while x is an input */
	uint32_t before; /* mtp: the hidden states that it starts from */
	uint32_t first_layer, n_layers; /* of this program */
	/*
	 * Layers with a window have separate blocks: they are in groups with as many layers as
	 * group 0, whose layers attend to everything.
	 */
	uint32_t n_groups, group_layers; /* n_groups 1: all are in one */
	uint64_t kv_layer_bytes;
	uint64_t conv_bytes, head_bytes; /* of a delta net's state: of a layer, of a head */
	/*
	 * Layers' states are stored consecutively in blocks; only between heads may they cross a
	 * block boundary.
	 */
	struct state_place {
		uint32_t conv_block, rule_block, per_block; /* heads in a block */
		uint64_t conv_offset, rule_offset;
	} state[CONFIG_ALL_LAYERS];
	uint32_t state_blocks, state_table;
	uint64_t index_offset;	  /* of the indexer's keys within a layer's part of a KV block */
	uint32_t keys;		  /* the output of the keys chosen by indexers, or TXDA_NONE */
	struct weight_piece head; /* unless it is the embedding's table: */
	bool shares_head, untied; /* untied: although the config ties them */
	const char *weights;	  /* type of the layers' weights, for model_info.json */
	bool expanded;		  /* some weights of a format became F32 */
};

/* The text before "layers.0…", which is "model." in most checkpoints, and before "lm_head". */
struct spelling {
	const char *model, *head;
};
const struct spelling *graph_spelling(const struct source *source);
/* The program `vision`, whose weights join those of @params. */
int graph_build_vision(const struct model_config *config, const struct source *source,
		       const struct compile_options *options, struct param_list *params,
		       struct compiled_program *ret, struct tool_error *error);

/* Records the first failure. */
void graph_fail(struct graph *g, int code);

/*
 * A weight of the layers; one that keeps 8 bits if the layers have 4 (embedding and head); one that
 * always keeps its own precision (routers, whose rounding errors would change decisions).
 */
enum weight_role { WEIGHT_LAYER, WEIGHT_VOCAB, WEIGHT_EXACT };

/*
 * Packs pieces below each other, padded with zeros to @n rows, as one matrix whose columns are in
 * order; returns the tensor.
 */
uint32_t graph_weight(struct graph *g, const char *label, enum weight_role role, uint32_t n,
		      const struct weight_piece *pieces, unsigned n_pieces);

/*
 * out = act(norm(x) W^T + bias) + residual, where W is the pieces below each other: one LINEAR, or
 * one per piece if their weights are stored in different orders of K.
 */
struct linear {
	const char *label; /* of the op; the weight's is LABEL.weight */
	enum weight_role role;
	const struct weight_piece *pieces;
	unsigned n_pieces;
	uint32_t n;			 /* rows with padding; 0: of the pieces */
	bool gated;			 /* two pieces: gates and ups */
	bool bias;			 /* NAME.bias of each piece, NAME_bias of a stack */
	uint32_t weight;		 /* an existing tensor, or TXDA_NONE */
	uint32_t x, norm, residual, out; /* tensors or TXDA_NONE */
	uint32_t flags;			 /* TXDA_LINEAR_F32_INPUT */
	float eps;			 /* of the norm; 0: the config's */
	float softcap;			 /* of the product; 0: none */
	enum txda_activation act;	 /* elementwise activation of the product; 0: none */
	uint32_t out_col;		 /* start of its columns in a wider output */
	const uint32_t *columns; /* element k of the input is x[columns[k]]; NULL: in order */
	/*
	 * A MOE_LINEAR: number of matrices, each made of the pieces; each token's choice, or none.
	 */
	uint32_t matrices, experts, first, n_experts;
	struct txda_dim rows; /* of its output */
};
void graph_linear(struct graph *g, const struct linear *l);
/*
 * The same into a new tensor, F32 [T, @columns], which is returned; weight, residual and out of @l
 * are set here. NULL pieces mean that memory ran out.
 */
uint32_t graph_product(struct graph *g, const struct linear *l, uint32_t columns);
/*
 * Whether the inputs of attention's and the experts' products are rounded to bf16. The softmax
 * amplifies rounding errors unless norms of queries and keys bound its inputs; a norm of the output
 * (Gemma) amplifies them again. Latent attention with a norm before the query product tolerates it,
 * but not with an indexer, which chooses other keys then. Measured: docs/performance.md, accuracy.
 */
bool graph_rounds(const struct graph *g);
/* Their flags: TXDA_LINEAR_F32_INPUT, or 0 if they are rounded. */
uint32_t graph_input_flags(const struct graph *g);

/*
 * x += post_norm(in W^T + bias), W being one piece. With several chips the product is partial and
 * an ALL_REDUCE adds it up. @what: "attn.o"; @post_norm: a name or NULL.
 */
void graph_to_residual(struct graph *g, uint32_t layer, const char *what, uint32_t in,
		       const struct weight_piece *piece, bool bias, uint32_t flags,
		       const char *post_norm);
/* x += post_norm(the sum of @partial over the chips). */
void graph_sum_to_residual(struct graph *g, uint32_t layer, const char *what, uint32_t partial,
			   const char *post_norm);

/* The location of a layer's cache: its group, and the offset of its part in the group's blocks. */
uint32_t graph_layer_group(const struct graph *g, uint32_t layer);
uint64_t graph_layer_offset(const struct graph *g, uint32_t layer);

/* The blocks of a layer. */
void graph_attention(struct graph *g, uint32_t layer);
void graph_mla(struct graph *g, uint32_t layer); /* latent attention */
void graph_delta(struct graph *g, uint32_t layer);
void graph_mlp(struct graph *g, uint32_t layer);

/* Their biases in the same order as one F32 [N] tensor, or [matrices, N] when @matrices is not 0. */
uint32_t graph_bias(struct graph *g, const char *label, const struct weight_piece *pieces,
		    unsigned n_pieces, uint32_t matrices);
/* The F32 [n] vector NAME.bias. */
uint32_t graph_norm_bias(struct graph *g, const char *label, const char *name, uint32_t layer,
			 uint32_t n);
/* The F32 [n] vector NAME. */
uint32_t graph_vector(struct graph *g, const char *label, const char *name, uint32_t layer,
		      uint32_t n);
/* Those in @part of them: F32 [part.n]. */
uint32_t graph_part(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n, struct range part);
/* The F32 [n] vector NAME.weight, or 1 + it where the family says so. */
uint32_t graph_norm(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n);
/*
 * Whether the checkpoint has NAME + @suffix. A synthetic one has everything whose @name is not
 * NULL, but no stacks.
 */
bool graph_has(const struct graph *g, const char *name, uint32_t layer, const char *suffix);
/* Whether it has the matrix NAME in any format; a synthetic one has none. */
bool graph_has_matrix(const struct graph *g, const char *name, uint32_t layer);
/* An F32 activation [T, columns] (or BF16) in scratch. */
uint32_t graph_scratch(struct graph *g, const char *label, uint8_t dtype, struct txda_dim rows,
		       uint32_t columns);
/* Finds a piece's matrix in any format; the first failure is recorded. */
int graph_find(struct graph *g, const struct weight_piece *piece, struct source_tensor *ret);
/* Constant indices, [n], or [rows, n] if @rows is not 0. */
uint32_t graph_indices(struct graph *g, const char *label, const uint32_t *data, uint32_t rows,
		       uint32_t n);
/* Constant floats, [n], or [rows, n] if @rows is not 0. */
uint32_t graph_constant(struct graph *g, const char *label, const float *data, uint32_t rows,
			uint32_t n);
/* Reads elements @part of the vector NAME, which has @n, to @to. */
void graph_read(struct graph *g, const char *name, uint32_t layer, uint32_t n, struct range part,
		float *to);
/* Reads row @row of NAME [rows, 1, cols] to @to. */
void graph_read_channel(struct graph *g, const char *name, uint32_t layer, uint32_t rows,
			uint32_t row, uint32_t cols, float *to);
/* out = x act(gate), x normalised in runs by @norm if that is not TXDA_NONE; F32 [T, n]. */
uint32_t graph_gate(struct graph *g, const char *label, uint32_t x, uint32_t gate, uint32_t norm,
		    uint32_t n, uint32_t flags);

#endif /* TXDA_COMPILE_GRAPH_INTERNAL_H */
