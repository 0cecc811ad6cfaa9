/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the chip looked like when something went wrong, for devcoredump: one text of bounded size
 * with identity, registers, hardware queues, and the guilty queue with its ring and address space.
 *
 * The text is taken where the fault is seen, which may be a path that fences wait for, so taking
 * it waits for no memory and for no lock; what cannot be had is left out and said so. A worker
 * hands it to devcoredump later. At most one waits per chip, others are dropped: the first fault
 * is the interesting one.
 */
#ifndef TXDA_COREDUMP_H
#define TXDA_COREDUMP_H

struct txda_device;
struct txda_queue;

int txda_coredump_init(struct txda_device *tdev);
/* Waits for the worker and drops what devcoredump holds of the chip. */
void txda_coredump_fini(struct txda_device *tdev);

/*
 * Before the queue is stopped or the chip reset. @reason: a string constant. @guilty: a client's
 * queue, or NULL. Process or threaded interrupt context; in drm_dev_enter().
 */
void txda_coredump_take(struct txda_device *tdev, const char *reason, struct txda_queue *guilty);

#endif /* TXDA_COREDUMP_H */
