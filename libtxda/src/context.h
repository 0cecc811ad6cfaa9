/* SPDX-License-Identifier: MIT */
/*
 * A context: one opened backend, the chips that this process may use, events, the weights that its
 * models share.
 *
 * Ownership: every handle below a context holds a reference to it (directly or through its parent),
 * so that the last one to go frees it. Devices live in the context and share its reference count.
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
	uint64_t id;				/* of this process, never used again; > 0 */
	struct txda__backend *backend;
	unsigned n_devices;
	struct txda_device device[TXDA__MAX_CHIPS];
	/* CHIP_MAP: entries, or n_devices when there is none */
	unsigned n_logical;
	unsigned logical[TXDA__MAX_CHIPS];	/* logical chip of a topology map -> device index */
	bool renamed;				/* a CHIP_MAP was given */
	char name[64];
	struct txda__events events;
	struct txda__weights_table weights;
	struct txda__monitor monitor;
};

#endif /* TXDA_CONTEXT_H */
