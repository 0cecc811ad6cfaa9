/* SPDX-License-Identifier: MIT */
/*
 * Page tables in DRAM, as txda_regs.h lays them out.
 *
 * A lookup walks from the root to a leaf and then checks the leaf's neighbours in the same table,
 * as long as they continue it: same rights, same aperture, next address. So one lookup yields the
 * longest run within one table, and a buffer that is contiguous in memory costs few host mappings.
 * Tables are memory that the host writes at any time: each entry is read once.
 *
 * Threads: any; the tables are only read.
 */
#ifndef VU_WALK_H
#define VU_WALK_H

#include <stdint.h>

#include "txda_regs.h"

struct vu_walk {
	const uint8_t *dram;
	uint64_t dram_bytes;
	unsigned va_bits;
};

struct vu_run {
	uint64_t va, bytes; /* contains the address that was looked up */
	uint64_t address;   /* of the first byte, in its aperture */
	unsigned aperture;  /* enum txda_aperture */
	unsigned port;
	uint64_t rights; /* TXDA_PTE_READ | TXDA_PTE_WRITE */
};

/* -EFAULT: not mapped; -EINVAL: malformed tables. */
int vu_walk(const struct vu_walk *w, uint64_t root, uint64_t va, struct vu_run *ret);

#endif /* VU_WALK_H */
