/* SPDX-License-Identifier: MIT */
/*
 * Leadership: which thread decodes packets and distributes work.
 *
 * Leadership is the one big lock of the machine. Only the leader runs work, and fields that other
 * headers mark "leader" are its alone. It is taken by try-lock in the hot path and never waited for
 * there. A control operation (unmap, free, inject) waits for it with cm_pause(), which makes the
 * leader give up the lead after the running op.
 *
 * The workers of the pool spin for a while when there is nothing to do, and each takes the lead
 * when it is free and a queue has work. A thread in cm_wait() takes it too, and a worker that leads
 * gives it up, so that at most one thread per core is busy and a synchronous caller runs its own
 * work without a wake-up. When that thread leaves while there is work, a spinning worker takes over
 * at once; if all of them sleep, one is woken.
 *
 * No wake-up is lost: a thread that makes work (a submission, a kick, giving up the lead) first
 * publishes it, then checks whether a thread is awake; a thread that goes to sleep first announces
 * that, then checks for work.
 *
 * This layer knows no queues: what the leader does in a turn is a callback.
 */
#ifndef CM_LEAD_H
#define CM_LEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool.h"
#include "ready.h"

enum cm_lead_state {
	CM_LEAD_FREE = 0,
	CM_LEAD_HELD = 1,
	CM_LEAD_CONTENDED = 2, /* held, and a cm_pause() sleeps for it */
};

struct cm_lead {
	struct cm_pool *pool;
	struct cm_ready *ready;
	/* Runs one op or a few cheap packets of the next runnable queue; false: none is runnable. */
	bool (*turn)(void *arg);
	void *turn_arg;

	_Alignas(CM_CACHE_LINE) _Atomic uint32_t state; /* enum cm_lead_state; futex */
	_Atomic uint32_t pausers;			/* threads in cm_pause() */
	_Atomic uint32_t takers; /* threads in cm_lead_wait() that spin for leadership */
	_Atomic bool stop;
	unsigned pause_depth;  /* leader: calls of cm_pause() within its lead */
	struct cm_lead *outer; /* leader: another machine that the same thread leads */

	_Alignas(CM_CACHE_LINE) _Atomic uint32_t event; /* futex of cm_lead_wait() */
	_Atomic uint32_t sleepers;			/* threads that sleep there */
};

/* Starts the workers of the pool; 0 or -errno. */
int cm_lead_start(struct cm_lead *l, struct cm_pool *pool, struct cm_ready *ready,
		  bool (*turn)(void *arg), void *turn_arg);
/* Stops and joins the workers that were started, if any. */
void cm_lead_stop(struct cm_lead *l);

/*
 * Stops the machine between two ops: the caller is the leader until cm_resume(). Nests, and is a
 * no-op in callbacks, which the leader makes. The only lock of the model that may be held at the
 * call is vm->map_lock.
 */
void cm_pause(struct cm_lead *l);
void cm_resume(struct cm_lead *l);

/* Work was published: makes sure that a thread runs it. */
void cm_lead_notify(struct cm_lead *l);
/* A fence was stored or a queue has faulted: wakes the sleepers of cm_lead_wait(). */
void cm_lead_wake_waiters(struct cm_lead *l);
/* The embedder changed memory that parked queues or waiting threads may poll. */
void cm_lead_kick(struct cm_lead *l);

/* cm_wait(); @failed: ends the wait with -EIO when it is not 0 any more, NULL: nothing does. */
int cm_lead_wait(struct cm_lead *l, _Atomic uint32_t *failed, const uint64_t *word, uint64_t value,
		 uint64_t deadline_ns);

#endif /* CM_LEAD_H */
