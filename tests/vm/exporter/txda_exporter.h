/* SPDX-License-Identifier: MIT */
/*
 * /dev/txda_exporter: dma-bufs for tests of importers. The device is that of a PCI function whose
 * BAR2 is memory, QEMU's ivshmem-plain.
 */
#ifndef TXDA_EXPORTER_H
#define TXDA_EXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* What a dma-buf of the whole BAR is like. */
enum txda_exporter_kind {
	/* Can be pinned; only for importers that can reach PCI devices. */
	TXDA_EXPORTER_PINNED,
	/* The same without a pin operation, as vfio-pci has it. */
	TXDA_EXPORTER_PLAIN,
	/* In system memory, as if the kernel supported no peer-to-peer DMA between the devices. */
	TXDA_EXPORTER_SYSTEM,
	/* Can be pinned, but not mapped: -EREMOTEIO. */
	TXDA_EXPORTER_STUBBORN,
	TXDA_EXPORTER_KINDS
};

/* How much of all dma-bufs is in use. */
struct txda_exporter_state {
	/* Whether the kernel has peer-to-peer DMA. */
	__u32 p2p;
	__u32 buffers;
	__u32 attached;
	__u32 pinned;
	__u32 mapped;
};

/* A dma-buf of that kind; returns its descriptor. */
#define TXDA_EXPORTER_GET _IO('x', 0x40)
/* Revokes all dma-bufs; returns when nobody has a mapping of one. -ETIMEDOUT: after 60 s. */
#define TXDA_EXPORTER_REVOKE _IO('x', 0x41)
#define TXDA_EXPORTER_STATE  _IOR('x', 0x42, struct txda_exporter_state)

#endif
