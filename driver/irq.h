/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interrupts: MSI-X with MSI as the fallback.
 *
 * Queues' sources go to hwq.h in hard interrupt context; events (faults, thermal, ECC, links,
 * firmware, reset) to a thread. Sources are cleared before what they are about is looked at.
 */
#ifndef TXDA_IRQ_H
#define TXDA_IRQ_H

#include <linux/types.h>

struct txda_device;

/**
 * struct txda_irq - The chip's interrupts.
 */
struct txda_irq {
	/** @vectors: How many there are. */
	int vectors;

	/** @count: Interrupts so far, for debugfs. */
	atomic64_t count;
};

/* Takes vectors and handlers; sources stay disabled. Undone by txda_irq_fini(). */
int txda_irq_init(struct txda_device *tdev);
void txda_irq_fini(struct txda_device *tdev);

/* In drm_dev_enter(), or in probe. */
void txda_irq_enable(struct txda_device *tdev);
/* No handler runs any more when it returns; the chip may be gone. */
void txda_irq_disable(struct txda_device *tdev);

#endif /* TXDA_IRQ_H */
