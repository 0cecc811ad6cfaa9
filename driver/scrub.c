// SPDX-License-Identifier: GPL-2.0
#include "scrub.h"

#include <linux/sizes.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>

#include "device.h"
#include "reset.h"
#include "vram.h"

/* Freed memory is often reused at once, and then would be cleared twice. */
#define TXDA_SCRUB_DELAY (HZ / 5)
#define TXDA_SCRUB_BYTES SZ_64M
/* Smaller blocks are cleared when they are allocated. */
#define TXDA_SCRUB_LEAST SZ_64K

/*
 * Memory that was freed and not cleared. The allocator prefers cleared blocks to smaller dirty
 * ones, so the size is reduced until a dirty one is found. NULL: there is none.
 */
static struct txda_vram_block *txda_scrub_take(struct txda_device *tdev, unsigned int flags)
{
	struct txda_vram_block *block;
	u64 bytes;

	flags |= TXDA_VRAM_SCRUB | TXDA_VRAM_NO_SAVE;
	for (bytes = TXDA_SCRUB_BYTES; bytes >= TXDA_SCRUB_LEAST; bytes /= 2) {
		if (txda_vram_alloc(tdev, bytes, flags, NULL, &block))
			continue;
		if (txda_vram_dirty(block))
			return block;
		txda_vram_free_clear(block);
	}
	return NULL;
}

/* Takes, clears and returns one piece. False: none is left, or the chip cannot clear. */
static bool txda_scrub_piece(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	int err;

	if (READ_ONCE(vram->forgetful) || !READ_ONCE(vram->freed))
		return false;
	block = txda_scrub_take(tdev, TXDA_VRAM_MAPPABLE) ?: txda_scrub_take(tdev, 0);
	txda_vram_note_scrubbed(tdev, block ? txda_vram_dirty(block) : U64_MAX);
	if (!block)
		return false;
	err = txda_vram_clear(block);
	if (!err)
		txda_vram_free_clear(block);
	else if (err == -ETIMEDOUT)
		txda_vram_quarantine(block);
	else
		txda_vram_free(block);
	return !err;
}

static void txda_scrub_work(struct work_struct *work)
{
	struct txda_device *tdev = container_of(work, struct txda_device, scrub.work.work);
	bool more = true;
	int idx;

	/* Resets and clients' allocations may run between two pieces. */
	while (more && txda_device_enter_teardown(tdev, &idx)) {
		mutex_lock(&tdev->scrub.lock);
		more = txda_scrub_piece(tdev);
		mutex_unlock(&tdev->scrub.lock);
		txda_device_exit(tdev, idx);
	}
}

int txda_scrub_init(struct txda_device *tdev)
{
	INIT_DELAYED_WORK(&tdev->scrub.work, txda_scrub_work);
	return drmm_mutex_init(&tdev->drm, &tdev->scrub.lock);
}

void txda_scrub_start(struct txda_device *tdev)
{
	WRITE_ONCE(tdev->scrub.on, true);
}

void txda_scrub_stop(struct txda_device *tdev)
{
	WRITE_ONCE(tdev->scrub.on, false);
	disable_delayed_work_sync(&tdev->scrub.work);
}

void txda_scrub_later(struct txda_device *tdev)
{
	lockdep_assert_held(&tdev->vram.lock);
	if (READ_ONCE(tdev->scrub.on))
		schedule_delayed_work(&tdev->scrub.work, TXDA_SCRUB_DELAY);
}

void txda_scrub_hold(struct txda_device *tdev)
{
	mutex_lock(&tdev->scrub.lock);
}

void txda_scrub_release(struct txda_device *tdev)
{
	mutex_unlock(&tdev->scrub.lock);
}
