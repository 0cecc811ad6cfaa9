/* SPDX-License-Identifier: MIT */
/*
 * Events of a context: a short ring and an eventfd that is readable while it holds something.
 *
 * When the ring is full, the oldest events are dropped: an event only says that something happened,
 * and the current state is queried elsewhere.
 * Threads: any function from any thread.
 */
#ifndef TXDA_EVENTS_H
#define TXDA_EVENTS_H

#include "context.h"

int txda__events_init(struct txda__events *events);
void txda__events_fini(struct txda__events *events);
/* Reports an event; any thread, including the one that takes the backend's events. */
void txda__event(struct txda_context *context, enum txda_event_kind kind, unsigned device,
		 const char *format, ...) TXDA__PRINTF(4, 5);

#endif /* TXDA_EVENTS_H */
