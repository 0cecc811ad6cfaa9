/* SPDX-License-Identifier: MIT */
/*
 * A context: one opened backend, the chips that this process may use, events, the weights that its
 * models share.
 *
 * Ownership: every handle below a context holds a reference to it (directly or through its parent),
 * so the last handle released frees it. Devices live in the context and share its reference count.
 * Threads: fields are constant after txda_context_new() unless a lock is named.
 */
#ifndef TXDA_CONTEXT_H
#define TXDA_CONTEXT_H

#include <pthread.h>

#include "backend.h"
#include "device.h"
#include "events.h"
#include "monitor.h"
#include "spec.h"
#include "weights.h"

struct txda_context {
	atomic_uint refs;
	uint64_t id; /* unique in this process, never reused; > 0 */
	struct txda__backend *backend;
	/* increases when a chip is added; entries below the number are complete */
	atomic_uint n_devices;
	struct txda_device device[TXDA__MAX_CHIPS];
	char *visible; /* TXDA_VISIBLE_DEVICES, or NULL */
	/* CHIP_MAP: entries, or as n_devices when there is none */
	atomic_uint n_logical;
	unsigned logical[TXDA__MAX_CHIPS]; /* logical chip of a topology map -> device index */
	bool renamed;			   /* CHIP_MAP was given */
	char name[64];
	struct txda__events events;
	struct txda__weights_table weights;
	struct txda__monitor monitor;
};

/* ---- for a backend whose chips are hot-plugged; one thread at a time (events.h) -------------- */

/* The device with chip number @physical, or UINT32_MAX. */
unsigned txda__context_find(struct txda_context *context, unsigned physical);
/*
 * A chip was added: makes it a device if this process may see it. Returns its index, or UINT32_MAX.
 * If it has the number of a lost chip it takes over that device; objects still on the lost chip
 * stay lost.
 */
unsigned txda__context_admit(struct txda_context *context, const struct txda_device_info *info);

#endif /* TXDA_CONTEXT_H */
