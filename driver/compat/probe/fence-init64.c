// SPDX-License-Identifier: GPL-2.0
// asks for: dma_fence_init64
#include <linux/dma-fence.h>

void probe(struct dma_fence *fence, const struct dma_fence_ops *ops, spinlock_t *lock)
{
	dma_fence_init64(fence, ops, lock, 1, 1);
}
