/* SPDX-License-Identifier: MIT */
/* What a cache of blocks consists of: for kv.c, and for tests that check it. */
#ifndef TXDA_CACHE_KV_INTERNAL_H
#define TXDA_CACHE_KV_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "kv.h"

struct kv_block {
	uint32_t refs;
	uint32_t prev, next; /* link of the free queue, while refs is 0 */
	/* Committed: the next one in the same hash bucket. Attached: the next one attached. */
	uint32_t chain;
	uint32_t committed; /* what it is attached to, or KV_NONE */
	uint8_t group;
	bool indexed;	 /* committed: found by its hash */
	uint64_t parent; /* hash of what is before it */
	uint64_t hash;
	uint64_t owner;
};

struct kv {
	struct kv_layout layout;
	unsigned n_blocks;
	unsigned n_free;
	unsigned used[KV_MAX_GROUPS + 1];
	unsigned n_attached; /* groups beside the first, that of states among them */
	uint32_t head, tail; /* free queue */
	uint64_t secret;     /* randomises the hash, since clients choose the tokens */
	uint32_t *buckets;   /* [n_buckets], a power of two */
	unsigned n_buckets;
	int32_t *keys;	    /* [n_blocks, key_words], of committed blocks */
	uint32_t *attached; /* [n_blocks, n_attached], the first of each, or KV_NONE */
	struct kv_block blocks[];
};

/* The first block of @group that is attached to the block @committed, or KV_NONE. */
static inline uint32_t *kv_attachment(const struct kv *kv, uint32_t committed, unsigned group)
{
	return &kv->attached[(size_t)committed * kv->n_attached + group - 1];
}

#endif
