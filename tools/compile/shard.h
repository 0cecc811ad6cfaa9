/* SPDX-License-Identifier: MIT */
/*
 * Tensor parallelism: what of a model each chip of a group has.
 *
 * KV heads are divided as evenly as can be, with their queries; when there are fewer than chips,
 * each is held by several, which divide its queries. The MLP's inner width and the vocabulary are
 * cut in ranges of one width, the last of which may be shorter.
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
	uint32_t kv_heads_most;	       /* of any chip: caches are alike on all */
	struct range k_heads, v_heads; /* of gated delta nets */
	uint32_t k_heads_most, v_heads_most;
	struct range inner;   /* of intermediate_size */
	struct range experts; /* all, or with expert parallelism some */
	struct range expert_inner, shared_inner;
	struct range vocab;   /* rows of embedding and head */
	uint32_t vocab_width; /* the same on all ranks; vocab.n and zeros after it */
};

/*
 * @expert_parallel: experts are divided among the chips rather than cut.
 * @group: ranges of the inner width are cut at multiples of it where that leaves every chip some,
 * so that quantisation groups are the same for any number of chips. Errors name the numbers of
 * chips that would do.
 */
int shard_make(const struct model_config *c, uint32_t tp, uint32_t rank, uint32_t group,
	       bool expert_parallel, struct shard *ret, struct tool_error *error);

#endif /* TXDA_COMPILE_SHARD_H */
