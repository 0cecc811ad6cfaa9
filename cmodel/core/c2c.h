/* SPDX-License-Identifier: MIT */
/*
 * C2C groups: matches the members of collectives.
 *
 * A group is known to the machine by the id that cm_vm_set_group() gave. Its ranks are address
 * spaces, its members their queues. A member that reaches a collective (a packet, or an op of a
 * program) joins the queue of its rank, its line. When every line has a member, the first of each
 * form a meeting: the caller takes it, checks that they agree, does the work of all ranks and lets
 * them continue. This layer only maintains the lines.
 *
 * A member that faults or is freed in the middle of a stream cannot reach the meetings that others
 * wait for, so the members that wait in its groups fail too. While a faulted member of a group is
 * alive the group stays closed: members that arrive later fail at once. It opens when the last of
 * them is freed.
 *
 * Ownership: a member is part of a queue (queue.h). A group exists while an address space has it in
 * a slot.
 * Threads: all by the leader, but cm_vm_set_group().
 */
#ifndef CM_C2C_H
#define CM_C2C_H

#include <stdbool.h>
#include <stdint.h>

#include "mmu.h"

struct cm_group {
	struct cm_c2c *c2c;
	struct cm_group *next;
	uint64_t id;
	unsigned size;
	struct cm_vm *rank[TXDA_MAX_GROUP];
	unsigned ranks;				/* group slots that refer to this */
	unsigned poisoned;			/* faulted members that are alive */
	struct cm_member *line[TXDA_MAX_GROUP]; /* waiting members, first come first served */
};

/* State shared by the groups of a machine. */
struct cm_c2c {
	struct cm_group *groups;
	/* A member that waited in group @id fails through no fault of its own. */
	void (*fail)(struct cm_member *member, uint64_t id);
};

struct cm_member {
	struct cm_c2c *c2c;
	struct cm_vm *vm;
	struct cm_member *next;	  /* of the address space */
	struct cm_member *behind; /* in the line */
	struct cm_group *waits_in;
	uint32_t used; /* groups that it has used, one bit per slot of the address space */
	bool met;      /* the meeting that it waited for is over; set by the thread that ran it */
	bool poisoned; /* it has faulted after it used groups */
};

void cm_c2c_join(struct cm_c2c *c2c, struct cm_member *m, struct cm_vm *vm); /* a new member */
/* The member is removed. @unfinished: it has work, for which others may wait. */
void cm_c2c_leave(struct cm_member *m, bool unfinished);
/* The member has faulted. */
void cm_c2c_poison(struct cm_member *m);
/* The chip is lost: all that wait for a member on it fail. */
void cm_c2c_lose(struct cm_c2c *c2c, const struct cm_chip *c);
/* The address space is removed, or its slot is about to be set. */
void cm_c2c_unset(struct cm_vm *vm, unsigned slot);

/* The group in a slot of the member's address space, which counts as used now; NULL: none. */
const struct cm_group_slot *cm_c2c_group(struct cm_member *m, uint32_t slot);
/* Joins the line of its rank; false: a member is known not to arrive, so no meeting is possible. */
bool cm_c2c_arrive(struct cm_member *m, const struct cm_group_slot *slot);
/* Takes the first of each line into ret[size], by rank; false: some line is empty. */
bool cm_c2c_meeting(struct cm_group *g, struct cm_member **ret);

/* cm_vm_set_group(). */
int cm_c2c_set_group(struct cm_c2c *c2c, struct cm_vm *vm, unsigned slot, uint64_t id,
		     unsigned rank, unsigned size);

#endif /* CM_C2C_H */
