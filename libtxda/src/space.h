/* SPDX-License-Identifier: MIT */
/*
 * An address space of a chip: its addresses, and the group slots in it.
 *
 * A device has one at a time. When it is lost, because the chip was reset including its memory or
 * another chip has taken its place, the device starts a new one; objects in the old one fail from
 * then on, and it is freed with the last of them.
 * Ownership: reference-counted; the device and every object with an address in it hold references.
 * A holder of a reference also holds the context.
 * Threads: any function from any thread.
 */
#ifndef TXDA_SPACE_H
#define TXDA_SPACE_H

#include <pthread.h>

#include "backend.h"
#include "vas.h"

#define TXDA__GROUP_SLOTS 16

struct txda_device;

/* How far a queue has come; part of it. */
struct txda__progress {
	struct txda__progress *next; /* in the space, under its lock */
	const uint64_t *word;	     /* the last fence that has passed; the chip writes it */
	atomic_uint_fast64_t last;   /* the last fence that was given out */
	uint64_t mark;		     /* under the space's lock: see txda__space_release() */
	atomic_bool ended;	     /* by a fault: what is queued never runs */
};

/* Addresses that were taken. */
struct txda__range {
	struct txda__range *next; /* released ones, under the space's lock */
	uint64_t va, bytes;
};

struct txda__space {
	atomic_uint refs;
	struct txda_context *context;
	unsigned index; /* of the device */
	struct txda__vm *vm;
	pthread_mutex_t lock; /* protects what follows */
	struct txda__vas vas;
	struct txda__progress *queues;
	struct txda__range *marked; /* released, in use until the queues have passed their marks */
	struct txda__range *released; /* after the marks were set */
	unsigned group_slots;	      /* bit i: slot i is taken */
	unsigned leaving;	      /* by a group that could not be left yet */
};

/* The device's current space, created if necessary, with a reference. */
int txda__space_get(struct txda_device *device, struct txda__space **ret_space);
struct txda__space *txda__space_ref(struct txda__space *space);
void txda__space_put(struct txda__space *space);
/* Allocates @bytes aligned to @align. -ENOMEM, with a message recorded. */
int txda__space_take(struct txda__space *space, uint64_t bytes, uint64_t align,
		     struct txda__range **ret_range);
/*
 * The addresses are taken again only when everything that is in the space's queues now has passed:
 * a queued stream that uses them faults instead of reaching another buffer.
 */
void txda__space_release(struct txda__space *space, struct txda__range *range);
/* A queue of the space begins, or has ended; its @word and @last are set. */
void txda__space_add_queue(struct txda__space *space, struct txda__progress *queue);
void txda__space_remove_queue(struct txda__space *space, struct txda__progress *queue);
/*
 * Makes the spaces, of different chips and ordered by rank, a group of their own in a slot that is
 * free in all of them. -EBUSY: none is.
 */
int txda__spaces_join(struct txda__space *const *space, unsigned n, unsigned *ret_slot);
/*
 * A member leaves; call when the last queue of the group that ran in it is gone. While other work of
 * a member is in flight the driver may keep the group: the slot stays taken, and the next join or
 * leave tries again.
 */
void txda__space_leave(struct txda__space *space, unsigned slot);

#endif /* TXDA_SPACE_H */
