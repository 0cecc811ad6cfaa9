/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Attributes of the PCI device; docs/sysfs.md lists them with their units.
 *
 * Reads take one or two register accesses and never wait for the chip. A chip that is down or gone
 * gives -ENODEV. The attributes exist before the node does, since udev rules read them when the
 * node appears, and are removed after the driver has released the chip.
 */
#ifndef TXDA_SYSFS_H
#define TXDA_SYSFS_H

#include <linux/mutex.h>
#include <linux/types.h>

#include "total.h"

struct txda_device;

/**
 * struct txda_busy - Time for which the compute cores worked, over resets of the chip.
 */
struct txda_busy {
	/** @lock: Protects @ns, and the register read. */
	struct mutex lock;

	/** @ns: Since the driver bound the chip. */
	struct txda_total ns;
};

/* Call before the node is registered; undone by the device's managed resources. */
int txda_sysfs_add(struct txda_device *tdev);
/* Before the first chip reset. */
int txda_busy_init(struct txda_device *tdev);
/* Before a chip reset, which clears the chip's counter, and after it. */
void txda_busy_save(struct txda_device *tdev);
void txda_busy_restart(struct txda_device *tdev);

#endif /* TXDA_SYSFS_H */
