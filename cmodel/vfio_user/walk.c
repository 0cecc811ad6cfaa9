// SPDX-License-Identifier: MIT
#include "walk.h"

#include <errno.h>
#include <stdbool.h>

#define LEAF_FIELDS                                                                                \
	(TXDA_PTE_VALID | TXDA_PTE_READ | TXDA_PTE_WRITE | TXDA_PTE_LEAF | TXDA_PTE_COHERENT |     \
	 TXDA_PTE_APERTURE_MASK | TXDA_PTE_ADDR_MASK | TXDA_PTE_PORT_MASK)

_Static_assert((LEAF_FIELDS ^ TXDA_PTE_RESERVED) == UINT64_MAX, "every bit is a field or reserved");

static unsigned shift_of(unsigned level)
{
	return TXDA_PAGE_SHIFT + level * TXDA_PT_SHIFT;
}

static uint64_t entry_at(const struct vu_walk *w, uint64_t table, uint64_t index)
{
	return __atomic_load_n((const uint64_t *)(const void *)(w->dram + table) + index,
			       __ATOMIC_ACQUIRE);
}

static bool table_is_sound(const struct vu_walk *w, uint64_t table)
{
	return table <= w->dram_bytes - TXDA_PT_BYTES;
}

/* Whether the entry is a leaf at this level, without undefined bits. */
static bool leaf_is_sound(uint64_t pte, unsigned level)
{
	uint64_t size = 1ull << shift_of(level);
	unsigned aperture = (pte & TXDA_PTE_APERTURE_MASK) >> TXDA_PTE_APERTURE_SHIFT;

	return level <= 1 && (pte & TXDA_PTE_LEAF) && !(pte & TXDA_PTE_RESERVED) &&
	       !((pte & TXDA_PTE_ADDR_MASK) & (size - 1)) && aperture < TXDA_APERTURE_COUNT &&
	       (aperture == TXDA_APERTURE_C2C || !(pte & TXDA_PTE_PORT_MASK));
}

/* Extends the leaf at @index of its table, which covers @va, by neighbours that continue it. */
static void extend(const struct vu_walk *w, uint64_t table, uint64_t index, unsigned level,
		   uint64_t pte, struct vu_run *run)
{
	uint64_t size = 1ull << shift_of(level), i;

	for (i = index + 1; i < TXDA_PT_ENTRIES; i++) {
		if (entry_at(w, table, i) != pte + (i - index) * size)
			break;
		run->bytes += size;
	}
	for (i = index; i > 0; i--) {
		/* The address may not run below zero: the fields above would change with it. */
		if ((pte & TXDA_PTE_ADDR_MASK) < (index - i + 1) * size ||
		    entry_at(w, table, i - 1) != pte - (index - i + 1) * size)
			break;
		run->va -= size;
		run->address -= size;
		run->bytes += size;
	}
}

int vu_walk(const struct vu_walk *w, uint64_t root, uint64_t va, struct vu_run *ret)
{
	uint64_t entry = root, table;

	if (va >> w->va_bits)
		return -EFAULT;
	for (unsigned level = TXDA_PT_LEVELS; level-- > 0;) {
		uint64_t index = va >> shift_of(level) & (TXDA_PT_ENTRIES - 1);

		if (!(entry & TXDA_PTE_VALID))
			return -EFAULT;
		table = entry & TXDA_PTE_ADDR_MASK;
		if ((entry & ~(TXDA_PTE_ADDR_MASK | TXDA_PTE_VALID)) || !table_is_sound(w, table))
			return -EINVAL;
		entry = entry_at(w, table, index);
		if (!(entry & TXDA_PTE_VALID))
			return -EFAULT;
		if (level && !(entry & TXDA_PTE_LEAF))
			continue;
		if (!leaf_is_sound(entry, level))
			return -EINVAL;
		*ret = (struct vu_run){
			.va = va & ~((1ull << shift_of(level)) - 1),
			.bytes = 1ull << shift_of(level),
			.address = entry & TXDA_PTE_ADDR_MASK,
			.aperture = (unsigned)((entry & TXDA_PTE_APERTURE_MASK) >>
					       TXDA_PTE_APERTURE_SHIFT),
			.port = (unsigned)((entry & TXDA_PTE_PORT_MASK) >> TXDA_PTE_PORT_SHIFT),
			.rights = entry & (TXDA_PTE_READ | TXDA_PTE_WRITE),
		};
		extend(w, table, index, level, entry, ret);
		return 0;
	}
	return -EFAULT;
}
