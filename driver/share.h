/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware queues that clients' queues take turns on.
 *
 * A queue made with DRM_TXDA_QUEUE_SHARE has a ring of its own (hwq.h) and is bound to one of
 * the shared hardware queues of its class only while it has work and its turn has come. At most
 * one job of it is on the ring, so that the hardware queue can be rebound between two jobs. A queue
 * keeps it for TXDA_SHARE_SLICE_NS if others wait, and as long as it has work if none does; fair.h
 * decides which is next. While a job waits for its turn, neither its time limit nor its busy time
 * runs. If others wait for the hardware queue, the running job must end within its queue's time
 * limit from then on, whatever progress it makes.
 *
 *	state   on the chip          -> next
 *	none    no, unless it idled  -> moving: it waits, and was picked
 *	moving  being bound          -> idle: bound; -> none: its queue had died before it was
 *	idle    bound, nothing runs  -> busy: it has a job; -> none: another one was picked
 *	busy    a job is running     -> idle: the job has ended, and no other follows at once
 *
 * Only a work item of each class binds and parks. It accesses the chip within
 * txda_bars_try_enter(), so it does nothing during a chip reset, which ends all queues anyway.
 *
 * Threads: start, end and rest are called with txda_queue.lock held, the rest may sleep.
 */
#ifndef TXDA_SHARE_H
#define TXDA_SHARE_H

#include <linux/spinlock.h>
#include <linux/time64.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "fair.h"

struct txda_device;
struct txda_hwq;

#define TXDA_SHARE_SLICE_NS (10 * NSEC_PER_MSEC)
/* The maximum number of shared hardware queues of a class. */
#define TXDA_SHARE_SLOTS 2
/*
 * Jobs that the scheduler releases at once: one runs, the next is there when it ends.
 */
#define TXDA_SHARE_DEPTH 2

enum txda_turn_state {
	TXDA_TURN_NONE,
	TXDA_TURN_MOVING,
	TXDA_TURN_IDLE,
	TXDA_TURN_BUSY,
};

/**
 * struct txda_turn - The turns of one hardware queue's owner. Under txda_share.lock.
 */
struct txda_turn {
	/** @share: Where it takes turns; NULL: it has a hardware queue for itself. */
	struct txda_share *share;

	/** @state: See above. */
	enum txda_turn_state state;

	/** @fair: Its share of the time. */
	struct txda_fair_queue fair;

	/** @since_ns: When its slice began. */
	u64 since_ns;

	/** @waits_ns: When it began to wait. */
	u64 waits_ns;
};

/**
 * struct txda_share - The shared hardware queues of a class.
 */
struct txda_share {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @first: Number of the first of them. */
	u32 first;

	/** @count: How many there are, at most TXDA_SHARE_SLOTS. */
	u32 count;

	/** @lock: Inside txda_queue.lock; taken in hard interrupt context. */
	spinlock_t lock;

	/** @fair: Those that wait. Under @lock. */
	struct txda_fair fair;

	/** @slot: The one bound to each of them, or NULL. Under @lock. */
	struct txda_hwq *slot[TXDA_SHARE_SLOTS];

	/** @work: Binds the next ones. */
	struct work_struct work;
};

void txda_shares_init(struct txda_device *tdev);
/* After txda_queues_lose(): no queue is left. */
void txda_shares_fini(struct txda_device *tdev);

/* A parked hardware queue of a client's queue takes turns from now on, until it is put. */
void txda_share_add(struct txda_hwq *hwq, struct txda_fair_user *user, u32 weight);
void txda_share_remove(struct txda_hwq *hwq);

/*
 * Whether it may run its next job now; then it is busy. Else it waits for its turn. Call when no
 * job of it is on the ring. Always true for one that does not share.
 */
bool txda_share_start(struct txda_hwq *hwq);
/* Its job has left the ring after @ns there. The caller calls start or rest next. */
void txda_share_end(struct txda_hwq *hwq, u64 ns);
/* It has no further job at the moment. */
void txda_share_rest(struct txda_hwq *hwq);

/* Ends TXDA_TURN_MOVING: @bound, or its queue is dead. Under hw_lock. */
void txda_share_settle(struct txda_hwq *hwq, bool bound);

/*
 * Whether the user must be remembered although it has no queue any more: it is ahead of others that
 * have work.
 */
bool txda_share_holds(struct txda_share *share, const struct txda_fair_user *user);

/* How long the longest wait for the same hardware queue has lasted; 0: nobody waits. */
u64 txda_share_wanted_ns(struct txda_hwq *hwq);

#endif /* TXDA_SHARE_H */
