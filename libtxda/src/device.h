/* SPDX-License-Identifier: MIT */
/*
 * Devices, the chips as seen by a context (struct txda_device).
 *
 * Ownership: devices live in their context; a reference to a device is one to the context. The
 * address space is created when the first buffer or queue needs it.
 */
#ifndef TXDA_DEVICE_H
#define TXDA_DEVICE_H

#include "context.h"

void txda__device_init(struct txda_device *device, struct txda_context *context, unsigned index,
		       unsigned physical);
void txda__device_fini(struct txda_device *device);

#endif /* TXDA_DEVICE_H */
