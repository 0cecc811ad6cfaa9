/* SPDX-License-Identifier: MIT */
/* What the graph's blocks share while one program is built. */
#ifndef TXDA_COMPILE_GRAPH_INTERNAL_H
#define TXDA_COMPILE_GRAPH_INTERNAL_H

#include "graph.h"
#include "program.h"

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
	uint32_t tokens, positions, slots, spans, context, block_table, rows;
	uint32_t logits, topk_ids, topk_logits, lse;
	uint32_t kv, rope, x;
	uint64_t kv_layer_bytes;
	uint8_t linear_dtype;
	bool narrowed;
};

/* Remembers the first failure. */
void graph_fail(struct graph *g, int code);

/* A weight of the layers, or one that keeps 8 bits when the layers have 4 (embedding and head). */
enum weight_role { WEIGHT_LAYER, WEIGHT_VOCAB };

/* One matrix of the checkpoint, or the rows and columns of it that this chip has. */
struct weight_piece {
	const char *name; /* without ".weight" */
	uint32_t layer;
	uint32_t rows, cols; /* of the checkpoint's tensor */
	struct range row, col;
};

/* Packs pieces one below the other, padded with zeros to @n rows; returns the tensor. */
uint32_t graph_weight(struct graph *g, const char *label, enum weight_role role, uint8_t layout,
		      uint32_t n, const struct weight_piece *pieces, unsigned n_pieces);
/* Their biases in the same order as one F32 [N] tensor. */
uint32_t graph_bias(struct graph *g, const char *label, const struct weight_piece *pieces,
		    unsigned n_pieces);
/* The F32 [n] vector NAME.weight. */
uint32_t graph_norm(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n);
/* @n floats of our own. */
uint32_t graph_constant(struct graph *g, const char *label, const float *data, uint32_t n);

#endif /* TXDA_COMPILE_GRAPH_INTERNAL_H */
