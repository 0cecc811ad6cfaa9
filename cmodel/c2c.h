/* SPDX-License-Identifier: MIT */
/*
 * Collectives: the members of a group meet.
 *
 * A group is known to the machine by the id that cm_vm_set_group() gave; its members are address
 * spaces, one a rank. A queue that comes to a collective (a packet, or an op of a program) joins
 * the line of its rank and is parked. When each rank's line has someone, the first of each are one
 * meeting: the thread that leads then checks that they agree, does the work of all ranks on the
 * pool and makes the queues runnable.
 *
 * A queue that faults or is freed in mid-stream cannot come to the meetings that others wait for,
 * so the queues that wait in its groups fault too. As long as a faulted queue of a group is
 * alive the group stays closed: who arrives later faults at once. It opens when the last of them is
 * freed.
 *
 * Threads: all by the leader.
 */
#ifndef CM_C2C_H
#define CM_C2C_H

#include "internal.h"

struct cm_group {
	struct cm_group *next;
	uint64_t id;
	unsigned size;
	struct cm_vm *member[TXDA_MAX_GROUP];
	unsigned members;		       /* group slots that refer to this */
	unsigned poisoned;		       /* faulted queues of its members that are alive */
	struct cm_queue *line[TXDA_MAX_GROUP]; /* who waits, first come first */
};

/* The group in a slot of the queue's address space, if there is one; marks the queue as its user.
 */
const struct cm_group_slot *cm_c2c_group(struct cm_queue *q, uint32_t slot);

/* Comes to the collective packet in q->pkt: CM_DONE, CM_PARK or CM_FAULT. */
enum cm_result cm_c2c_packet(struct cm_queue *q);
/* Comes to the collective op in q->context->launch, whose tensors are set: likewise. */
enum cm_result cm_c2c_op(struct cm_queue *q);

/* The queue has faulted. */
void cm_c2c_poison(struct cm_queue *q);
/* The queue goes away. */
void cm_c2c_leave(struct cm_queue *q);
/* The address space goes away or its slot is set anew. */
void cm_c2c_unset(struct cm_vm *vm, unsigned slot);

#endif /* CM_C2C_H */
