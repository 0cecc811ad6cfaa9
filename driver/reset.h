/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reset, recovery, suspend and resume: what brings a chip down and up again under a node that
 * stays.
 *
 * Two depths. A chip reset (TXDA_REG_RESET) keeps DRAM: address spaces and buffers live on, queues
 * are dead. A function reset (FLR, power loss, PCI error recovery) clears DRAM: address spaces are
 * lost as well; buffers keep their handles and read as zeros.
 *
 * One recovery at a time: it holds @lock for writing, everything that sets up or tears down chip
 * state from ioctls holds it for reading.
 */
#ifndef TXDA_RESET_H
#define TXDA_RESET_H

#include <linux/atomic.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct txda_device;

/**
 * struct txda_reset - State of recovery.
 */
struct txda_reset {
	/** @lock: See above. Outermost but for drm_dev_enter(). */
	struct rw_semaphore lock;

	/** @work: A chip reset that somebody called for. */
	struct work_struct work;

	/** @reason: For the log and events; a string constant. */
	const char *reason;

	/** @chip_resets: Since bind. */
	atomic64_t chip_resets;

	/** @wedged: Recovery failed: the chip serves nobody until it is reset by an administrator. */
	bool wedged;
};

void txda_reset_init(struct txda_device *tdev);
/* No reset runs or starts any more. */
void txda_reset_fini(struct txda_device *tdev);

/* Calls for a chip reset; returns at once. Any context. @reason: a string constant. */
void txda_reset_schedule(struct txda_device *tdev, const char *reason);

/* For PCI: down before the function loses its state, up when it has come back. */
void txda_reset_prepare(struct txda_device *tdev);
int txda_reset_done(struct txda_device *tdev);

extern const struct dev_pm_ops txda_pm_ops;
extern const struct pci_error_handlers txda_pci_errors;

#endif /* TXDA_RESET_H */
