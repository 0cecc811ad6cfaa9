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

#include <pthread.h>

#include "internal.h"

#define TXDA__EVENTS 64

struct txda__events {
	pthread_mutex_t lock;
	struct txda_event ring[TXDA__EVENTS];
	unsigned head, count; /* the oldest is ring[head] */
	int fd;		      /* an eventfd */
	/* protects what follows, and the backend while its events are taken; taken before @lock */
	pthread_mutex_t backend_lock;
	int both; /* epoll of @fd and the backend's events_fd, or -1 */
};

int txda__events_init(struct txda__events *events);
void txda__events_fini(struct txda__events *events);
/* Reports an event; any thread, including the one that takes the backend's events. */
void txda__event(struct txda_context *context, enum txda_event_kind kind, unsigned device,
		 const char *format, ...) TXDA__PRINTF(4, 5);

#endif /* TXDA_EVENTS_H */
