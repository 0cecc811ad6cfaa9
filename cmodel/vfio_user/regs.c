// SPDX-License-Identifier: MIT
#include "regs.h"
#include "device.h"

#include <string.h>

/* Registers that are repeated for each instance of something. */
struct block {
	uint32_t base, stride, count;
	const struct vu_reg *table;
	uint32_t words;
};

static const struct block blocks[] = {
	{0, 0x600, 1, vu_regs_global, VU_GLOBAL_WORDS},
	{TXDA_REG_PORT(0), 0x20, TXDA_MAX_PORTS, vu_regs_port, VU_PORT_WORDS},
	{TXDA_REG_QUEUE(0), 0x80, VU_QUEUES, vu_regs_queue, VU_QUEUE_WORDS},
	{TXDA_REG_VM(0), 0x200, VU_VMIDS, vu_regs_vm, VU_VM_WORDS},
};

#define N_BLOCKS (sizeof(blocks) / sizeof(blocks[0]))

/* The register at @offset and its instance; NULL: none is defined there. */
static const struct vu_reg *locate(uint32_t offset, unsigned *ret_i)
{
	uint32_t i, within;

	for (unsigned b = 0; b < N_BLOCKS; b++) {
		const struct block *at = &blocks[b];

		if (offset < at->base || offset - at->base >= at->stride * at->count)
			continue;
		i = (offset - at->base) / at->stride;
		within = (offset - at->base) % at->stride;
		if (at->table == vu_regs_vm && within >= TXDA_VM_GROUP(0)) {
			within -= TXDA_VM_GROUP(0);
			*ret_i = i * TXDA_VM_GROUPS + within / 0x10;
			return &vu_regs_group[within % 0x10 / 4];
		}
		*ret_i = at->count > 1 ? i : offset;
		return within / 4 < at->words ? &at->table[within / 4] : NULL;
	}
	return NULL;
}

/* A word of the MSI-X table; NULL: the offset is elsewhere. */
static uint32_t *table_word(struct vu_device *d, uint32_t offset)
{
	uint32_t word = (offset - TXDA_MSIX_TABLE) / 4;

	if (d->irq.mode != VU_IRQ_MODE_MSIX || offset < TXDA_MSIX_TABLE ||
	    word >= VU_MSIX_VECTORS * 4)
		return NULL;
	return &d->msix_table[word];
}

static uint32_t read_table(struct vu_device *d, uint32_t offset)
{
	const uint32_t *word = table_word(d, offset);
	uint64_t pending = d->irq.mode == VU_IRQ_MODE_MSIX ? vu_irq_pending(&d->irq) : 0;

	if (word)
		return *word;
	switch (offset) {
	case TXDA_MSIX_PBA: return (uint32_t)pending;
	case TXDA_MSIX_PBA + 4: return (uint32_t)(pending >> 32);
	default: return 0;
	}
}

static uint32_t read_single(struct vu_device *d, const struct vu_reg *reg, unsigned i)
{
	uint32_t value;

	if (reg->read)
		return reg->read(d, i);
	if (!reg->field)
		return (uint32_t)reg->constant;
	memcpy(&value, (const uint8_t *)d + reg->field, sizeof(value));
	return value;
}

static uint64_t read_both(struct vu_device *d, const struct vu_reg *reg, unsigned i)
{
	uint64_t value;

	if (reg->read_pair)
		return reg->read_pair(d, i);
	if (!reg->field)
		return reg->constant;
	memcpy(&value, (const uint8_t *)d + reg->field, sizeof(value));
	return value;
}

uint32_t vu_regs_read(struct vu_device *d, uint32_t offset)
{
	unsigned i = 0;
	const struct vu_reg *reg = locate(offset, &i);
	uint32_t value;

	pthread_mutex_lock(&d->lock);
	if (!reg) {
		value = read_table(d, offset);
	} else if (reg->pair == VU_LO) {
		uint64_t both = read_both(d, reg, i);

		d->latched[offset / 4 + 1] = (uint32_t)(both >> 32);
		value = (uint32_t)both;
	} else if (reg->pair == VU_HI) {
		value = d->latched[offset / 4];
	} else {
		value = read_single(d, reg, i);
	}
	pthread_mutex_unlock(&d->lock);
	return value;
}

void vu_regs_write(struct vu_device *d, uint32_t offset, uint32_t value)
{
	unsigned i = 0;
	const struct vu_reg *reg = locate(offset, &i), *lo = reg;
	uint32_t *word = reg ? NULL : table_word(d, offset);

	if (word) {
		pthread_mutex_lock(&d->lock);
		*word = value;
		pthread_mutex_unlock(&d->lock);
	} else if (!reg) {
		return;
	} else if (reg->pair == VU_LO) {
		d->staged[offset / 4] = value;
	} else if (reg->pair == VU_HI) {
		lo--;
		if (lo->write_pair)
			lo->write_pair(d, i, (uint64_t)value << 32 | d->staged[offset / 4 - 1]);
	} else if (reg->write) {
		reg->write(d, i, value);
	}
}
