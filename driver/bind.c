// SPDX-License-Identifier: GPL-2.0
#include "bind.h"

#include <linux/dma-resv.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "array.h"
#include "compat/gpuvm.h"
#include "compat/sched.h"
#include "compat/slab.h"
#include "device.h"
#include "evict.h"
#include "fence.h"
#include "file.h"
#include "gem.h"
#include "reset.h"
#include "sync.h"
#include "trace.h"
#include "vm.h"

/* A new mapping in the middle of an old one splits it and leaves a piece on either side. */
#define TXDA_BIND_SPARE 3

/**
 * struct txda_bind - One bind operation in progress.
 */
struct txda_bind {
	/** @vm: The address space; the caller holds it. */
	struct txda_vm *vm;

	/** @kind: DRM_TXDA_BIND_MAP, _UNMAP or _SYNC_ONLY. */
	u32 kind;

	/** @va: Start of the range. */
	u64 va;

	/** @bytes: Its size. */
	u64 bytes;

	/** @bo_offset: MAP: where in the buffer. */
	u64 bo_offset;

	/** @pinned: MAP: the buffer, which is pinned. */
	struct txda_bo *pinned;

	/** @vm_bo: MAP: the buffer, with a reference. */
	struct drm_gpuvm_bo *vm_bo;

	/** @pte: MAP: the bits that all its page table entries have in common. */
	u64 pte;

	/** @spare: Preallocated mappings that the operation may need. */
	struct txda_vma *spare[TXDA_BIND_SPARE];

	/** @reserve: Preallocated page tables that the operation may need. */
	struct txda_pt_reserve reserve;

	/** @unmapped: struct txda_vma that were taken out of the tree. */
	struct list_head unmapped;

	/** @resets: Value of the chip's reset counter before the operation was executed. */
	u64 resets;
};

/**
 * struct txda_bind_job - One asynchronous operation.
 */
struct txda_bind_job {
	/** @fence: The fence clients wait for; owns the memory of this struct. */
	struct txda_fence fence;

	/** @base: In the address space's scheduler. */
	struct drm_sched_job base;

	/** @bind: The operation. Its address space is held. */
	struct txda_bind bind;

	/** @work: Clean-up, deferred because it must not run in the path that signals fences. */
	struct work_struct work;
};

/* ---- Check ---------------------------------------------------------------------------------- */

static int txda_bind_check(struct txda_vm *vm, const struct drm_txda_bind_op *op, bool async)
{
	u32 kind = op->flags & DRM_TXDA_BIND_KIND_MASK;
	u32 flags = op->flags & ~DRM_TXDA_BIND_KIND_MASK;

	if (op->syncs.count && !async)
		return -EINVAL;

	switch (kind) {
	case DRM_TXDA_BIND_MAP:
		if (flags & ~DRM_TXDA_BIND_READONLY)
			return -EINVAL;
		break;
	case DRM_TXDA_BIND_UNMAP:
		if (flags || op->bo || op->bo_offset)
			return -EINVAL;
		break;
	case DRM_TXDA_BIND_SYNC_ONLY:
		if (flags || op->bo || op->bo_offset || op->va || op->size || !async)
			return -EINVAL;
		return 0;
	default:
		return -EINVAL;
	}

	if (!op->size || !IS_ALIGNED(op->va | op->size | op->bo_offset, DRM_TXDA_PAGE_SIZE) ||
	    !drm_gpuvm_range_valid(&vm->base, op->va, op->size))
		return -EINVAL;
	return 0;
}

/* ---- Prepare -------------------------------------------------------------------------------- */

static int txda_bind_get_spare(struct txda_bind *bind, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		bind->spare[i] = kzalloc_obj(*bind->spare[i], GFP_KERNEL_ACCOUNT);
		if (!bind->spare[i])
			return -ENOMEM;
	}
	return 0;
}

static int txda_bind_get_vm_bo(struct txda_bind *bind, struct drm_gem_object *obj)
{
	struct drm_gpuvm_bo *vm_bo;

	dma_resv_lock(obj->resv, NULL);
	vm_bo = drm_gpuvm_bo_obtain_locked(&bind->vm->base, obj);
	if (!IS_ERR(vm_bo))
		drm_gpuvm_bo_extobj_add(vm_bo);
	dma_resv_unlock(obj->resv);
	if (IS_ERR(vm_bo))
		return PTR_ERR(vm_bo);

	bind->vm_bo = vm_bo;
	return 0;
}

static int txda_bind_prepare_map(struct txda_bind *bind, struct txda_bo *bo, bool read_only)
{
	struct txda_vm *vm = bind->vm;
	struct txda_pt_need need = {};
	u64 at, addr, bytes;
	int err;

	if (bind->bytes > bo->base.size || bind->bo_offset > bo->base.size - bind->bytes)
		return -EINVAL;
	if (bo->vm_resv && bo->vm_resv != drm_gpuvm_resv_obj(&vm->base))
		return -EINVAL;
	if (bo->read_only && !read_only)
		return -EACCES;
	if (!txda_bo_pin(bo))
		return -EBUSY;
	bind->pinned = bo;
	err = txda_bo_pte_flags(vm->tdev, bo, read_only, &bind->pte);
	if (err)
		return err;

	for (at = 0; at < bind->bytes; at += bytes) {
		txda_bo_run(bo, bind->bo_offset + at, &addr, &bytes);
		bytes = min(bytes, bind->bytes - at);
		txda_pt_need_run(&need, bind->va + at, bytes, addr);
	}
	err = txda_pt_prepare_map(&vm->pt, bind->va, bind->bytes, &need, &bind->reserve);
	if (!err)
		err = txda_bind_get_spare(bind, TXDA_BIND_SPARE);
	if (!err)
		err = txda_bind_get_vm_bo(bind, &bo->base);
	return err;
}

static int txda_bind_prepare_unmap(struct txda_bind *bind)
{
	int err;

	err = txda_pt_prepare_unmap(&bind->vm->pt, bind->va, bind->bytes, &bind->reserve);
	if (err)
		return err;
	return txda_bind_get_spare(bind, TXDA_BIND_SPARE - 1);
}

static void txda_bind_cleanup(struct txda_bind *bind)
{
	u32 i;

	for (i = 0; i < TXDA_BIND_SPARE; i++)
		kfree(bind->spare[i]);
	txda_vm_free_vmas(bind->vm, &bind->unmapped, bind->reserve.stuck);
	txda_pt_reserve_free(&bind->reserve);
	if (bind->pinned)
		txda_bo_unpin(bind->pinned);
	if (bind->vm_bo)
		txda_vm_bo_put(bind->vm, bind->vm_bo);
}

/* In txda_device_enter(). After a failure there is nothing to clean up. */
static int txda_bind_prepare(struct txda_bind *bind, struct drm_file *file, struct txda_vm *vm,
			     const struct drm_txda_bind_op *op)
{
	struct drm_gem_object *obj;
	int err = 0;

	memset(bind, 0, sizeof(*bind));
	bind->vm = vm;
	bind->kind = op->flags & DRM_TXDA_BIND_KIND_MASK;
	bind->va = op->va;
	bind->bytes = op->size;
	bind->bo_offset = op->bo_offset;
	INIT_LIST_HEAD(&bind->unmapped);
	txda_pt_reserve_init(&bind->reserve);

	if (bind->kind == DRM_TXDA_BIND_MAP) {
		obj = drm_gem_object_lookup(file, op->bo);
		if (!obj)
			return -ENOENT;
		err = txda_bind_prepare_map(bind, to_txda_bo(obj),
					    op->flags & DRM_TXDA_BIND_READONLY);
		/* Each mapping holds its own reference to the buffer, through its drm_gpuvm_bo. */
		if (err)
			txda_bind_cleanup(bind);
		drm_gem_object_put(obj);
	} else if (bind->kind == DRM_TXDA_BIND_UNMAP) {
		err = txda_bind_prepare_unmap(bind);
		if (err)
			txda_bind_cleanup(bind);
	}
	return err;
}

/* ---- Execute -------------------------------------------------------------------------------- */

static struct txda_vma *txda_bind_take_spare(struct txda_bind *bind)
{
	struct txda_vma *vma = NULL;
	u32 i;

	for (i = 0; i < TXDA_BIND_SPARE && !vma; i++)
		swap(vma, bind->spare[i]);
	WARN_ON_ONCE(!vma);
	return vma;
}

/* The mapping is out of the tree; its buffer reference is dropped by the clean-up. */
static void txda_bind_retire(struct txda_bind *bind, struct drm_gpuva *va)
{
	list_add_tail(&to_txda_vma(va)->node, &bind->unmapped);
}

static int txda_bind_write_runs(struct txda_bind *bind, struct txda_bo *bo,
				const struct drm_gpuva_op_map *map)
{
	u64 at, addr, bytes;
	int err = 0;

	for (at = 0; at < map->va.range && !err; at += bytes) {
		txda_bo_run(bo, map->gem.offset + at, &addr, &bytes);
		bytes = min(bytes, map->va.range - at);
		err = txda_pt_map(&bind->vm->pt, &bind->reserve, map->va.addr + at, bytes, addr,
				  bind->pte);
	}
	return err;
}

int txda_bind_step_map(struct drm_gpuva_op *op, void *priv)
{
	struct txda_bind *bind = priv;
	struct txda_bo *bo = to_txda_bo(op->map.gem.obj);
	struct txda_vma *vma;
	int err, idx;

	/* Removing the peer chip ends translations to its DRAM; none may be added after that. */
	if (bo->peer && !drm_dev_enter(bo->peer->base.dev, &idx))
		return -ENODEV;
	/* The same for buffers that their exporter revokes. */
	if (READ_ONCE(bo->revoked))
		return -ENODEV;
	vma = txda_bind_take_spare(bind);
	err = vma ? txda_bind_write_runs(bind, bo, &op->map) : -EINVAL;
	if (vma) {
		drm_gpuva_map(&bind->vm->base, &vma->base, &op->map);
		vma->base.vm_bo = drm_gpuvm_bo_get(bind->vm_bo);
		txda_bo_pin_more(bo);
	}
	if (bo->peer)
		drm_dev_exit(idx);
	return err;
}

int txda_bind_step_remap(struct drm_gpuva_op *op, void *priv)
{
	struct txda_bind *bind = priv;
	struct drm_gpuva_op_remap *remap = &op->remap;
	struct drm_gpuva *old = remap->unmap->va;
	struct txda_vma *prev = NULL, *next = NULL;
	u64 va, bytes;
	int err;

	if (remap->prev)
		prev = txda_bind_take_spare(bind);
	if (remap->next)
		next = txda_bind_take_spare(bind);
	if ((remap->prev && !prev) || (remap->next && !next))
		return -EINVAL;

	drm_gpuva_op_remap_to_unmap_range(remap, &va, &bytes);
	err = txda_pt_unmap(&bind->vm->pt, &bind->reserve, va, bytes);
	drm_gpuva_remap(prev ? &prev->base : NULL, next ? &next->base : NULL, remap);
	if (prev) {
		prev->base.vm_bo = drm_gpuvm_bo_get(old->vm_bo);
		txda_bo_pin_more(to_txda_bo(old->gem.obj));
	}
	if (next) {
		next->base.vm_bo = drm_gpuvm_bo_get(old->vm_bo);
		txda_bo_pin_more(to_txda_bo(old->gem.obj));
	}
	txda_bind_retire(bind, old);
	return err;
}

int txda_bind_step_unmap(struct drm_gpuva_op *op, void *priv)
{
	struct txda_bind *bind = priv;
	struct drm_gpuva *va = op->unmap.va;
	int err;

	err = txda_pt_unmap(&bind->vm->pt, &bind->reserve, va->va.addr, va->va.range);
	drm_gpuva_unmap(&op->unmap);
	txda_bind_retire(bind, va);
	return err;
}

static int txda_bind_change(struct txda_bind *bind)
{
	struct txda_vm *vm = bind->vm;
	int err, flush;

	lockdep_assert_held(&vm->op_lock);

	trace_txda_bind(vm->tdev->drm.dev, vm->id, bind->kind == DRM_TXDA_BIND_MAP ? 'm' : 'u',
			bind->va, bind->bytes);
	vm->pt.online = true;
	bind->resets = atomic64_read(&vm->tdev->reset.chip_resets);
	if (bind->kind == DRM_TXDA_BIND_MAP)
		err = txda_gpuvm_sm_map(&vm->base, bind, bind->va, bind->bytes, bind->vm_bo->obj,
					bind->bo_offset);
	else
		err = drm_gpuvm_sm_unmap(&vm->base, bind, bind->va, bind->bytes);
	/* One TLB flush covers everything that the operation unmapped. */
	flush = txda_pt_flush(&vm->pt, &bind->reserve);
	if (!err)
		err = flush;
	if (err) {
		/*
		 * A flush timeout is handled by a chip reset; for the client the address space is
		 * lost.
		 */
		if (err == -ETIMEDOUT)
			err = -EIO;
		drm_dbg(&vm->tdev->drm, "address space %u is lost: %pe\n", vm->id, ERR_PTR(err));
		WRITE_ONCE(vm->lost, true);
	}
	return err;
}

static int txda_bind_execute(struct txda_bind *bind)
{
	struct txda_vm *vm = bind->vm;
	int err, idx;

	if (bind->kind == DRM_TXDA_BIND_SYNC_ONLY)
		return READ_ONCE(vm->lost) ? -EIO : 0;

	mutex_lock(&vm->op_lock);
	if (vm->lost) {
		err = -EIO;
	} else if (!drm_dev_enter(&vm->tdev->drm, &idx)) {
		err = -ENODEV;
	} else {
		err = txda_bind_change(bind);
		drm_dev_exit(idx);
	}
	mutex_unlock(&vm->op_lock);

	return err;
}

/* ---- Asynchronous operations ---------------------------------------------------------------- */

static struct txda_bind_job *to_txda_bind_job(struct drm_sched_job *job)
{
	return container_of(job, struct txda_bind_job, base);
}

static struct dma_fence *txda_bind_run_job(struct drm_sched_job *sched_job)
{
	struct txda_bind_job *job = to_txda_bind_job(sched_job);
	struct dma_fence *fence = &job->fence.base;
	bool cookie = dma_fence_begin_signalling();
	int err;

	err = txda_bind_execute(&job->bind);
	if (err)
		dma_fence_set_error(fence, err);
	dma_fence_signal(fence);
	dma_fence_end_signalling(cookie);

	return dma_fence_get(fence);
}

static enum drm_gpu_sched_stat txda_bind_timedout_job(struct drm_sched_job *sched_job)
{
	/* The scheduler's timeout is MAX_SCHEDULE_TIMEOUT, so this is never called. */
	WARN_ON_ONCE(1);
	return txda_sched_keep(sched_job);
}

static void txda_bind_job_free(struct txda_bind_job *job)
{
	struct txda_bind *bind = &job->bind;
	struct txda_vm *vm = bind->vm;
	struct txda_device *tdev = vm->tdev;
	bool up = false;
	int idx;

	/*
	 * Quarantined memory waits for a chip reset, and the reset requested by the flush may
	 * already be over.
	 */
	if (bind->reserve.stuck) {
		up = txda_device_enter_teardown(tdev, &idx);
		if (!up || atomic64_read(&tdev->reset.chip_resets) != bind->resets)
			bind->reserve.stuck = false;
	}
	txda_bind_cleanup(bind);
	if (up)
		txda_device_exit(tdev, idx);
	dma_fence_put(&job->fence.base);
	atomic_dec(&vm->binds);
	txda_vm_put(vm);
}

static void txda_bind_job_work(struct work_struct *work)
{
	txda_bind_job_free(container_of(work, struct txda_bind_job, work));
}

static void txda_bind_free_job(struct drm_sched_job *sched_job)
{
	struct txda_bind_job *job = to_txda_bind_job(sched_job);

	drm_sched_job_cleanup(sched_job);
	queue_work(txda_release_wq, &job->work);
}

const struct drm_sched_backend_ops txda_bind_sched_ops = {
	.run_job = txda_bind_run_job,
	.timedout_job = txda_bind_timedout_job,
	.free_job = txda_bind_free_job,
};

/**
 * struct txda_bind_call - An asynchronous VM_BIND call while it is being set up.
 */
struct txda_bind_call {
	/** @count: Operations. */
	u32 count;

	/** @prepared: How many of them (from the first) are prepared. */
	u32 prepared;

	/**
	 * @ready: How many of them (from the first) have an initialised, not yet armed scheduler
	 * job.
	 */
	u32 ready;

	/** @job: One job per operation. */
	struct txda_bind_job **job;

	/** @syncs: The syncs of each job. */
	struct txda_syncs *syncs;
};

static void txda_bind_call_free(struct txda_bind_call *call)
{
	u32 i;

	for (i = 0; i < call->ready; i++)
		drm_sched_job_cleanup(&call->job[i]->base);
	for (i = 0; i < call->prepared; i++)
		txda_bind_job_free(call->job[i]);
	for (i = 0; call->syncs && i < call->count; i++)
		txda_syncs_put(&call->syncs[i]);
	kvfree(call->syncs);
	kvfree(call->job);
}

/* Reads user memory, so a page fault may block for as long as the memory's owner likes. */
static int txda_bind_call_init(struct txda_bind_call *call, struct drm_file *file,
			       const struct drm_txda_bind_op *op, u32 count)
{
	u32 i;
	int err = 0;

	memset(call, 0, sizeof(*call));
	call->count = count;
	call->job = kvcalloc(count, sizeof(*call->job), GFP_KERNEL_ACCOUNT);
	call->syncs = kvcalloc(count, sizeof(*call->syncs), GFP_KERNEL_ACCOUNT);
	if (!call->job || !call->syncs)
		err = -ENOMEM;
	for (i = 0; i < count && !err; i++)
		err = txda_syncs_get(file, &op[i].syncs, &call->syncs[i]);
	if (err)
		txda_bind_call_free(call);
	return err;
}

static int txda_bind_call_prepare(struct txda_bind_call *call, struct drm_file *file,
				  struct txda_vm *vm, const struct drm_txda_bind_op *op)
{
	struct txda_bind_job *job;
	u32 i;
	int err;

	for (i = 0; i < call->count; i++) {
		job = kzalloc_obj(*job, GFP_KERNEL_ACCOUNT);
		if (!job)
			return -ENOMEM;
		err = txda_bind_prepare(&job->bind, file, vm, &op[i]);
		if (err) {
			kfree(job);
			return err;
		}
		INIT_WORK(&job->work, txda_bind_job_work);
		kref_get(&vm->ref);
		atomic_inc(&vm->binds);
		txda_fence_init(&job->fence, "txda-bind", vm->fence_context, ++vm->fence_seqno);
		call->job[call->prepared++] = job;
	}
	return 0;
}

static int txda_bind_call_make_ready(struct txda_bind_call *call, struct drm_file *file,
				     struct txda_vm *vm)
{
	struct txda_sync_table table;
	u32 i;
	int err;

	err = txda_sync_table_init(&table, call->syncs, call->count);
	for (i = 0; i < call->count && !err; i++) {
		err = txda_sched_job_init(&call->job[i]->base, &vm->entity, 1, vm, file->client_id);
		if (err)
			break;
		call->ready++;
		err = txda_syncs_add_waits(&call->syncs[i], &table, vm->fence_context,
					   &call->job[i]->base);
	}
	txda_sync_table_fini(&table);
	return err;
}

/* Nothing can fail from here on. The jobs now belong to the scheduler. */
static void txda_bind_call_push(struct txda_bind_call *call)
{
	u32 i;

	for (i = 0; i < call->count; i++) {
		struct txda_bind_job *job = call->job[i];

		drm_sched_job_arm(&job->base);
		txda_syncs_signal(&call->syncs[i], &job->fence.base);
		drm_sched_entity_push_job(&job->base);
	}
	call->ready = 0;
	call->prepared = 0;
}

static int txda_bind_async(struct drm_file *file, struct txda_vm *vm,
			   const struct drm_txda_bind_op *op, u32 count)
{
	struct txda_bind_call call;
	int err, idx;

	err = txda_bind_call_init(&call, file, op, count);
	if (err)
		return err;
	err = txda_device_enter(vm->tdev, &idx);
	if (err)
		goto out;
	err = mutex_lock_interruptible(&vm->bind_lock);
	if (err)
		goto out_device;
	/* Check again under the lock: no job may be added once the id is gone. */
	if (READ_ONCE(vm->lost))
		err = -EIO;
	else if (atomic_read(&vm->binds) + count > TXDA_MAX_BINDS)
		err = -EBUSY;
	if (!err)
		err = txda_bind_call_prepare(&call, file, vm, op);
	if (!err)
		err = txda_bind_call_make_ready(&call, file, vm);
	if (!err)
		txda_bind_call_push(&call);
	mutex_unlock(&vm->bind_lock);
out_device:
	txda_device_exit(vm->tdev, idx);
out:
	txda_bind_call_free(&call);
	return err;
}

/* ---- Synchronous operations, and the ioctl -------------------------------------------------- */

static int txda_bind_one(struct drm_file *file, struct txda_vm *vm,
			 const struct drm_txda_bind_op *op)
{
	struct txda_bind bind;
	int err, idx;

	err = txda_device_enter(vm->tdev, &idx);
	if (err)
		return err;
	err = txda_bind_prepare(&bind, file, vm, op);
	if (!err) {
		err = txda_bind_execute(&bind);
		txda_bind_cleanup(&bind);
	}
	txda_device_exit(vm->tdev, idx);

	return err;
}

static int txda_bind_sync(struct drm_file *file, struct txda_vm *vm,
			  const struct drm_txda_bind_op *op, u32 count, u32 *done)
{
	int err;

	while (*done < count) {
		err = txda_bind_one(file, vm, &op[*done]);
		if (err)
			return err;
		++*done;
		/* A restarted call, by any thread, continues from this element. */
		if (*done < count && signal_pending(current))
			return -ERESTARTSYS;
	}
	return 0;
}

int txda_ioctl_vm_bind(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_vm_bind *args = data;
	bool async = args->flags & DRM_TXDA_VM_BIND_ASYNC;
	struct drm_txda_bind_op *op;
	u32 i, count = args->ops.count;
	struct txda_vm *vm;
	int err = 0;

	if ((args->flags & ~DRM_TXDA_VM_BIND_ASYNC) || args->pad ||
	    args->done > (async ? 0 : count))
		return -EINVAL;
	vm = txda_vm_lookup(to_txda_file(file), args->vm_id);
	if (!vm)
		return -ENOENT;
	op = txda_array_get(&args->ops, sizeof(*op), sizeof(*op), DRM_TXDA_MAX_BIND_OPS);
	if (IS_ERR(op)) {
		err = PTR_ERR(op);
		goto out_vm;
	}

	for (i = args->done; i < count && !err; i++)
		err = txda_bind_check(vm, &op[i], async);
	if (!err && READ_ONCE(vm->lost))
		err = -EIO;
	if (!err && async && count)
		err = txda_bind_async(file, vm, op, count);
	else if (!err)
		err = txda_bind_sync(file, vm, op, count, &args->done);

	kvfree(op);
out_vm:
	txda_vm_put(vm);
	return err;
}
