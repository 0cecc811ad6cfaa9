// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "vas.h"

int txda__vas_init(struct txda__vas *vas, uint64_t start, uint64_t bytes)
{
	memset(vas, 0, sizeof(*vas));
	vas->room = 16;
	vas->free = calloc(vas->room, sizeof(*vas->free));
	if (!vas->free)
		return -ENOMEM;
	vas->start = start;
	vas->bytes = bytes;
	vas->free_bytes = bytes;
	if (bytes)
		vas->free[vas->n_free++] = (struct txda__extent){start, bytes};
	return 0;
}

void txda__vas_free(struct txda__vas *vas)
{
	free(vas->free);
	memset(vas, 0, sizeof(*vas));
}

/* k allocated ranges leave at most k + 1 holes, and aligning an allocation splits off one more. */
static int make_room(struct txda__vas *vas)
{
	struct txda__extent *table;
	size_t room;

	if (vas->room >= vas->n_taken + 3)
		return 0;
	room = vas->room * 2;
	table = realloc(vas->free, room * sizeof(*table));
	if (!table)
		return -ENOMEM;
	vas->free = table;
	vas->room = room;
	return 0;
}

static void insert_hole(struct txda__vas *vas, size_t at, uint64_t start, uint64_t bytes)
{
	memmove(&vas->free[at + 1], &vas->free[at], (vas->n_free - at) * sizeof(vas->free[0]));
	vas->free[at] = (struct txda__extent){start, bytes};
	vas->n_free++;
}

static void remove_hole(struct txda__vas *vas, size_t at)
{
	vas->n_free--;
	memmove(&vas->free[at], &vas->free[at + 1], (vas->n_free - at) * sizeof(vas->free[0]));
}

int txda__vas_take(struct txda__vas *vas, uint64_t bytes, uint64_t align, uint64_t *ret_start)
{
	uint64_t start, skip, after, best_bytes = UINT64_MAX;
	struct txda__extent *hole;
	size_t best = SIZE_MAX;

	if (!bytes || bytes > vas->bytes)
		return -ENOSPC;
	bytes = txda__align(bytes, TXDA__PAGE);
	if (align < TXDA__PAGE)
		align = TXDA__PAGE;
	if (make_room(vas))
		return -ENOMEM;
	for (size_t i = 0; i < vas->n_free; i++) {
		hole = &vas->free[i];
		skip = txda__align(hole->start, align) - hole->start;
		if (skip <= hole->bytes && bytes <= hole->bytes - skip &&
		    hole->bytes < best_bytes) {
			best = i;
			best_bytes = hole->bytes;
		}
	}
	if (best == SIZE_MAX)
		return -ENOSPC;

	hole = &vas->free[best];
	start = txda__align(hole->start, align);
	skip = start - hole->start;
	after = hole->bytes - skip - bytes;
	if (skip) {
		hole->bytes = skip;
		if (after)
			insert_hole(vas, best + 1, start + bytes, after);
	} else if (after) {
		hole->start = start + bytes;
		hole->bytes = after;
	} else {
		remove_hole(vas, best);
	}
	vas->n_taken++;
	vas->free_bytes -= bytes;
	*ret_start = start;
	return 0;
}

void txda__vas_release(struct txda__vas *vas, uint64_t start, uint64_t bytes)
{
	size_t low = 0, high = vas->n_free, mid;
	bool joins_before, joins_after;

	bytes = txda__align(bytes, TXDA__PAGE);
	while (low < high) {
		mid = low + (high - low) / 2;
		if (vas->free[mid].start < start)
			low = mid + 1;
		else
			high = mid;
	}
	joins_before = low > 0 && vas->free[low - 1].start + vas->free[low - 1].bytes == start;
	joins_after = low < vas->n_free && start + bytes == vas->free[low].start;
	if (joins_before) {
		vas->free[low - 1].bytes += bytes;
		if (joins_after) {
			vas->free[low - 1].bytes += vas->free[low].bytes;
			remove_hole(vas, low);
		}
	} else if (joins_after) {
		vas->free[low].start = start;
		vas->free[low].bytes += bytes;
	} else {
		insert_hole(vas, low, start, bytes);
	}
	vas->n_taken--;
	vas->free_bytes += bytes;
}
