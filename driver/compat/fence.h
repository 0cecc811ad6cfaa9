/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fences that can outlive the object, and the module, that created them.
 *
 * Newer kernels detach a fence from its operations when it signals (if it has no release operation)
 * and embed the lock in it. Older ones use the operations until the last reference is dropped, so
 * each fence holds a module reference: the module cannot be unloaded while anyone holds one of its
 * fences.
 */
#ifndef TXDA_COMPAT_FENCE_H
#define TXDA_COMPAT_FENCE_H

#include <linux/dma-fence.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>

#ifdef TXDA_HAVE_FENCE_DETACH

struct txda_fence_compat {
};

#define TXDA_FENCE_COMPAT_OPS

static inline void txda_fence_compat_init(struct dma_fence *fence, struct txda_fence_compat *compat,
					  const struct dma_fence_ops *ops, u64 context, u64 seqno)
{
	dma_fence_init64(fence, ops, NULL, context, seqno);
}

static inline void txda_fence_compat_exit(void)
{
	/* Waits for readers that fetched the operations just before they were detached. */
	synchronize_rcu();
}

#else

struct txda_fence_compat {
	/** @lock: The fence's spinlock. */
	spinlock_t lock;
};

#ifdef TXDA_HAVE_FENCE_INIT64
#define TXDA_FENCE_COMPAT_OPS .release = txda_fence_compat_release,
#else
#define TXDA_FENCE_COMPAT_OPS .use_64bit_seqno = true, .release = txda_fence_compat_release,
#define dma_fence_init64      dma_fence_init
#endif

static inline void txda_fence_compat_init(struct dma_fence *fence, struct txda_fence_compat *compat,
					  const struct dma_fence_ops *ops, u64 context, u64 seqno)
{
	spin_lock_init(&compat->lock);
	/* The caller is serving a client of this module, so the module cannot be unloaded now. */
	__module_get(THIS_MODULE);
	dma_fence_init64(fence, ops, &compat->lock, context, seqno);
}

void txda_fence_compat_release(struct dma_fence *fence);
void txda_fence_compat_exit(void);

#endif

#endif /* TXDA_COMPAT_FENCE_H */
