// SPDX-License-Identifier: GPL-2.0
/*
 * Queues that the chip stopped because of a fault: maps the chip's fault records to the client's
 * queue and address space.
 */
#include <linux/ktime.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "coredump.h"
#include "device.h"
#include "events.h"
#include "fence.h"
#include "hwq.h"
#include "queue.h"
#include "trace.h"
#include "txda_isa.h"
#include "vm.h"

/* The client's queue on hardware queue @index, with a reference, or NULL. */
static struct txda_queue *txda_fault_find(struct txda_device *tdev, u32 index)
{
	struct txda_queue *queue = NULL;
	struct txda_hwq *hwq;

	if (index >= TXDA_MAX_QUEUES)
		return NULL;
	spin_lock_irq(&tdev->hwqs.lock);
	hwq = tdev->hwqs.owner[index];
	if (hwq && hwq->complete == txda_jobs_complete) {
		queue = hwq->priv;
		if (!kref_get_unless_zero(&queue->ref))
			queue = NULL;
	} else if (hwq) {
		/* The kernel's copy queue: its owner checks the queue state itself. */
		hwq->complete(hwq);
	}
	spin_unlock_irq(&tdev->hwqs.lock);
	return queue;
}

/* State of the hardware queue, or OFF when the queue has none any more. */
static u32 txda_fault_state(struct txda_queue *queue, u32 vmid)
{
	u32 state = TXDA_QUEUE_OFF;

	mutex_lock(&queue->hw_lock);
	if (queue->hwq && queue->hwq->vmid == vmid)
		state = txda_hwq_state(queue->hwq);
	mutex_unlock(&queue->hw_lock);
	return state;
}

static void txda_fault_note(struct txda_queue *queue, const struct txda_fault *record)
{
	struct txda_vm *vm = queue->vm;
	const struct drm_txda_fault fault = {
		.code = record->code,
		.queue_id = queue->id,
		.op = record->op,
		.tensor = record->tensor,
		.va = record->va,
		.packet_va = record->packet_va,
		.detail = record->detail,
		.time_ns = ktime_get_ns(),
	};

	spin_lock_irq(&queue->lock);
	if (!queue->drop_err)
		queue->fault = fault;
	spin_unlock_irq(&queue->lock);

	spin_lock(&vm->fault_lock);
	vm->fault = fault;
	spin_unlock(&vm->fault_lock);
}

void txda_queue_note_hang(struct txda_queue *queue)
{
	struct txda_fault record = {
		.code = TXDA_FAULT_HANG,
		.op = TXDA_NONE,
		.tensor = TXDA_NONE,
	};

	mutex_lock(&queue->hw_lock);
	if (queue->hwq)
		record.packet_va = txda_hwq_packet(queue->hwq);
	mutex_unlock(&queue->hw_lock);
	txda_fault_note(queue, &record);
}

/* @record: why it stopped. */
static void txda_fault_end(struct txda_queue *queue, const struct txda_fault *record)
{
	txda_fault_note(queue, record);
	txda_coredump_take(queue->tdev, "fault", queue);
	if (txda_queue_kill(queue, DRM_TXDA_QUEUE_FATAL_FAULT, -EIO, -ECANCELED))
		txda_queue_report(queue);
}

static void txda_fault_record(struct txda_device *tdev, const struct txda_fault *record)
{
	struct txda_queue *queue;

	trace_txda_fault(tdev->drm.dev, record->code, record->queue, record->vmid, record->va);
	queue = txda_fault_find(tdev, record->queue);
	if (!queue)
		return;
	/* The record may refer to a queue that is gone and whose hardware queue has a new owner. */
	if (txda_fault_state(queue, record->vmid) == TXDA_QUEUE_FAULTED)
		txda_fault_end(queue, record);
	txda_queue_put(queue);
}

static void txda_fault_read_record(struct txda_device *tdev, struct txda_fault *ret_record)
{
	u32 word[TXDA_FAULT_RECORD_BYTES / sizeof(u32)];
	u32 i;

	BUILD_BUG_ON(sizeof(*ret_record) != sizeof(word));
	for (i = 0; i < ARRAY_SIZE(word); i++)
		word[i] = txda_read(tdev, TXDA_REG_FAULT_RECORD + i * sizeof(u32));
	memcpy(ret_record, word, sizeof(word));
}

void txda_queues_read_faults(struct txda_device *tdev)
{
	struct txda_fault record;
	u32 i;

	mutex_lock(&tdev->queues.fault_lock);
	/*
	 * Each queue has at most one pending record; more than that in a row is a misbehaving chip,
	 * and the loop ends.
	 */
	for (i = 0; i < TXDA_MAX_QUEUES; i++) {
		if (!txda_read(tdev, TXDA_REG_FAULT_COUNT))
			break;
		txda_fault_read_record(tdev, &record);
		txda_write(tdev, TXDA_REG_FAULT_ACK, 1);
		if (!txda_device_alive(tdev))
			break;
		txda_fault_record(tdev, &record);
	}
	mutex_unlock(&tdev->queues.fault_lock);
}

void txda_queue_check_stopped(struct txda_queue *queue)
{
	static const struct txda_fault unknown = {
		.code = TXDA_FAULT_LOST,
		.op = TXDA_NONE,
		.tensor = TXDA_NONE,
	};
	struct txda_device *tdev = queue->tdev;
	u32 state = TXDA_QUEUE_OFF;

	if (READ_ONCE(queue->drop_err))
		return;
	mutex_lock(&queue->hw_lock);
	if (queue->hwq)
		state = txda_hwq_state(queue->hwq);
	mutex_unlock(&queue->hw_lock);

	if (state == TXDA_QUEUE_LOST) {
		if (txda_queue_kill(queue, DRM_TXDA_QUEUE_INNOCENT, -EIO, -EIO))
			txda_queue_report(queue);
	} else if (state == TXDA_QUEUE_FAULTED) {
		/* Its record may have arrived after all records were read. */
		txda_queues_read_faults(tdev);
		if (!READ_ONCE(queue->drop_err))
			txda_fault_end(queue, &unknown);
	}
}

void txda_queues_fault(struct txda_device *tdev)
{
	struct txda_queue *queue;
	u32 i, n = tdev->compute_queues + tdev->copy_queues;

	txda_queues_read_faults(tdev);
	for (i = 0; i < n; i++) {
		queue = txda_fault_find(tdev, i);
		if (!queue)
			continue;
		txda_queue_check_stopped(queue);
		txda_queue_put(queue);
	}
}

/* ---- Telling -------------------------------------------------------------------------------- */

void txda_queue_report(struct txda_queue *queue)
{
	txda_queue_get(queue);
	if (!queue_work(txda_release_wq, &queue->report))
		txda_queue_put(queue);
}

void txda_queue_report_work(struct work_struct *work)
{
	struct txda_queue *queue = container_of(work, struct txda_queue, report);
	struct drm_txda_fault fault;
	u32 state;

	spin_lock_irq(&queue->lock);
	state = queue->state;
	fault = queue->fault;
	spin_unlock_irq(&queue->lock);

	if (state & DRM_TXDA_QUEUE_FATAL_FAULT)
		txda_events_fault(queue->tdev, &fault, &queue->client);
	if (state & DRM_TXDA_QUEUE_TIMEDOUT)
		txda_events_hang(queue->tdev, queue->id, &queue->client);
	txda_queue_put(queue);
}
