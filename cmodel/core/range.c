// SPDX-License-Identifier: MIT
#include "range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

void cm_ranges_fini(struct cm_ranges *r)
{
	free(r->at);
}

size_t cm_ranges_first(const struct cm_ranges *r, uint64_t va)
{
	size_t lo = 0, hi = r->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->at[mid].end <= va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int cm_ranges_reserve(struct cm_ranges *r)
{
	return array_grow(&r->at, &r->cap, r->n + 1, sizeof(*r->at)) ? 0 : -ENOMEM;
}

void cm_ranges_insert(struct cm_ranges *r, size_t i, struct cm_range range)
{
	memmove(r->at + i + 1, r->at + i, (r->n - i) * sizeof(*r->at));
	r->at[i] = range;
	r->n++;
}

void cm_ranges_cut(struct cm_ranges *r, uint64_t va, uint64_t end)
{
	size_t from = cm_ranges_first(r, va), to, keep = 0;
	struct cm_range left[2];

	for (to = from; to < r->n && r->at[to].va < end; to++) {
		struct cm_range old = r->at[to];

		/* Only the first can extend below the range, only the last above it. */
		if (old.va < va)
			left[keep++] = (struct cm_range){old.va, va, old.flags, old.peer};
		if (old.end > end)
			left[keep++] = (struct cm_range){end, old.end, old.flags, old.peer};
	}
	memmove(r->at + from + keep, r->at + to, (r->n - to) * sizeof(*r->at));
	memcpy(r->at + from, left, keep * sizeof(*left));
	r->n = r->n - (to - from) + keep;
}
