/* SPDX-License-Identifier: MIT */
/*
 * Which queues are runnable: sets of queue slots, one bit each.
 *
 *	active   to be checked: something was submitted, or it continues its work
 *	parked   waits for memory to change or for a time to come
 *	neither  empty, faulted, or in line for a collective (c2c.h)
 *
 * The slot that has had the least time is next; equal ones take turns. An op or a slice of a copy
 * takes from microseconds to milliseconds, and turns alone would leave a queue of short ops next to
 * nothing beside one of long copies. Time is charged while several queues are active, and weighted
 * by priority: a step is worth eight times as much. A queue that was idle starts at the level of the
 * others. A slot is held back for at most CM_READY_LEAD_NS, however far ahead it is, so that each
 * makes progress.
 *
 * Threads: any thread activates a slot, sets @repoll or checks whether something is pending;
 * everything else is called by the leader (lead.h). Times are CLOCK_MONOTONIC in nanoseconds.
 */
#ifndef CM_READY_H
#define CM_READY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cmodel.h"
#include "host.h"

#define CM_MAX_QUEUES  1024 /* alive on one machine */
#define CM_QUEUE_WORDS (CM_MAX_QUEUES / 64)
#define CM_NO_SLOT     UINT32_MAX

#define CM_READY_LEAD_NS 20000000ull /* of normal priority */

struct cm_ready {
	_Alignas(CM_CACHE_LINE) _Atomic uint64_t active[CM_QUEUE_WORDS];
	/*
	 * A word may have changed that a parked queue waits for. Counts as pending work: a leader
	 * that sets it may give up the lead before it checks.
	 */
	_Atomic uint32_t repoll;
	_Atomic uint32_t n_parked; /* stored by the leader */
	_Atomic uint64_t timer_ns; /* the next queue resumes then; 0: none. Stored by the leader */

	/* leader */
	uint64_t parked[CM_QUEUE_WORDS];
	unsigned n_words;   /* of @active: the slots behind were never used */
	unsigned next_slot; /* round robin */
	uint64_t level;	    /* @time of the slot that had the last turn */
	uint8_t priority[CM_MAX_QUEUES];
	/* In nanoseconds of normal priority. One that is behind @level starts there. */
	uint64_t time[CM_MAX_QUEUES];
};

/* The queue may be runnable. Any thread. */
static inline void cm_ready_activate(struct cm_ready *r, unsigned slot)
{
	atomic_fetch_or(&r->active[slot / 64], 1ull << slot % 64);
}

/* Takes it out of the active set; the caller looks for new work afterwards. */
static inline void cm_ready_deactivate(struct cm_ready *r, unsigned slot)
{
	atomic_fetch_and(&r->active[slot / 64], ~(1ull << slot % 64));
}

/* Not runnable until memory changes or one of these times comes (0, UINT64_MAX: no time). */
void cm_ready_park(struct cm_ready *r, unsigned slot, uint64_t resume_ns, uint64_t poll_ns);
/* Removes it from all sets. */
void cm_ready_forget(struct cm_ready *r, unsigned slot);
/* Before the slot is used, and when its priority changes; it starts level with the others. */
void cm_ready_rank(struct cm_ready *r, unsigned slot, enum cm_queue_priority priority);
/* Memory was written that parked queues may wait for. */
void cm_ready_wrote(struct cm_ready *r);
/*
 * The slot whose turn it is, no longer parked; CM_NO_SLOT: none is runnable. *@ret_shared: others are
 * active, too, and the time of its turn is to be charged.
 */
unsigned cm_ready_next(struct cm_ready *r, bool *ret_shared);
/* The slot had its turn for @ns. */
void cm_ready_charge(struct cm_ready *r, unsigned slot, uint64_t ns);
/* Whether cm_ready_next() is worth calling. Any thread. */
bool cm_ready_pending(struct cm_ready *r);

#endif /* CM_READY_H */
