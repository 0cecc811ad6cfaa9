// SPDX-License-Identifier: GPL-2.0
#include "evict.h"

#include <linux/file.h>
#include <linux/fs.h>
#include <linux/memcontrol.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>
#include <drm/drm_vma_manager.h>

#include "compat/dmem.h"
#include "copy.h"
#include "device.h"
#include "gem.h"
#include "host.h"
#include "reset.h"
#include "shmem.h"
#include "trace.h"
#include "vram.h"

static unsigned long txda_bo_pages(const struct txda_bo *bo)
{
	return bo->base.size >> PAGE_SHIFT;
}

void txda_evict_leave(struct txda_bo *bo)
{
	struct txda_evict *evict = &to_txda(bo->base.dev)->evict;

	/* Only its owner could change that, and it has none any more. */
	if (atomic_read(&bo->pins) >= 0)
		return;
	mutex_lock(&evict->lock);
	txda_idle_del(evict, bo);
	mutex_unlock(&evict->lock);
}

/* ---- Contents in host memory ---------------------------------------------------------------- */

static void txda_evict_drop_file(struct txda_bo *bo)
{
	struct txda_device *tdev = to_txda(bo->base.dev);

	if (!bo->moved)
		return;
	fput(bo->moved);
	bo->moved = NULL;
	txda_host_uncharge(txda_bo_pages(bo));
	atomic64_sub(bo->base.size, &tdev->host_used);
	atomic64_sub(bo->base.size, &tdev->evict.moved);
}

void txda_evict_forget(struct txda_bo *bo)
{
	txda_evict_drop_file(bo);
	mem_cgroup_put(bo->memcg);
	bo->memcg = NULL;
}

static int txda_evict_copy(struct txda_device *tdev, struct txda_bo *bo, struct file *file)
{
	u64 at, offset, bytes;
	int err;

	for (at = 0; at < bo->base.size; at += bytes) {
		if (fatal_signal_pending(current))
			return -EINTR;
		txda_vram_piece(bo->vram, at, &offset, &bytes);
		bytes = min_t(u64, bytes, TXDA_COPY_STAGE_BYTES);
		err = txda_copy_out(tdev, offset, bytes);
		if (!err)
			err = txda_shmem_write(file, at, txda_copy_stage(tdev), bytes);
		if (err)
			return err;
	}
	return 0;
}

/* Copies the contents of @bo to host memory; it keeps its device memory. */
static int txda_evict_move(struct txda_device *tdev, struct txda_bo *bo)
{
	struct mem_cgroup *old;
	struct file *file;
	int err;

	lockdep_assert_held(&tdev->evict.lock);

	err = txda_host_charge(txda_bo_pages(bo));
	if (err)
		return err;
	file = txda_shmem_new(bo->base.size);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		goto err_uncharge;
	}
	/* Missing memory is no reason to kill a process: the buffer stays where it is. */
	mapping_set_gfp_mask(file->f_mapping, GFP_HIGHUSER | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	old = set_active_memcg(bo->memcg);
	err = txda_evict_copy(tdev, bo, file);
	set_active_memcg(old);
	if (err)
		goto err_file;

	bo->moved = file;
	atomic64_add(bo->base.size, &tdev->host_used);
	atomic64_add(bo->base.size, &tdev->evict.moved);
	return 0;

err_file:
	fput(file);
err_uncharge:
	txda_host_uncharge(txda_bo_pages(bo));
	return err;
}

int txda_evict_read_back(struct txda_bo *bo, struct txda_vram_block *block)
{
	struct txda_device *tdev = to_txda(bo->base.dev);
	u64 at, offset, bytes;
	loff_t pos = 0;
	ssize_t n;
	int err = 0;

	/* The staging area has one user at a time. */
	mutex_lock(&tdev->evict.lock);
	for (at = 0; at < bo->base.size && !err; at += bytes) {
		txda_vram_piece(block, at, &offset, &bytes);
		bytes = min_t(u64, bytes, TXDA_COPY_STAGE_BYTES);
		n = kernel_read(bo->moved, txda_copy_stage(tdev), bytes, &pos);
		if (n <= 0) {
			err = n ?: -EIO;
			break;
		}
		/* If it is less than wanted, the next call says why. */
		bytes = n;
		err = txda_copy_in(tdev, offset, bytes);
	}
	mutex_unlock(&tdev->evict.lock);

	return err;
}

/* ---- Taking memory -------------------------------------------------------------------------- */

static void txda_evict_note(struct txda_device *tdev, struct txda_bo *bo, bool dropped)
{
	trace_txda_evict(tdev->drm.dev, bo->kind == TXDA_BO_DEVICE ? 'd' : 'h', dropped,
			 bo->base.size);
	if (!dropped)
		return;
	WRITE_ONCE(bo->dropped, true);
	atomic64_add(bo->base.size, &tdev->evict.dropped);
}

static void txda_evict_take_vram(struct txda_device *tdev, struct txda_bo *bo)
{
	struct txda_vram_block *block = bo->vram;
	struct dmem_cgroup_pool_state *cgroup = bo->cgroup;

	lockdep_assert_held(&tdev->evict.lock);

	txda_idle_del(&tdev->evict, bo);
	txda_evict_note(tdev, bo, !bo->moved);
	mutex_lock(&tdev->gem.lock);
	WRITE_ONCE(bo->vram, NULL);
	bo->runs = NULL;
	bo->cgroup = NULL;
	mutex_unlock(&tdev->gem.lock);
	txda_vram_free(block);
	dmem_cgroup_uncharge(cgroup, bo->base.size);
}

/* Which idle buffers help. */
struct txda_evict_want {
	struct txda_device *tdev;
	/* Those with memory within the aperture. */
	bool mappable;
	/* Those charged to this control group, NULL: any. */
	struct dmem_cgroup_pool_state *limit;
	/* The control group that asks, which is not protected from itself. NULL: none. */
	struct dmem_cgroup_pool_state *group;
	/* What groups ask to be spared if possible (dmem.low) is taken, too; or some was spared. */
	bool ignore_low, spared;
	/* Why the chip or the caller can move nothing more, or 0. */
	int err;
};

static bool txda_evict_helps(const struct txda_bo *bo, struct txda_evict_want *want)
{
	if (want->mappable && !bo->vram->mappable)
		return false;
	/* Nothing is charged without a region. */
	return !bo->cgroup || bo->cgroup == want->group ||
	       dmem_cgroup_state_evict_valuable(want->limit, bo->cgroup, want->ignore_low,
						&want->spared);
}

/* Takes the memory of @bo if that helps: txda_idle_fn. */
static int txda_evict_try(struct txda_bo *bo, void *arg)
{
	struct txda_evict_want *want = arg;
	struct txda_device *tdev = want->tdev;
	int err;

	if (!txda_evict_helps(bo, want))
		return -ENOENT;
	err = bo->advice == DRM_TXDA_COLD ? txda_evict_move(tdev, bo) : 0;
	if (!err) {
		txda_evict_take_vram(tdev, bo);
		return 0;
	}
	/* Others may still fit where there was no host memory for this one. */
	if (err != -ENOMEM && err != -ENOSPC)
		want->err = err;
	drm_dbg(&tdev->drm, "%zu bytes stay in device memory: %pe\n", bo->base.size, ERR_PTR(err));
	return err;
}

static bool txda_evict_any(struct txda_evict_want *want)
{
	struct txda_evict *evict = &want->tdev->evict;

	if (txda_idle_try(evict, txda_evict_try, want))
		return true;
	if (!want->spared || want->err)
		return false;
	want->ignore_low = true;
	return txda_idle_try(evict, txda_evict_try, want);
}

bool txda_evict_one(struct txda_device *tdev, u64 bytes, unsigned int flags,
		    struct dmem_cgroup_pool_state *group)
{
	bool mappable = flags & TXDA_VRAM_MAPPABLE;
	struct txda_evict_want want = {.tdev = tdev, .mappable = mappable, .group = group};
	struct txda_evict *evict = &tdev->evict;
	bool taken = false;
	u64 most;

	if (mutex_lock_killable(&evict->lock))
		return false;
	/* None is taken for an allocation that cannot succeed even with what is protected. */
	most = txda_vram_free_bytes(tdev, flags) + (mappable ? evict->mappable : evict->bytes);
	if (most >= bytes)
		taken = txda_evict_any(&want);
	mutex_unlock(&evict->lock);

	return taken;
}

bool txda_evict_one_in(struct txda_device *tdev, struct dmem_cgroup_pool_state *limit)
{
	struct txda_evict_want want = {.tdev = tdev, .limit = limit};
	struct txda_evict *evict = &tdev->evict;
	bool taken;

	if (mutex_lock_killable(&evict->lock))
		return false;
	taken = txda_evict_any(&want);
	mutex_unlock(&evict->lock);

	return taken;
}

/* With gem.lock, which keeps the removal of the chip away from DMA mappings. */
static unsigned long txda_evict_take_pages(struct txda_device *tdev, unsigned long most)
{
	struct txda_evict *evict = &tdev->evict;
	unsigned long taken = 0;
	struct txda_bo *bo, *next;

	lockdep_assert_held(&evict->lock);
	lockdep_assert_held(&tdev->gem.lock);

	list_for_each_entry_safe(bo, next, &evict->idle[TXDA_IDLE_HOST], idle_link) {
		if (taken >= most)
			break;
		taken += txda_bo_pages(bo);
		txda_idle_del(evict, bo);
		txda_evict_note(tdev, bo, true);
		txda_host_free(bo);
	}
	return taken;
}

static unsigned long txda_evict_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct txda_device *tdev = shrinker->private_data;

	return READ_ONCE(tdev->evict.pages) ?: SHRINK_EMPTY;
}

/* Memory is allocated under the locks, so it may be one of their owners who reclaims. */
static unsigned long txda_evict_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct txda_device *tdev = shrinker->private_data;
	unsigned long taken = SHRINK_STOP;

	if (!mutex_trylock(&tdev->evict.lock))
		return SHRINK_STOP;
	if (mutex_trylock(&tdev->gem.lock)) {
		taken = txda_evict_take_pages(tdev, sc->nr_to_scan);
		mutex_unlock(&tdev->gem.lock);
	}
	mutex_unlock(&tdev->evict.lock);

	return taken;
}

static void txda_evict_fini(struct drm_device *drm, void *shrinker)
{
	shrinker_free(shrinker);
}

int txda_evict_init(struct txda_device *tdev)
{
	struct txda_evict *evict = &tdev->evict;
	int err;

	txda_idle_init(evict);
	err = drmm_mutex_init(&tdev->drm, &evict->lock);
	if (err)
		return err;
	evict->shrinker = shrinker_alloc(0, "drm-txda:%s", dev_name(tdev->drm.dev));
	if (!evict->shrinker)
		return -ENOMEM;
	evict->shrinker->count_objects = txda_evict_count;
	evict->shrinker->scan_objects = txda_evict_scan;
	evict->shrinker->private_data = tdev;
	shrinker_register(evict->shrinker);
	return drmm_add_action_or_reset(&tdev->drm, txda_evict_fini, evict->shrinker);
}

/* ---- BO_ADVISE ------------------------------------------------------------------------------ */

/* Ends accesses through the CPU's mappings, now that no fault maps the buffer any more. */
static void txda_advise_stop_cpu(struct txda_bo *bo)
{
	struct drm_device *drm = bo->base.dev;
	struct txda_gem *gem = &to_txda(drm)->gem;

	/* Waits for faults that came before. */
	down_write(&gem->fault_lock);
	up_write(&gem->fault_lock);
	drm_vma_node_unmap(&bo->base.vma_node, drm->anon_inode->i_mapping);
}

/* Whether its contents are what they were; as soon as it is idle, others may drop them. */
static bool txda_advise_idle(struct txda_bo *bo, u32 advice)
{
	struct txda_device *tdev = to_txda(bo->base.dev);
	bool retained;

	if (bo->advice == DRM_TXDA_WILLNEED) {
		txda_advise_stop_cpu(bo);
		bo->memcg = get_mem_cgroup_from_mm(current->mm);
	}
	if (advice == DRM_TXDA_DONTNEED && bo->moved) {
		txda_evict_drop_file(bo);
		txda_evict_note(tdev, bo, true);
	}
	retained = !bo->dropped;
	txda_idle_enter(&tdev->evict, bo, advice);
	return retained;
}

/* Gives the buffer memory again. */
static int txda_advise_bring_back(struct txda_bo *bo)
{
	struct txda_device *tdev = to_txda(bo->base.dev);
	int err = 0, idx;

	if (bo->runs)
		return 0;
	/* As when it was created: outside of the section that resets wait for. */
	if (bo->kind == TXDA_BO_HOST && !bo->pages)
		err = txda_host_alloc(bo);
	if (!err)
		err = txda_device_enter(tdev, &idx);
	if (!err) {
		err = txda_bo_place(tdev, bo);
		txda_device_exit(tdev, idx);
	}
	/* Nothing else would take pages that the chip cannot access. */
	if (err && bo->kind == TXDA_BO_HOST)
		txda_host_free(bo);
	return err;
}

/* The buffer is CHANGING, and its memory is not taken. */
static int txda_advise(struct txda_bo *bo, u32 advice, u32 *ret_retained)
{
	int err = 0;

	if (advice == DRM_TXDA_WILLNEED) {
		err = txda_advise_bring_back(bo);
		/* It stays what it was. */
		if (err)
			advice = bo->advice;
	}
	if (advice != DRM_TXDA_WILLNEED) {
		*ret_retained = txda_advise_idle(bo, advice);
		return err;
	}
	*ret_retained = !bo->dropped;
	txda_evict_forget(bo);
	WRITE_ONCE(bo->dropped, false);
	txda_idle_end(bo);
	return 0;
}

/* 1: the buffer is CHANGING; 0: there is nothing to do. */
static int txda_advise_begin(struct txda_bo *bo, u32 advice)
{
	if (bo->kind != TXDA_BO_DEVICE && bo->kind != TXDA_BO_HOST)
		return -EPERM;
	if (READ_ONCE(bo->exported))
		return advice == DRM_TXDA_WILLNEED ? 0 : -EPERM;
	return txda_idle_begin(&to_txda(bo->base.dev)->evict, bo, advice);
}

int txda_ioctl_bo_advise(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_bo_advise *args = data;
	struct drm_gem_object *obj;
	int err;

	if (args->pad || args->advice > DRM_TXDA_DONTNEED)
		return -EINVAL;
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	args->retained = 1;
	err = txda_advise_begin(to_txda_bo(obj), args->advice);
	if (err == 1)
		err = txda_advise(to_txda_bo(obj), args->advice, &args->retained);
	drm_gem_object_put(obj);

	return err;
}
