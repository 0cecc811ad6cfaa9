/* SPDX-License-Identifier: MIT */
/*
 * PCI configuration space of a chip: type 0 header, power management, MSI or MSI-X, PCI Express
 * endpoint with FLR, and a device serial number among the extended capabilities.
 *
 * A byte array and a mask of the bits that software may change; further effects of a write are
 * returned to the caller, who acts on them. The client (QEMU) emulates BARs and message tables
 * itself but forwards all writes, so the device uses the copy here.
 *
 * Threads: the device's lock.
 */
#ifndef VU_CONFIG_H
#define VU_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define VU_CONFIG_BYTES 4096

enum vu_irq_mode {
	VU_IRQ_MODE_MSIX,
	VU_IRQ_MODE_MSI,
};

struct vu_config {
	uint8_t data[VU_CONFIG_BYTES];
	uint8_t writable[VU_CONFIG_BYTES];
};

/* Effects of a write, for the caller to act on. */
#define VU_CONFIG_FLR	(1u << 0) /* a function level reset is requested */
#define VU_CONFIG_POWER (1u << 1) /* bus mastering, memory enable or the power state changed */

/* The state after power-on. @bar_bytes: of BAR2, a power of two; @vectors: of MSI-X. */
void vu_config_init(struct vu_config *c, enum vu_irq_mode mode, unsigned vectors,
		    uint64_t bar_bytes, uint64_t serial);
/* Resets to the state after power-on, as FLR does. */
void vu_config_reset(struct vu_config *c);
/* Bytes beyond the end read as zeros and ignore writes. */
void vu_config_read(const struct vu_config *c, uint64_t offset, void *buf, uint32_t bytes);
unsigned vu_config_write(struct vu_config *c, uint64_t offset, const void *buf, uint32_t bytes);

/* In D0 with memory space enabled: the BARs respond. */
bool vu_config_memory_enabled(const struct vu_config *c);
/* In D0 with bus mastering: the chip may access system memory and send interrupts. */
bool vu_config_bus_master(const struct vu_config *c);

#endif /* VU_CONFIG_H */
