/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clears freed memory in the background, so that the next buffer allocated from it need not be
 * cleared first. Memory is cleared piece by piece; a piece is not available to the allocator
 * meanwhile.
 *
 * Threads: any; may sleep.
 */
#ifndef TXDA_SCRUB_H
#define TXDA_SCRUB_H

#include <linux/mutex.h>
#include <linux/workqueue.h>

struct txda_device;

/**
 * struct txda_scrub - Clearing of freed memory.
 */
struct txda_scrub {
	/** @lock: Held while a piece is out of the allocator. */
	struct mutex lock;

	/** @work: Clears what was freed. */
	struct delayed_work work;

	/** @on: Between start and stop. */
	bool on;
};

/* In probe, before memory is allocated. */
int txda_scrub_init(struct txda_device *tdev);
/* At the end of probe, when nothing can fail any more; stop before the copy engine is shut down. */
void txda_scrub_start(struct txda_device *tdev);
void txda_scrub_stop(struct txda_device *tdev);

/* Schedules clearing after memory was freed. Under txda_vram.lock. */
void txda_scrub_later(struct txda_device *tdev);

/* Between hold and release all free memory is in the allocator. Outside of txda_vram.lock. */
void txda_scrub_hold(struct txda_device *tdev);
void txda_scrub_release(struct txda_device *tdev);

#endif /* TXDA_SCRUB_H */
