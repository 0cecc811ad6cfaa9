/* SPDX-License-Identifier: MIT */
/*
 * Paged KV blocks: who holds which block, which are free, and which hold a prefix that can be used
 * again.
 *
 * A block stores the keys and values of block_size consecutive positions. It has a reference count;
 * a block without references is free. A full block may be committed under its key
 *
 *	(owner, parent, tokens[block_size])
 *
 * where parent is the serial number of the committed block before it, 0 for a first one. Serial numbers
 * are never used twice and keys are compared in full, so a match is never a mere hash collision, and
 * a chain of matches holds exactly the KV of these tokens at these positions. The owner is a number
 * of the caller's that keeps prefixes apart: when it is the user's, no one learns by timing what
 * others asked; when it is a sequence's, its blocks are found again by itself alone.
 *
 * A free committed block keeps its content until it is allocated again. The free queue is taken
 * from the head: blocks without content and those that nobody will ask for first, then the least
 * recently used.
 *
 * All operations on one block are O(1); nothing is allocated after kv_new(). One thread at a time.
 */
#ifndef TXDA_ENGINE_KV_H
#define TXDA_ENGINE_KV_H

#include <stdbool.h>
#include <stdint.h>

struct kv;

/* Where a sequence's committed blocks end. Zero: before the first one. */
struct kv_chain {
	uint64_t serial; /* of the last one */
	uint64_t hash;	 /* of its tokens and all before them */
};

/* -EINVAL: no blocks or no block size; -ENOMEM. */
int kv_new(unsigned n_blocks, unsigned block_size, struct kv **ret);
void kv_free(struct kv *kv);

unsigned kv_blocks(const struct kv *kv);
unsigned kv_block_size(const struct kv *kv);
/* Blocks without references, cached ones among them. */
unsigned kv_free_blocks(const struct kv *kv);

/* Takes a free block, with one reference; false if there is none. What it held is forgotten. */
bool kv_alloc(struct kv *kv, uint32_t *ret_block);

/* Takes one more reference to each of blocks[0..n), which have one already. */
void kv_share(struct kv *kv, const uint32_t *blocks, unsigned n);
/*
 * Drops one reference to each of blocks[0..n), a sequence's blocks in order. A prefix loses its tail
 * before its head. Without @again their content is not expected to be asked for: those that become
 * free are taken first.
 */
void kv_release(struct kv *kv, const uint32_t *blocks, unsigned n, bool again);
/* How many of @blocks have one reference: they would be free if their holder released them. */
unsigned kv_own_blocks(const struct kv *kv, const uint32_t *blocks, unsigned n);

/* The hash of @tokens [block_size] behind those of hash @before; it reads them all. */
uint64_t kv_hash(const struct kv *kv, uint64_t owner, uint64_t before, const int32_t *tokens);

/*
 * Says that @block is full and holds the KV of @tokens [block_size] behind @chain, and moves @chain
 * behind them: to this block, or to another one that holds the same already.
 */
void kv_commit(struct kv *kv, uint32_t block, uint64_t owner, struct kv_chain *chain,
	       const int32_t *tokens);

/*
 * Finds the block that holds @tokens [block_size] behind @chain, takes a reference to it and moves
 * @chain behind it; false if there is none. @hash is kv_hash() of them behind chain->hash, which the
 * caller may keep for the next time. Call it along the prompt.
 */
bool kv_match(struct kv *kv, uint64_t owner, struct kv_chain *chain, uint64_t hash,
	      const int32_t *tokens, uint32_t *ret_block);

/* Counts references, the free queue and the index against each other; false if they disagree. For
 * tests. */
bool kv_check(const struct kv *kv);

#endif
