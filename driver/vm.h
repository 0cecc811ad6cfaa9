/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Address spaces of clients: drm_gpuvm on top of page tables (mmu.h).
 *
 * Synchronous binds run in the caller; asynchronous ones in call order on a drm_sched of the
 * address space, with all resources allocated at the call (bind.h). One lock (@op_lock) serialises
 * changes of the tree.
 *
 * Nothing that is mapped is ever evicted, so mappings (struct drm_gpuva) are not linked to their
 * buffers. Each holds a pin of its buffer (evict.h) and a reference to its drm_gpuvm_bo, which
 * keeps the buffer and is an entry in the list of shareable buffers whose reservation objects
 * receive the jobs' fences.
 *
 * Lifetime: reference counted; the file's id holds one reference, each queue one, each job and
 * asynchronous bind one. Removing the id frees mappings, page tables and VMID; the rest is freed
 * with the last reference.
 * Threads: any; may sleep.
 */
#ifndef TXDA_VM_H
#define TXDA_VM_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <drm/drm_gpuvm.h>
#include <drm/gpu_scheduler.h>

#include "drm/txda_drm.h"
#include "mmu.h"

struct drm_exec;
struct txda_device;
struct txda_file;
struct txda_group;
struct txda_user;

/* Limit of unfinished asynchronous binds per address space; beyond it VM_BIND fails with -EBUSY. */
#define TXDA_MAX_BINDS (4 * DRM_TXDA_MAX_BIND_OPS)

/**
 * struct txda_vm - One address space.
 */
struct txda_vm {
	/** @base: The drm_gpuvm: the tree of mappings. */
	struct drm_gpuvm base;

	/** @ref: References. */
	struct kref ref;

	/** @tdev: The chip; @base holds the DRM device. */
	struct txda_device *tdev;

	/** @user: The user it is charged to, until its id and its binds are gone; then NULL. */
	struct txda_user *user;

	/** @id: In its file. */
	u32 id;

	/**
	 * @op_lock: Serialises changes of @base and @pt. Fences wait for it: no memory is allocated
	 * under it.
	 */
	struct mutex op_lock;

	/** @pt: Its page tables. */
	struct txda_pt pt;

	/** @lost: Not usable, see enum drm_txda_vm_state. Written under @op_lock. */
	bool lost;

	/** @dead: Its id is gone, and so is @pt. Under @op_lock. */
	bool dead;

	/**
	 * @ext_lock: Held around code that may drop the last reference to a drm_gpuvm_bo, and
	 * around walks over their list. Outside reservation objects.
	 */
	struct mutex ext_lock;

	/**
	 * @bind_lock: Serialises asynchronous VM_BIND calls; also protects @fence_seqno and
	 * clearing of @user.
	 */
	struct mutex bind_lock;

	/** @sched: Runs asynchronous binds. */
	struct drm_gpu_scheduler sched;

	/** @entity: The scheduler entity that keeps them in order. */
	struct drm_sched_entity entity;

	/** @fence_context: Of their fences. */
	u64 fence_context;

	/** @fence_seqno: Sequence number of the last one. */
	u64 fence_seqno;

	/** @binds: Asynchronous binds that are not done, or not cleaned up. */
	atomic_t binds;

	/** @queues: Queues that use it; negative when it is being destroyed. See txda_vm_use(). */
	atomic_t queues;

	/** @jobs: Jobs of its queues that are queued or running: its groups stay (group.h). */
	atomic_t jobs;

	/** @fault_lock: Protects @fault. */
	spinlock_t fault_lock;

	/** @fault: The last fault of a queue in it. */
	struct drm_txda_fault fault;

	/** @groups: By slot: the group that it is a member of, or NULL (group.h, its lock). */
	struct txda_group *groups[DRM_TXDA_GROUP_SLOTS];

	/** @groups_over: It is being destroyed and may join no group (group.h, its lock). */
	bool groups_over;

	/** @groups_refused: Shared queues that use it: it joins no group (group.h, its lock). */
	u32 groups_refused;

	/** @link: In txda_device.vms, until its id is removed. */
	struct list_head link;

	/** @release_work: Frees it. */
	struct work_struct release_work;
};

/**
 * struct txda_vma - One mapping.
 */
struct txda_vma {
	/** @base: The drm_gpuva. @base.vm_bo holds a reference. */
	struct drm_gpuva base;

	/** @node: Entry in a list of mappings to be freed. */
	struct list_head node;
};

static inline struct txda_vm *to_txda_vm(struct drm_gpuvm *gpuvm)
{
	return container_of(gpuvm, struct txda_vm, base);
}

static inline struct txda_vma *to_txda_vma(struct drm_gpuva *va)
{
	return container_of(va, struct txda_vma, base);
}

int txda_vms_init(struct txda_device *tdev);

/* The address space with that id, with a reference, or NULL. */
struct txda_vm *txda_vm_lookup(struct txda_file *file, u32 id);
/* Drops a reference; the last one may be dropped in any context. */
void txda_vm_put(struct txda_vm *vm);
/*
 * Marks it as used by a queue: VM_DESTROY is -EBUSY until txda_vm_unuse(). False: it is being
 * destroyed.
 */
bool txda_vm_use(struct txda_vm *vm);
void txda_vm_unuse(struct txda_vm *vm);
/* Destroys all address spaces of a file that closes; its queues must be gone. */
void txda_vm_close_file(struct txda_file *file);

/*
 * Initialises @exec and locks everything that a job's fence must be added to: the address space's
 * reservation object and those of the shareable buffers it maps. The caller adds the fence and
 * unlocks them; on an error, including -ERESTARTSYS, nothing is locked. -EBUSY: another driver has
 * just revoked one of the buffers.
 */
int txda_vm_lock_resvs(struct txda_vm *vm, struct drm_exec *exec);
void txda_vm_unlock_resvs(struct txda_vm *vm, struct drm_exec *exec);
void txda_vm_add_fence(struct txda_vm *vm, struct drm_exec *exec, struct dma_fence *fence);

/* Drops a reference to a drm_gpuvm_bo of @vm. */
void txda_vm_bo_put(struct txda_vm *vm, struct drm_gpuvm_bo *vm_bo);
/*
 * Frees mappings that were removed from the tree. @stuck: the chip may still access their memory.
 */
void txda_vm_free_vmas(struct txda_vm *vm, struct list_head *vmas, bool stuck);

/* All address spaces of the chip lost their DRAM contents (FLR). */
void txda_vms_lost(struct txda_device *tdev);
/*
 * Pauses asynchronous binds, which do not take reset.lock: when it returns, none accesses the chip.
 * Call with reset.lock held for writing.
 */
void txda_vms_stop(struct txda_device *tdev);
void txda_vms_start(struct txda_device *tdev);
/* Ends all translations to @obj in address spaces of the chip; the mappings themselves stay. */
void txda_vms_zap(struct txda_device *tdev, struct drm_gem_object *obj);

int txda_ioctl_vm_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_vm_destroy(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_vm_get_state(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_VM_H */
