/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a buffer's memory is: runs of consecutive addresses, in buffer order.
 *
 * All addresses and lengths are whole pages of 4 KiB that a page table entry can hold.
 * Immutable once built.
 * Threads: any.
 */
#ifndef TXDA_RUNS_H
#define TXDA_RUNS_H

#include <linux/types.h>

struct sg_table;

/**
 * struct txda_run - The bytes from @at up to the next run are at @addr.
 */
struct txda_run {
	/** @at: Offset in the buffer. */
	u64 at;

	/** @addr: Bus address or offset in DRAM. */
	u64 addr;
};

/**
 * struct txda_runs - The runs of a buffer.
 */
struct txda_runs {
	/** @bytes: Total size of the runs. */
	u64 bytes;

	/** @max: Capacity of @run. */
	u32 max;

	/** @count: Number of runs in use. */
	u32 count;

	/** @run: Sorted by @at. */
	struct txda_run run[];
};

/* An empty list with room for @max runs. Free with kvfree(). NULL: no memory. */
struct txda_runs *txda_runs_new(u32 max);
/* Appends a run, merging it with the last one if they are contiguous. There must be room. */
void txda_runs_add(struct txda_runs *runs, u64 addr, u64 bytes);
/*
 * The first @bytes of a DMA-mapped scatter table. -EINVAL: it is shorter, not in whole pages, or at
 * addresses beyond the chip's range.
 */
int txda_runs_from_sgt(struct sg_table *sgt, u64 bytes, struct txda_runs **ret_runs);

/* Address of byte @at (below @bytes), and how many contiguous bytes follow. */
void txda_runs_find(const struct txda_runs *runs, u64 at, u64 *ret_addr, u64 *ret_bytes);

#endif /* TXDA_RUNS_H */
