// SPDX-License-Identifier: GPL-2.0
#include "gem.h"

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>
#include <drm/drm_vma_manager.h>

#include "compat/dmem.h"
#include "compat/gpuvm.h"
#include "compat/slab.h"
#include "device.h"
#include "evict.h"
#include "file.h"
#include "host.h"
#include "reset.h"
#include "runs.h"
#include "userptr.h"
#include "vm.h"
#include "vram.h"

int txda_gem_init(struct txda_device *tdev)
{
	BUILD_BUG_ON(PAGE_SHIFT != TXDA_PAGE_SHIFT);

	INIT_LIST_HEAD(&tdev->gem.bos);
	INIT_LIST_HEAD(&tdev->gem.aside);
	init_rwsem(&tdev->gem.fault_lock);
	tdev->gem.region = txda_dmem_region(&tdev->drm, "vram", tdev->dram_bytes);
	if (IS_ERR(tdev->gem.region))
		return PTR_ERR(tdev->gem.region);
	return drmm_mutex_init(&tdev->drm, &tdev->gem.lock);
}

/* ---- Objects -------------------------------------------------------------------------------- */

/* Ends its DMA mapping: at the end of the buffer or of the chip, whichever comes first. */
static void txda_bo_unplug(struct txda_bo *bo)
{
	if (bo->kind == TXDA_BO_DMABUF)
		txda_import_unmap(bo);
	else
		txda_bo_unmap_pages(bo);
}

static void txda_bo_free(struct drm_gem_object *obj)
{
	struct txda_bo *bo = to_txda_bo(obj);
	struct txda_gem *gem = &to_txda(obj->dev)->gem;

	txda_evict_leave(bo);
	/* Under the lock, so that removal of the chip waits for it. */
	mutex_lock(&gem->lock);
	list_del(&bo->link);
	txda_bo_unplug(bo);
	mutex_unlock(&gem->lock);

	switch (bo->kind) {
	case TXDA_BO_DEVICE:
		txda_vram_free(bo->vram);
		txda_evict_forget(bo);
		dmem_cgroup_uncharge(bo->cgroup, obj->size);
		break;
	case TXDA_BO_HOST:
		txda_host_free(bo);
		txda_evict_forget(bo);
		break;
	case TXDA_BO_USERPTR:
		txda_userptr_unpin(bo);
		kvfree(bo->runs);
		break;
	case TXDA_BO_DMABUF:
		txda_import_free(bo);
		break;
	case TXDA_BO_PEER:
		txda_peer_free(bo);
		break;
	}
	drm_gem_object_release(obj);
	if (bo->vm_resv)
		drm_gem_object_put(bo->vm_resv);
	if (bo->user)
		txda_user_uncharge(bo->user, TXDA_USER_BUFFERS);
	kfree(bo->label);
	kfree(bo);
}

static void txda_bo_print_info(struct drm_printer *p, unsigned int indent,
			       const struct drm_gem_object *obj)
{
	const struct txda_bo *bo = container_of(obj, struct txda_bo, base);

	drm_printf_indent(p, indent, "kind=%u flags=%#x\n", bo->kind, bo->flags);
}

static struct sg_table *txda_bo_get_sg_table(struct drm_gem_object *obj)
{
	return drm_prime_pages_to_sg(obj->dev, to_txda_bo(obj)->pages, obj->size >> PAGE_SHIFT);
}

static enum drm_gem_object_status txda_bo_status(struct drm_gem_object *obj)
{
	return DRM_GEM_OBJECT_RESIDENT;
}

static const struct drm_gem_object_funcs txda_bo_funcs = {
	.free = txda_bo_free,
	.print_info = txda_bo_print_info,
	.export = txda_gem_export,
	.get_sg_table = txda_bo_get_sg_table,
	.mmap = txda_gem_mmap,
	.status = txda_bo_status,
	.vm_ops = &txda_gem_vm_ops,
};

struct txda_bo *txda_bo_new(struct txda_device *tdev, enum txda_bo_kind kind, u64 size,
			    struct dma_resv *resv)
{
	struct txda_bo *bo = kzalloc_obj(*bo, GFP_KERNEL_ACCOUNT);

	if (!bo)
		return NULL;
	bo->kind = kind;
	INIT_LIST_HEAD(&bo->link);
	INIT_LIST_HEAD(&bo->idle_link);
	bo->base.resv = resv;
	bo->base.funcs = &txda_bo_funcs;
	drm_gem_private_object_init(&tdev->drm, &bo->base, size);
	drm_gem_gpuva_init(&bo->base);
	return bo;
}

/* A buffer created by a client, not imported. */
static int txda_bo_charge(struct txda_bo *bo, struct drm_file *file)
{
	struct txda_user *user = to_txda_file(file)->user;
	int err = txda_user_charge(user, TXDA_USER_BUFFERS);

	if (!err)
		bo->user = user;
	return err;
}

int txda_bo_publish(struct txda_bo *bo)
{
	struct txda_gem *gem = &to_txda(bo->base.dev)->gem;
	int err = 0;

	mutex_lock(&gem->lock);
	if (gem->unplugged)
		err = -ENODEV;
	else
		list_add_tail(&bo->link, &gem->bos);
	mutex_unlock(&gem->lock);

	return err;
}

int txda_bo_pte_flags(struct txda_device *tdev, struct txda_bo *bo, bool read_only, u64 *ret_pte)
{
	u64 pte = TXDA_PTE_READ | (read_only ? 0 : TXDA_PTE_WRITE);
	int idx, port;

	bo = txda_bo_local(bo);
	switch (bo->kind) {
	case TXDA_BO_DEVICE:
		pte |= (u64)TXDA_APERTURE_LOCAL << TXDA_PTE_APERTURE_SHIFT;
		break;
	case TXDA_BO_PEER:
		if (!drm_dev_enter(bo->peer->base.dev, &idx))
			return -ENODEV;
		/* A buffer of this chip, which is up: the caller is in txda_device_enter(). */
		port = txda_device_port_to(tdev, to_txda(bo->peer->base.dev));
		drm_dev_exit(idx);
		if (port < 0)
			return port;
		pte |= (u64)TXDA_APERTURE_C2C << TXDA_PTE_APERTURE_SHIFT;
		pte |= (u64)port << TXDA_PTE_PORT_SHIFT;
		break;
	default:
		if (READ_ONCE(bo->revoked))
			return -ENODEV;
		pte |= (u64)TXDA_APERTURE_SYSTEM << TXDA_PTE_APERTURE_SHIFT;
		if (!(bo->flags & DRM_TXDA_BO_WRITE_COMBINE))
			pte |= TXDA_PTE_COHERENT;
	}
	*ret_pte = pte;
	return 0;
}

void txda_bo_run(struct txda_bo *bo, u64 at, u64 *ret_addr, u64 *ret_bytes)
{
	txda_runs_find(bo->runs, at, ret_addr, ret_bytes);
}

int txda_gem_get_vm_resv(struct drm_file *file, u32 vm_id, struct drm_gem_object **ret_obj)
{
	struct drm_gem_object *obj = NULL;
	struct txda_vm *vm;

	if (vm_id) {
		vm = txda_vm_lookup(to_txda_file(file), vm_id);
		if (!vm)
			return -ENOENT;
		obj = drm_gpuvm_resv_obj(&vm->base);
		drm_gem_object_get(obj);
		txda_vm_put(vm);
	}
	*ret_obj = obj;
	return 0;
}

/* ---- The chip goes -------------------------------------------------------------------------- */

void txda_gem_unmap(struct txda_device *tdev)
{
	/* Mappings through dma-bufs are in the same address_space, that of the node's inode. */
	unmap_mapping_range(tdev->drm.anon_inode->i_mapping, 0, 0, 1);
}

void txda_gem_unplug(struct txda_device *tdev)
{
	struct txda_gem *gem = &tdev->gem;
	struct txda_bo *bo;

	txda_gem_unmap(tdev);
	txda_peers_unplug(tdev);

	mutex_lock(&gem->lock);
	gem->unplugged = true;
	list_for_each_entry(bo, &gem->bos, link)
		txda_bo_unplug(bo);
	mutex_unlock(&gem->lock);

	txda_gem_free_quarantined(tdev);
}

void txda_gem_quarantine(struct txda_device *tdev, struct txda_vma *vma)
{
	mutex_lock(&tdev->gem.lock);
	list_add_tail(&vma->node, &tdev->gem.aside);
	mutex_unlock(&tdev->gem.lock);
}

void txda_gem_free_quarantined(struct txda_device *tdev)
{
	struct txda_vma *vma, *next;
	LIST_HEAD(vmas);

	mutex_lock(&tdev->gem.lock);
	list_splice_init(&tdev->gem.aside, &vmas);
	mutex_unlock(&tdev->gem.lock);

	list_for_each_entry_safe(vma, next, &vmas, node) {
		txda_bo_unpin(to_txda_bo(vma->base.gem.obj));
		drm_gem_object_put(vma->base.gem.obj);
		kfree(vma);
	}
	txda_peers_release(tdev);
	txda_vram_free_quarantined(tdev);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

void txda_gem_stats(struct drm_file *file, struct drm_memory_stats *ret_vram,
		    struct drm_memory_stats *ret_host)
{
	struct drm_gem_object *obj;
	int id;

	memset(ret_vram, 0, sizeof(*ret_vram));
	memset(ret_host, 0, sizeof(*ret_host));

	spin_lock(&file->table_lock);
	idr_for_each_entry(&file->object_idr, obj, id) {
		struct txda_bo *bo = txda_bo_local(to_txda_bo(obj));
		struct drm_memory_stats *stats = ret_host;

		/* Belongs to another chip, and is counted there. */
		if (bo->kind == TXDA_BO_PEER)
			continue;
		/* It has no memory. */
		if (READ_ONCE(bo->dropped))
			continue;
		if (bo->kind == TXDA_BO_DEVICE && READ_ONCE(bo->vram))
			stats = ret_vram;
		if (drm_gem_object_is_shared_for_memory_stats(obj))
			stats->shared += obj->size;
		else
			stats->private += obj->size;
		stats->resident += obj->size;
		if (READ_ONCE(bo->advice) == DRM_TXDA_DONTNEED)
			stats->purgeable += obj->size;
		if (!dma_resv_test_signaled(obj->resv, DMA_RESV_USAGE_BOOKKEEP))
			stats->active += obj->size;
	}
	spin_unlock(&file->table_lock);
}

void txda_gem_show(struct txda_device *tdev, struct seq_file *m)
{
	static const char *const kinds[] = {
		[TXDA_BO_DEVICE] = "device",  [TXDA_BO_HOST] = "host", [TXDA_BO_USERPTR] = "user",
		[TXDA_BO_DMABUF] = "dma-buf", [TXDA_BO_PEER] = "peer",
	};
	struct txda_bo *bo;

	mutex_lock(&tdev->gem.lock);
	list_for_each_entry(bo, &tdev->gem.bos, link)
		seq_printf(m, "%-8s %12zu bytes %6u runs  flags %#x  %s  %s\n", kinds[bo->kind],
			   bo->base.size, bo->runs ? bo->runs->count : 0, bo->flags,
			   bo->vm_resv ? "private" : "shareable", bo->label ? bo->label : "");
	mutex_unlock(&tdev->gem.lock);
}

/* ---- Ioctls --------------------------------------------------------------------------------- */

/* Charges the control group of the caller, whose idle buffers make room for it. */
static int txda_bo_charge_group(struct txda_device *tdev, struct txda_bo *bo,
				struct dmem_cgroup_pool_state **ret_cgroup)
{
	struct dmem_cgroup_pool_state *limit = NULL;
	bool taken;
	int err;

	for (;;) {
		if (fatal_signal_pending(current))
			return -EINTR;
		/* -EAGAIN: @limit has no room for it. */
		err = dmem_cgroup_try_charge(tdev->gem.region, bo->base.size, ret_cgroup, &limit);
		if (err != -EAGAIN)
			return err;
		taken = txda_evict_one_in(tdev, limit);
		dmem_cgroup_pool_state_put(limit);
		if (!taken)
			return -ENOSPC;
	}
}

static int txda_bo_place_device(struct txda_device *tdev, struct txda_bo *bo)
{
	unsigned int flags = bo->moved ? 0 : TXDA_VRAM_CLEAR;
	struct dmem_cgroup_pool_state *cgroup = NULL;
	struct txda_vram_block *block;
	int err;

	if (!(bo->flags & DRM_TXDA_BO_NO_MMAP))
		flags |= TXDA_VRAM_MAPPABLE;
	/* Before anything makes room for it. */
	if (bo->base.size > txda_vram_most(tdev, flags))
		return -ENOSPC;
	err = txda_bo_charge_group(tdev, bo, &cgroup);
	if (err)
		return err;
	err = txda_vram_alloc(tdev, bo->base.size, flags, cgroup, &block);
	if (err)
		goto err_uncharge;
	err = bo->moved ? txda_evict_read_back(bo, block) : txda_vram_clear(block);
	if (err)
		goto err_block;

	mutex_lock(&tdev->gem.lock);
	WRITE_ONCE(bo->vram, block);
	bo->runs = block->runs;
	bo->cgroup = cgroup;
	mutex_unlock(&tdev->gem.lock);
	return 0;

err_block:
	if (err == -ETIMEDOUT) {
		txda_vram_quarantine(block);
		err = -EIO;
	} else {
		txda_vram_free(block);
	}
err_uncharge:
	dmem_cgroup_uncharge(cgroup, bo->base.size);
	return err;
}

int txda_bo_place(struct txda_device *tdev, struct txda_bo *bo)
{
	return bo->kind == TXDA_BO_DEVICE ? txda_bo_place_device(tdev, bo) : txda_bo_map_pages(bo);
}

/* Creates the buffer without a handle. In txda_device_enter(). */
static int txda_bo_place_new(struct txda_device *tdev, struct txda_bo *bo)
{
	int err = txda_bo_place(tdev, bo);

	return err ? err : txda_bo_publish(bo);
}

/* Creates it as one kind; on -ENOSPC the caller tries the next placement. */
static int txda_bo_create_in(struct drm_file *file, const struct drm_txda_bo_create *args,
			     enum txda_bo_kind kind, struct drm_gem_object *resv, u64 size,
			     u32 *ret_handle)
{
	struct txda_device *tdev = to_txda_file(file)->tdev;
	struct txda_bo *bo;
	int err, idx;

	bo = txda_bo_new(tdev, kind, size, resv ? resv->resv : NULL);
	if (!bo)
		return -ENOMEM;
	bo->flags = args->flags;
	/* Elsewhere the kernel's own mapping stays cached, and stale lines may be written back. */
	if (!IS_ENABLED(CONFIG_X86))
		bo->flags &= ~DRM_TXDA_BO_WRITE_COMBINE;
	if (resv) {
		drm_gem_object_get(resv);
		bo->vm_resv = resv;
		bo->vm_id = args->vm_id;
	}
	err = txda_bo_charge(bo, file);
	/*
	 * The kernel may have to reclaim memory for it, so the pages are allocated before the
	 * section that resets wait for.
	 */
	if (!err && kind == TXDA_BO_HOST)
		err = txda_host_alloc(bo);
	if (!err)
		err = txda_device_enter(tdev, &idx);
	if (!err) {
		err = txda_bo_place_new(tdev, bo);
		txda_device_exit(tdev, idx);
	}
	if (!err)
		err = drm_gem_handle_create(file, &bo->base, ret_handle);
	drm_gem_object_put(&bo->base);

	return err;
}

int txda_ioctl_bo_create(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_bo_create *args = data;
	struct drm_gem_object *resv;
	u32 handle;
	u64 size;
	int err = -ENOSPC;

	if (!args->places || (args->places & ~(DRM_TXDA_PLACE_DEVICE | DRM_TXDA_PLACE_HOST)) ||
	    (args->flags & ~(DRM_TXDA_BO_NO_MMAP | DRM_TXDA_BO_WRITE_COMBINE)))
		return -EINVAL;
	if (!args->size || args->size > S64_MAX - DRM_TXDA_PAGE_SIZE)
		return -EINVAL;
	size = ALIGN(args->size, DRM_TXDA_PAGE_SIZE);
	err = txda_gem_get_vm_resv(file, args->vm_id, &resv);
	if (err)
		return err;

	err = -ENOSPC;
	if (args->places & DRM_TXDA_PLACE_DEVICE)
		err = txda_bo_create_in(file, args, TXDA_BO_DEVICE, resv, size, &handle);
	if (err == -ENOSPC && (args->places & DRM_TXDA_PLACE_HOST))
		err = txda_bo_create_in(file, args, TXDA_BO_HOST, resv, size, &handle);
	if (resv)
		drm_gem_object_put(resv);
	if (err)
		return err;

	args->size = size;
	args->handle = handle;
	return 0;
}

int txda_ioctl_bo_from_userptr(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct txda_device *tdev = to_txda(drm);
	struct drm_txda_bo_from_userptr *args = data;
	struct drm_gem_object *resv;
	struct txda_bo *bo;
	u32 handle;
	int err, idx;

	if ((args->flags & ~DRM_TXDA_USERPTR_READONLY) || args->pad || !args->size ||
	    !IS_ALIGNED(args->va | args->size, DRM_TXDA_PAGE_SIZE))
		return -EINVAL;
	err = txda_gem_get_vm_resv(file, args->vm_id, &resv);
	if (err)
		return err;
	bo = txda_bo_new(tdev, TXDA_BO_USERPTR, args->size, resv ? resv->resv : NULL);
	if (!bo) {
		if (resv)
			drm_gem_object_put(resv);
		return -ENOMEM;
	}
	bo->flags = DRM_TXDA_BO_USERPTR;
	bo->read_only = args->flags & DRM_TXDA_USERPTR_READONLY;
	bo->vm_resv = resv;
	bo->vm_id = args->vm_id;

	err = txda_bo_charge(bo, file);
	if (!err)
		err = txda_userptr_pin(bo, args->va);
	if (!err)
		err = txda_device_enter(tdev, &idx);
	if (!err) {
		err = txda_bo_place_new(tdev, bo);
		txda_device_exit(tdev, idx);
	}
	if (!err)
		err = drm_gem_handle_create(file, &bo->base, &handle);
	drm_gem_object_put(&bo->base);
	if (err)
		return err;

	args->handle = handle;
	return 0;
}

int txda_ioctl_bo_mmap_offset(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_bo_mmap_offset *args = data;
	struct drm_gem_object *obj;
	int err;

	if (args->pad)
		return -EINVAL;
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	if (to_txda_bo(obj)->flags & (DRM_TXDA_BO_NO_MMAP | DRM_TXDA_BO_USERPTR))
		err = -EPERM;
	else
		err = drm_gem_create_mmap_offset(obj);
	if (!err)
		args->offset = drm_vma_node_offset_addr(&obj->vma_node);
	drm_gem_object_put(obj);

	return err;
}

/* The address space may be gone, and its id reused. */
static u32 txda_bo_vm_id(struct drm_file *file, struct txda_bo *bo)
{
	struct txda_vm *vm = bo->vm_id ? txda_vm_lookup(to_txda_file(file), bo->vm_id) : NULL;
	u32 id = 0;

	if (!vm)
		return 0;
	if (bo->vm_resv == drm_gpuvm_resv_obj(&vm->base))
		id = bo->vm_id;
	txda_vm_put(vm);
	return id;
}

int txda_ioctl_bo_query_info(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_bo_query_info *args = data;
	struct drm_gem_object *obj = drm_gem_object_lookup(file, args->handle);
	struct txda_bo *bo;

	if (!obj)
		return -ENOENT;
	bo = txda_bo_local(to_txda_bo(obj));
	args->place =
		(bo->kind == TXDA_BO_DEVICE && READ_ONCE(bo->vram)) || bo->kind == TXDA_BO_PEER
			? DRM_TXDA_PLACE_DEVICE
			: DRM_TXDA_PLACE_HOST;
	args->flags = to_txda_bo(obj)->flags;
	args->vm_id = txda_bo_vm_id(file, bo);
	args->size = obj->size;
	drm_gem_object_put(obj);

	return 0;
}

int txda_ioctl_bo_set_label(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_bo_set_label *args = data;
	struct drm_gem_object *obj;
	char *label = NULL;

	if (args->pad)
		return -EINVAL;
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	if (args->label) {
		label = strndup_user(u64_to_user_ptr(args->label), DRM_TXDA_MAX_LABEL);
		if (IS_ERR(label)) {
			drm_gem_object_put(obj);
			/* strndup_user() returns -EINVAL for a string that is too long. */
			return PTR_ERR(label) == -EINVAL ? -E2BIG : PTR_ERR(label);
		}
	}

	mutex_lock(&to_txda(drm)->gem.lock);
	swap(label, to_txda_bo(obj)->label);
	mutex_unlock(&to_txda(drm)->gem.lock);
	kfree(label);
	drm_gem_object_put(obj);

	return 0;
}
