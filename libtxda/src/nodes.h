/* SPDX-License-Identifier: MIT */
/*
 * Nodes of the kernel driver: devices of subsystem accel whose parent's driver is txda, as libudev
 * knows them. Nothing is opened.
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
	char serial[32];  /* of the chip, "" if the driver does not tell */
	char device[256]; /* the PCI device's directory in sysfs */
	uint64_t card;	  /* its serial; 0: not known */
	unsigned card_index;
	uint64_t incarnation; /* another one each time the node is made */
};

/*
 * Fills @ret with up to @max nodes, chips of one card side by side in their order there, cards by
 * serial, else by PCI address. Returns how many there are, or -errno.
 */
int txda__nodes(struct txda__node *ret, unsigned max);
/* Reads one of libudev's devices; false if it is no node of the driver. */
bool txda__node_read(struct udev_device *device, struct txda__node *ret_node);

#endif /* TXDA_NODES_H */
