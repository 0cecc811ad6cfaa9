/* SPDX-License-Identifier: MIT */
/*
 * The table of mappings in an address space: sorted, disjoint ranges of device addresses. A zeroed
 * struct is an empty table; cm_ranges_fini() frees it.
 *
 * Threads: the caller locks.
 */
#ifndef CM_RANGE_H
#define CM_RANGE_H

#include <stddef.h>
#include <stdint.h>

struct cm_chip;

struct cm_range {
	uint64_t va, end;
	unsigned flags;	      /* CM_MAP_* */
	struct cm_chip *peer; /* cm_translation.peer */
};

struct cm_ranges {
	struct cm_range *at;
	size_t n, cap;
};

void cm_ranges_fini(struct cm_ranges *r);
/* The index of the first range that ends above @va; r->n: there is none. */
size_t cm_ranges_first(const struct cm_ranges *r, uint64_t va);
/* Makes room for one more range; 0 or -ENOMEM. */
int cm_ranges_reserve(struct cm_ranges *r);
/* Inserts at index @i, for which there is room. */
void cm_ranges_insert(struct cm_ranges *r, size_t i, struct cm_range range);
/* Removes [va, end), with room for one more range: a hole in a range makes two of it. */
void cm_ranges_cut(struct cm_ranges *r, uint64_t va, uint64_t end);

#endif /* CM_RANGE_H */
