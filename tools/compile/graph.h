/* SPDX-License-Identifier: MIT */
/*
 * The `step` program of a dense decoder for one chip, and the list of weights it needs: embedding,
 * layers of attention and gated MLP, head. The residual stream x is F32 [T, H] and stays in place;
 * norms, biases, activations and residual additions are fused into LINEARs.
 *
 * With several chips, q, k, v, gate and up are split by columns, o and down by rows, whose partial
 * sums an ALL_REDUCE adds to the residual; the embedding and the head are split by the vocabulary,
 * and rank 0 gathers the logits.
 */
#ifndef TXDA_COMPILE_GRAPH_H
#define TXDA_COMPILE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "family.h"
#include "options.h"
#include "param.h"
#include "shard.h"
#include "source.h"

struct compiled_program {
	void *kcore; /* NULL: not compiled */
	size_t kcore_bytes;
	uint64_t scratch_bytes, io_bytes;
};

struct compiled_chip {
	void *kcore;
	size_t kcore_bytes;
	struct param_list params;
	uint64_t scratch_bytes, io_bytes;
	struct compiled_program vision;
	uint64_t kv_block_bytes; /* of the layers of a group */
	struct compiled_cache {
		uint32_t groups, layers, window_layers, state_layers;
		uint64_t token_bytes;  /* keys and values of a layer, with an indexer's keys */
		uint64_t index_bytes;  /* these alone */
		uint64_t state_bytes;  /* of a layer and sequence */
		uint32_t state_blocks; /* that a sequence's states of all layers take */
	} cache;
	const char *weights; /* type of the layers' weights: "bf16", "w4a16" */
	bool expanded;	     /* weights of a format without tiles were converted to F32 */
	bool untied;	     /* a head of its own is used although the config ties it */
};

/* @options must have no zeros left (max_context, tp). Free with compiled_chip_free(). */
int graph_build(const struct model_config *config, const struct source *source,
		const struct compile_options *options, uint32_t rank, struct compiled_chip *ret,
		struct tool_error *error);
/* The embedding's table in the checkpoint, [vocab, hidden]. */
int graph_find_embedding(const struct model_config *config, const struct source *source,
			 struct source_tensor *ret, struct tool_error *error);

/*
 * The factor of its rows: 1, or the root of the hidden size, which reference implementations round
 * to the table's type.
 */
int graph_embed_scale(const struct model_config *config, const struct source *source, float *ret,
		      struct tool_error *error);

void compiled_chip_free(struct compiled_chip *chip);

#endif /* TXDA_COMPILE_GRAPH_H */
