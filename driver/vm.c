// SPDX-License-Identifier: GPL-2.0
#include "vm.h"

#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <drm/drm_exec.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "array.h"
#include "bind.h"
#include "compat/sched.h"
#include "compat/slab.h"
#include "device.h"
#include "evict.h"
#include "fence.h"
#include "file.h"
#include "gem.h"
#include "group.h"
#include "locks.h"
#include "reset.h"

/* Value of txda_vm.queues when no queue may use it any more. */
#define TXDA_VM_NO_MORE INT_MIN

int txda_vms_init(struct txda_device *tdev)
{
	INIT_LIST_HEAD(&tdev->vms);
	return drmm_mutex_init(&tdev->drm, &tdev->vms_lock);
}

/* ---- References ----------------------------------------------------------------------------- */

struct txda_vm *txda_vm_lookup(struct txda_file *file, u32 id)
{
	struct txda_vm *vm;

	xa_lock(&file->vms);
	vm = xa_load(&file->vms, id);
	if (vm)
		kref_get(&vm->ref);
	xa_unlock(&file->vms);

	return vm;
}

static void txda_vm_uncharge(struct txda_vm *vm)
{
	if (vm->user)
		txda_user_uncharge(vm->user, TXDA_USER_VMS);
	vm->user = NULL;
}

/*
 * On a workqueue, since the last reference may be dropped by a job, in a context that must neither
 * sleep nor free the DRM device.
 */
static void txda_vm_release_work(struct work_struct *work)
{
	struct txda_vm *vm = container_of(work, struct txda_vm, release_work);

	drm_sched_entity_fini(&vm->entity);
	/* The callback of a dependency may still be waking up the scheduler entity. */
	synchronize_rcu();
	drm_sched_fini(&vm->sched);
	txda_vm_uncharge(vm);
	drm_gpuvm_put(&vm->base);
	module_put(THIS_MODULE);
}

static void txda_vm_release(struct kref *ref)
{
	struct txda_vm *vm = container_of(ref, struct txda_vm, ref);

	queue_work(txda_release_wq, &vm->release_work);
}

void txda_vm_put(struct txda_vm *vm)
{
	kref_put(&vm->ref, txda_vm_release);
}

bool txda_vm_use(struct txda_vm *vm)
{
	return atomic_inc_unless_negative(&vm->queues);
}

void txda_vm_unuse(struct txda_vm *vm)
{
	atomic_dec(&vm->queues);
}

void txda_vm_bo_put(struct txda_vm *vm, struct drm_gpuvm_bo *vm_bo)
{
	struct drm_gem_object *obj = vm_bo->obj;

	/* The object must not be freed while its reservation object is locked. */
	drm_gem_object_get(obj);
	mutex_lock(&vm->ext_lock);
	dma_resv_lock(obj->resv, NULL);
	drm_gpuvm_bo_put(vm_bo);
	dma_resv_unlock(obj->resv);
	mutex_unlock(&vm->ext_lock);
	drm_gem_object_put(obj);
}

void txda_vm_free_vmas(struct txda_vm *vm, struct list_head *vmas, bool stuck)
{
	struct txda_vma *vma, *next;

	list_for_each_entry_safe(vma, next, vmas, node) {
		list_del(&vma->node);
		if (stuck)
			drm_gem_object_get(vma->base.gem.obj);
		else
			txda_bo_unpin(to_txda_bo(vma->base.gem.obj));
		txda_vm_bo_put(vm, vma->base.vm_bo);
		if (stuck)
			txda_gem_quarantine(vm->tdev, vma);
		else
			kfree(vma);
		cond_resched();
	}
}

/* ---- Reservation objects -------------------------------------------------------------------- */

int txda_vm_lock_resvs(struct txda_vm *vm, struct drm_exec *exec)
{
	int err = 0;

	/* Outside of the acquire context, which counts as a locked reservation object. */
	mutex_lock(&vm->ext_lock);
	drm_exec_init(exec, DRM_EXEC_INTERRUPTIBLE_WAIT | DRM_EXEC_IGNORE_DUPLICATES, 0);
	drm_exec_until_all_locked(exec)
	{
		err = drm_gpuvm_prepare_vm(&vm->base, exec, 1);
		if (!err)
			err = drm_gpuvm_prepare_objects(&vm->base, exec, 1);
		drm_exec_retry_on_contention(exec);
		if (err)
			break;
	}
	if (!err)
		err = drm_gpuvm_validate(&vm->base, exec);
	if (err)
		txda_vm_unlock_resvs(vm, exec);
	return err;
}

void txda_vm_unlock_resvs(struct txda_vm *vm, struct drm_exec *exec)
{
	/*
	 * It drops its reference to each object while others are still locked. None is the last:
	 * with the lock held, each has a drm_gpuvm_bo that refers to it.
	 */
	drm_exec_fini(exec);
	mutex_unlock(&vm->ext_lock);
}

void txda_vm_add_fence(struct txda_vm *vm, struct drm_exec *exec, struct dma_fence *fence)
{
	drm_gpuvm_resv_add_fence(&vm->base, exec, fence, DMA_RESV_USAGE_BOOKKEEP,
				 DMA_RESV_USAGE_BOOKKEEP);
}

/* ---- Making and destroying ------------------------------------------------------------------ */

static void txda_vm_free(struct drm_gpuvm *gpuvm)
{
	struct txda_vm *vm = to_txda_vm(gpuvm);

	mutex_destroy(&vm->op_lock);
	mutex_destroy(&vm->ext_lock);
	mutex_destroy(&vm->bind_lock);
	kfree(vm);
}

/* Of buffers that their exporter has revoked: no job may begin before their translations end. */
static int txda_vm_validate_bo(struct drm_gpuvm_bo *vm_bo, struct drm_exec *exec)
{
	return READ_ONCE(to_txda_bo(vm_bo->obj)->zapped) ? 0 : -EBUSY;
}

static const struct drm_gpuvm_ops txda_vm_gpuvm_ops = {
	.vm_free = txda_vm_free,
	.vm_bo_validate = txda_vm_validate_bo,
	.sm_step_map = txda_bind_step_map,
	.sm_step_remap = txda_bind_step_remap,
	.sm_step_unmap = txda_bind_step_unmap,
};

static int txda_vm_init_sched(struct txda_vm *vm)
{
	struct drm_gpu_scheduler *sched = &vm->sched;
	struct drm_sched_init_args args = {
		.ops = &txda_bind_sched_ops,
		.submit_wq = txda_wq,
		.credit_limit = 1,
		.timeout = MAX_SCHEDULE_TIMEOUT,
		.timeout_wq = txda_wq,
		.name = "txda-bind",
		.dev = vm->tdev->drm.dev,
	};
	int err;

	err = txda_sched_init(sched, &args);
	if (err)
		return err;
	err = drm_sched_entity_init(&vm->entity, DRM_SCHED_PRIORITY_KERNEL, &sched, 1, NULL);
	if (err)
		drm_sched_fini(sched);
	return err;
}

/*
 * In txda_device_enter(). @user: the user it is charged to; destruction undoes the charge. @range:
 * of addresses, above the first page.
 */
static int txda_vm_new(struct txda_device *tdev, struct txda_user *user, u64 range,
		       struct txda_vm **ret_vm)
{
	struct drm_gem_object *resv;
	struct txda_vm *vm;
	int err;

	vm = kzalloc_obj(*vm, GFP_KERNEL_ACCOUNT);
	if (!vm)
		return -ENOMEM;
	resv = drm_gpuvm_resv_object_alloc(&tdev->drm);
	if (!resv) {
		err = -ENOMEM;
		goto err_free;
	}
	vm->tdev = tdev;
	vm->user = user;
	err = txda_pt_init(tdev, user, &vm->pt);
	if (err)
		goto err_resv;
	err = txda_vm_init_sched(vm);
	if (err)
		goto err_pt;

	kref_init(&vm->ref);
	mutex_init(&vm->op_lock);
	mutex_init(&vm->ext_lock);
	mutex_init(&vm->bind_lock);
	spin_lock_init(&vm->fault_lock);
	INIT_WORK(&vm->release_work, txda_vm_release_work);
	txda_locks_show_vm(vm);
	vm->fence_context = dma_fence_context_alloc(1);
	drm_gpuvm_init(&vm->base, "txda", 0, &tdev->drm, resv, DRM_TXDA_PAGE_SIZE,
		       range - DRM_TXDA_PAGE_SIZE, 0, 0, &txda_vm_gpuvm_ops);
	drm_gem_object_put(resv);
	/* Its release may happen after the client's file is gone. */
	__module_get(THIS_MODULE);

	mutex_lock(&tdev->vms_lock);
	list_add_tail(&vm->link, &tdev->vms);
	mutex_unlock(&tdev->vms_lock);

	*ret_vm = vm;
	return 0;

err_pt:
	vm->pt.online = true;
	txda_pt_fini(&vm->pt);
err_resv:
	drm_gem_object_put(resv);
err_free:
	kfree(vm);
	return err;
}

/* Its id is gone: frees mappings, page tables and VMID now. Drops the id's reference. */
static void txda_vm_kill(struct txda_vm *vm)
{
	struct txda_device *tdev = vm->tdev;
	struct drm_gpuva *va, *next;
	LIST_HEAD(vmas);
	bool stuck;
	int idx;

	txda_groups_leave(vm);
	mutex_lock(&tdev->vms_lock);
	list_del_init(&vm->link);
	mutex_unlock(&tdev->vms_lock);

	mutex_lock(&vm->op_lock);
	vm->dead = true;
	WRITE_ONCE(vm->lost, true);
	drm_gpuvm_for_each_va_safe(va, next, &vm->base) {
		drm_gpuva_remove(va);
		list_add_tail(&to_txda_vma(va)->node, &vmas);
	}
	mutex_unlock(&vm->op_lock);
	/* Pending binds find it dead, so they may continue even if the chip is down. */
	drm_sched_wqueue_start(&vm->sched);

	vm->pt.online = txda_device_enter_teardown(tdev, &idx);
	stuck = txda_pt_fini(&vm->pt);
	/* Memory must be quarantined before the reset that a stuck flush has requested. */
	txda_vm_free_vmas(vm, &vmas, stuck);
	if (vm->pt.online)
		txda_device_exit(tdev, idx);
	/* Pending binds hold its memory for as long as their client's fences take. */
	mutex_lock(&vm->bind_lock);
	if (!atomic_read(&vm->binds))
		txda_vm_uncharge(vm);
	mutex_unlock(&vm->bind_lock);
	txda_vm_put(vm);
}

void txda_vm_close_file(struct txda_file *file)
{
	struct txda_vm *vm;
	unsigned long id;

	xa_for_each(&file->vms, id, vm) {
		xa_erase(&file->vms, id);
		txda_vm_kill(vm);
	}
}

/* ---- All of a chip -------------------------------------------------------------------------- */

void txda_vms_lost(struct txda_device *tdev)
{
	struct txda_vm *vm;

	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link) {
		mutex_lock(&vm->op_lock);
		WRITE_ONCE(vm->lost, true);
		vm->pt.lost = true;
		mutex_unlock(&vm->op_lock);
	}
	mutex_unlock(&tdev->vms_lock);
}

void txda_vms_stop(struct txda_device *tdev)
{
	struct txda_vm *vm;

	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link)
		drm_sched_wqueue_stop(&vm->sched);
	mutex_unlock(&tdev->vms_lock);
}

void txda_vms_start(struct txda_device *tdev)
{
	struct txda_vm *vm;

	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link)
		drm_sched_wqueue_start(&vm->sched);
	mutex_unlock(&tdev->vms_lock);
}

static void txda_vm_zap(struct txda_vm *vm, struct drm_gem_object *obj, bool online,
			struct txda_pt_reserve *reserve)
{
	struct drm_gpuva *va;

	mutex_lock(&vm->op_lock);
	if (!vm->dead) {
		vm->pt.online = online;
		/* A huge page lies within one mapping, so none has to be split. */
		drm_gpuvm_for_each_va(va, &vm->base)
			if (va->gem.obj == obj)
				txda_pt_unmap(&vm->pt, reserve, va->va.addr, va->va.range);
		txda_pt_flush(&vm->pt, reserve);
	}
	mutex_unlock(&vm->op_lock);
}

void txda_vms_zap(struct txda_device *tdev, struct drm_gem_object *obj)
{
	struct txda_pt_reserve reserve;
	struct txda_vm *vm;
	bool online;
	int idx;

	txda_pt_reserve_init(&reserve);
	online = txda_device_enter_teardown(tdev, &idx);
	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link)
		txda_vm_zap(vm, obj, online, &reserve);
	mutex_unlock(&tdev->vms_lock);
	/* Takes vram.lock, which fences do not wait for. */
	txda_pt_reserve_free(&reserve);
	if (online)
		txda_device_exit(tdev, idx);
}

/* ---- Ioctls --------------------------------------------------------------------------------- */

int txda_ioctl_vm_create(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct txda_file *file = to_txda_file(drm_file);
	struct txda_device *tdev = to_txda(drm);
	struct drm_txda_vm_create *args = data;
	u64 range = 1ull << tdev->info.va_bits;
	struct txda_vm *vm;
	int idx, err;

	if (args->flags || !IS_ALIGNED(args->va_range, DRM_TXDA_PAGE_SIZE))
		return -EINVAL;
	if (args->va_range) {
		if (args->va_range > range || args->va_range == DRM_TXDA_PAGE_SIZE)
			return -EINVAL;
		range = args->va_range;
	}

	err = txda_user_charge(file->user, TXDA_USER_VMS);
	if (err)
		return err;
	err = txda_device_enter(tdev, &idx);
	if (!err) {
		err = txda_vm_new(tdev, file->user, range, &vm);
		txda_device_exit(tdev, idx);
	}
	if (err) {
		txda_user_uncharge(file->user, TXDA_USER_VMS);
		return err;
	}

	/* Another thread may destroy it as soon as it has an id. */
	kref_get(&vm->ref);
	err = xa_alloc(&file->vms, &vm->id, vm, XA_LIMIT(1, INT_MAX), GFP_KERNEL_ACCOUNT);
	if (err) {
		txda_vm_kill(vm);
	} else {
		args->id = vm->id;
		args->va_range = range;
	}
	txda_vm_put(vm);

	return err;
}

int txda_ioctl_vm_destroy(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct txda_file *file = to_txda_file(drm_file);
	struct drm_txda_vm_destroy *args = data;
	struct txda_vm *vm;
	int err = 0;

	if (args->pad)
		return -EINVAL;

	xa_lock(&file->vms);
	vm = xa_load(&file->vms, args->id);
	if (!vm)
		err = -ENOENT;
	else if (atomic_cmpxchg(&vm->queues, 0, TXDA_VM_NO_MORE))
		err = -EBUSY;
	else
		__xa_erase(&file->vms, args->id);
	xa_unlock(&file->vms);
	if (err)
		return err;

	txda_vm_kill(vm);
	return 0;
}

int txda_ioctl_vm_get_state(struct drm_device *drm, void *data, struct drm_file *drm_file)
{
	struct drm_txda_vm_get_state *args = data;
	struct drm_txda_fault fault;
	struct txda_vm *vm;
	int err;

	err = txda_answer_check(&args->fault);
	if (err)
		return err;
	vm = txda_vm_lookup(to_txda_file(drm_file), args->id);
	if (!vm)
		return -ENOENT;
	args->state = READ_ONCE(vm->lost) ? DRM_TXDA_VM_LOST : DRM_TXDA_VM_USABLE;
	spin_lock(&vm->fault_lock);
	fault = vm->fault;
	spin_unlock(&vm->fault_lock);
	txda_vm_put(vm);

	return txda_answer_put(&args->fault, &fault, sizeof(fault));
}
