// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing of buffers between files, chips and drivers through dma-bufs: see gem.h.
 *
 * Host memory can be attached by any driver. Device memory cannot: its dma-buf can be imported only
 * by a txda node, which has access to the memory behind it, and used for mmap().
 *
 * A buffer has one dma-buf at a time, as in DRM generally, with the access rights that its first
 * export gave.
 */
#include <linux/dma-buf.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_prime.h>

#include "device.h"
#include "evict.h"
#include "gem.h"
#include "host.h"
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

struct drm_gem_object *txda_gem_prime_import(struct drm_device *drm, struct dma_buf *dma_buf)
{
	int err;

	if (dma_buf->ops == &txda_dmabuf_ops) {
		struct drm_gem_object *obj = dma_buf->priv;

		if (obj->dev == drm && !txda_dmabuf_is_read_only(dma_buf)) {
			drm_gem_object_get(obj);
			return obj;
		}
		if (obj->dev == drm || to_txda_bo(obj)->kind == TXDA_BO_DEVICE)
			return txda_import_peer(to_txda(drm), dma_buf, to_txda_bo(obj));
	}
	err = txda_host_check_dma(drm->dev);
	return err ? ERR_PTR(err) : drm_gem_prime_import_dev(drm, dma_buf, drm->dev);
}

struct drm_gem_object *txda_gem_import_sg_table(struct drm_device *drm,
						struct dma_buf_attachment *attach,
						struct sg_table *sgt)
{
	struct dma_buf *dma_buf = attach->dmabuf;
	struct txda_bo *bo;
	int err;

	if (!dma_buf->size || !IS_ALIGNED(dma_buf->size, DRM_TXDA_PAGE_SIZE))
		return ERR_PTR(-EINVAL);
	bo = txda_bo_new(to_txda(drm), TXDA_BO_DMABUF, dma_buf->size, dma_buf->resv);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->flags = DRM_TXDA_BO_IMPORTED;
	bo->read_only = txda_dmabuf_is_read_only(dma_buf);
	err = txda_runs_from_sgt(sgt, dma_buf->size, &bo->runs);
	if (err)
		goto err_put;
	/* From here on the object owns them; before, the caller undoes its work. */
	bo->attach = attach;
	bo->sgt = sgt;
	err = txda_bo_publish(bo);
	if (err) {
		bo->attach = NULL;
		bo->sgt = NULL;
		goto err_put;
	}
	return &bo->base;

err_put:
	drm_gem_object_put(&bo->base);
	return ERR_PTR(err);
}

/*
 * A buffer of another chip that maps DRAM of @tdev and has not been visited yet, with a reference,
 * or NULL.
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
	struct txda_bo *bo;

	/*
	 * Without the lock: a reset of the other chip, which frees such buffers, may be in
	 * progress.
	 */
	while ((bo = txda_peers_next(tdev))) {
		txda_vms_zap(to_txda(bo->base.dev), &bo->base);
		drm_gem_object_put(&bo->base);
	}
}
