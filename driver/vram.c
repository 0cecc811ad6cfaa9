// SPDX-License-Identifier: GPL-2.0
#include "vram.h"

#include <linux/file.h>
#include <linux/pci.h>
#include <linux/shmem_fs.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "copy.h"
#include "device.h"
#include "evict.h"
#include "runs.h"
#include "scrub.h"
#include "shmem.h"

/* Below this size clearing by the CPU is faster than starting the copy engine. */
#define TXDA_VRAM_CPU_CLEAR SZ_64K

static void txda_vram_release(struct drm_device *drm, void *res)
{
	struct txda_vram *vram = &to_txda(drm)->vram;

	txda_vram_free_quarantined(to_txda(drm));
	drm_WARN_ON(drm, !list_empty(&vram->live));
	txda_buddy_free_list(&vram->mm, &vram->reserved, 0);
	txda_buddy_fini(&vram->mm);
}

static int txda_vram_map_aperture(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct pci_dev *pdev = tdev->pdev;
	u64 bytes = min_t(u64, pci_resource_len(pdev, TXDA_BAR_DRAM), vram->mm.size);
	int err;

	if (!bytes)
		return 0;
	err = pcim_request_region(pdev, TXDA_BAR_DRAM, "txda");
	if (err)
		return err;
	vram->aperture_start = pci_resource_start(pdev, TXDA_BAR_DRAM);
	vram->aperture = devm_ioremap_wc(&pdev->dev, vram->aperture_start, bytes);
	if (!vram->aperture)
		return -ENOMEM;
	vram->aperture_bytes = bytes;
	return 0;
}

int txda_vram_init(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	u64 reserved = ALIGN(tdev->dram_reserved, SZ_4K);
	u64 bytes = ALIGN_DOWN(tdev->dram_reserved + tdev->dram_bytes, SZ_4K);
	int err;

	INIT_LIST_HEAD(&vram->reserved);
	INIT_LIST_HEAD(&vram->live);
	INIT_LIST_HEAD(&vram->limbo);
	err = drmm_mutex_init(&tdev->drm, &vram->lock);
	if (err)
		return err;

	err = txda_buddy_init(&vram->mm, bytes, SZ_4K);
	if (err)
		return err;
	if (reserved)
		err = txda_buddy_alloc_blocks(&vram->mm, 0, reserved, reserved, SZ_4K,
					      &vram->reserved, TXDA_BUDDY_RANGE);
	if (err) {
		txda_buddy_fini(&vram->mm);
		return err;
	}
	err = drmm_add_action_or_reset(&tdev->drm, txda_vram_release, NULL);
	if (err)
		return err;

	err = txda_vram_map_aperture(tdev);
	if (err)
		drm_err(&tdev->drm, "cannot map BAR%d: %pe\n", TXDA_BAR_DRAM, ERR_PTR(err));
	return err;
}

/* Adds the block to what is in use, or with @sign -1 takes it away. */
static void txda_vram_count(struct txda_vram *vram, const struct txda_vram_block *block, s64 sign)
{
	lockdep_assert_held(&vram->lock);

	if (block->flags & TXDA_VRAM_SCRUB)
		return;
	atomic64_add(sign * block->taken, &vram->used);
	vram->used_mappable += sign * block->mappable;
}

static int txda_vram_take_from(struct txda_vram *vram, u64 start, u64 end, u64 bytes,
			       unsigned long flags, struct list_head *blocks)
{
	int err = -ENOSPC;

	if (bytes > end - start)
		return -ENOSPC;
	if (start || end < vram->mm.size)
		flags |= TXDA_BUDDY_RANGE;
	if (bytes >= SZ_2M)
		err = txda_buddy_alloc_blocks(&vram->mm, start, end, bytes, SZ_2M, blocks, flags);
	if (err && err != -ENOMEM)
		err = txda_buddy_alloc_blocks(&vram->mm, start, end, bytes, SZ_4K, blocks, flags);
	/* Its -EINVAL means that the rounded size does not fit. */
	return err == -EINVAL ? -ENOSPC : err;
}

static int txda_vram_take(struct txda_vram *vram, u64 bytes, unsigned int flags,
			  struct list_head *blocks)
{
	unsigned long buddy = flags & TXDA_VRAM_CONTIGUOUS ? TXDA_BUDDY_CONTIGUOUS : 0;
	int err;

	if (flags & TXDA_VRAM_CLEAR)
		buddy |= TXDA_BUDDY_CLEAR;
	if (flags & TXDA_VRAM_MAPPABLE)
		return txda_vram_take_from(vram, 0, vram->aperture_bytes, bytes, buddy, blocks);

	err = txda_vram_take_from(vram, vram->aperture_bytes, vram->mm.size, bytes, buddy, blocks);
	if (err == -ENOSPC)
		err = txda_vram_take_from(vram, 0, vram->mm.size, bytes, buddy, blocks);
	return err;
}

static int txda_vram_make_runs(struct txda_vram *vram, struct txda_vram_block *block)
{
	struct txda_buddy_block *piece;
	u64 left = block->bytes;

	block->runs = txda_runs_new(list_count_nodes(&block->blocks));
	if (!block->runs)
		return -ENOMEM;
	list_for_each_entry(piece, &block->blocks, link) {
		u64 size = txda_buddy_block_size(&vram->mm, piece);
		u64 at = txda_buddy_block_offset(piece);

		block->taken += size;
		if (at < vram->aperture_bytes)
			block->mappable += min(size, vram->aperture_bytes - at);
		/* A block that could not be trimmed is larger than requested. */
		size = min(size, left);
		if (size)
			txda_runs_add(block->runs, at, size);
		left -= size;
	}
	return 0;
}

static int txda_vram_try_alloc(struct txda_device *tdev, u64 bytes, unsigned int flags,
			       struct txda_vram_block **ret_block)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	int err;

	block = kzalloc_obj(*block, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	block->tdev = tdev;
	block->bytes = bytes;
	block->flags = flags;
	INIT_LIST_HEAD(&block->blocks);

	mutex_lock(&vram->lock);
	err = txda_vram_take(vram, bytes, flags, &block->blocks);
	if (!err)
		err = txda_vram_make_runs(vram, block);
	if (err) {
		txda_buddy_free_list(&vram->mm, &block->blocks, 0);
		mutex_unlock(&vram->lock);
		kfree(block);
		return err;
	}
	list_add_tail(&block->link, &vram->live);
	txda_vram_count(vram, block, 1);
	mutex_unlock(&vram->lock);

	*ret_block = block;
	return 0;
}

u64 txda_vram_most(const struct txda_device *tdev, unsigned int flags)
{
	return flags & TXDA_VRAM_MAPPABLE ? tdev->dram_mappable : tdev->dram_bytes;
}

int txda_vram_alloc(struct txda_device *tdev, u64 bytes, unsigned int flags,
		    struct dmem_cgroup_pool_state *group, struct txda_vram_block **ret_block)
{
	int err;

	if (!bytes || !IS_ALIGNED(bytes, SZ_4K))
		return -EINVAL;
	if (bytes > txda_vram_most(tdev, flags))
		return -ENOSPC;

	err = txda_vram_try_alloc(tdev, bytes, flags, ret_block);
	if (err != -ENOSPC || flags & TXDA_VRAM_SCRUB)
		return err;
	do {
		/* Memory that is being scrubbed is free memory. */
		txda_scrub_hold(tdev);
		err = txda_vram_try_alloc(tdev, bytes, flags, ret_block);
		txda_scrub_release(tdev);
	} while (err == -ENOSPC && txda_evict_one(tdev, bytes, flags, group));
	return err;
}

static void txda_vram_free_locked(struct txda_vram *vram, struct txda_vram_block *block, bool clear)
{
	lockdep_assert_held(&vram->lock);

	list_del(&block->link);
	txda_buddy_free_list(&vram->mm, &block->blocks, clear ? TXDA_BUDDY_CLEARED : 0);
	/* Memory that could not be cleared is not scrubbed again at once. */
	if (!clear && !(block->flags & TXDA_VRAM_SCRUB)) {
		WRITE_ONCE(vram->freed, vram->freed + block->taken);
		txda_scrub_later(block->tdev);
	}
	txda_vram_count(vram, block, -1);
	if (block->saved)
		fput(block->saved);
	kvfree(block->runs);
	kfree(block);
}

void txda_vram_free(struct txda_vram_block *block)
{
	struct txda_vram *vram;

	if (!block)
		return;
	vram = &block->tdev->vram;
	mutex_lock(&vram->lock);
	txda_vram_free_locked(vram, block, false);
	mutex_unlock(&vram->lock);
}

void txda_vram_free_clear(struct txda_vram_block *block)
{
	struct txda_vram *vram = &block->tdev->vram;

	mutex_lock(&vram->lock);
	txda_vram_free_locked(vram, block, true);
	mutex_unlock(&vram->lock);
}

void txda_vram_quarantine(struct txda_vram_block *block)
{
	struct txda_vram *vram = &block->tdev->vram;

	mutex_lock(&vram->lock);
	list_move_tail(&block->link, &vram->limbo);
	mutex_unlock(&vram->lock);
}

void txda_vram_free_quarantined(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block, *next;

	mutex_lock(&vram->lock);
	list_for_each_entry_safe(block, next, &vram->limbo, link)
		txda_vram_free_locked(vram, block, false);
	mutex_unlock(&vram->lock);
}

u64 txda_vram_offset(const struct txda_vram_block *block)
{
	return block->runs->run[0].addr;
}

void txda_vram_piece(const struct txda_vram_block *block, u64 at, u64 *ret_offset, u64 *ret_bytes)
{
	txda_runs_find(block->runs, at, ret_offset, ret_bytes);
}

u64 txda_vram_free_bytes(struct txda_device *tdev, unsigned int flags)
{
	struct txda_vram *vram = &tdev->vram;
	u64 bytes;

	mutex_lock(&vram->lock);
	if (flags & TXDA_VRAM_MAPPABLE)
		bytes = tdev->dram_mappable - vram->used_mappable;
	else
		bytes = vram->mm.avail;
	mutex_unlock(&vram->lock);

	return bytes;
}

void txda_vram_set_clear(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;

	mutex_lock(&vram->lock);
	txda_buddy_all_clear(&vram->mm);
	mutex_unlock(&vram->lock);
}

void txda_vram_set_unknown(struct txda_device *tdev)
{
	mutex_lock(&tdev->vram.lock);
	WRITE_ONCE(tdev->vram.forgetful, true);
	mutex_unlock(&tdev->vram.lock);
}

u64 txda_vram_dirty(const struct txda_vram_block *block)
{
	struct txda_vram *vram = &block->tdev->vram;
	struct txda_buddy_block *piece;
	u64 dirty = 0;

	list_for_each_entry(piece, &block->blocks, link)
		if (!txda_buddy_is_clear(piece))
			dirty += txda_buddy_block_size(&vram->mm, piece);
	return dirty;
}

void txda_vram_note_scrubbed(struct txda_device *tdev, u64 bytes)
{
	struct txda_vram *vram = &tdev->vram;

	mutex_lock(&vram->lock);
	WRITE_ONCE(vram->freed, vram->freed - min(vram->freed, bytes));
	mutex_unlock(&vram->lock);
}

static int txda_vram_clear_piece(struct txda_device *tdev, u64 offset, u64 bytes)
{
	struct txda_vram *vram = &tdev->vram;

	if (bytes > TXDA_VRAM_CPU_CLEAR || offset + bytes > vram->aperture_bytes)
		return txda_copy_clear(tdev, offset, bytes);
	memset_io(vram->aperture + offset, 0, bytes);
	return 0;
}

int txda_vram_clear(struct txda_vram_block *block)
{
	struct txda_device *tdev = block->tdev;
	struct txda_vram *vram = &tdev->vram;
	struct txda_buddy_block *piece;
	bool forgetful = READ_ONCE(vram->forgetful);
	int err;

	list_for_each_entry(piece, &block->blocks, link) {
		if (txda_buddy_is_clear(piece) && !forgetful)
			continue;
		err = txda_vram_clear_piece(tdev, txda_buddy_block_offset(piece),
					    txda_buddy_block_size(&vram->mm, piece));
		if (err)
			return err;
	}
	/* Before any write that tells the chip about the memory. */
	wmb();

	/* A chip that was removed meanwhile took no stores, and may come back with old contents. */
	return txda_device_alive(tdev) ? 0 : -ENODEV;
}

static void txda_vram_end_save_locked(struct txda_vram *vram)
{
	struct txda_vram_block *block;

	lockdep_assert_held(&vram->lock);
	list_for_each_entry(block, &vram->live, link) {
		if (!block->saved)
			continue;
		fput(block->saved);
		block->saved = NULL;
	}
}

void txda_vram_end_save(struct txda_device *tdev)
{
	mutex_lock(&tdev->vram.lock);
	txda_vram_end_save_locked(&tdev->vram);
	mutex_unlock(&tdev->vram.lock);
}

/* Allocates the backing pages as well. */
static int txda_vram_prepare_block(struct txda_vram_block *block)
{
	struct file *file;
	int err;

	if (block->saved || block->flags & TXDA_VRAM_NO_SAVE)
		return 0;
	file = txda_shmem_new(block->bytes);
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = vfs_fallocate(file, 0, 0, block->bytes);
	if (err) {
		fput(file);
		return err == -ENOSPC ? -ENOMEM : err;
	}
	block->saved = file;
	return 0;
}

static int txda_vram_prepare_locked(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	int err;

	lockdep_assert_held(&vram->lock);
	list_for_each_entry(block, &vram->live, link) {
		err = txda_vram_prepare_block(block);
		if (err) {
			drm_err(&tdev->drm, "no memory to save %llu bytes of DRAM: %pe\n",
				block->bytes, ERR_PTR(err));
			return err;
		}
	}
	return 0;
}

int txda_vram_prepare_save(struct txda_device *tdev)
{
	int err;

	mutex_lock(&tdev->vram.lock);
	err = txda_vram_prepare_locked(tdev);
	/* A notifier that vetoes a suspend is not called at its end. */
	if (err)
		txda_vram_end_save_locked(&tdev->vram);
	mutex_unlock(&tdev->vram.lock);
	return err;
}

static int txda_vram_save_block(struct txda_device *tdev, struct txda_vram_block *block)
{
	u64 at, offset, bytes;
	int err;

	for (at = 0; at < block->bytes; at += bytes) {
		txda_vram_piece(block, at, &offset, &bytes);
		bytes = min_t(u64, bytes, TXDA_COPY_STAGE_BYTES);
		err = txda_copy_out(tdev, offset, bytes);
		if (!err)
			err = txda_shmem_write(block->saved, at, txda_copy_stage(tdev), bytes);
		if (err)
			return err;
	}
	return 0;
}

static int txda_vram_restore_block(struct txda_device *tdev, struct txda_vram_block *block)
{
	u64 at, offset, bytes;
	loff_t pos = 0;
	ssize_t n;
	int err;

	for (at = 0; at < block->bytes; at += bytes) {
		txda_vram_piece(block, at, &offset, &bytes);
		bytes = min_t(u64, bytes, TXDA_COPY_STAGE_BYTES);
		n = kernel_read(block->saved, txda_copy_stage(tdev), bytes, &pos);
		if (n != bytes)
			return n < 0 ? n : -EIO;
		err = txda_copy_in(tdev, offset, bytes);
		if (err)
			return err;
	}
	return 0;
}

int txda_vram_save(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	int err;

	mutex_lock(&vram->lock);
	err = txda_vram_prepare_locked(tdev);
	if (err)
		goto out;
	list_for_each_entry(block, &vram->live, link) {
		if (!block->saved)
			continue;
		err = txda_vram_save_block(tdev, block);
		if (err) {
			drm_err(&tdev->drm, "cannot save %llu bytes of DRAM: %pe\n", block->bytes,
				ERR_PTR(err));
			break;
		}
	}
out:
	mutex_unlock(&vram->lock);

	return err;
}

int txda_vram_restore(struct txda_device *tdev)
{
	struct txda_vram *vram = &tdev->vram;
	struct txda_vram_block *block;
	int err = 0;

	mutex_lock(&vram->lock);
	list_for_each_entry(block, &vram->live, link) {
		if (!block->saved)
			continue;
		err = txda_vram_restore_block(tdev, block);
		if (err) {
			drm_err(&tdev->drm, "cannot restore %llu bytes of DRAM: %pe\n",
				block->bytes, ERR_PTR(err));
			break;
		}
	}
	mutex_unlock(&vram->lock);

	return err;
}
