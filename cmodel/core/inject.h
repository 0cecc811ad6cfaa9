/* SPDX-License-Identifier: MIT */
/*
 * Fault injection: parses the commands of cm_inject() (cmodel.h) and applies them.
 *
 * A command arms an injection of a chip. The command processor checks before each op and each slice
 * of a copy whether one takes effect; chips without injections (cm_chip.injected) are skipped.
 * Threads: the leader, except for cm_inject_apply().
 */
#ifndef CM_INJECT_H
#define CM_INJECT_H

#include "queue.h"

/* cm_inject() for the chips chip[n]. */
int cm_inject_apply(struct cm_queues *qs, struct cm_chip *chip, unsigned n, const char *spec);
/* Ends all injections of the chip. */
void cm_inject_clear(struct cm_queues *qs, struct cm_chip *c);
/* Makes the chip work or hang, see cm_chip_stall(). */
void cm_inject_stall(struct cm_queues *qs, struct cm_chip *c, bool on);

/*
 * Call before a prepared op of the queue or a slice of its copy. CM_DONE: it may run; CM_PARK: not
 * before q->resume_ns; CM_FAULT: q->why has the reason, unless the queue has faulted already.
 */
enum cm_result cm_inject_before(struct cm_queue *q);
/* After a slice of a copy: CM_PARK when it is slowed down, else CM_DONE. */
enum cm_result cm_inject_after_transfer(struct cm_queue *q);

#endif /* CM_INJECT_H */
