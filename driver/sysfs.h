/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Attributes of the PCI device; docs/sysfs.md lists them with their units.
 *
 * Reads take a register or two and never wait for the chip. A chip that is down or gone gives
 * -ENODEV. They are there before the node is, since udev's rules read them when it appears, and go
 * after the driver has let go of the chip.
 */
#ifndef TXDA_SYSFS_H
#define TXDA_SYSFS_H

#include <linux/mutex.h>
#include <linux/types.h>

struct txda_device;

/**
 * struct txda_busy - Utilisation between two looks at the chip's counter.
 */
struct txda_busy {
	/** @lock: The others. */
	struct mutex lock;

	/** @busy_ns: The counter at the last look. */
	u64 busy_ns;

	/** @time_ns: CLOCK_MONOTONIC of it. */
	u64 time_ns;

	/** @percent: Of the time before it. */
	u32 percent;
};

int txda_sysfs_init(struct txda_device *tdev);
/* Before the node is registered; undone by the device's managed resources. */
int txda_sysfs_add(struct txda_device *tdev);

#endif /* TXDA_SYSFS_H */
