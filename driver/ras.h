/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Errors that the chip corrected or lived through: of its memory and of its links.
 *
 * The chip's own counters begin anew with each reset, and a fault of the hardware often ends in
 * one. So what they say is added up here, since the driver bound the chip.
 *
 * Threads: any, also where no memory may be waited for. In drm_dev_enter() with the BARs in reach.
 */
#ifndef TXDA_RAS_H
#define TXDA_RAS_H

#include <linux/spinlock.h>
#include <linux/types.h>

#include "txda_regs.h"

struct txda_device;

enum txda_ras_kind {
	TXDA_RAS_ECC_CORRECTED,
	TXDA_RAS_ECC_UNCORRECTED,
	TXDA_RAS_PORT, /* the first port's; the others' follow */
	TXDA_RAS_KINDS = TXDA_RAS_PORT + TXDA_MAX_PORTS
};

/**
 * struct txda_ras_count - Errors of one kind.
 */
struct txda_ras_count {
	/** @seen: The chip's counter at the last look. */
	u32 seen;

	/** @total: Since the driver bound the chip. */
	u64 total;
};

/**
 * struct txda_ras - Errors of a chip.
 */
struct txda_ras {
	/** @lock: @count; also around the look, so that a later one adds what came later. */
	spinlock_t lock;

	/** @count: By kind. */
	struct txda_ras_count count[TXDA_RAS_KINDS];
};

/* Adds what the counter of the chip says now: @value counts from 0 or from where it was. */
u64 txda_ras_add(struct txda_ras_count *count, u32 value);

void txda_ras_init(struct txda_device *tdev);
/* Since bind, up to now. -ENODEV: the chip does not answer. */
int txda_ras_get(struct txda_device *tdev, enum txda_ras_kind kind, u64 *ret_total);
/* Before the chip is reset: what was counted since the last look is not lost with it. */
void txda_ras_save(struct txda_device *tdev);
/* After it was. */
void txda_ras_restart(struct txda_device *tdev);

#endif /* TXDA_RAS_H */
