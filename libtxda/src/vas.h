/* SPDX-License-Identifier: MIT */
/*
 * An allocator of address ranges: best fit, adjacent free ranges are merged. It returns addresses
 * and accesses no memory.
 *
 * Ownership: txda__vas_free() frees the tables, even if ranges are still allocated.
 * Threads: not concurrently; the caller locks.
 */
#ifndef TXDA_VAS_H
#define TXDA_VAS_H

#include "internal.h"

struct txda__extent {
	uint64_t start, bytes;
};

struct txda__vas {
	struct txda__extent *free; /* [n_free], sorted by start; adjacent ranges are merged */
	size_t n_free, room;
	/* allocated ranges: capacity >= n_taken + 1 so that a free cannot fail */
	size_t n_taken;
	uint64_t start, bytes; /* the whole range */
	uint64_t free_bytes;
};

/* Manages [start, start + bytes), both multiples of the page size. */
int txda__vas_init(struct txda__vas *vas, uint64_t start, uint64_t bytes);
void txda__vas_free(struct txda__vas *vas);
/*
 * @bytes is rounded up to pages, @align is a power of two. -ENOMEM: out of host memory; -ENOSPC: no
 * hole is large enough.
 */
int txda__vas_take(struct txda__vas *vas, uint64_t bytes, uint64_t align, uint64_t *ret_start);
/* Frees a range from txda__vas_take(), with the same @bytes. */
void txda__vas_release(struct txda__vas *vas, uint64_t start, uint64_t bytes);

#endif /* TXDA_VAS_H */
