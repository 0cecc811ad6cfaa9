// SPDX-License-Identifier: MIT
/* Writes the seed of fuzz_vfio: a client that greets, a driver that boots the chip and runs a ring.
 */
#include "fuzz_vfio.h"
#include "crc32c.h"
#include "txda_firmware.h"
#include "txda_isa.h"
#include "txda_regs.h"
#include "wire.h"

#include <linux/pci_regs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;

static void put(const void *data, size_t bytes)
{
	if (fwrite(data, 1, bytes, out) != bytes) {
		perror("make_vfio");
		exit(1);
	}
}

static void put_step(enum fuzz_step step)
{
	uint8_t byte = (uint8_t)step;

	put(&byte, 1);
}

static void put16(uint16_t value)
{
	put(&value, 2);
}

static void put32(uint32_t value)
{
	put(&value, 4);
}

static void message(uint16_t command, uint16_t fds, const void *body, uint16_t bytes)
{
	put_step(FUZZ_MESSAGE);
	put16(command);
	put16(fds);
	put16(bytes);
	put(body, bytes);
}

static void write_reg(uint32_t reg, uint32_t value)
{
	put_step(FUZZ_WRITE);
	put16((uint16_t)reg);
	put32(value);
}

static void write_pair(uint32_t reg, uint64_t value)
{
	write_reg(reg, (uint32_t)value);
	write_reg(reg + 4, (uint32_t)(value >> 32));
}

static void memory(enum fuzz_step step, uint64_t offset, const void *data, uint16_t bytes)
{
	put_step(step);
	put32((uint32_t)offset);
	put16(bytes);
	put(data, bytes);
}

static void connect(void)
{
	const struct vu_version hello = {0, 0};
	const struct vu_device_info info = {.argsz = sizeof(info)};
	const struct vu_dma_map map = {sizeof(map), 3, 0, FUZZ_GUEST_AT, FUZZ_GUEST_BYTES};
	const struct vu_irq_set irqs = {sizeof(irqs), VU_IRQ_DATA_EVENTFD | VU_IRQ_ACTION_TRIGGER,
					VU_IRQ_MSIX, 0, 2};

	message(VU_VERSION, 0, &hello, sizeof(hello));
	message(VU_DEVICE_GET_INFO, 0, &info, sizeof(info));
	for (uint32_t i = 0; i < 3; i++) {
		const struct vu_region_info region = {.argsz = sizeof(region), .index = i};

		message(VU_DEVICE_GET_REGION_INFO, 0, &region, sizeof(region));
	}
	message(VU_DMA_MAP, FUZZ_FD_GUEST, &map, sizeof(map));
	message(VU_DEVICE_SET_IRQS, FUZZ_FD_EVENT << 4 | FUZZ_FD_EVENT, &irqs, sizeof(irqs));
	put_step(FUZZ_CONFIG);
	put16(PCI_COMMAND);
	put32(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
}

static void boot(void)
{
	struct txda_firmware h = {
		.magic = TXDA_FIRMWARE_MAGIC,
		.header_version = TXDA_FIRMWARE_HEADER_VERSION,
		.header_bytes = sizeof(h),
		.bytes = sizeof(h),
		.chip_family = TXDA_CHIP_FAMILY_TX8,
		.regs_version = 1 << 16,
		.carveout_bytes = 16 << 20,
	};

	h.crc32c = crc32c(0, &h, sizeof(h));
	memory(FUZZ_DRAM, 0, &h, sizeof(h));
	write_reg(TXDA_REG_FW_IMAGE_BYTES, sizeof(h));
	write_reg(TXDA_REG_FW_CTRL, TXDA_FW_BOOT);
}

/* VAs 0 to 32 KiB are the streams, those behind it the guest's memory and the other chip's. */
static void map_pages(void)
{
	uint64_t leaf[16];

	for (unsigned level = 0; level < 3; level++) {
		uint64_t entry = (FUZZ_TABLES + (level + 1) * 4096) | TXDA_PTE_VALID;

		memory(FUZZ_DRAM, FUZZ_TABLES + level * 4096, &entry, sizeof(entry));
	}
	for (uint64_t i = 0; i < 16; i++) {
		static const uint64_t base[4] = {
			FUZZ_STREAMS,
			FUZZ_STREAMS,
			FUZZ_GUEST_AT | TXDA_APERTURE_SYSTEM << TXDA_PTE_APERTURE_SHIFT,
			TXDA_APERTURE_C2C << TXDA_PTE_APERTURE_SHIFT,
		};

		leaf[i] = (base[i / 4] + i * 4096) | TXDA_PTE_VALID | TXDA_PTE_READ |
			  TXDA_PTE_WRITE | TXDA_PTE_LEAF;
	}
	memory(FUZZ_DRAM, FUZZ_TABLES + 3 * 4096, leaf, sizeof(leaf));
	for (unsigned v = 0; v < 4; v++)
		write_pair(TXDA_REG_VM(v) + TXDA_VM_ROOT_LO, FUZZ_TABLES | TXDA_PTE_VALID);
}

static void run_ring(void)
{
	const struct txda_pkt_copy copy = {{TXDA_PKT_COPY, 0, sizeof(copy)}, 0x8000, 0, 4096};
	const struct txda_pkt_fill fill = {{TXDA_PKT_FILL, 0, sizeof(fill)}, 0xc000, 4096, 7, 0};
	struct txda_ring_entry e = {
		.stream_bytes = sizeof(copy) + sizeof(fill), .flags = TXDA_RING_IRQ, .seqno = 1};

	memory(FUZZ_DRAM, FUZZ_STREAMS, &copy, sizeof(copy));
	memory(FUZZ_DRAM, FUZZ_STREAMS + sizeof(copy), &fill, sizeof(fill));
	memory(FUZZ_DRAM, FUZZ_RING, &e, sizeof(e));
	memory(FUZZ_GUEST, 0, &e, sizeof(e));
	for (unsigned q = 0; q < 2; q++) {
		write_pair(TXDA_REG_QUEUE(q) + TXDA_QUEUE_RING_LO,
			   q ? 1ull << 62 | FUZZ_GUEST_AT : FUZZ_RING);
		write_reg(TXDA_REG_QUEUE(q) + TXDA_QUEUE_RING_LOG2, 5);
		write_pair(TXDA_REG_QUEUE(q) + TXDA_QUEUE_COMPLETION_LO,
			   1ull << 62 | (FUZZ_GUEST_AT + 65536));
		write_reg(TXDA_REG_QUEUE(q) + TXDA_QUEUE_CTRL, TXDA_QUEUE_CTRL_START);
		write_reg(TXDA_REG_QUEUE(q) + TXDA_QUEUE_DOORBELL, 1);
	}
}

int main(int argc, char **argv)
{
	static const uint32_t chance[][3] = {{FUZZ_MEMORY, 300, 1},
					     {FUZZ_REGISTERS, 200, 2},
					     {FUZZ_MEMORY, 200, 3},
					     {FUZZ_REGISTERS, 400, 4}};

	out = argc == 2 ? fopen(argv[1], "wb") : NULL;
	if (!out) {
		perror("make_vfio");
		return 1;
	}
	connect();
	boot();
	map_pages();
	run_ring();
	for (unsigned i = 0; i < 4; i++) {
		put_step((enum fuzz_step)chance[i][0]);
		put16((uint16_t)chance[i][1]);
		put32(chance[i][2]);
	}
	put_step(FUZZ_EVENT);
	put("\x04", 1);
	return fclose(out) ? 1 : 0;
}
