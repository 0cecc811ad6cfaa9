// SPDX-License-Identifier: MIT
#include "config.h"
#include "txda_regs.h"

#include <linux/pci_regs.h>
#include <string.h>

/* Offsets of the capabilities. */
#define CAP_PM	 0x40
#define CAP_MSI	 0x48
#define CAP_PCIE 0x60
#define CAP_DSN	 0x100

#define PCIE_V2_BYTES 0x3c
#define LINK_GEN4     4
#define LINK_X16      16
#define LINK_SPEEDS   0x1e /* 2.5 to 16 GT/s */
#define BAR0_OFFSET   PCI_BASE_ADDRESS_0
#define BAR2_OFFSET   PCI_BASE_ADDRESS_2
#define COMMAND_BITS                                                                               \
	(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR |         \
	 PCI_COMMAND_INTX_DISABLE)
#define DEVCTL_DEFAULT 0x2810 /* relaxed ordering, no snoop, read requests of 512 bytes */

static void put16(uint8_t *at, unsigned offset, uint16_t value)
{
	at[offset] = (uint8_t)value;
	at[offset + 1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, unsigned offset, uint32_t value)
{
	put16(at, offset, (uint16_t)value);
	put16(at, offset + 2, (uint16_t)(value >> 16));
}

static uint16_t get16(const uint8_t *at, unsigned offset)
{
	return (uint16_t)(at[offset] | at[offset + 1] << 8);
}

static void init_header(struct vu_config *c, uint64_t bar_bytes)
{
	uint8_t *d = c->data, *w = c->writable;
	uint64_t bar2_mask = ~(bar_bytes - 1);

	put16(d, PCI_VENDOR_ID, TXDA_PCI_VENDOR);
	put16(d, PCI_DEVICE_ID, TXDA_PCI_DEVICE);
	put16(w, PCI_COMMAND, COMMAND_BITS);
	put16(d, PCI_STATUS, PCI_STATUS_CAP_LIST);
	/* Revision 1 below the three bytes of the class code. */
	put32(d, PCI_CLASS_REVISION, (uint32_t)TXDA_PCI_CLASS << 8 | 1);
	w[PCI_CACHE_LINE_SIZE] = 0xff;
	put32(w, BAR0_OFFSET, ~(uint32_t)(TXDA_BAR_REGS_BYTES - 1));
	put32(d, BAR2_OFFSET, PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH);
	put32(w, BAR2_OFFSET, (uint32_t)bar2_mask);
	put32(w, BAR2_OFFSET + 4, (uint32_t)(bar2_mask >> 32));
	put16(d, PCI_SUBSYSTEM_VENDOR_ID, TXDA_PCI_VENDOR);
	put16(d, PCI_SUBSYSTEM_ID, TXDA_PCI_DEVICE);
	d[PCI_CAPABILITY_LIST] = CAP_PM;
	w[PCI_INTERRUPT_LINE] = 0xff;
}

static void init_pm(struct vu_config *c)
{
	uint8_t *d = c->data + CAP_PM, *w = c->writable + CAP_PM;

	d[0] = PCI_CAP_ID_PM;
	d[1] = CAP_MSI;
	put16(d, PCI_PM_PMC, 3); /* version 1.2 of the capability: D0 and D3 */
	put16(d, PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
	put16(w, PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
}

static void init_msi(struct vu_config *c)
{
	uint8_t *d = c->data + CAP_MSI, *w = c->writable + CAP_MSI;

	d[0] = PCI_CAP_ID_MSI;
	d[1] = CAP_PCIE;
	put16(d, PCI_MSI_FLAGS, PCI_MSI_FLAGS_64BIT);
	put16(w, PCI_MSI_FLAGS, PCI_MSI_FLAGS_ENABLE | PCI_MSI_FLAGS_QSIZE);
	put32(w, PCI_MSI_ADDRESS_LO, 0xfffffffc);
	put32(w, PCI_MSI_ADDRESS_HI, 0xffffffff);
	put16(w, PCI_MSI_DATA_64, 0xffff);
}

static void init_msix(struct vu_config *c, unsigned vectors)
{
	uint8_t *d = c->data + CAP_MSI, *w = c->writable + CAP_MSI;

	d[0] = PCI_CAP_ID_MSIX;
	d[1] = CAP_PCIE;
	put16(d, PCI_MSIX_FLAGS, (uint16_t)(vectors - 1));
	put16(w, PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
	put32(d, PCI_MSIX_TABLE, TXDA_MSIX_TABLE | TXDA_BAR_REGS);
	put32(d, PCI_MSIX_PBA, TXDA_MSIX_PBA | TXDA_BAR_REGS);
}

static void init_pcie(struct vu_config *c)
{
	uint8_t *d = c->data + CAP_PCIE, *w = c->writable + CAP_PCIE;

	d[0] = PCI_CAP_ID_EXP;
	d[1] = 0; /* end of the list */
	put16(d, PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_ENDPOINT << 4);
	put32(d, PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_FLR | PCI_EXP_DEVCAP_RBER | 1 /* 256 bytes */);
	put16(d, PCI_EXP_DEVCTL, DEVCTL_DEFAULT);
	put16(w, PCI_EXP_DEVCTL, (uint16_t)~PCI_EXP_DEVCTL_BCR_FLR);
	put32(d, PCI_EXP_LNKCAP, LINK_GEN4 | LINK_X16 << 4);
	put16(w, PCI_EXP_LNKCTL,
	      PCI_EXP_LNKCTL_ASPMC | PCI_EXP_LNKCTL_RCB | PCI_EXP_LNKCTL_CCC | PCI_EXP_LNKCTL_ES);
	put16(d, PCI_EXP_LNKSTA, LINK_GEN4 | LINK_X16 << 4);
	put32(d, PCI_EXP_LNKCAP2, LINK_SPEEDS);
	put16(d, PCI_EXP_LNKCTL2, LINK_GEN4);
}

static void init_serial(struct vu_config *c, uint64_t serial)
{
	uint8_t *d = c->data + CAP_DSN;

	put32(d, 0, PCI_EXT_CAP_ID_DSN | 1 << 16);
	put32(d, 4, (uint32_t)serial);
	put32(d, 8, (uint32_t)(serial >> 32));
}

void vu_config_init(struct vu_config *c, enum vu_irq_mode mode, unsigned vectors,
		    uint64_t bar_bytes, uint64_t serial)
{
	memset(c, 0, sizeof(*c));
	init_header(c, bar_bytes);
	init_pm(c);
	if (mode == VU_IRQ_MODE_MSIX)
		init_msix(c, vectors);
	else
		init_msi(c);
	init_pcie(c);
	init_serial(c, serial);
}

void vu_config_reset(struct vu_config *c)
{
	/* All bits that software can change are zero after power-on, except for these. */
	for (unsigned i = 0; i < VU_CONFIG_BYTES; i++)
		c->data[i] &= (uint8_t)~c->writable[i];
	put16(c->data, CAP_PCIE + PCI_EXP_DEVCTL, DEVCTL_DEFAULT);
}

void vu_config_read(const struct vu_config *c, uint64_t offset, void *buf, uint32_t bytes)
{
	uint64_t have = offset < VU_CONFIG_BYTES ? VU_CONFIG_BYTES - offset : 0;

	if (have > bytes)
		have = bytes;
	memset(buf, 0, bytes);
	if (have)
		memcpy(buf, c->data + offset, have);
}

static unsigned power_state(const struct vu_config *c)
{
	return c->data[CAP_PM + PCI_PM_CTRL] & PCI_PM_CTRL_STATE_MASK;
}

unsigned vu_config_write(struct vu_config *c, uint64_t offset, const void *buf, uint32_t bytes)
{
	static const unsigned flr_byte = CAP_PCIE + PCI_EXP_DEVCTL + 1;
	const uint8_t *src = buf;
	bool memory = vu_config_memory_enabled(c), master = vu_config_bus_master(c);
	unsigned state = power_state(c), result = 0;

	for (uint32_t i = 0; i < bytes && offset + i < VU_CONFIG_BYTES; i++) {
		uint8_t *at = c->data + offset + i, mask = c->writable[offset + i];

		*at = (uint8_t)((*at & ~mask) | (src[i] & mask));
		if (offset + i == flr_byte && (src[i] & PCI_EXP_DEVCTL_BCR_FLR >> 8))
			result |= VU_CONFIG_FLR;
	}
	/* D1 and D2 are not supported: writing them leaves the state unchanged. */
	if (power_state(c) == 1 || power_state(c) == 2)
		c->data[CAP_PM + PCI_PM_CTRL] =
			(uint8_t)((c->data[CAP_PM + PCI_PM_CTRL] & ~PCI_PM_CTRL_STATE_MASK) |
				  state);
	if (memory != vu_config_memory_enabled(c) || master != vu_config_bus_master(c))
		result |= VU_CONFIG_POWER;
	return result;
}

bool vu_config_memory_enabled(const struct vu_config *c)
{
	return !power_state(c) && (get16(c->data, PCI_COMMAND) & PCI_COMMAND_MEMORY);
}

bool vu_config_bus_master(const struct vu_config *c)
{
	return !power_state(c) && (get16(c->data, PCI_COMMAND) & PCI_COMMAND_MASTER);
}
