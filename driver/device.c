// SPDX-License-Identifier: GPL-2.0
#include "device.h"

#include <linux/sizes.h>
#include <drm/drm_print.h>

#include "txda_isa.h"

u64 txda_read_pair(struct txda_device *tdev, u32 reg)
{
	unsigned long flags;
	u64 value;

	raw_spin_lock_irqsave(&tdev->pair_lock, flags);
	value = txda_read(tdev, reg);
	value |= (u64)txda_read(tdev, reg + 4) << 32;
	raw_spin_unlock_irqrestore(&tdev->pair_lock, flags);

	return value;
}

void txda_write_pair_locked(struct txda_device *tdev, u32 reg, u64 value)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&tdev->pair_lock, flags);
	txda_write_pair(tdev, reg, value);
	raw_spin_unlock_irqrestore(&tdev->pair_lock, flags);
}

bool txda_device_alive(struct txda_device *tdev)
{
	return txda_read(tdev, TXDA_REG_MAGIC) == TXDA_MAGIC;
}

enum drm_txda_port_state txda_device_port_state(struct txda_device *tdev, u32 port)
{
	switch (txda_read(tdev, TXDA_REG_PORT(port) + TXDA_PORT_STATE)) {
	case TXDA_PORT_TRAINING:
		return DRM_TXDA_PORT_TRAINING;
	case TXDA_PORT_UP:
		return DRM_TXDA_PORT_UP;
	default:
		return DRM_TXDA_PORT_DOWN;
	}
}

enum drm_txda_firmware_state txda_device_firmware_state(struct txda_device *tdev)
{
	switch (txda_read(tdev, TXDA_REG_FW_STATE)) {
	case TXDA_FW_RESET:
		return DRM_TXDA_FIRMWARE_OFF;
	case TXDA_FW_BOOTING:
		return DRM_TXDA_FIRMWARE_BOOTING;
	case TXDA_FW_READY:
		return DRM_TXDA_FIRMWARE_READY;
	default:
		return DRM_TXDA_FIRMWARE_FAILED;
	}
}

int txda_device_port_to(struct txda_device *tdev, const struct txda_device *peer)
{
	u32 i;

	for (i = 0; i < tdev->n_ports; i++) {
		u32 reg = TXDA_REG_PORT(i);

		if (txda_read(tdev, reg + TXDA_PORT_STATE) == TXDA_PORT_UP &&
		    txda_read_pair(tdev, reg + TXDA_PORT_PEER_CARD_LO) == peer->card &&
		    txda_read(tdev, reg + TXDA_PORT_PEER_INDEX) == peer->card_index)
			return i;
	}
	return -EXDEV;
}

static void txda_read_bytes(struct txda_device *tdev, u32 reg, u8 *to, u32 bytes)
{
	u32 i;

	for (i = 0; i < bytes; i++)
		to[i] = txda_read(tdev, reg + (i & ~3u)) >> (8 * (i & 3));
}

/* Values read from the chip are used only within the limits of the register map. */
static int txda_device_limit(struct txda_device *tdev, const char *what, u64 value, u64 min,
			     u64 max)
{
	if (value >= min && value <= max)
		return 0;
	drm_err(&tdev->drm, "the chip reports %llu %s, valid are %llu to %llu\n", value, what, min,
		max);
	return -ENODEV;
}

static int txda_device_check_limits(struct txda_device *tdev)
{
	int err;

	err = txda_device_limit(tdev, "compute queues", tdev->compute_queues, 1,
				TXDA_MAX_QUEUES - 1);
	if (err)
		return err;
	err = txda_device_limit(tdev, "copy queues", tdev->copy_queues, 1,
				TXDA_MAX_QUEUES - tdev->compute_queues);
	if (err)
		return err;
	err = txda_device_limit(tdev, "C2C ports", tdev->n_ports, 0, TXDA_MAX_PORTS);
	if (err)
		return err;
	err = txda_device_limit(tdev, "address spaces", tdev->info.max_vms, 1, TXDA_MAX_VMIDS);
	if (err)
		return err;
	return txda_device_limit(tdev, "bits of virtual address", tdev->info.va_bits, 32, 48);
}

static int txda_device_read_memory(struct txda_device *tdev)
{
	u64 dram = txda_read_pair(tdev, TXDA_REG_DRAM_LO);
	u64 reserved = txda_read_pair(tdev, TXDA_REG_DRAM_RESERVED_LO);
	u64 bar = pci_resource_len(tdev->pdev, TXDA_BAR_DRAM);
	int err;

	err = txda_device_limit(tdev, "bytes of DRAM", dram, SZ_2M, BIT_ULL(52));
	if (err)
		return err;
	err = txda_device_limit(tdev, "reserved bytes of DRAM", reserved, 0, dram - SZ_2M);
	if (err)
		return err;

	tdev->dram_reserved = reserved;
	tdev->dram_bytes = dram - reserved;
	bar = min(bar, dram);
	tdev->dram_mappable = bar > reserved ? bar - reserved : 0;
	return 0;
}

/* Maps the registers and checks that they belong to a TX8 with a known register map. */
static int txda_device_map(struct txda_device *tdev)
{
	struct pci_dev *pdev = tdev->pdev;
	u32 magic, version;

	if (pci_resource_len(pdev, TXDA_BAR_REGS) < TXDA_BAR_REGS_BYTES) {
		drm_err(&tdev->drm, "BAR%d has %llu bytes, a TX8 has %u\n", TXDA_BAR_REGS,
			(u64)pci_resource_len(pdev, TXDA_BAR_REGS), TXDA_BAR_REGS_BYTES);
		return -ENODEV;
	}
	tdev->regs = pcim_iomap_region(pdev, TXDA_BAR_REGS, "txda");
	if (IS_ERR(tdev->regs)) {
		drm_err(&tdev->drm, "cannot map BAR%d: %pe\n", TXDA_BAR_REGS, tdev->regs);
		return PTR_ERR(tdev->regs);
	}

	magic = txda_read(tdev, TXDA_REG_MAGIC);
	if (magic != TXDA_MAGIC) {
		drm_err(&tdev->drm, "identity register reads %#x: not a TX8\n", magic);
		return -ENODEV;
	}
	version = txda_read(tdev, TXDA_REG_VERSION);
	if (version >> 16 != TXDA_REGS_MAJOR) {
		drm_err(&tdev->drm, "register map %u.%u, this driver knows %u.x\n", version >> 16,
			version & 0xffff, TXDA_REGS_MAJOR);
		return -ENODEV;
	}
	return 0;
}

static u64 txda_device_caps(u32 word)
{
	static const struct {
		u32 chip;
		u64 cap;
	} caps[] = {
		{TXDA_CHIP_CMODEL, DRM_TXDA_CAP_CMODEL},
		{TXDA_CHIP_PRECISE, DRM_TXDA_CAP_PRECISE},
		{TXDA_CHIP_C2C, DRM_TXDA_CAP_C2C},
		{TXDA_CHIP_ECC, DRM_TXDA_CAP_ECC},
		{TXDA_CHIP_POWER_LIMIT, DRM_TXDA_CAP_POWER_LIMIT},
	};
	u64 found = 0;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(caps); i++)
		if (word & caps[i].chip)
			found |= caps[i].cap;
	return found;
}

static void txda_device_read_identity(struct txda_device *tdev)
{
	struct drm_txda_device_info *info = &tdev->info;
	u32 word;

	txda_read_bytes(tdev, TXDA_REG_NAME, info->name, sizeof(info->name) - 1);
	txda_read_bytes(tdev, TXDA_REG_SERIAL, info->serial, sizeof(info->serial));
	word = txda_read(tdev, TXDA_REG_CHIP);
	info->family = word >> 16;
	info->revision = word;
	word = txda_read(tdev, TXDA_REG_ISA);
	info->isa_major = word >> 16;
	info->isa_minor = word;
	word = txda_read(tdev, TXDA_REG_CAPS);
	info->caps = txda_device_caps(word);
	info->features = DRM_TXDA_FEATURE_QUEUE_SHARE | DRM_TXDA_FEATURE_BO_ADVISE;
	tdev->wants_firmware = word & TXDA_CHIP_FIRMWARE;
	tdev->counts_c2c = word & TXDA_CHIP_C2C_TRAFFIC;
	info->va_bits = txda_read(tdev, TXDA_REG_VA_BITS);
	info->page_sizes = BIT(TXDA_PAGE_SHIFT) | BIT(TXDA_HUGE_SHIFT);
	info->cores = txda_read(tdev, TXDA_REG_CORES);
	info->clock_max_khz = txda_read(tdev, TXDA_REG_CLOCK_MAX_KHZ);
	info->max_vms = txda_read(tdev, TXDA_REG_VMIDS);
	info->max_stream_bytes = TXDA_STREAM_MAX_BYTES;

	word = txda_read(tdev, TXDA_REG_QUEUES);
	tdev->compute_queues = word & 0xffff;
	tdev->copy_queues = word >> 16;
	tdev->n_ports = txda_read(tdev, TXDA_REG_C2C_PORTS);
	tdev->card = txda_read_pair(tdev, TXDA_REG_CARD_LO);
	word = txda_read(tdev, TXDA_REG_CARD_POSITION);
	tdev->card_index = word & 0xffff;
	tdev->card_chips = word >> 16;
}

int txda_device_init(struct txda_device *tdev)
{
	int err;

	raw_spin_lock_init(&tdev->pair_lock);
	txda_ras_init(tdev);

	err = txda_device_map(tdev);
	if (err)
		return err;
	txda_device_read_identity(tdev);
	err = txda_device_check_limits(tdev);
	if (!err)
		err = txda_device_read_memory(tdev);
	if (err)
		return err;
	txda_fwlog_init(tdev);
	err = txda_busy_init(tdev);
	if (err)
		return err;

	if (!txda_device_alive(tdev)) {
		drm_err(&tdev->drm, "the chip went away during probe\n");
		return -ENODEV;
	}
	return 0;
}
