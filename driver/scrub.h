/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clears memory after its owner has left, while nobody waits for it, so that a buffer which takes
 * it next is written once: with its contents. What was freed is cleared a piece at a time; a piece
 * is missing from the allocator for as long.
 *
 * Threads: any; may sleep.
 */
#ifndef TXDA_SCRUB_H
#define TXDA_SCRUB_H

#include <linux/mutex.h>
#include <linux/workqueue.h>

struct txda_device;

/**
 * struct txda_scrub - Clearing of what was freed.
 */
struct txda_scrub {
	/** @lock: Held while a piece is missing from the allocator. */
	struct mutex lock;

	/** @work: Clears what there is. */
	struct delayed_work work;

	/** @on: Between start and stop. */
	bool on;
};

/* In probe, before memory is allocated. */
int txda_scrub_init(struct txda_device *tdev);
/* When nothing of probe can fail any more; while the copy engine is still there. */
void txda_scrub_start(struct txda_device *tdev);
void txda_scrub_stop(struct txda_device *tdev);

/* Something was freed. With txda_vram.lock. */
void txda_scrub_later(struct txda_device *tdev);

/* Between them all free memory is in the allocator. Outside of txda_vram.lock. */
void txda_scrub_hold(struct txda_device *tdev);
void txda_scrub_release(struct txda_device *tdev);

#endif /* TXDA_SCRUB_H */
