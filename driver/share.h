/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware queues that clients' queues take turns on.
 *
 * A queue made with DRM_TXDA_QUEUE_SHARE has a ring of its own (hwq.h) and is bound to one of
 * the shared hardware queues of its class only while it has work and its turn has come. At most
 * one job of it is on the ring, so that the hardware changes hands between two jobs: whoever has
 * it keeps it for TXDA_SHARE_SLICE_NS if others wait, and as long as it has work if nobody does;
 * who is next is decided by fair.h. A job whose turn has not come costs its client neither time
 * limit nor busy time. A job that others wait for may take no longer than its queue's time limit
 * from then on, whatever progress it makes.
 *
 *	state   on the chip          -> next
 *	none    no, unless it idled  -> moving: it waits, and was picked
 *	moving  on its way           -> idle: bound; -> none: its queue had died before it was
 *	idle    bound, nothing runs  -> busy: it has a job; -> none: another one was picked
 *	busy    a job is running     -> idle: it has ended, and no other goes on at once
 *
 * A work item of each class changes the hardware: nobody else binds or parks. It reaches the chip
 * as in txda_bars_try_enter(), so that it does nothing while the chip is reset: that ends all
 * queues.
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
/* Shared hardware queues of a class, at most. */
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
	/** @share: Where it takes turns; NULL: nowhere, it has a hardware queue for itself. */
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

	/** @slot: Who has them, NULL: nobody. Under @lock. */
	struct txda_hwq *slot[TXDA_SHARE_SLOTS];

	/** @work: Lets the next ones have them. */
	struct work_struct work;
};

void txda_shares_init(struct txda_device *tdev);
/* After txda_queues_lose(): no queue is left. */
void txda_shares_fini(struct txda_device *tdev);

/* A parked hardware queue of a client's queue takes turns from now on, until it is put. */
void txda_share_add(struct txda_hwq *hwq, struct txda_fair_user *user, u32 weight);
void txda_share_remove(struct txda_hwq *hwq);

/*
 * Whether it may run its next job now; then it is busy. Else it waits for its turn. No job of it is
 * on the ring. Always true for one that does not share.
 */
bool txda_share_start(struct txda_hwq *hwq);
/* Its job has left the ring after @ns there. It calls start or rest next. */
void txda_share_end(struct txda_hwq *hwq, u64 ns);
/* It has no other job at the moment. */
void txda_share_rest(struct txda_hwq *hwq);

/*
 * It is bound to its slot now, or was all the time; or it is not because its queue is dead. Under
 * hw_lock.
 */
void txda_share_settle(struct txda_hwq *hwq, bool bound);

/*
 * Whether the user must be remembered although it has no queue any more: it is ahead of others that
 * have work.
 */
bool txda_share_holds(struct txda_share *share, const struct txda_fair_user *user);

/* For how long the first of those that wait for the same hardware has, 0: nobody does. */
u64 txda_share_wanted_ns(struct txda_hwq *hwq);

#endif /* TXDA_SHARE_H */
