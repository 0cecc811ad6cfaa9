/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupts: MSI-X with MSI as the fallback.
 *
 * Queue sources are handled by hwq.h in hard interrupt context, events (faults, thermal, ECC,
 * links, firmware, reset) by a thread. A source is cleared before its cause is examined.
 *
 * A queue vector reads no register, since a read is a round trip to the chip: it clears its sources
 * and checks the completion words of all their queues, which are in memory.
 */
#ifndef TXDA_IRQ_H
#define TXDA_IRQ_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct txda_device;

/**
 * struct txda_irq_vector - One vector.
 */
struct txda_irq_vector {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @irq: Linux's number for it. */
	int irq;

	/** @events: Whether it carries the events. */
	bool events;

	/** @queues: The queues that it carries. */
	u64 queues;

	/** @count: Interrupts so far, for debugfs. */
	atomic64_t count;
};

/**
 * struct txda_irq - The chip's interrupts.
 */
struct txda_irq {
	/** @vectors: An array of @n_vectors. */
	struct txda_irq_vector *vectors;

	/** @n_vectors: How many there are. */
	unsigned int n_vectors;

	/** @msix: True: MSI-X; false: MSI. */
	bool msix;

	/** @enabled: Handlers may run. Under reset.lock, or in probe and remove. */
	bool enabled;

	/** @pending: Events for @events_work to report. */
	atomic_t pending;

	/**
	 * @events_work: Reports events; a work item because that allocates memory, which the thread
	 * must not wait for.
	 */
	struct work_struct events_work;

	/** @event_count: Runs of the thread that had an event, for debugfs. */
	atomic64_t event_count;
};

/*
 * Allocates vectors and installs handlers; sources stay disabled. Undone by txda_irq_fini(), after
 * which no handler runs.
 */
int txda_irq_init(struct txda_device *tdev);
void txda_irq_fini(struct txda_device *tdev);

/* In drm_dev_enter(), or in probe. */
void txda_irq_enable(struct txda_device *tdev);
/* After it returns no handler runs any more; the chip may be gone. */
void txda_irq_disable(struct txda_device *tdev);

#endif /* TXDA_IRQ_H */
