/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Totals of counters that the chip clears with each reset.
 *
 * Add the counter's value before a reset, so that nothing since the last read is lost, and call
 * txda_total_restart() after it. The caller serialises reads of the counter with these calls.
 */
#ifndef TXDA_TOTAL_H
#define TXDA_TOTAL_H

#include <linux/types.h>

/**
 * struct txda_total - Total of one counter.
 */
struct txda_total {
	/** @seen: Value of the chip's counter at the last read. */
	u64 seen;

	/** @total: Sum over resets. */
	u64 total;
};

/* Adds the chip's counter @value, which counts from 0 or from its last value; the new total. */
static inline u64 txda_total_add(struct txda_total *total, u64 value)
{
	total->total += value >= total->seen ? value - total->seen : value;
	total->seen = value;
	return total->total;
}

static inline void txda_total_restart(struct txda_total *total)
{
	total->seen = 0;
}

#endif /* TXDA_TOTAL_H */
