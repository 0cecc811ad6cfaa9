/* SPDX-License-Identifier: MIT */
/*
 * Nodes of the kernel driver, found through libudev: devices of subsystem accel whose parent's
 * driver is txda. Nothing is opened.
 *
 * Threads: any.
 */
#ifndef TXDA_NODES_H
#define TXDA_NODES_H

#include "internal.h"

struct udev_device;

struct txda__node {
	char node[64];	  /* "/dev/accel/accel0" */
	char bus[32];	  /* PCI address */
	char serial[32];  /* serial of the chip, "" if the driver does not report it */
	char device[256]; /* the PCI device's directory in sysfs */
	uint64_t card;	  /* serial of the card; 0: unknown */
	unsigned card_index;
	uint64_t incarnation; /* changes each time the node is created */
};

/*
 * Fills @ret with up to @max nodes: cards sorted by serial, else by PCI address, and the chips of a
 * card in their order on the card. Returns how many there are, or -errno.
 */
int txda__nodes(struct txda__node *ret, unsigned max);
/* Reads a device of libudev; false if it is not a node of the driver. */
bool txda__node_read(struct udev_device *device, struct txda__node *ret_node);

#endif /* TXDA_NODES_H */
