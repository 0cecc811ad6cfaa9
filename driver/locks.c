// SPDX-License-Identifier: GPL-2.0
#include "locks.h"

#ifdef CONFIG_LOCKDEP

#include <linux/dma-fence.h>

#include "device.h"
#include "vm.h"

void txda_locks_show_device(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;
	bool cookie;

	down_write(&reset->lock);
	down_write(&reset->bars_lock);
	mutex_lock(&reset->cut_lock);
	mutex_unlock(&reset->cut_lock);
	up_write(&reset->bars_lock);

	mutex_lock(&tdev->evict.lock);
	mutex_lock(&tdev->gem.lock);
	mutex_unlock(&tdev->gem.lock);
	mutex_lock(&tdev->vram.lock);
	might_alloc(GFP_KERNEL);
	mutex_unlock(&tdev->vram.lock);
	mutex_unlock(&tdev->evict.lock);

	mutex_lock(&tdev->scrub.lock);
	mutex_lock(&tdev->vram.lock);
	might_alloc(GFP_KERNEL);
	mutex_unlock(&tdev->vram.lock);
	mutex_unlock(&tdev->scrub.lock);
	up_write(&reset->lock);

	cookie = dma_fence_begin_signalling();
	mutex_lock(&reset->cut_lock);
	mutex_lock(&tdev->queues.lock);
	mutex_unlock(&tdev->queues.lock);
	mutex_lock(&tdev->queues.fault_lock);
	mutex_unlock(&tdev->queues.fault_lock);
	mutex_unlock(&reset->cut_lock);
	mutex_lock(&tdev->queues.fault_lock);
	mutex_unlock(&tdev->queues.fault_lock);
	mutex_lock(&tdev->vms_lock);
	mutex_unlock(&tdev->vms_lock);
	mutex_lock(&tdev->mmu.lock);
	mutex_unlock(&tdev->mmu.lock);
	dma_fence_end_signalling(cookie);
}

void txda_locks_show_queue(struct txda_queue *queue)
{
	struct txda_device *tdev = queue->tdev;
	bool cookie = dma_fence_begin_signalling();

	mutex_lock(&tdev->queues.lock);
	mutex_lock(&queue->hw_lock);
	spin_lock_irq(&queue->lock);
	spin_lock(&tdev->shares[queue->class].lock);
	spin_unlock(&tdev->shares[queue->class].lock);
	spin_unlock_irq(&queue->lock);
	mutex_unlock(&queue->hw_lock);
	mutex_unlock(&tdev->queues.lock);

	mutex_lock(&tdev->queues.fault_lock);
	mutex_lock(&queue->hw_lock);
	mutex_lock(&tdev->users.lock);
	spin_lock_irq(&tdev->shares[queue->class].lock);
	spin_unlock_irq(&tdev->shares[queue->class].lock);
	mutex_unlock(&tdev->users.lock);
	mutex_unlock(&queue->hw_lock);
	mutex_unlock(&tdev->queues.fault_lock);
	dma_fence_end_signalling(cookie);
}

void txda_locks_show_vm(struct txda_vm *vm)
{
	struct txda_device *tdev = vm->tdev;
	bool cookie;

	mutex_lock(&vm->bind_lock);
	might_alloc(GFP_KERNEL);
	mutex_lock(&vm->ext_lock);
	mutex_unlock(&vm->ext_lock);
	mutex_unlock(&vm->bind_lock);

	cookie = dma_fence_begin_signalling();
	mutex_lock(&tdev->vms_lock);
	mutex_lock(&vm->op_lock);
	mutex_lock(&tdev->mmu.lock);
	mutex_lock(&vm->pt.lock);
	mutex_unlock(&vm->pt.lock);
	mutex_unlock(&tdev->mmu.lock);
	mutex_unlock(&vm->op_lock);
	mutex_unlock(&tdev->vms_lock);
	dma_fence_end_signalling(cookie);
}

#endif /* CONFIG_LOCKDEP */
