/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Buffers: GEM objects in device memory, host memory (host.h), user memory (userptr.h), or from
 * another exporter (prime.c).
 *
 * Placement is decided at creation. Only a buffer that its client has declared idle loses its
 * memory (evict.h), and nothing uses such a buffer: so a bound address stays valid and submission
 * needs no work per buffer. New buffers are zeroed.
 *
 * Private buffers (vm_id at creation) share the reservation object of their address space and
 * cannot be exported. A buffer imported from another TX8 is used in place: through C2C when it lies
 * in that chip's DRAM, through system memory otherwise. So is one of another driver, also if it is
 * memory of a PCI device.
 *
 * A client that imports a buffer through a read-only descriptor may only read it, on whatever chip.
 * The exporter's object has no such limit, so the client gets an object of kind PEER instead.
 *
 * Lifetime: GEM's reference count; a mapping in an address space holds one. CPU mappings of device
 * memory are revoked when the chip is removed; accessing them then raises SIGBUS and never returns
 * stale data. DMA mappings end then as well; a buffer that outlives its chip is memory that only
 * the CPU can access.
 * Threads: any; may sleep.
 */
#ifndef TXDA_GEM_H
#define TXDA_GEM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/workqueue.h>
#include <drm/drm_gem.h>

#include "drm/txda_drm.h"

struct dma_buf;
struct dmem_cgroup_pool_state;
struct dmem_cgroup_region;
struct drm_memory_stats;
struct file;
struct mem_cgroup;
struct mm_struct;
struct seq_file;
struct sg_table;
struct txda_device;
struct txda_runs;
struct txda_user;
struct txda_vm;
struct txda_vma;
struct txda_vram_block;
struct user_struct;

enum txda_bo_kind {
	TXDA_BO_DEVICE,	 /* DRAM of its chip */
	TXDA_BO_HOST,	 /* pages of the kernel */
	TXDA_BO_USERPTR, /* pinned pages of a process */
	TXDA_BO_DMABUF,	 /* attached dma-buf of another driver, or host memory of a peer */
	TXDA_BO_PEER,	 /* what another buffer of this driver has: see @peer */
};

/**
 * struct txda_bo - One buffer.
 */
struct txda_bo {
	/** @base: GEM object. */
	struct drm_gem_object base;

	/** @kind: Where its memory is. */
	enum txda_bo_kind kind;

	/** @flags: DRM_TXDA_BO_* as created, plus the output-only flags. */
	u32 flags;

	/**
	 * @read_only: Must not be written through this object (USERPTR_READONLY, read-only
	 * dma-buf).
	 */
	bool read_only;

	/**
	 * @vm_resv: The object with the reservation of the address space that it is private to
	 * (drm_gpuvm_resv_obj()), with a reference. NULL: shareable.
	 */
	struct drm_gem_object *vm_resv;

	/** @vm_id: Of that address space in its file, 0: none. */
	u32 vm_id;

	/** @pins: How often it is in use, or that it is idle: see evict.h. */
	atomic_t pins;

	/** @exported: It has had a dma-buf, and can never be idle. */
	bool exported;

	/** @advice: enum drm_txda_advice. Written by who has made it TXDA_BO_CHANGING. */
	u32 advice;

	/** @idle_link: In txda_evict.idle, while its memory can be taken; under txda_evict.lock. */
	struct list_head idle_link;

	/** @dropped: Its contents were dropped. Under txda_evict.lock, or as @advice. */
	bool dropped;

	/** @moved: DEVICE: host memory with its contents, while it has no DRAM, or NULL. */
	struct file *moved;

	/** @memcg: The control group that pays for @moved, with a reference, or NULL. */
	struct mem_cgroup *memcg;

	/** @vram: DEVICE: its DRAM. */
	struct txda_vram_block *vram;

	/** @cgroup: DEVICE: the control group whose limit of device memory is charged, or NULL. */
	struct dmem_cgroup_pool_state *cgroup;

	/** @user: The user it is charged to, or NULL. */
	struct txda_user *user;

	/** @pages: HOST and USERPTR: its pages of 4 KiB. HOST: NULL while they are taken. */
	struct page **pages;

	/** @mm: USERPTR: the process that has pinned its pages. */
	struct mm_struct *mm;

	/** @locked_by: USERPTR: the user whose locked memory they count as, or NULL. */
	struct user_struct *locked_by;

	/**
	 * @sgt: HOST, USERPTR, DMABUF: its memory, while mapped for the chip. DMABUF: changes under
	 * its reservation object's lock too.
	 */
	struct sg_table *sgt;

	/**
	 * @revoked: DMABUF: the exporter takes the memory back, and mappings end. Written under the
	 * reservation object's lock.
	 */
	bool revoked;

	/** @zapped: DMABUF: they have ended, and jobs are accepted again. */
	bool zapped;

	/** @revoke_work: DMABUF: ends them. Holds the buffer and the DRM device. */
	struct work_struct revoke_work;

	/**
	 * @runs: HOST, USERPTR, DMABUF: bus addresses. DEVICE: those of @vram. PEER: of @peer. NULL
	 * while its memory is taken. Changes under txda_gem.lock: by who has made it
	 * TXDA_BO_CHANGING, and while it is idle by who has txda_evict.lock, too.
	 */
	struct txda_runs *runs;

	/** @peer_buf: PEER: the exporter's dma-buf, with a reference. */
	struct dma_buf *peer_buf;

	/**
	 * @peer: PEER: the exporter's buffer, which @peer_buf holds: DRAM of another chip, or any
	 * buffer of the same chip.
	 */
	struct txda_bo *peer;

	/** @peer_link: PEER: in the module's list of such buffers. */
	struct list_head peer_link;

	/**
	 * @peer_gone: PEER: the other chip is being removed, and mappings of it end. Under the
	 * list's lock.
	 */
	bool peer_gone;

	/** @held: PEER: kept by txda_peers_hold(), with a reference. Under the list's lock. */
	bool held;

	/** @link: In txda_gem.bos. */
	struct list_head link;

	/** @label: For debugfs and dumps, or NULL. Under txda_gem.lock. */
	char *label;
};

/**
 * struct txda_gem - The buffers of a chip.
 */
struct txda_gem {
	/**
	 * @lock: Protects all members, and labels of buffers. Taken outside reservation
	 * objects.
	 */
	struct mutex lock;

	/**
	 * @fault_lock: Held for reading around page faults of buffers. Inside of reset.bars_lock.
	 */
	struct rw_semaphore fault_lock;

	/** @region: Its DRAM as control groups know it, or NULL. */
	struct dmem_cgroup_region *region;

	/** @bos: All of them. */
	struct list_head bos;

	/** @unplugged: No new DMA mappings are made. */
	bool unplugged;

	/**
	 * @aside: Quarantine: struct txda_vma whose buffers the chip may still access
	 * (txda_gem_quarantine()).
	 */
	struct list_head aside;
};

static inline struct txda_bo *to_txda_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct txda_bo, base);
}

/* The buffer that this object stands for on its own chip: usually itself. */
static inline struct txda_bo *txda_bo_local(struct txda_bo *bo)
{
	return bo->kind == TXDA_BO_PEER && bo->peer->base.dev == bo->base.dev ? bo->peer : bo;
}

int txda_gem_init(struct txda_device *tdev);

/*
 * A new object of @kind without memory. @resv: a reservation object to share, or NULL. The caller
 * attaches memory (host.h, userptr.h, prime.c) and calls txda_bo_publish() before the object gets a
 * handle. Dropped by drm_gem_object_put() at any stage.
 */
struct txda_bo *txda_bo_new(struct txda_device *tdev, enum txda_bo_kind kind, u64 size,
			    struct dma_resv *resv);
/*
 * Gives it what the chip needs to access it: DEVICE: memory with the contents that it should have;
 * others: a DMA mapping of their pages. In txda_device_enter(). -ENOSPC, -ENODEV, -EIO, -ENOMEM.
 */
int txda_bo_place(struct txda_device *tdev, struct txda_bo *bo);
/* Adds it to the chip's list of buffers. -ENODEV: the chip is gone. */
int txda_bo_publish(struct txda_bo *bo);

/*
 * The constant part of page table entries for the buffer: aperture, port, coherence, rights. For a
 * peer's DRAM -EXDEV when no port leads there. In drm_dev_enter().
 */
int txda_bo_pte_flags(struct txda_device *tdev, struct txda_bo *bo, bool read_only, u64 *ret_pte);
/*
 * The memory at byte @at: its address for a page table entry, and how many contiguous bytes
 * follow.
 */
void txda_bo_run(struct txda_bo *bo, u64 at, u64 *ret_addr, u64 *ret_bytes);

int txda_ioctl_bo_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_mmap_offset(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_query_info(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_set_label(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_bo_from_userptr(struct drm_device *drm, void *data, struct drm_file *file);

/* For ioctls that create a private buffer: the address space's object, or NULL for @vm_id 0. */
int txda_gem_get_vm_resv(struct drm_file *file, u32 vm_id, struct drm_gem_object **ret_obj);

/* mmap.c: CPU mappings. */
int txda_gem_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma);
extern const struct vm_operations_struct txda_gem_vm_ops;
/* Where mmap() puts a mapping of a node: see compat/huge.h for when there is a choice. */
unsigned long txda_gem_get_unmapped_area(struct file *file, unsigned long addr, unsigned long len,
					 unsigned long pgoff, unsigned long flags);

/* prime.c: driver hooks and object functions of sharing. */
struct drm_gem_object *txda_gem_prime_import(struct drm_device *drm, struct dma_buf *dma_buf);
struct dma_buf *txda_gem_export(struct drm_gem_object *obj, int flags);
/* For DMABUF: ends its DMA mapping, under txda_gem.lock; and the rest. */
void txda_import_unmap(struct txda_bo *bo);
void txda_import_free(struct txda_bo *bo);
void txda_peer_free(struct txda_bo *bo);
/* The chip is being removed: ends other chips' mappings of its DRAM. */
void txda_peers_unplug(struct txda_device *tdev);
/*
 * The chip does not stop and may still write to the DRAM of other chips that it has mapped: keeps
 * those buffers, whatever their owners do, until txda_peers_release(). Fences may wait for this.
 */
void txda_peers_hold(struct txda_device *tdev);
void txda_peers_release(struct txda_device *tdev);

/* Memory statistics of a file's handles, for fdinfo and DEV_QUERY. */
void txda_gem_stats(struct drm_file *file, struct drm_memory_stats *ret_vram,
		    struct drm_memory_stats *ret_host);
/* Lists all buffers of the chip, one per line, for debugfs. */
void txda_gem_show(struct txda_device *tdev, struct seq_file *m);

/*
 * Keeps an unmapped mapping, and with it the buffer, until the chip is reset: a TLB flush did not
 * complete, so the chip may still access it.
 */
void txda_gem_quarantine(struct txda_device *tdev, struct txda_vma *vma);
/*
 * Frees everything that was put aside, buffers and DRAM (vram.h), after the chip was reset or
 * removed. Not in code that fences wait for.
 */
void txda_gem_free_quarantined(struct txda_device *tdev);

/* Revokes all CPU mappings of buffers; the next access faults them in again, or fails. */
void txda_gem_unmap(struct txda_device *tdev);

/*
 * The chip is being removed: revokes all CPU mappings of device memory, all DMA mappings and other
 * chips' mappings of its DRAM. After drm_dev_unplug(), when the chip cannot access memory any more.
 */
void txda_gem_unplug(struct txda_device *tdev);

#endif /* TXDA_GEM_H */
