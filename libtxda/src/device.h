/* SPDX-License-Identifier: MIT */
/*
 * A chip as a context sees it: its address space and the group slots in it.
 *
 * Ownership: devices live in their context; a reference to a device is one to the context. The
 * address space is made when the first buffer or queue wants it and lives as long as the context.
 * Threads: @lock guards what follows it.
 */
#ifndef TXDA_DEVICE_H
#define TXDA_DEVICE_H

#include <pthread.h>

#include "backend.h"
#include "vas.h"

#define TXDA__GROUP_SLOTS 16

struct txda_device {
	struct txda_context *context;
	unsigned index;			/* of this process */
	unsigned physical;		/* of the backend */
	pthread_mutex_t lock;
	struct txda__vm *vm;
	unsigned users;			/* threads that are about to put something into it */
	struct txda__vas vas;
	unsigned group_slots;		/* bit i: slot i is taken */
};

void txda__device_init(struct txda_device *device, struct txda_context *context, unsigned index,
		       unsigned physical);
void txda__device_fini(struct txda_device *device);
/* Drops the address space if nothing is in it; false if something is. */
bool txda__device_vacate(struct txda_device *device);
/*
 * The address space, made if need be. Until txda__device_put() it stays, also when nothing is in it
 * yet.
 */
int txda__device_vm(struct txda_device *device, struct txda__vm **ret_vm);
void txda__device_put(struct txda_device *device);
/*
 * Makes the chips, rank by rank, a group of their own in a slot that is free on all. -EBUSY: none
 * is.
 */
int txda__devices_join(struct txda_device *const *device, unsigned n, unsigned *ret_slot);
/* One chip leaves; when it was the last queue of the group that ran here. */
void txda__device_leave(struct txda_device *device, unsigned slot);

#endif /* TXDA_DEVICE_H */
