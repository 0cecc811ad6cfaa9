/* SPDX-License-Identifier: MIT */
/*
 * Fault injection: orders in words (cm_inject() in cmodel.h), and what strikes queues.
 *
 * An order arms an injection of a chip. The command processor asks before each op and each slice of
 * a copy whether one strikes; chips without injections (cm_chip.injected) are not asked.
 * Threads: all by the leader, but cm_inject_apply().
 */
#ifndef CM_INJECT_H
#define CM_INJECT_H

#include "queue.h"

/* cm_inject() for the chips chip[n]. */
int cm_inject_apply(struct cm_queues *qs, struct cm_chip *chip, unsigned n, const char *spec);
/* Ends all injections of the chip. */
void cm_inject_clear(struct cm_queues *qs, struct cm_chip *c);
/* The chip works, or hangs, see cm_chip_stall(). */
void cm_inject_stall(struct cm_queues *qs, struct cm_chip *c, bool on);

/*
 * Before an op of the queue, which is prepared, or a slice of its copy: CM_DONE lets it run; CM_PARK
 * (q->resume_ns says for how long) and CM_FAULT (q->why, unless it has faulted already) do not.
 */
enum cm_result cm_inject_before(struct cm_queue *q);
/* After a slice of a copy: CM_PARK when it is slowed down, else CM_DONE. */
enum cm_result cm_inject_after_transfer(struct cm_queue *q);

#endif /* CM_INJECT_H */
