/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Address spaces of clients: drm_gpuvm on top of page tables (mmu.h).
 *
 * Synchronous binds happen in the caller; asynchronous ones in the order of the calls on a
 * drm_sched of the address space, with everything they need taken at the call. One lock (@op_lock)
 * orders changes of the tree.
 *
 * Lifetime: reference counted; the file's id holds one, each queue one, each job through its queue.
 * Threads: any; may sleep.
 */
#ifndef TXDA_VM_H
#define TXDA_VM_H

#include <linux/mutex.h>
#include <drm/drm_gpuvm.h>
#include <drm/gpu_scheduler.h>

#include "drm/txda_drm.h"
#include "mmu.h"

struct drm_exec;
struct txda_device;
struct txda_file;
struct txda_group;

/**
 * struct txda_vm - One address space.
 */
struct txda_vm {
	/** @base: What is mapped where; its reference count is the address space's. */
	struct drm_gpuvm base;

	/** @tdev: The chip; a reference to the DRM device is held. */
	struct txda_device *tdev;

	/** @id: In its file. */
	u32 id;

	/** @op_lock: Changes of @base and @pt. */
	struct mutex op_lock;

	/** @pt: Its page tables. */
	struct txda_pt pt;

	/** @lost: Not usable any more, see enum drm_txda_vm_state. */
	bool lost;

	/** @sched: Runs asynchronous binds. */
	struct drm_gpu_scheduler sched;

	/** @entity: Their order. */
	struct drm_sched_entity entity;

	/** @queues: Queues that use it: VM_DESTROY is -EBUSY while there are any. */
	atomic_t queues;

	/** @jobs: Jobs of its queues that are queued or run: VM_SET_GROUP is -EBUSY. */
	atomic_t jobs;

	/** @fault_lock: @fault. */
	spinlock_t fault_lock;

	/** @fault: The last fault of a queue in it. */
	struct drm_txda_fault fault;

	/** @groups: By slot: the group that it is a member of, or NULL (group.h, its lock). */
	struct txda_group *groups[DRM_TXDA_GROUP_SLOTS];

	/** @link: In txda_device.vms. */
	struct list_head link;
};

int txda_vms_init(struct txda_device *tdev);

/* The address space with that id, with a reference, or NULL. */
struct txda_vm *txda_vm_lookup(struct txda_file *file, u32 id);
void txda_vm_put(struct txda_vm *vm);
/* All address spaces of a file that closes; its queues are gone. */
void txda_vm_close_file(struct txda_file *file);

/*
 * Locks what a job's fence must be added to: the address space's reservation object and those of the
 * shareable buffers it maps; adds @fence as bookkeeping when all are locked.
 */
int txda_vm_lock_resvs(struct txda_vm *vm, struct drm_exec *exec);
void txda_vm_add_fence(struct txda_vm *vm, struct drm_exec *exec, struct dma_fence *fence);

/* All address spaces of the chip have lost their DRAM (FLR). */
void txda_vms_lost(struct txda_device *tdev);

int txda_ioctl_vm_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_vm_destroy(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_vm_get_state(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_vm_bind(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_VM_H */
