// SPDX-License-Identifier: GPL-2.0
// asks for: inline_lock
#include <linux/dma-fence.h>

spinlock_t *probe(struct dma_fence *fence)
{
	return &fence->inline_lock;
}
