// SPDX-License-Identifier: GPL-2.0
#include "fence.h"

#ifndef TXDA_HAVE_FENCE_DETACH

#include <linux/rcupdate.h>
#include <linux/slab.h>

static void txda_fence_compat_free(struct rcu_head *rcu)
{
	struct dma_fence *fence = container_of(rcu, struct dma_fence, rcu);

	kfree(fence);
	module_put(THIS_MODULE);
}

void txda_fence_compat_release(struct dma_fence *fence)
{
	call_rcu(&fence->rcu, txda_fence_compat_free);
}

void txda_fence_compat_exit(void)
{
	/* The last txda_fence_compat_free() may still be executing after its module_put(). */
	rcu_barrier();
	/*
	 * A txda_fence_compat_release() may also have been preempted just before its return, with
	 * the fence freed in the meantime. Only that task's stack still refers to the module.
	 */
	synchronize_rcu_tasks();
}

#endif
