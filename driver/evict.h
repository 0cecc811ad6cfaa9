/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Idle buffers (BO_ADVISE), whose memory can be taken away.
 *
 * A buffer is used while it is pinned: by each mapping in an address space, by a mapping that the
 * chip may still access after it was removed (gem.h, quarantine), and for good by its first export.
 * A client can declare a buffer idle that nothing pins; from then on nothing can pin it, and CPU
 * accesses to it fail. So neither the chip, nor another driver, nor a process uses an idle buffer,
 * and taking its memory away needs to wait for nothing: no fence, no reset, no flush.
 *
 *	pins > 0	used
 *	pins = 0	not used, and may be
 *	TXDA_BO_IDLE	idle; in a list of struct txda_evict if its memory can be taken
 *	TXDA_BO_CHANGING	a client's thread changes its advice
 *
 * Device memory is taken when an allocation would fail for lack of it, or would exceed the limit of
 * its control group: contents that nobody needs are dropped, others move to shmem, which the kernel
 * swaps out by itself. On a full chip what other control groups protect (dmem.min) is left alone; a
 * group's own buffers make room for it in any case. Host memory is taken by a shrinker, if nobody
 * needs its contents. Least recently declared first, and last those that could not be moved before:
 * their control groups may have no memory for that. An idle buffer whose memory was taken has no
 * @runs; it gets new memory when it is no longer idle.
 *
 * Threads: any; may sleep. Memory is allocated under the lock.
 */
#ifndef TXDA_EVICT_H
#define TXDA_EVICT_H

#include <linux/atomic.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct dmem_cgroup_pool_state;
struct drm_device;
struct drm_file;
struct shrinker;
struct txda_bo;
struct txda_device;
struct txda_vram_block;

/* Values of txda_bo.pins. */
#define TXDA_BO_IDLE	 INT_MIN
#define TXDA_BO_CHANGING (INT_MIN + 1)

enum txda_idle {
	TXDA_IDLE_DEVICE, /* device memory whose contents nobody needs */
	TXDA_IDLE_COLD,	  /* device memory that moves to host memory */
	TXDA_IDLE_HOST,	  /* host memory whose contents nobody needs */
	TXDA_IDLE_COUNT
};

/**
 * struct txda_evict - The idle buffers of a chip.
 */
struct txda_evict {
	/** @lock: Protects @idle; held while the memory of an idle buffer is taken or returned. */
	struct mutex lock;

	/** @idle: struct txda_bo whose memory can be taken, in this order. */
	struct list_head idle[TXDA_IDLE_COUNT];

	/** @pages: Pages of the buffers in @idle[TXDA_IDLE_HOST]. Written under @lock. */
	unsigned long pages;

	/** @bytes: Device memory of the buffers in the other lists. Under @lock. */
	u64 bytes;

	/** @mappable: How much of @bytes lies within the aperture. Under @lock. */
	u64 mappable;

	/** @shrinker: For @pages. */
	struct shrinker *shrinker;

	/** @moved: Bytes that are in shmem instead of device memory. */
	atomic64_t moved;

	/** @dropped: Bytes of contents that were dropped, since the chip was bound. */
	atomic64_t dropped;
};

int txda_evict_init(struct txda_device *tdev);

/*
 * For an allocation of @bytes with @flags (TXDA_VRAM_*): takes the memory of one idle buffer that
 * has some where the allocation may be. False: that does not help, there is none, or it cannot be
 * moved.
 * In txda_device_enter(), outside of all locks inside of txda_evict.lock.
 */
bool txda_evict_one(struct txda_device *tdev, u64 bytes, unsigned int flags,
		    struct dmem_cgroup_pool_state *group);
/*
 * The same for an allocation that exceeds the limit of the control group @limit: among the buffers
 * that are charged to it and to those below it. How far the limit is exceeded is not known.
 */
bool txda_evict_one_in(struct txda_device *tdev, struct dmem_cgroup_pool_state *limit);

/* Copies what was moved to host memory to @block. The same errors as txda_vram_clear(). */
int txda_evict_read_back(struct txda_bo *bo, struct txda_vram_block *block);
/* The buffer has its memory again, or is being freed: ends what eviction keeps for it. */
void txda_evict_forget(struct txda_bo *bo);
/* The buffer is being freed: nobody takes its memory any more. */
void txda_evict_leave(struct txda_bo *bo);

/* ---- idle.c ---- */

/* False: the buffer is idle. A buffer that is pinned can be pinned again by txda_bo_pin_more(). */
bool txda_bo_pin(struct txda_bo *bo);
void txda_bo_pin_more(struct txda_bo *bo);
void txda_bo_unpin(struct txda_bo *bo);
/* If not, it has its memory; it keeps that during a page fault (txda_gem.fault_lock). */
bool txda_bo_is_idle(const struct txda_bo *bo);

void txda_idle_init(struct txda_evict *evict);
/*
 * A client's thread is about to change the advice on @bo. 1: the buffer is CHANGING and its memory
 * is not taken; the thread calls one of the two below. 0: WILLNEED, and it is in use already.
 * -EBUSY: it is in use, or another thread changes it.
 */
int txda_idle_begin(struct txda_evict *evict, struct txda_bo *bo, u32 advice);
/* It is idle from now on. */
void txda_idle_enter(struct txda_evict *evict, struct txda_bo *bo, u32 advice);
/* It has its memory, and can be used from now on. */
void txda_idle_end(struct txda_bo *bo);
/* Takes it off its list, if it is in one: its memory was taken, or it is being freed. */
void txda_idle_del(struct txda_evict *evict, struct txda_bo *bo);

/*
 * Takes the memory of one buffer. 0: it has left its list; -ENOENT: that would not help; -ENOMEM,
 * -ENOSPC: it cannot be moved. These two are followed by a try of the next buffer, other errors are
 * not.
 */
typedef int (*txda_idle_fn)(struct txda_bo *bo, void *arg);

/* Tries buffers in device memory in the order of eviction until one lost its memory: true. */
bool txda_idle_try(struct txda_evict *evict, txda_idle_fn take, void *arg);

/* ---- The ioctl ---- */

int txda_ioctl_bo_advise(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_EVICT_H */
