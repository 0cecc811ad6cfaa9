/* SPDX-License-Identifier: MIT */
/*
 * The command processor: takes the runnable queues in turn, decodes their packets, runs them.
 *
 * A turn runs one op, or a slice of a copy, or a few cheap packets. The layers below report the
 * result (enum cm_result): the packet continues in the queue's next turn, or the queue parks, waits
 * in a line of its group, or faults.
 *
 * Memory is hostile: each byte of a packet is read once, and the copy is checked.
 * Threads: the leader (lead.h).
 */
#ifndef CM_CP_H
#define CM_CP_H

#include "queue.h"

/* The callback of the lead: @queues is a struct cm_queues. False: no queue is runnable. */
bool cm_cp_turn(void *queues);

#endif /* CM_CP_H */
