/* SPDX-License-Identifier: MIT */
#ifndef TXDA_TESTS_KV_CHECK_H
#define TXDA_TESTS_KV_CHECK_H

#include <stdbool.h>

#include "kv_internal.h"

/* Checks references, the free queue and the index against each other; false if they disagree. */
static inline bool kv_check(const struct kv *kv)
{
	unsigned free_blocks = 0, committed = 0, indexed = 0, queued = 0;
	unsigned used = 0;
	uint32_t last = KV_NONE;

	for (uint32_t b = 0; b < kv->n_blocks; b++) {
		const struct kv_block *block = &kv->blocks[b];

		free_blocks += !block->refs;
		committed += block->indexed;
		if (block->committed != KV_NONE &&
		    (!kv->blocks[block->committed].indexed ||
		     *kv_attachment(kv, block->committed, block->group) == KV_NONE))
			return false;
	}
	for (unsigned g = 0; g <= KV_MAX_GROUPS; g++)
		used += kv->used[g];
	for (uint32_t b = kv->head; b != KV_NONE && queued <= kv->n_blocks;
	     b = kv->blocks[b].next) {
		if (kv->blocks[b].refs || kv->blocks[b].prev != last)
			return false;
		last = b;
		queued++;
	}
	for (unsigned i = 0; i < kv->n_buckets; i++) {
		for (uint32_t b = kv->buckets[i]; b != KV_NONE && indexed <= committed;
		     b = kv->blocks[b].chain)
			indexed++;
	}
	return free_blocks == kv->n_free && used == kv->n_blocks - kv->n_free &&
	       queued == kv->n_free && last == kv->tail && indexed == committed;
}

#endif
