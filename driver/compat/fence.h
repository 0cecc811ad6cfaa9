/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fences that outlive whoever made them.
 *
 * Newer kernels detach a fence from its operations when it signals, if it has no release operation,
 * and have the lock in it. On older ones the operations are used until the last reference is
 * gone, so each fence holds the module: it cannot be unloaded while somebody has a fence of it.
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
	/* Those who found the operations just before they were detached. */
	synchronize_rcu();
}

#else

struct txda_fence_compat {
	/** @lock: Of the fence. */
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
	/* The caller serves a client of this module, so it does not go now. */
	__module_get(THIS_MODULE);
	dma_fence_init64(fence, ops, &compat->lock, context, seqno);
}

void txda_fence_compat_release(struct dma_fence *fence);
void txda_fence_compat_exit(void);

#endif

#endif /* TXDA_COMPAT_FENCE_H */
