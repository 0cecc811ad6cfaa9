// SPDX-License-Identifier: GPL-2.0
#include "hwq.h"

#include <linux/dev_printk.h>
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>

#include "compat/slab.h"
#include "device.h"

/*
 * A queue stops at the next slice of its packet, and counts slices as progress. It is considered
 * stuck after this long without progress, or after this many times as long in total.
 */
#define TXDA_HWQ_STOP_US    (3 * USEC_PER_SEC)
#define TXDA_HWQ_STOP_TRIES 4
#define TXDA_HWQ_POLL_US    50

#define TXDA_HWQ_RING_BYTES (TXDA_HWQ_ENTRIES * sizeof(struct txda_ring_entry))
/* The chip writes the completion word and the CPU the ring, so they must not share a cache line. */
#define TXDA_HWQ_BYTES (TXDA_HWQ_RING_BYTES + SMP_CACHE_BYTES)

static u32 txda_hwq_reg(const struct txda_hwq *hwq, u32 reg)
{
	return TXDA_REG_QUEUE(hwq->index) + reg;
}

int txda_hwqs_init(struct txda_device *tdev)
{
	spin_lock_init(&tdev->hwqs.lock);
	return 0;
}

/* A quarter of a class takes turns, up to TXDA_SHARE_SLOTS. */
u32 txda_hwqs_shared(const struct txda_device *tdev, enum txda_queue_class_id class)
{
	/* One copy queue is the kernel's. */
	u32 n = class == TXDA_CLASS_COPY ? tdev->copy_queues - 1 : tdev->compute_queues;

	return min_t(u32, n / 4, TXDA_SHARE_SLOTS);
}

u32 txda_hwqs_own(const struct txda_device *tdev, enum txda_queue_class_id class)
{
	u32 n = class == TXDA_CLASS_COPY ? tdev->copy_queues : tdev->compute_queues;

	return n - txda_hwqs_shared(tdev, class);
}

/* ---- One queue ------------------------------------------------------------------------------ */

u32 txda_hwq_state(struct txda_hwq *hwq)
{
	if (hwq->index == TXDA_HWQ_PARKED)
		return TXDA_QUEUE_OFF;
	return txda_read(hwq->tdev, txda_hwq_reg(hwq, TXDA_QUEUE_STATE));
}

static u64 txda_hwq_counter(struct txda_hwq *hwq)
{
	return txda_read_pair(hwq->tdev, txda_hwq_reg(hwq, TXDA_QUEUE_PROGRESS_LO));
}

u64 txda_hwq_progress(struct txda_hwq *hwq)
{
	u64 counter;

	if (hwq->index == TXDA_HWQ_PARKED)
		return hwq->progress;
	counter = txda_hwq_counter(hwq);
	/* A removed chip reads as all ones, in either half of the pair. */
	if (upper_32_bits(counter) == U32_MAX)
		return hwq->progress;
	hwq->progress += counter < hwq->progress_seen ? counter : counter - hwq->progress_seen;
	hwq->progress_seen = counter;
	return hwq->progress;
}

u64 txda_hwq_packet(struct txda_hwq *hwq)
{
	if (hwq->index == TXDA_HWQ_PARKED)
		return 0;
	return txda_read_pair(hwq->tdev, txda_hwq_reg(hwq, TXDA_QUEUE_PACKET_LO));
}

u64 txda_hwq_done(const struct txda_hwq *hwq)
{
	u64 seqno = READ_ONCE(*hwq->completion);

	/* The chip stores the word after everything that the job wrote. */
	dma_rmb();
	return seqno;
}

void txda_hwq_push(struct txda_hwq *hwq, u64 stream_va, u32 stream_bytes, u64 seqno)
{
	struct txda_ring_entry *entry = &hwq->ring[hwq->tail % TXDA_HWQ_ENTRIES];

	entry->stream_va = stream_va;
	entry->stream_bytes = stream_bytes;
	entry->flags = TXDA_RING_IRQ;
	entry->seqno = seqno;
	entry->reserved = 0;

	/* writel() orders the entry before the doorbell. */
	WRITE_ONCE(hwq->tail, hwq->tail + 1);
	txda_write(hwq->tdev, txda_hwq_reg(hwq, TXDA_QUEUE_DOORBELL), hwq->tail);
}

/* The queue executes nothing until it is restarted: it stopped, or was lost. */
static bool txda_hwq_is_stopped(u32 state)
{
	return state == TXDA_QUEUE_OFF || state == TXDA_QUEUE_LOST;
}

/* All ones: nobody answers. The chip may be gone, or still be working. */
static bool txda_hwq_is_silent(u32 state)
{
	return state == ~0u;
}

int txda_hwq_stop(struct txda_hwq *hwq)
{
	struct txda_device *tdev = hwq->tdev;
	u32 state = txda_hwq_state(hwq);
	u64 before, pieces;
	int err, tries = 0;

	if (txda_hwq_is_stopped(state))
		return 0;
	if (txda_hwq_is_silent(state))
		return -ENODEV;
	pieces = txda_hwq_counter(hwq);
	txda_write(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_CTRL), TXDA_QUEUE_CTRL_STOP);
	do {
		err = read_poll_timeout(txda_hwq_state, state,
					txda_hwq_is_stopped(state) || txda_hwq_is_silent(state),
					TXDA_HWQ_POLL_US, TXDA_HWQ_STOP_US, false, hwq);
		before = pieces;
		pieces = txda_hwq_counter(hwq);
	} while (err && pieces != before && ++tries < TXDA_HWQ_STOP_TRIES);
	if (err)
		dev_info_ratelimited(tdev->drm.dev, "hardware queue %u does not stop, state %u\n",
				     hwq->index, state);
	return !err && txda_hwq_is_silent(state) ? -ENODEV : err;
}

int txda_hwq_restart(struct txda_hwq *hwq)
{
	struct txda_device *tdev = hwq->tdev;
	u64 ring = hwq->dma | (u64)TXDA_APERTURE_SYSTEM << TXDA_ADDR_APERTURE_SHIFT;
	u32 state;
	int err;

	if (hwq->index == TXDA_HWQ_PARKED)
		return 0;
	err = txda_hwq_stop(hwq);
	if (err) {
		txda_reset_schedule(tdev, "a hardware queue does not stop");
		return -EIO;
	}

	/* Fault records of the last owner's jobs are dropped. */
	hwq->progress_seen = txda_hwq_counter(hwq);
	txda_write_pair(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_RING_LO), ring);
	txda_write(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_RING_LOG2), TXDA_HWQ_ENTRIES_LOG2);
	txda_write(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_VMID), hwq->vmid);
	txda_write(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_PRIORITY), hwq->priority);
	txda_write_pair(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_COMPLETION_LO),
			ring + TXDA_HWQ_RING_BYTES);
	txda_write(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_CTRL), TXDA_QUEUE_CTRL_START);

	state = txda_hwq_state(hwq);
	if (state != TXDA_QUEUE_RUNNING) {
		dev_info_ratelimited(tdev->drm.dev, "hardware queue %u does not start, state %u\n",
				     hwq->index, state);
		txda_reset_schedule(tdev, "a hardware queue does not start");
		return -EIO;
	}
	/* The chip's entry counter starts at any value and wraps modulo 2^32. */
	hwq->tail = txda_read(tdev, txda_hwq_reg(hwq, TXDA_QUEUE_HEAD));
	return 0;
}

/* ---- Owners --------------------------------------------------------------------------------- */

static void txda_hwq_set_index(struct txda_hwq *hwq, u32 index)
{
	struct txda_hwqs *hwqs = &hwq->tdev->hwqs;

	lockdep_assert_held(&hwqs->lock);
	/* One that is put may have lost it to the next already. */
	if (hwq->index != TXDA_HWQ_PARKED && hwqs->owner[hwq->index] == hwq)
		hwqs->owner[hwq->index] = NULL;
	WRITE_ONCE(hwq->index, index);
	if (index != TXDA_HWQ_PARKED)
		hwqs->owner[index] = hwq;
}

int txda_hwq_bind(struct txda_hwq *hwq, u32 index)
{
	struct txda_hwqs *hwqs = &hwq->tdev->hwqs;
	int err;

	spin_lock_irq(&hwqs->lock);
	txda_hwq_set_index(hwq, index);
	spin_unlock_irq(&hwqs->lock);
	err = txda_hwq_restart(hwq);
	if (err) {
		spin_lock_irq(&hwqs->lock);
		txda_hwq_set_index(hwq, TXDA_HWQ_PARKED);
		spin_unlock_irq(&hwqs->lock);
	}
	return err;
}

int txda_hwq_park(struct txda_hwq *hwq)
{
	struct txda_hwqs *hwqs = &hwq->tdev->hwqs;
	int err;

	txda_hwq_progress(hwq);
	err = txda_hwq_stop(hwq);
	if (err)
		return err;
	spin_lock_irq(&hwqs->lock);
	txda_hwq_set_index(hwq, TXDA_HWQ_PARKED);
	spin_unlock_irq(&hwqs->lock);
	return 0;
}

static int txda_hwq_claim(struct txda_hwq *hwq)
{
	struct txda_device *tdev = hwq->tdev;
	struct txda_hwqs *hwqs = &tdev->hwqs;
	u32 from = hwq->class == TXDA_CLASS_COPY ? tdev->compute_queues : 0;
	u32 end = from + txda_hwqs_own(tdev, hwq->class);
	int err = -ENOSPC;

	spin_lock_irq(&hwqs->lock);
	for (; from < end; from++) {
		if (hwqs->owner[from])
			continue;
		txda_hwq_set_index(hwq, from);
		err = 0;
		break;
	}
	spin_unlock_irq(&hwqs->lock);
	return err;
}

static struct txda_hwq *txda_hwq_new(struct txda_device *tdev, enum txda_queue_class_id class,
				     u32 vmid, u32 priority, void (*complete)(struct txda_hwq *hwq),
				     void *priv)
{
	struct txda_hwq *hwq;

	hwq = kzalloc_obj(*hwq, GFP_KERNEL);
	if (!hwq)
		return NULL;
	hwq->tdev = tdev;
	hwq->index = TXDA_HWQ_PARKED;
	hwq->class = class;
	hwq->vmid = vmid;
	hwq->priority = priority;
	hwq->complete = complete;
	hwq->priv = priv;

	hwq->ring = dma_alloc_coherent(tdev->drm.dev, TXDA_HWQ_BYTES, &hwq->dma, GFP_KERNEL);
	if (!hwq->ring) {
		kfree(hwq);
		return NULL;
	}
	hwq->completion = (void *)hwq->ring + TXDA_HWQ_RING_BYTES;
	return hwq;
}

int txda_hwq_get(struct txda_device *tdev, enum txda_queue_class_id class, u32 vmid, u32 priority,
		 void (*complete)(struct txda_hwq *hwq), void *priv, struct txda_hwq **ret_hwq)
{
	struct txda_hwq *hwq = txda_hwq_new(tdev, class, vmid, priority, complete, priv);
	int err;

	if (!hwq)
		return -ENOMEM;
	err = txda_hwq_claim(hwq);
	if (!err)
		err = txda_hwq_restart(hwq);
	if (err) {
		txda_hwq_put(hwq);
		return err;
	}
	*ret_hwq = hwq;
	return 0;
}

int txda_hwq_get_parked(struct txda_device *tdev, enum txda_queue_class_id class, u32 vmid,
			u32 priority, void (*complete)(struct txda_hwq *hwq), void *priv,
			struct txda_hwq **ret_hwq)
{
	struct txda_hwq *hwq;

	if (!txda_hwqs_shared(tdev, class))
		return -ENOSPC;
	hwq = txda_hwq_new(tdev, class, vmid, priority, complete, priv);
	if (!hwq)
		return -ENOMEM;
	*ret_hwq = hwq;
	return 0;
}

void txda_hwq_put(struct txda_hwq *hwq)
{
	struct txda_device *tdev = hwq->tdev;
	struct txda_hwqs *hwqs = &tdev->hwqs;

	txda_share_remove(hwq);
	spin_lock_irq(&hwqs->lock);
	txda_hwq_set_index(hwq, TXDA_HWQ_PARKED);
	spin_unlock_irq(&hwqs->lock);

	dma_free_coherent(tdev->drm.dev, TXDA_HWQ_BYTES, hwq->ring, hwq->dma);
	kfree(hwq);
}

void txda_hwqs_irq(struct txda_device *tdev, u64 queues)
{
	struct txda_hwqs *hwqs = &tdev->hwqs;
	unsigned long flags;
	u32 q;

	spin_lock_irqsave(&hwqs->lock, flags);
	while (queues) {
		q = __ffs64(queues);
		queues &= queues - 1;
		if (hwqs->owner[q])
			hwqs->owner[q]->complete(hwqs->owner[q]);
	}
	spin_unlock_irqrestore(&hwqs->lock, flags);
}
