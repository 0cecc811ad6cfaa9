/* SPDX-License-Identifier: MIT */
/*
 * The vfio-user protocol, version 0.0, as its specification lays it out: messages over a Unix
 * socket, each a 16-byte header and a body that mirrors an ioctl of VFIO. Everything is in the
 * host's byte order. File descriptors travel as SCM_RIGHTS with the header.
 */
#ifndef VU_WIRE_H
#define VU_WIRE_H

#include <stdint.h>

enum vu_command {
	VU_VERSION = 1,
	VU_DMA_MAP = 2,
	VU_DMA_UNMAP = 3,
	VU_DEVICE_GET_INFO = 4,
	VU_DEVICE_GET_REGION_INFO = 5,
	VU_DEVICE_GET_REGION_IO_FDS = 6,
	VU_DEVICE_GET_IRQ_INFO = 7,
	VU_DEVICE_SET_IRQS = 8,
	VU_REGION_READ = 9,
	VU_REGION_WRITE = 10,
	VU_DMA_READ = 11, /* from server to client, as is the next */
	VU_DMA_WRITE = 12,
	VU_DEVICE_RESET = 13,
	VU_COMMAND_COUNT
};

#define VU_TYPE_MASK  0xfu
#define VU_TYPE_REPLY 0x1u
#define VU_NO_REPLY   0x10u
#define VU_ERROR      0x20u

struct vu_header {
	uint16_t id; /* chosen by the client, repeated in the reply */
	uint16_t command;
	uint32_t bytes; /* of the whole message */
	uint32_t flags;
	uint32_t error; /* an errno, with VU_ERROR */
};

struct vu_version {
	uint16_t major, minor;
	char json[]; /* NUL-terminated capabilities, or nothing */
};

#define VU_DMA_READABLE	 (1u << 0)
#define VU_DMA_WRITEABLE (1u << 1)

struct vu_dma_map {
	uint32_t argsz, flags;
	uint64_t offset; /* into the file that was passed along */
	uint64_t address, bytes;
};

#define VU_DMA_UNMAP_ALL (1u << 1)

struct vu_dma_unmap {
	uint32_t argsz, flags;
	uint64_t address, bytes;
};

#define VU_DEVICE_RESETTABLE (1u << 0)
#define VU_DEVICE_PCI	     (1u << 1)

struct vu_device_info {
	uint32_t argsz, flags;
	uint32_t regions, irqs;
};

enum vu_region {
	VU_REGION_BAR0 = 0,
	VU_REGION_BAR2 = 2,
	VU_REGION_ROM = 6,
	VU_REGION_CONFIG = 7,
	VU_REGION_VGA = 8,
	VU_REGION_COUNT = 9
};

#define VU_REGION_READABLE (1u << 0)
#define VU_REGION_WRITABLE (1u << 1)
#define VU_REGION_MAPPABLE (1u << 2)
#define VU_REGION_CAPS	   (1u << 3)

struct vu_region_info {
	uint32_t argsz, flags;
	uint32_t index, cap_offset;
	uint64_t bytes;
	uint64_t offset; /* for mmap() of the file that is passed along */
};

#define VU_CAP_SPARSE_MMAP 1

/* The capability "only these parts can be mapped", with one part. */
struct vu_sparse_mmap {
	uint16_t id, version;
	uint32_t next;
	uint32_t areas, reserved;
	uint64_t offset, bytes;
};

enum vu_irq_index {
	VU_IRQ_INTX = 0,
	VU_IRQ_MSI = 1,
	VU_IRQ_MSIX = 2,
	VU_IRQ_ERR = 3,
	VU_IRQ_REQ = 4,
	VU_IRQ_INDEX_COUNT = 5
};

#define VU_IRQ_INFO_EVENTFD  (1u << 0)
#define VU_IRQ_INFO_MASKABLE (1u << 1)

struct vu_irq_info {
	uint32_t argsz, flags;
	uint32_t index, count;
};

#define VU_IRQ_DATA_NONE      (1u << 0)
#define VU_IRQ_DATA_BOOL      (1u << 1)
#define VU_IRQ_DATA_EVENTFD   (1u << 2)
#define VU_IRQ_DATA_MASK      0x7u
#define VU_IRQ_ACTION_MASK    (1u << 3)
#define VU_IRQ_ACTION_UNMASK  (1u << 4)
#define VU_IRQ_ACTION_TRIGGER (1u << 5)
#define VU_IRQ_ACTIONS	      0x38u

struct vu_irq_set {
	uint32_t argsz, flags;
	uint32_t index, start, count;
	uint8_t data[]; /* DATA_BOOL: count bytes */
};

struct vu_region_rw {
	uint64_t offset;
	uint32_t region, count;
	uint8_t data[];
};

/* Limits of this server. */
#define VU_MAX_FDS	16	   /* with one message */
#define VU_MAX_TRANSFER (1u << 20) /* bytes of a REGION_READ or REGION_WRITE */
#define VU_MAX_MESSAGE	(sizeof(struct vu_header) + sizeof(struct vu_region_rw) + VU_MAX_TRANSFER)

#endif /* VU_WIRE_H */
