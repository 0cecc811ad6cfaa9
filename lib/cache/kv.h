/* SPDX-License-Identifier: MIT */
/*
 * The blocks of a model's cache: ownership of blocks, free blocks, and the prefix cache. kv_seq.h
 * builds on it: the blocks of one sequence.
 *
 * All kinds of cache consist of the same blocks, of one size in bytes, from one pool: no memory is
 * reserved for a kind. A group of layers that keep keys has, for each block_size positions of a
 * sequence, a block of its own. Layers with a sliding window and layers that attend to everything
 * are in different groups, so that blocks can be released when no layer of their group reads them
 * any more:
 *
 *	positions        0..31  32..63  64..95  96..127  128..159
 *	group 0 (all)      7      2       9       4         11     keys of the layers that see all
 *	group 1 (window)   -      -       5       3         8      of as many layers with a window
 *	group 2 (window)   -      -       1       6         12     of the others of these
 *
 * Layers without keys have a state, which is stored in blocks, too. Each sequence has one after its
 * last token, and a snapshot after its last full block of positions, from which it resumes after
 * preemption, as do other sequences with the same prefix. Snapshots stay cached, as blocks with
 * keys do: every state_blocks blocks of positions, so that they take no more memory than the keys;
 * where sequences ended; and where a second sequence diverged from others, so that a third finds
 * it.
 *
 * A block has a reference count; a block without references is free. A full block of group 0 can be
 * committed under its key
 *
 *	(owner, parent, tokens[block_size], further words)
 *
 * where parent is the hash of the owner and all keys before it, 0 for a first one. So a block is
 * known by its contents, whoever computed it and whatever became of the blocks before it: if these
 * are evicted and computed again, it is found again. Keys are compared in full; for a wrong match
 * two different prefixes of one owner would need the same 64-bit hash, which depends on a random
 * number that no client knows. Of blocks with the same contents only one is committed: who computed
 * another one holds the first instead, so the memory is there once, and nothing hangs below a block
 * that only others hold. The further words, if any, distinguish blocks with equal tokens but, for
 * example, different images. The owner is a number chosen by the caller that separates prefixes: if
 * it is the user's, timing does not reveal to others what was asked; if it is a sequence's, only
 * that sequence finds its blocks again. The blocks of the other groups for the same positions are
 * attached to it, as far as they are still there: they are found through it and dropped with it.
 *
 * A free committed block keeps its contents until it is allocated again. Blocks are allocated from
 * the head of the free queue: first those without contents and those that will not be reused, then
 * the least recently used.
 *
 * All operations on one block are O(1); nothing is allocated after kv_new(). One thread at a time.
 */
#ifndef TXDA_CACHE_KV_H
#define TXDA_CACHE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv;

#define KV_MAX_GROUPS 8
#define KV_NONE	      UINT32_MAX

/* What a model keeps of a sequence, from txda_model_info. */
struct kv_layout {
	unsigned block_size; /* positions per block */
	unsigned key_words;  /* size of a block's key: its tokens and further words */
	unsigned max_blocks; /* maximum blocks of a group in one sequence */
	unsigned n_groups;   /* 0: one, which attends to all positions */
	/* A layer of the group reads this many positions up to its own; 0: all. */
	unsigned reach[KV_MAX_GROUPS];
	unsigned ahead;	       /* maximum positions of a sequence that one step computes */
	unsigned state_blocks; /* blocks of the state of layers without keys; 0: there are none */
};

/* Maximum blocks of a group that a computed sequence has; 0: as many as its positions need. */
unsigned kv_layout_window(const struct kv_layout *layout, unsigned group);
/* Maximum blocks that a sequence of @tokens holds. */
uint64_t kv_layout_need(const struct kv_layout *layout, unsigned tokens);
/* The most positions of a sequence that fit into @n_blocks, at most max_blocks * block_size. */
unsigned kv_layout_fit(const struct kv_layout *layout, unsigned n_blocks);

/* The end of a sequence's committed blocks. Zero: none yet. */
struct kv_chain {
	uint64_t hash;	/* hash of the tokens of the last one and all before them */
	uint32_t block; /* the one found or committed last */
};

/* -EINVAL: no blocks, no block size, a key of fewer words or too many groups; -ENOMEM. */
int kv_new(unsigned n_blocks, const struct kv_layout *layout, struct kv **ret);
void kv_free(struct kv *kv);

unsigned kv_blocks(const struct kv *kv);
unsigned kv_block_size(const struct kv *kv);
unsigned kv_key_words(const struct kv *kv);
const struct kv_layout *kv_layout(const struct kv *kv);
/* Blocks without references, cached ones among them. */
unsigned kv_free_blocks(const struct kv *kv);
/* Blocks of a group with references; the index after the last group stands for states. */
unsigned kv_used_blocks(const struct kv *kv, unsigned group);

/*
 * Allocates a free block for @group, with one reference; false if there is none. Its old contents
 * are dropped.
 */
bool kv_alloc(struct kv *kv, unsigned group, uint32_t *ret_block);

/* Adds a reference to each of blocks[0..n), which must have one already. */
void kv_share(struct kv *kv, const uint32_t *blocks, unsigned n);
/*
 * Drops one reference to each of blocks[0..n), a sequence's blocks in order. The tail of a prefix
 * is evicted before its head. Without @again their contents are not expected to be reused: blocks
 * that become free are allocated first.
 */
void kv_release(struct kv *kv, const uint32_t *blocks, unsigned n, bool again);
/* How many of @blocks have only one reference, and would be free if their holder released them. */
unsigned kv_own_blocks(const struct kv *kv, const uint32_t *blocks, unsigned n);

/* The hash of @key [key_words] after those of hash @before; takes all of it into account. */
uint64_t kv_hash(const struct kv *kv, uint64_t owner, uint64_t before, const int32_t *key);

/*
 * Records that @block is full and holds the KV of @key [key_words] after @chain, and advances
 * @chain. Returns the block that the caller holds from now on: this one, or another one that
 * already holds the same, to which the caller's reference moves. A step that has been launched may
 * still write @block: steps run in order, so whoever gets it next writes it after that.
 */
uint32_t kv_commit(struct kv *kv, uint32_t block, uint64_t owner, struct kv_chain *chain,
		   const int32_t *key);

/*
 * Finds the block that holds @key [key_words] after @chain, takes a reference to it and advances
 * @chain; false if there is none. @hash is its kv_hash() after chain->hash, which the caller may
 * cache. Call it for the prompt's blocks in order.
 */
bool kv_match(struct kv *kv, uint64_t owner, struct kv_chain *chain, uint64_t hash,
	      const int32_t *key, uint32_t *ret_block);

/*
 * Attaches @n blocks of @group, 1 or more, to a committed block that has none of that group yet.
 * The index after the last group stands for states. When one of the blocks is allocated for another
 * purpose, all of them are dropped.
 */
void kv_attach(struct kv *kv, uint32_t committed, unsigned group, const uint32_t *blocks,
	       unsigned n);
/*
 * The blocks [@n] of @group that are attached to a committed one; false: there are none. @blocks may
 * be NULL.
 */
bool kv_attached(const struct kv *kv, uint32_t committed, unsigned group, uint32_t *blocks,
		 unsigned n);
/* Adds a reference to a block that is committed or attached, and may be free. */
void kv_take(struct kv *kv, uint32_t block);
/* The chain that ends at a committed block. */
struct kv_chain kv_chain_at(const struct kv *kv, uint32_t committed);

#endif
