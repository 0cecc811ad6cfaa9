/* SPDX-License-Identifier: MIT */
/*
 * Tensor parallelism: the part of a model on each chip of a group.
 *
 * KV heads are divided as evenly as possible, with their queries; if there are fewer than chips,
 * each is replicated on several chips, which share its queries. The MLP's inner width and the
 * vocabulary are cut into ranges of equal width, the last of which may be shorter.
 */
#ifndef TXDA_COMPILE_SHARD_H
#define TXDA_COMPILE_SHARD_H

#include <stdint.h>

#include "config.h"

struct range {
	uint32_t first, n;
};

struct shard {
	uint32_t tp, rank;
	struct range q_heads, kv_heads;
	uint32_t kv_heads_most;	       /* maximum on any chip: caches have the same size on all */
	struct range k_heads, v_heads; /* of gated delta nets */
	uint32_t k_heads_most, v_heads_most;
	struct range inner;   /* of intermediate_size */
	struct range experts; /* all, or with expert parallelism some */
	struct range expert_inner, shared_inner;
	struct range vocab;   /* rows of embedding and head */
	uint32_t vocab_width; /* the same on all ranks; vocab.n and zeros after it */
};

/*
 * @expert_parallel: experts are divided among the chips rather than cut. @group: ranges of the
 * inner width are cut at multiples of it if every chip gets some then, so that quantisation groups
 * are the same for any number of chips. Errors name the possible numbers of chips.
 */
int shard_make(const struct model_config *c, uint32_t tp, uint32_t rank, uint32_t group,
	       bool expert_parallel, struct shard *ret, struct tool_error *error);

#endif /* TXDA_COMPILE_SHARD_H */
