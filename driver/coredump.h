/* SPDX-License-Identifier: GPL-2.0 */
/*
 * State of the chip at the time of a failure, for devcoredump: a text of bounded size with
 * identity, registers, hardware queues, the end of the firmware's log, and the guilty queue with
 * its ring and address space.
 *
 * The text is taken where the fault is detected, which may be a path that fences wait for, so
 * taking it never waits for memory, nor for a lock under which memory is allocated (it takes the
 * guilty queue's hw_lock); parts that are not available are marked as left out.
 * A worker passes it to devcoredump later. At most one dump is pending per chip and later ones are
 * dropped: the first fault is the interesting one. What devcoredump has stays there for as long as
 * it keeps dumps, even if the driver is unbound or the chip pulled out, which is when people look.
 */
#ifndef TXDA_COREDUMP_H
#define TXDA_COREDUMP_H

struct txda_device;
struct txda_queue;

int txda_coredump_init(struct txda_device *tdev);
/* Waits for the worker, so that a dump taken until now is published. */
void txda_coredump_fini(struct txda_device *tdev);

/*
 * Call before the queue is stopped or the chip reset. @reason: a string constant. @guilty: a
 * client's queue, or NULL. Process or threaded interrupt context; in drm_dev_enter().
 */
void txda_coredump_take(struct txda_device *tdev, const char *reason, struct txda_queue *guilty);

#endif /* TXDA_COREDUMP_H */
