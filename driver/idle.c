// SPDX-License-Identifier: GPL-2.0
/* Which buffers are in use, which are idle, and the order in which these lose their memory. */
#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/lockdep.h>
#include <linux/mm.h>

#include "evict.h"
#include "gem.h"
#include "vram.h"

/* ---- Pins ----------------------------------------------------------------------------------- */

bool txda_bo_pin(struct txda_bo *bo)
{
	return atomic_inc_unless_negative(&bo->pins);
}

void txda_bo_pin_more(struct txda_bo *bo)
{
	WARN_ON_ONCE(atomic_fetch_inc(&bo->pins) <= 0);
}

void txda_bo_unpin(struct txda_bo *bo)
{
	WARN_ON_ONCE(atomic_fetch_dec(&bo->pins) <= 0);
}

bool txda_bo_is_idle(const struct txda_bo *bo)
{
	/* Pairs with the release when it stops being idle. */
	return atomic_read_acquire(&bo->pins) < 0;
}

/* ---- Lists ---------------------------------------------------------------------------------- */

void txda_idle_init(struct txda_evict *evict)
{
	enum txda_idle idle;

	for (idle = 0; idle < TXDA_IDLE_COUNT; idle++)
		INIT_LIST_HEAD(&evict->idle[idle]);
}

/* Adds device memory that can be taken, or with @sign -1 takes it away. */
static void txda_idle_count(struct txda_evict *evict, const struct txda_bo *bo, s64 sign)
{
	evict->bytes += sign * bo->base.size;
	evict->mappable += sign * bo->vram->mappable;
}

static void txda_idle_add(struct txda_evict *evict, struct txda_bo *bo)
{
	enum txda_idle idle;

	/* Its memory was taken already. */
	if (!bo->runs)
		return;
	if (bo->kind == TXDA_BO_DEVICE)
		idle = bo->advice == DRM_TXDA_COLD ? TXDA_IDLE_COLD : TXDA_IDLE_DEVICE;
	else if (bo->advice == DRM_TXDA_DONTNEED)
		idle = TXDA_IDLE_HOST;
	else
		return;
	list_add_tail(&bo->idle_link, &evict->idle[idle]);
	if (idle == TXDA_IDLE_HOST)
		WRITE_ONCE(evict->pages, evict->pages + (bo->base.size >> PAGE_SHIFT));
	else
		txda_idle_count(evict, bo, 1);
}

void txda_idle_del(struct txda_evict *evict, struct txda_bo *bo)
{
	lockdep_assert_held(&evict->lock);

	if (list_empty(&bo->idle_link))
		return;
	list_del_init(&bo->idle_link);
	if (bo->kind == TXDA_BO_HOST)
		WRITE_ONCE(evict->pages, evict->pages - (bo->base.size >> PAGE_SHIFT));
	else
		txda_idle_count(evict, bo, -1);
}

static int txda_idle_try_list(struct list_head *list, txda_idle_fn take, void *arg)
{
	struct txda_bo *bo, *next;
	LIST_HEAD(stay);
	int err = -ENOENT;

	list_for_each_entry_safe(bo, next, list, idle_link) {
		err = take(bo, arg);
		if (err == -ENOENT)
			continue;
		/* There may be room for a smaller one, or one of another control group. */
		if (err != -ENOMEM && err != -ENOSPC)
			break;
		list_move_tail(&bo->idle_link, &stay);
	}
	/* They are tried last from now on. */
	list_splice_tail(&stay, list);

	return err;
}

bool txda_idle_try(struct txda_evict *evict, txda_idle_fn take, void *arg)
{
	lockdep_assert_held(&evict->lock);

	return !txda_idle_try_list(&evict->idle[TXDA_IDLE_DEVICE], take, arg) ||
	       !txda_idle_try_list(&evict->idle[TXDA_IDLE_COLD], take, arg);
}

/* ---- States --------------------------------------------------------------------------------- */

int txda_idle_begin(struct txda_evict *evict, struct txda_bo *bo, u32 advice)
{
	int pins = atomic_cmpxchg(&bo->pins, TXDA_BO_IDLE, TXDA_BO_CHANGING);

	if (pins != TXDA_BO_IDLE) {
		if (pins >= 0 && advice == DRM_TXDA_WILLNEED)
			return 0;
		if (pins || atomic_cmpxchg(&bo->pins, 0, TXDA_BO_CHANGING))
			return -EBUSY;
	}

	mutex_lock(&evict->lock);
	txda_idle_del(evict, bo);
	mutex_unlock(&evict->lock);
	return 1;
}

void txda_idle_enter(struct txda_evict *evict, struct txda_bo *bo, u32 advice)
{
	WRITE_ONCE(bo->advice, advice);
	mutex_lock(&evict->lock);
	txda_idle_add(evict, bo);
	atomic_set_release(&bo->pins, TXDA_BO_IDLE);
	mutex_unlock(&evict->lock);
}

void txda_idle_end(struct txda_bo *bo)
{
	WRITE_ONCE(bo->advice, DRM_TXDA_WILLNEED);
	atomic_set_release(&bo->pins, 0);
}
