// SPDX-License-Identifier: GPL-2.0
#include "share.h"

#include <linux/dma-fence.h>
#include <linux/ktime.h>

#include "device.h"
#include "fence.h"
#include "hwq.h"
#include "queue.h"
#include "reset.h"

/**
 * struct txda_handover - A slot that gets another owner.
 */
struct txda_handover {
	/** @slot: Its number. */
	u32 slot;

	/** @from: Its owner; NULL: none, or @to. Valid while @from_queue owns it. */
	struct txda_hwq *from;

	/** @from_queue: The queue of @from, with a reference. */
	struct txda_queue *from_queue;

	/** @to: The next owner. Valid while @to_queue owns it. */
	struct txda_hwq *to;

	/** @to_queue: The queue of @to, with a reference. */
	struct txda_queue *to_queue;
};

/* ---- Slots ---------------------------------------------------------------------------------- */

/* The slot that it has; share->count: none. */
static u32 txda_share_slot_of(const struct txda_share *share, const struct txda_hwq *hwq)
{
	u32 i;

	lockdep_assert_held(&share->lock);
	for (i = 0; i < share->count && share->slot[i] != hwq; i++)
		;
	return i;
}

static void txda_share_free_slot(struct txda_share *share, const struct txda_hwq *hwq)
{
	u32 slot = txda_share_slot_of(share, hwq);

	if (slot < share->count)
		share->slot[slot] = NULL;
}

/*
 * A slot where nothing runs, preferably one without an owner, or whose owner has no work;
 * share->count: there is none.
 */
static u32 txda_share_find_slot(const struct txda_share *share)
{
	u32 i, best = txda_share_slot_of(share, NULL);
	bool rests;

	if (best < share->count)
		return best;
	for (i = 0; i < share->count; i++) {
		if (share->slot[i]->turn.state != TXDA_TURN_IDLE)
			continue;
		rests = list_empty(&share->slot[i]->turn.fair.link);
		if (rests || best == share->count)
			best = i;
		if (rests)
			break;
	}
	return best;
}

/* ---- Turns ---------------------------------------------------------------------------------- */

/* Call when a queue begins to wait, and when a slot may have become free. */
static void txda_share_kick(struct txda_share *share)
{
	lockdep_assert_held(&share->lock);
	if (!txda_fair_is_empty(&share->fair) && txda_share_find_slot(share) < share->count)
		queue_work(txda_wq, &share->work);
}

static void txda_share_wait(struct txda_hwq *hwq)
{
	struct txda_share *share = hwq->turn.share;

	lockdep_assert_held(&share->lock);
	if (list_empty(&hwq->turn.fair.link))
		hwq->turn.waits_ns = ktime_get_ns();
	txda_fair_wait(&share->fair, &hwq->turn.fair);
	txda_share_kick(share);
}

/* Its job has left the ring: the slot is available unless its next job follows at once. */
static void txda_share_idle(struct txda_turn *turn)
{
	lockdep_assert_held(&turn->share->lock);
	if (turn->state == TXDA_TURN_BUSY)
		turn->state = TXDA_TURN_IDLE;
}

bool txda_share_start(struct txda_hwq *hwq)
{
	struct txda_turn *turn = &hwq->turn;
	struct txda_share *share = turn->share;
	bool go;

	if (!share)
		return true;
	spin_lock(&share->lock);
	txda_share_idle(turn);
	go = turn->state == TXDA_TURN_IDLE &&
	     (txda_fair_is_empty(&share->fair) ||
	      ktime_get_ns() - turn->since_ns < TXDA_SHARE_SLICE_NS);
	if (go)
		turn->state = TXDA_TURN_BUSY;
	else if (turn->state != TXDA_TURN_MOVING)
		txda_share_wait(hwq);
	spin_unlock(&share->lock);
	return go;
}

void txda_share_end(struct txda_hwq *hwq, u64 ns)
{
	struct txda_turn *turn = &hwq->turn;
	struct txda_share *share = turn->share;

	if (!share)
		return;
	spin_lock(&share->lock);
	txda_fair_charge(&share->fair, &turn->fair, ns);
	spin_unlock(&share->lock);
}

void txda_share_rest(struct txda_hwq *hwq)
{
	struct txda_share *share = hwq->turn.share;

	if (!share)
		return;
	spin_lock(&share->lock);
	txda_fair_leave(&hwq->turn.fair);
	txda_share_idle(&hwq->turn);
	txda_share_kick(share);
	spin_unlock(&share->lock);
}

void txda_share_settle(struct txda_hwq *hwq, bool bound)
{
	struct txda_turn *turn = &hwq->turn;
	struct txda_share *share = turn->share;

	spin_lock_irq(&share->lock);
	turn->state = bound ? TXDA_TURN_IDLE : TXDA_TURN_NONE;
	turn->since_ns = ktime_get_ns();
	if (!bound)
		txda_share_free_slot(share, hwq);
	spin_unlock_irq(&share->lock);
}

bool txda_share_holds(struct txda_share *share, const struct txda_fair_user *user)
{
	bool work, holds;
	u32 i;

	spin_lock_irq(&share->lock);
	work = !txda_fair_is_empty(&share->fair);
	for (i = 0; i < share->count; i++)
		work |= share->slot[i] && share->slot[i]->turn.state != TXDA_TURN_IDLE;
	holds = work && txda_fair_is_ahead(&share->fair, user);
	spin_unlock_irq(&share->lock);
	return holds;
}

u64 txda_share_wanted_ns(struct txda_hwq *hwq)
{
	struct txda_share *share = hwq->turn.share;
	u64 since = 0, now = ktime_get_ns();
	struct txda_turn *turn;

	if (!share)
		return 0;
	spin_lock_irq(&share->lock);
	turn = list_first_entry_or_null(&share->fair.waiting, struct txda_turn, fair.link);
	if (turn)
		since = turn->waits_ns;
	spin_unlock_irq(&share->lock);
	return turn && now > since ? now - since : 0;
}

/* ---- Handing over --------------------------------------------------------------------------- */

/* A hardware queue holds a reference to its owner until it is removed from here. */
static struct txda_queue *txda_share_owner(struct txda_hwq *hwq)
{
	struct txda_queue *queue = hwq->priv;

	txda_queue_get(queue);
	return queue;
}

static bool txda_share_choose(struct txda_share *share, struct txda_handover *ret)
{
	struct txda_fair_queue *next = NULL;
	struct txda_hwq *to;
	u32 slot;

	*ret = (struct txda_handover){};
	spin_lock_irq(&share->lock);
	slot = txda_share_find_slot(share);
	if (slot < share->count)
		next = txda_fair_pick(&share->fair);
	if (!next)
		goto out;

	to = container_of(next, struct txda_hwq, turn.fair);
	/* It keeps its slot if its slice is over and no other comes before it. */
	if (txda_share_slot_of(share, to) < share->count)
		slot = txda_share_slot_of(share, to);
	if (share->slot[slot] && share->slot[slot] != to) {
		ret->from = share->slot[slot];
		ret->from->turn.state = TXDA_TURN_NONE;
		ret->from_queue = txda_share_owner(ret->from);
	}
	share->slot[slot] = to;
	to->turn.state = TXDA_TURN_MOVING;
	ret->slot = slot;
	ret->to = to;
	ret->to_queue = txda_share_owner(to);
out:
	spin_unlock_irq(&share->lock);
	return next;
}

/* False: the chip refused, and will be reset. */
static bool txda_share_hand_over(struct txda_share *share, const struct txda_handover *handover)
{
	bool done = true;

	if (handover->from) {
		done = txda_queue_end_turn(handover->from_queue, handover->from);
		txda_queue_put(handover->from_queue);
	}
	if (!txda_queue_begin_turn(handover->to_queue, handover->to, done,
				   share->first + handover->slot))
		done = false;
	txda_queue_put(handover->to_queue);
	return done;
}

static void txda_share_work(struct work_struct *work)
{
	struct txda_share *share = container_of(work, struct txda_share, work);
	struct txda_handover handover;
	bool cookie = dma_fence_begin_signalling();
	int idx;

	if (!txda_bars_try_enter(share->tdev, &idx))
		goto out;
	/* One per section, so that the section stays short however many wait for turns. */
	if (txda_share_choose(share, &handover) && txda_share_hand_over(share, &handover)) {
		spin_lock_irq(&share->lock);
		txda_share_kick(share);
		spin_unlock_irq(&share->lock);
	}
	txda_bars_try_exit(share->tdev, idx);
out:
	dma_fence_end_signalling(cookie);
}

/* ---- Lifetime ------------------------------------------------------------------------------- */

void txda_share_add(struct txda_hwq *hwq, struct txda_fair_user *user, u32 weight)
{
	txda_fair_queue_init(&hwq->turn.fair, user, weight);
	hwq->turn.share = &hwq->tdev->shares[hwq->class];
}

void txda_share_remove(struct txda_hwq *hwq)
{
	struct txda_share *share = hwq->turn.share;

	if (!share)
		return;
	spin_lock_irq(&share->lock);
	txda_fair_leave(&hwq->turn.fair);
	txda_share_free_slot(share, hwq);
	txda_share_kick(share);
	spin_unlock_irq(&share->lock);
}

void txda_shares_init(struct txda_device *tdev)
{
	u32 i;

	for (i = 0; i < TXDA_CLASS_COUNT; i++) {
		struct txda_share *share = &tdev->shares[i];

		share->tdev = tdev;
		share->first = i == TXDA_CLASS_COPY ? tdev->compute_queues : 0;
		share->first += txda_hwqs_own(tdev, i);
		share->count = txda_hwqs_shared(tdev, i);
		spin_lock_init(&share->lock);
		txda_fair_init(&share->fair);
		INIT_WORK(&share->work, txda_share_work);
	}
}

void txda_shares_fini(struct txda_device *tdev)
{
	u32 i;

	for (i = 0; i < TXDA_CLASS_COUNT; i++)
		disable_work_sync(&tdev->shares[i].work);
}
