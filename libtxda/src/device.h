/* SPDX-License-Identifier: MIT */
/*
 * A chip as seen by a context.
 *
 * Ownership: devices live in their context; a reference to a device is one to the context. The
 * address space is created when the first buffer or queue needs it.
 * Threads: @lock protects the members after it.
 */
#ifndef TXDA_DEVICE_H
#define TXDA_DEVICE_H

#include <pthread.h>

#include "backend.h"
#include "space.h"

struct txda_device {
	struct txda_context *context;
	unsigned index;	   /* index in this process */
	unsigned physical; /* physical number in the backend */
	pthread_mutex_t lock;
	struct txda__space *space; /* the current one (txda__space_get()), or NULL */
};

void txda__device_init(struct txda_device *device, struct txda_context *context, unsigned index,
		       unsigned physical);
void txda__device_fini(struct txda_device *device);

#endif /* TXDA_DEVICE_H */
