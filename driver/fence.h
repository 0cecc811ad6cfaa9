/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fences that are signalled when a job or an asynchronous bind is done.
 *
 * The same fence serves both sides: drm_sched gets it from run_job as the hardware fence, and
 * clients get it in syncobjs and reservation objects. drm_sched's own fences are never exposed:
 * they read their scheduler's name for as long as they live, and a client can keep a fence in a
 * sync_file long after its queue, file, chip and even this module are gone.
 *
 * Lifetime: a struct txda_fence is the first member of a kmalloc()ed object; the last
 * dma_fence_put() frees the object after a grace period. The owner must release everything else in
 * the object before that. An initialised fence that nobody else has seen may be put without being
 * signalled.
 * Threads: as dma_fence; signalling in any context.
 */
#ifndef TXDA_FENCE_H
#define TXDA_FENCE_H

#include <linux/dma-fence.h>
#include <linux/workqueue.h>

#include "compat/fence.h"

/**
 * struct txda_fence - One fence.
 */
struct txda_fence {
	/** @base: First, so that freeing it frees the object. */
	struct dma_fence base;

	/** @compat: State needed on older kernels. */
	struct txda_fence_compat compat;

	/** @timeline: Name shown to users; a string constant. */
	const char *timeline;
};

static inline struct txda_fence *to_txda_fence(struct dma_fence *fence)
{
	return container_of(fence, struct txda_fence, base);
}

/*
 * The module's workqueues. They are not per chip, since the last reference to the chip itself may
 * be dropped on one of them. txda_wq runs schedulers: fences wait for it, so work on it must not
 * wait for memory. txda_release_wq runs what remains to do after the last reference to a queue or
 * address space, and other work that may wait for memory.
 */
extern struct workqueue_struct *txda_wq;
extern struct workqueue_struct *txda_release_wq;

/* At module init and exit; @exit when no device is bound any more. */
int txda_fences_init(void);
void txda_fences_exit(void);

/*
 * @context: the fence context of the queue or address space, in which @seqno increases and fences
 * signal in order. @timeline: a string constant.
 */
void txda_fence_init(struct txda_fence *fence, const char *timeline, u64 context, u64 seqno);

#endif /* TXDA_FENCE_H */
