/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of corrected and survived errors of the chip's memory and links.
 *
 * The chip's own counters restart with each reset, and hardware faults often end in one. The driver
 * therefore accumulates them here, from the time it bound the chip. They are no node of drm_ras
 * (7.2): its requests run without a reference to a node, also while that is unregistered.
 *
 * Threads: any, including those that must not wait for memory. In drm_dev_enter() with the BARs
 * accessible.
 */
#ifndef TXDA_RAS_H
#define TXDA_RAS_H

#include <linux/spinlock.h>
#include <linux/types.h>

#include "total.h"
#include "txda_regs.h"

struct txda_device;

enum txda_ras_kind {
	TXDA_RAS_ECC_CORRECTED,
	TXDA_RAS_ECC_UNCORRECTED,
	TXDA_RAS_PORT, /* the first port's; the others' follow */
	TXDA_RAS_KINDS = TXDA_RAS_PORT + TXDA_MAX_PORTS
};

/**
 * struct txda_ras - Errors of a chip.
 */
struct txda_ras {
	/**
	 * @lock: Protects @count, and the register read, so that reads are accumulated in order.
	 */
	spinlock_t lock;

	/** @count: By kind, since the driver bound the chip. */
	struct txda_total count[TXDA_RAS_KINDS];
};

void txda_ras_init(struct txda_device *tdev);
/* Total since bind. -ENODEV: the chip does not answer. */
int txda_ras_get(struct txda_device *tdev, enum txda_ras_kind kind, u64 *ret_total);
/* Call before a chip reset, so that errors since the last read are not lost. */
void txda_ras_save(struct txda_device *tdev);
/* Call after a chip reset. */
void txda_ras_restart(struct txda_device *tdev);

#endif /* TXDA_RAS_H */
