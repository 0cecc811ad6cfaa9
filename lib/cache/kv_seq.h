/* SPDX-License-Identifier: MIT */
/*
 * The cache of one sequence: its blocks of every kind, by position.
 *
 * Each group of layers has a table of blocks [max_blocks], of which [first, end) are held: entry i
 * is for the positions from i * block_size on. Blocks that no layer of the group reads any more are
 * released when a block of positions is full; their entries keep old values that are not read.
 * Group 0 has blocks for all known tokens from the beginning, groups with a window for as many as a
 * step may need.
 *
 * If layers have a state, the sequence has the one after its last token, which each step replaces,
 * and a snapshot of the one after a full block of positions, usually its last one. A step that
 * fills a block stores the next snapshot, for which blocks are allocated if enough are free:
 * without it the sequence only has more to recompute after preemption.
 *
 * The caller owns the memory of the tables. Threads: see kv.h.
 */
#ifndef TXDA_CACHE_KV_SEQ_H
#define TXDA_CACHE_KV_SEQ_H

#include "kv.h"

struct kv_seq {
	uint32_t *blocks[KV_MAX_GROUPS]; /* tables; blocks[0] is NULL: empty */
	unsigned first[KV_MAX_GROUPS], end[KV_MAX_GROUPS];
	unsigned n_committed; /* full blocks of positions */
	struct kv_chain chain;
	/* States [state_blocks], each held or not: live, a snapshot, the next step's snapshot. */
	struct kv_state {
		uint32_t *blocks;
		bool held;
		unsigned at; /* after this many blocks of positions, 0: unset; live: 1 if set */
	} live, snapshot, next;
	struct kv_chain snapshot_chain;
	/*
	 * The number of blocks after which its tokens diverge from others', where there was no
	 * snapshot: one is stored for the next sequence with the same prefix. 0: none.
	 */
	unsigned branch;
};

/* Number of entries in all tables of a sequence. */
size_t kv_seq_entries(const struct kv *kv);
/* An empty sequence with its tables in @entries [kv_seq_entries()]. */
void kv_seq_init(const struct kv *kv, struct kv_seq *seq, uint32_t *entries);
/* Moves the blocks of @from to @seq, with its tables in @entries. */
void kv_seq_move(const struct kv *kv, struct kv_seq *seq, const struct kv_seq *from,
		 uint32_t *entries);

/* Blocks it lacks to continue up to @tokens, in steps of at most layout.ahead. */
unsigned kv_seq_lacks(const struct kv *kv, const struct kv_seq *seq, unsigned tokens);
/* Allocates them, as far as blocks are free; false: some are missing. */
bool kv_seq_grow(struct kv *kv, struct kv_seq *seq, unsigned tokens);
/*
 * Before a step that computes positions [first, end), for which it has blocks: allocates blocks for
 * the step's snapshot, if the step fills a block and @leave blocks remain free.
 */
void kv_seq_plan(struct kv *kv, struct kv_seq *seq, unsigned first, unsigned end, unsigned leave);
/* The step's row [1 + 3 state_blocks] of the state table. */
void kv_seq_states(const struct kv *kv, const struct kv_seq *seq, int32_t *row);
/*
 * A step from @first must end at or before this position, so that snapshots are at fixed positions.
 */
unsigned kv_seq_limit(const struct kv *kv, const struct kv_seq *seq, unsigned first);
/* The step has been computed, or launched: the live state is after its last token. */
void kv_seq_moved(struct kv_seq *seq);
/* Blocks that would be free if it released all. */
unsigned kv_seq_own(const struct kv *kv, const struct kv_seq *seq);
/* Releases all of them; @again as for kv_release(). The sequence is then empty. */
void kv_seq_drop(struct kv *kv, struct kv_seq *seq, bool again);

/*
 * Finding a prefix: kv_seq_match() for one block's key after the other, as kv_match(), then
 * kv_seq_settle(), which goes back to the last boundary from which a sequence can continue, and
 * returns its number of blocks: the blocks of every group that are read from there must still be
 * cached.
 */
bool kv_seq_match(struct kv *kv, struct kv_seq *seq, uint64_t owner, uint64_t hash,
		  const int32_t *key);
unsigned kv_seq_settle(struct kv *kv, struct kv_seq *seq);

/*
 * The next block of positions is full and has the key @key [key_words]. If others with the same
 * contents are cached already, the sequence holds these instead of its own. Blocks out of reach are
 * released, @again as kv_release().
 */
void kv_seq_commit(struct kv *kv, struct kv_seq *seq, uint64_t owner, const int32_t *key,
		   bool again);

/* @child, which is empty, shares the full blocks of @parent, up to its snapshot if it has states. */
void kv_seq_fork(struct kv *kv, struct kv_seq *child, const struct kv_seq *parent);

#endif
