// SPDX-License-Identifier: GPL-2.0
#include "irq.h"

#include <linux/interrupt.h>
#include <linux/pci.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "device.h"
#include "events.h"
#include "fence.h"
#include "trace.h"

static u64 txda_irq_all_queues(struct txda_device *tdev)
{
	return GENMASK_ULL(tdev->compute_queues + tdev->copy_queues - 1, 0);
}

static void txda_irq_queues(struct txda_irq_vector *vector)
{
	struct txda_device *tdev = vector->tdev;

	txda_write_pair_locked(tdev, TXDA_REG_IRQ_QUEUES_LO, vector->queues);
	txda_hwqs_irq(tdev, vector->queues);
}

static irqreturn_t txda_irq_hard(int irq, void *data)
{
	struct txda_irq_vector *vector = data;
	struct txda_device *tdev = vector->tdev;
	u32 events = 0;

	atomic64_inc(&vector->count);
	if (vector->queues)
		txda_irq_queues(vector);
	if (!vector->events) {
		trace_txda_irq(tdev->drm.dev, vector->queues, 0);
		return IRQ_HANDLED;
	}

	/*
	 * A vector that carries only events has an event now; a shared one mostly signals
	 * completions.
	 */
	if (vector->queues) {
		events = txda_read(tdev, TXDA_REG_IRQ_EVENTS);
		/* A removed chip reads as all ones. */
		if (events & ~TXDA_IRQ_ALL)
			events = 0;
		trace_txda_irq(tdev->drm.dev, vector->queues, events);
		return events ? IRQ_WAKE_THREAD : IRQ_HANDLED;
	}
	return IRQ_WAKE_THREAD;
}

static void txda_irq_firmware(struct txda_device *tdev)
{
	if (txda_read(tdev, TXDA_REG_FW_STATE) == TXDA_FW_FAILED)
		txda_reset_schedule(tdev, "firmware failed");
}

/* A thermal trip stops all queues until the chip is reset, even if it has cooled down meanwhile. */
static bool txda_irq_tripped(struct txda_device *tdev)
{
	s32 temp = txda_read(tdev, TXDA_REG_TEMP_MC);
	s32 trip = txda_read(tdev, TXDA_REG_TEMP_TRIP_MC);
	u32 i;

	if (trip > 0 && temp >= trip)
		return true;
	for (i = 0; i < tdev->compute_queues + tdev->copy_queues; i++) {
		if (txda_read(tdev, TXDA_REG_QUEUE(i) + TXDA_QUEUE_STATE) == TXDA_QUEUE_LOST)
			return true;
	}
	return false;
}

/* No loop is needed: a source that is set again after it was cleared sends a new interrupt. */
static irqreturn_t txda_irq_thread(int irq, void *data)
{
	struct txda_irq_vector *vector = data;
	struct txda_device *tdev = vector->tdev;
	bool cookie;
	u32 events;
	int idx;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return IRQ_HANDLED;
	/* This thread signals the fences of queues that faulted, so they wait for it. */
	cookie = dma_fence_begin_signalling();

	events = txda_read(tdev, TXDA_REG_IRQ_EVENTS);
	/* A removed chip reads as all ones. */
	if (!events || (events & ~TXDA_IRQ_ALL))
		goto out;
	txda_write(tdev, TXDA_REG_IRQ_EVENTS, events);
	trace_txda_irq(tdev->drm.dev, 0, events);
	atomic64_inc(&tdev->irq.event_count);

	/* Detected from the queues' states, so it comes before these are handled. */
	if ((events & TXDA_IRQ_THERMAL) && txda_irq_tripped(tdev))
		txda_reset_schedule_hot(tdev);
	/* A thermal trip and a lost peer leave queues in the state LOST. */
	if (events & (TXDA_IRQ_FAULT | TXDA_IRQ_THERMAL | TXDA_IRQ_LINK))
		txda_queues_fault(tdev);
	if (events & TXDA_IRQ_FIRMWARE)
		txda_irq_firmware(tdev);
	atomic_or(events, &tdev->irq.pending);
	queue_work(txda_release_wq, &tdev->irq.events_work);
out:
	dma_fence_end_signalling(cookie);
	drm_dev_exit(idx);
	return IRQ_HANDLED;
}

static void txda_irq_events_work(struct work_struct *work)
{
	struct txda_device *tdev = container_of(work, struct txda_device, irq.events_work);
	u32 events = atomic_xchg(&tdev->irq.pending, 0);
	int idx;

	/* During a function reset the registers cannot be read. */
	if (txda_bars_enter(tdev, &idx))
		return;
	txda_events_irq(tdev, events);
	txda_bars_exit(tdev, idx);
}

/*
 * The chip spreads its queues over all entries of its vector table. If only some of them were
 * allocated, some queues would have no interrupt, so it is all entries or one.
 */
static int txda_irq_alloc(struct txda_device *tdev)
{
	struct pci_dev *pdev = tdev->pdev;
	int n = pci_msix_vec_count(pdev);

	if (n > 0 && n <= TXDA_MAX_VECTORS) {
		n = pci_alloc_irq_vectors(pdev, n, n, PCI_IRQ_MSIX);
		if (n > 0) {
			tdev->irq.msix = true;
			return n;
		}
		drm_info(&tdev->drm, "no MSI-X (%pe), trying MSI\n", ERR_PTR(n));
	}
	tdev->irq.msix = false;
	return pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI);
}

static void txda_irq_spread(struct txda_device *tdev)
{
	struct txda_irq *irq = &tdev->irq;
	u32 queues = tdev->compute_queues + tdev->copy_queues;
	u32 q;

	irq->vectors[0].events = true;
	if (irq->n_vectors == 1) {
		irq->vectors[0].queues = txda_irq_all_queues(tdev);
		return;
	}
	for (q = 0; q < queues; q++)
		irq->vectors[1 + q % (irq->n_vectors - 1)].queues |= BIT_ULL(q);
}

int txda_irq_init(struct txda_device *tdev)
{
	struct txda_irq *irq = &tdev->irq;
	const char *name = dev_name(&tdev->pdev->dev);
	int n, i, err;

	INIT_WORK(&irq->events_work, txda_irq_events_work);
	n = txda_irq_alloc(tdev);
	if (n < 0) {
		drm_err(&tdev->drm, "neither MSI-X nor MSI: %pe\n", ERR_PTR(n));
		return n;
	}
	irq->n_vectors = n;
	irq->vectors = drmm_kcalloc(&tdev->drm, n, sizeof(*irq->vectors), GFP_KERNEL);
	if (!irq->vectors) {
		err = -ENOMEM;
		goto err_vectors;
	}
	txda_irq_spread(tdev);

	for (i = 0; i < n; i++) {
		struct txda_irq_vector *vector = &irq->vectors[i];

		vector->tdev = tdev;
		vector->irq = pci_irq_vector(tdev->pdev, i);
		err = request_threaded_irq(vector->irq, txda_irq_hard,
					   vector->events ? txda_irq_thread : NULL, 0, name,
					   vector);
		if (err) {
			drm_err(&tdev->drm, "cannot take vector %d: %pe\n", i, ERR_PTR(err));
			goto err_irqs;
		}
	}
	irq->enabled = true;
	return 0;

err_irqs:
	while (i--)
		free_irq(irq->vectors[i].irq, &irq->vectors[i]);
err_vectors:
	pci_free_irq_vectors(tdev->pdev);
	return err;
}

void txda_irq_fini(struct txda_device *tdev)
{
	struct txda_irq *irq = &tdev->irq;
	unsigned int i;

	for (i = 0; i < irq->n_vectors; i++)
		free_irq(irq->vectors[i].irq, &irq->vectors[i]);
	cancel_work_sync(&irq->events_work);
	pci_free_irq_vectors(tdev->pdev);
}

void txda_irq_enable(struct txda_device *tdev)
{
	struct txda_irq *irq = &tdev->irq;
	unsigned int i;

	if (!irq->enabled) {
		for (i = 0; i < irq->n_vectors; i++)
			enable_irq(irq->vectors[i].irq);
		irq->enabled = true;
	}
	/* A source that is already set sends its message when it is enabled. */
	txda_write_pair_locked(tdev, TXDA_REG_IRQ_QUEUES_ENABLE_LO, txda_irq_all_queues(tdev));
	txda_write(tdev, TXDA_REG_IRQ_EVENTS_ENABLE, TXDA_IRQ_ALL);
}

void txda_irq_disable(struct txda_device *tdev)
{
	struct txda_irq *irq = &tdev->irq;
	unsigned int i;

	txda_write_pair_locked(tdev, TXDA_REG_IRQ_QUEUES_ENABLE_LO, 0);
	txda_write(tdev, TXDA_REG_IRQ_EVENTS_ENABLE, 0);
	if (!irq->enabled)
		return;
	for (i = 0; i < irq->n_vectors; i++)
		disable_irq(irq->vectors[i].irq);
	irq->enabled = false;
}
