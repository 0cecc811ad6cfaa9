// SPDX-License-Identifier: GPL-2.0
#include "fence.h"

struct workqueue_struct *txda_wq;
struct workqueue_struct *txda_release_wq;

static const char *txda_fence_driver_name(struct dma_fence *fence)
{
	return "txda";
}

static const char *txda_fence_timeline_name(struct dma_fence *fence)
{
	return to_txda_fence(fence)->timeline;
}

static const struct dma_fence_ops txda_fence_ops = {.get_driver_name = txda_fence_driver_name,
						    .get_timeline_name = txda_fence_timeline_name,
						    TXDA_FENCE_COMPAT_OPS};

void txda_fence_init(struct txda_fence *fence, const char *timeline, u64 context, u64 seqno)
{
	BUILD_BUG_ON(offsetof(struct txda_fence, base));

	fence->timeline = timeline;
	txda_fence_compat_init(&fence->base, &fence->compat, &txda_fence_ops, context, seqno);
}

int txda_fences_init(void)
{
	txda_wq = alloc_workqueue("txda", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!txda_wq)
		return -ENOMEM;
	txda_release_wq = alloc_workqueue("txda-release", WQ_UNBOUND, 0);
	if (!txda_release_wq) {
		destroy_workqueue(txda_wq);
		return -ENOMEM;
	}
	return 0;
}

void txda_fences_exit(void)
{
	/* All work items held a module reference, but the last ones may not have returned yet. */
	destroy_workqueue(txda_release_wq);
	destroy_workqueue(txda_wq);
	txda_fence_compat_exit();
}
