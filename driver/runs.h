/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the bytes of a buffer are: runs of consecutive addresses, in the order of its bytes.
 *
 * All addresses and lengths are whole pages of 4 KiB that a page table entry can hold.
 * Immutable once built. Threads: any.
 */
#ifndef TXDA_RUNS_H
#define TXDA_RUNS_H

#include <linux/types.h>

struct sg_table;

/**
 * struct txda_run - The bytes from @at on, up to the next run, are at @addr.
 */
struct txda_run {
	/** @at: Offset in the buffer. */
	u64 at;

	/** @addr: Bus address or offset in DRAM. */
	u64 addr;
};

/**
 * struct txda_runs - All of a buffer.
 */
struct txda_runs {
	/** @bytes: Sum of the runs. */
	u64 bytes;

	/** @max: Room in @run. */
	u32 max;

	/** @count: Runs in use. */
	u32 count;

	/** @run: By rising @at. */
	struct txda_run run[];
};

/* No runs yet, with room for @max. kvfree(). NULL: no memory. */
struct txda_runs *txda_runs_new(u32 max);
/* Appends; a run that continues the last one becomes part of it. There must be room. */
void txda_runs_add(struct txda_runs *runs, u64 addr, u64 bytes);
/*
 * The first @bytes of a table that is mapped for the device. -EINVAL: it has fewer, or not in
 * whole pages, or at addresses that the chip cannot name.
 */
int txda_runs_from_sgt(struct sg_table *sgt, u64 bytes, struct txda_runs **ret_runs);

/* Address of byte @at (below @bytes), and how many bytes follow in one run. */
void txda_runs_find(const struct txda_runs *runs, u64 at, u64 *ret_addr, u64 *ret_bytes);

#endif /* TXDA_RUNS_H */
