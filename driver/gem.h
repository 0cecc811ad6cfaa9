/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Buffers: GEM objects in device memory, host memory, user memory, or from another exporter.
 *
 * Placement is decided at creation and never changes: nothing is evicted, so an address that a
 * client bound stays good without any work at submission. New buffers are zero.
 *
 * Private buffers (vm_id at creation) share the reservation object of their address space and
 * cannot be exported. An imported buffer that another TX8 exports is used in place: through C2C when
 * it lies in that chip's DRAM, through system memory otherwise.
 *
 * Lifetime: GEM's reference count. CPU mappings of device memory are taken away when the chip goes;
 * touching them then is a SIGBUS, never stale data.
 * Threads: any; may sleep.
 */
#ifndef TXDA_GEM_H
#define TXDA_GEM_H

#include <drm/drm_gem.h>

#include "drm/txda_drm.h"

struct sg_table;
struct txda_device;
struct txda_vm;
struct txda_vram_block;

enum txda_bo_kind {
	TXDA_BO_DEVICE,		/* DRAM of its chip */
	TXDA_BO_HOST,		/* pages of the kernel */
	TXDA_BO_USERPTR,	/* pinned pages of a process */
	TXDA_BO_DMABUF,		/* attached dma-buf of another driver, or host memory of a peer */
	TXDA_BO_PEER,		/* DRAM of another TX8 */
};

/**
 * struct txda_bo - One buffer.
 */
struct txda_bo {
	/** @base: GEM object. */
	struct drm_gem_object base;

	/** @kind: Where its bytes are. */
	enum txda_bo_kind kind;

	/** @flags: DRM_TXDA_BO_* as created, plus those that are out only. */
	u32 flags;

	/** @read_only: The chip must not write (USERPTR_READONLY, read-only dma-buf). */
	bool read_only;

	/** @vm: The address space it is private to; holds a reference to its resv. NULL: shareable. */
	struct txda_vm *vm;

	/** @vm_id: Of @vm in its file, 0: none. */
	u32 vm_id;

	/** @vram: TXDA_BO_DEVICE: its DRAM. */
	struct txda_vram_block *vram;

	/** @pages: TXDA_BO_HOST and USERPTR: its pages. */
	struct page **pages;

	/** @sgt: HOST, USERPTR, DMABUF: its pages as the chip sees them. */
	struct sg_table *sgt;

	/** @peer: TXDA_BO_PEER: the exporter's buffer; @base.import_attach or a dma-buf reference holds it. */
	struct txda_bo *peer;

	/** @label_lock: @label. */
	struct mutex label_lock;

	/** @label: For debugfs and dumps, or NULL. */
	char *label;
};

static inline struct txda_bo *to_txda_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct txda_bo, base);
}

/*
 * The run of memory at byte @at: its address for a PTE with the PTE's aperture, port and coherence
 * bits, and how many bytes it has. For a peer's DRAM -EXDEV when no port leads there.
 */
int txda_bo_run(struct txda_device *tdev, struct txda_bo *bo, u64 at, u64 *ret_addr, u64 *ret_pte,
		u64 *ret_bytes);

int txda_ioctl_bo_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_mmap_offset(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_query_info(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_set_label(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_from_userptr(struct drm_device *drm, void *data, struct drm_file *file);

struct drm_gem_object *txda_gem_prime_import(struct drm_device *drm, struct dma_buf *dma_buf);
/* Driver hook of PRIME imports from other exporters. */
struct drm_gem_object *txda_gem_import_sg_table(struct drm_device *drm,
						struct dma_buf_attachment *attach,
						struct sg_table *sgt);

/* The chip goes: takes all CPU mappings of device memory away. After drm_dev_unplug(). */
void txda_gem_unplug(struct txda_device *tdev);

#endif /* TXDA_GEM_H */
