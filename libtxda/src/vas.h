/* SPDX-License-Identifier: MIT */
/*
 * An allocator of address ranges: best fit, neighbours join when freed. It hands out numbers and
 * touches no memory.
 *
 * Ownership: txda__vas_free() frees the tables, ranges that are still taken are forgotten.
 * Threads: not concurrently; the caller locks.
 */
#ifndef TXDA_VAS_H
#define TXDA_VAS_H

#include "internal.h"

struct txda__extent {
	uint64_t start, bytes;
};

struct txda__vas {
	struct txda__extent *free; /* [n_free], by rising start; neighbours never touch */
	size_t n_free, room;
	/* ranges handed out: room >= n_taken + 1 so that a free cannot fail */
	size_t n_taken;
	uint64_t start, bytes; /* the whole range */
	uint64_t free_bytes;
};

/* [start, start + bytes), both multiples of the page. */
int txda__vas_init(struct txda__vas *vas, uint64_t start, uint64_t bytes);
void txda__vas_free(struct txda__vas *vas);
/*
 * @bytes is rounded up to pages, @align is a power of two. -ENOMEM: of the host; -ENOSPC: no hole
 * is large enough.
 */
int txda__vas_take(struct txda__vas *vas, uint64_t bytes, uint64_t align, uint64_t *ret_start);
/* Gives back what txda__vas_take() gave, with the same @bytes. */
void txda__vas_give(struct txda__vas *vas, uint64_t start, uint64_t bytes);

#endif /* TXDA_VAS_H */
