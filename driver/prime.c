// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing of buffers between files, chips and drivers through dma-bufs: see gem.h.
 *
 * Host memory can be attached by any driver. Device memory cannot: its dma-buf can be imported only
 * by a txda node, which has access to the memory behind it, and used for mmap().
 *
 * Buffers of other drivers are used in place, also in memory of PCI devices, and pinned there.
 * Their exporter may still revoke them, for example because its device is removed: then the chip
 * loses its access permanently.
 *
 * A buffer has one dma-buf at a time, as in DRM generally, with the access rights that its first
 * export gave.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_prime.h>

#include "compat/dma_buf.h"
#include "device.h"
#include "evict.h"
#include "fence.h"
#include "gem.h"
#include "host.h"
#include "reset.h"
#include "runs.h"
#include "vm.h"
#include "vram.h"

/* All buffers of kind PEER. No other lock is taken inside this one. */
static DEFINE_MUTEX(txda_peers_lock);
static LIST_HEAD(txda_peers);

static int txda_dmabuf_attach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	struct txda_bo *bo = to_txda_bo(dma_buf->priv);

	if (bo->kind != TXDA_BO_HOST)
		return -EOPNOTSUPP;
	return drm_gem_map_attach(dma_buf, attach);
}

static const struct dma_buf_ops txda_dmabuf_ops = {
	.attach = txda_dmabuf_attach,
	.detach = drm_gem_map_detach,
	.map_dma_buf = drm_gem_map_dma_buf,
	.unmap_dma_buf = drm_gem_unmap_dma_buf,
	.release = drm_gem_dmabuf_release,
	.mmap = drm_gem_dmabuf_mmap,
};

struct dma_buf *txda_gem_export(struct drm_gem_object *obj, int flags)
{
	struct dma_buf_export_info info = {
		.exp_name = "txda",
		.owner = obj->dev->driver->fops->owner,
		.ops = &txda_dmabuf_ops,
		.size = obj->size,
		.flags = flags,
		.priv = obj,
		.resv = obj->resv,
	};
	struct txda_bo *bo = to_txda_bo(obj);
	int err;

	/* An imported buffer is exported as the dma-buf it was imported from. */
	if (bo->vm_resv || bo->kind == TXDA_BO_USERPTR || bo->kind == TXDA_BO_PEER)
		return ERR_PTR(-EPERM);
	/*
	 * Importers keep the memory, so from now on it is in use. Exports of a chip's buffers come
	 * one after the other.
	 */
	if (!bo->exported && !txda_bo_pin(bo))
		return ERR_PTR(-EBUSY);
	WRITE_ONCE(bo->exported, true);
	/*
	 * Page offsets of its mappings are relative to the object's offset, which must not change
	 * while they exist.
	 */
	err = drm_gem_create_mmap_offset(obj);
	if (err)
		return ERR_PTR(err);
	return drm_gem_dmabuf_export(obj->dev, &info);
}

static bool txda_dmabuf_is_read_only(const struct dma_buf *dma_buf)
{
	return !(dma_buf->file->f_mode & FMODE_WRITE);
}

static struct drm_gem_object *txda_import_peer(struct txda_device *tdev, struct dma_buf *dma_buf,
					       struct txda_bo *peer)
{
	struct txda_bo *bo;
	int err;

	bo = txda_bo_new(tdev, TXDA_BO_PEER, peer->base.size, dma_buf->resv);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	get_dma_buf(dma_buf);
	bo->peer_buf = dma_buf;
	bo->peer = peer;
	bo->runs = peer->runs;
	bo->read_only = txda_dmabuf_is_read_only(dma_buf);
	/* A buffer of this chip that is imported again is still a buffer of this chip. */
	bo->flags = peer->base.dev == &tdev->drm
			    ? peer->flags
			    : DRM_TXDA_BO_IMPORTED | (peer->flags & DRM_TXDA_BO_NO_MMAP);
	mutex_lock(&txda_peers_lock);
	list_add_tail(&bo->peer_link, &txda_peers);
	mutex_unlock(&txda_peers_lock);

	err = txda_bo_publish(bo);
	if (err) {
		drm_gem_object_put(&bo->base);
		return ERR_PTR(err);
	}
	return &bo->base;
}

void txda_peer_free(struct txda_bo *bo)
{
	if (!bo->peer_buf)
		return;
	mutex_lock(&txda_peers_lock);
	list_del(&bo->peer_link);
	mutex_unlock(&txda_peers_lock);
	dma_buf_put(bo->peer_buf);
}

/* ---- Buffers of other drivers --------------------------------------------------------------- */

static void txda_import_revoke_work(struct work_struct *work)
{
	struct txda_bo *bo = container_of(work, struct txda_bo, revoke_work);
	struct drm_device *drm = bo->base.dev;
	struct txda_device *tdev = to_txda(drm);

	txda_vms_zap(tdev, &bo->base);
	/* A TLB flush of its mappings that did not end, now or earlier, has requested one. */
	txda_reset_flush(tdev);
	WRITE_ONCE(bo->zapped, true);
	/* Removal of the chip ends the mapping itself, when the chip has stopped. */
	if (!drm_dev_is_unplugged(drm)) {
		mutex_lock(&tdev->gem.lock);
		txda_import_unmap(bo);
		mutex_unlock(&tdev->gem.lock);
	}
	drm_gem_object_put(&bo->base);
	drm_dev_put(drm);
}

/*
 * Under the reservation object's lock. Jobs that were submitted may finish: the exporter waits for
 * their fences, and then for the mapping to end. No more are taken until translations have ended,
 * see txda_vm_validate_bo().
 */
static void txda_import_invalidate(struct dma_buf_attachment *attach)
{
	struct txda_bo *bo = attach->importer_priv;
	struct drm_gpuvm_bo *vm_bo;

	/* The exporter may move it as long as it is not mapped: for example when it is pinned. */
	if (!bo->sgt || bo->revoked)
		return;
	WRITE_ONCE(bo->revoked, true);
	/* A buffer that is being freed is not bound any more, and its mapping ends anyway. */
	if (!kref_get_unless_zero(&bo->base.refcount))
		return;
	drm_gem_for_each_gpuvm_bo(vm_bo, &bo->base)
		drm_gpuvm_bo_evict(vm_bo, true);
	drm_dev_get(bo->base.dev);
	/* Address spaces are changed in sections that reservation objects are locked in. */
	queue_work(txda_release_wq, &bo->revoke_work);
}

static const struct dma_buf_attach_ops txda_import_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = txda_import_invalidate,
};

static int txda_import_map_locked(struct txda_bo *bo)
{
	struct dma_buf_attachment *attach = bo->base.import_attach;
	struct sg_table *sgt;
	long left;
	int err;

	if (attach->importer_ops) {
		err = dma_buf_pin(attach);
		if (err)
			return err;
	}
	sgt = dma_buf_map_attachment(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt)) {
		if (attach->importer_ops)
			dma_buf_unpin(attach);
		return PTR_ERR(sgt);
	}
	bo->sgt = sgt;
	/* Moving or clearing the memory must be complete. */
	left = dma_resv_wait_timeout(bo->base.resv, DMA_RESV_USAGE_KERNEL, true,
				     MAX_SCHEDULE_TIMEOUT);
	return left < 0 ? left : txda_runs_from_sgt(sgt, bo->base.size, &bo->runs);
}

static int txda_import_map(struct txda_bo *bo)
{
	int err = dma_resv_lock_interruptible(bo->base.resv, NULL);

	if (err)
		return err;
	err = txda_import_map_locked(bo);
	dma_resv_unlock(bo->base.resv);
	return err;
}

void txda_import_unmap(struct txda_bo *bo)
{
	struct dma_buf_attachment *attach = bo->base.import_attach;

	if (!attach)
		return;
	dma_resv_lock(bo->base.resv, NULL);
	if (bo->sgt) {
		dma_buf_unmap_attachment(attach, bo->sgt, DMA_BIDIRECTIONAL);
		if (attach->importer_ops)
			dma_buf_unpin(attach);
		bo->sgt = NULL;
	}
	dma_resv_unlock(bo->base.resv);
}

void txda_import_free(struct txda_bo *bo)
{
	struct dma_buf_attachment *attach = bo->base.import_attach;
	struct dma_buf *dma_buf;

	kvfree(bo->runs);
	if (!attach)
		return;
	dma_buf = attach->dmabuf;
	dma_buf_detach(dma_buf, attach);
	dma_buf_put(dma_buf);
}

static struct drm_gem_object *txda_import(struct txda_device *tdev, struct dma_buf *dma_buf)
{
	struct dma_buf_attachment *attach;
	struct txda_bo *bo;
	int err;

	if (!dma_buf->size || !IS_ALIGNED(dma_buf->size, DRM_TXDA_PAGE_SIZE))
		return ERR_PTR(-EINVAL);
	err = txda_host_check_dma(tdev->drm.dev);
	if (err)
		return ERR_PTR(err);
	bo = txda_bo_new(tdev, TXDA_BO_DMABUF, dma_buf->size, dma_buf->resv);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->flags = DRM_TXDA_BO_IMPORTED;
	bo->read_only = txda_dmabuf_is_read_only(dma_buf);
	INIT_WORK(&bo->revoke_work, txda_import_revoke_work);

	attach = txda_dma_buf_attach(dma_buf, tdev->drm.dev, &txda_import_ops, bo);
	if (IS_ERR(attach)) {
		err = PTR_ERR(attach);
		goto err_put;
	}
	get_dma_buf(dma_buf);
	bo->base.import_attach = attach;
	err = txda_import_map(bo);
	if (!err)
		err = txda_bo_publish(bo);
	if (err)
		goto err_put;
	return &bo->base;

err_put:
	drm_gem_object_put(&bo->base);
	return ERR_PTR(err);
}

struct drm_gem_object *txda_gem_prime_import(struct drm_device *drm, struct dma_buf *dma_buf)
{
	if (dma_buf->ops == &txda_dmabuf_ops) {
		struct drm_gem_object *obj = dma_buf->priv;

		if (obj->dev == drm && !txda_dmabuf_is_read_only(dma_buf)) {
			drm_gem_object_get(obj);
			return obj;
		}
		if (obj->dev == drm || to_txda_bo(obj)->kind == TXDA_BO_DEVICE)
			return txda_import_peer(to_txda(drm), dma_buf, to_txda_bo(obj));
	}
	return txda_import(to_txda(drm), dma_buf);
}

/* ---- The chip, or another one, goes --------------------------------------------------------- */

/*
 * A buffer of another chip that maps DRAM of @tdev and has not been visited yet, or NULL. With a
 * reference, and one to that chip's DRM device, which may be removed at the same time.
 */
static struct txda_bo *txda_peers_next(struct txda_device *tdev)
{
	struct txda_bo *bo, *found = NULL;

	mutex_lock(&txda_peers_lock);
	list_for_each_entry(bo, &txda_peers, peer_link) {
		if (bo->peer->base.dev != &tdev->drm || txda_bo_local(bo) != bo || bo->peer_gone)
			continue;
		bo->peer_gone = true;
		/* A buffer that is being freed has no mappings. */
		if (!kref_get_unless_zero(&bo->base.refcount))
			continue;
		drm_dev_get(bo->base.dev);
		found = bo;
		break;
	}
	mutex_unlock(&txda_peers_lock);
	return found;
}

void txda_peers_hold(struct txda_device *tdev)
{
	struct txda_bo *bo;

	mutex_lock(&txda_peers_lock);
	list_for_each_entry(bo, &txda_peers, peer_link) {
		if (bo->base.dev != &tdev->drm || txda_bo_local(bo) != bo || bo->held)
			continue;
		/* A buffer that is being freed has no mappings. */
		bo->held = kref_get_unless_zero(&bo->base.refcount);
	}
	mutex_unlock(&txda_peers_lock);
}

static struct txda_bo *txda_peers_next_held(struct txda_device *tdev)
{
	struct txda_bo *bo, *found = NULL;

	mutex_lock(&txda_peers_lock);
	list_for_each_entry(bo, &txda_peers, peer_link) {
		if (bo->base.dev != &tdev->drm || !bo->held)
			continue;
		bo->held = false;
		found = bo;
		break;
	}
	mutex_unlock(&txda_peers_lock);
	return found;
}

void txda_peers_release(struct txda_device *tdev)
{
	struct txda_bo *bo;

	while ((bo = txda_peers_next_held(tdev)))
		drm_gem_object_put(&bo->base);
}

void txda_peers_unplug(struct txda_device *tdev)
{
	struct drm_device *other;
	struct txda_bo *bo;

	/*
	 * Without the lock: a reset of the other chip, which frees such buffers, may be in
	 * progress.
	 */
	while ((bo = txda_peers_next(tdev))) {
		other = bo->base.dev;
		txda_vms_zap(to_txda(other), &bo->base);
		drm_gem_object_put(&bo->base);
		drm_dev_put(other);
	}
}
