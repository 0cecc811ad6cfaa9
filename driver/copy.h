/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own use of the copy engine: clearing new buffers, saving DRAM.
 *
 * It has an address space of its own, which maps all of DRAM at TXDA_COPY_DRAM_VA and nothing of
 * any client, one small command buffer, and one hardware copy queue. One operation at a time,
 * in slices, so that a large one neither trips a timeout nor shuts others out.
 *
 * Threads: any, may sleep. Inside drm_dev_enter().
 */
#ifndef TXDA_COPY_H
#define TXDA_COPY_H

#include <linux/types.h>

struct txda_copy;
struct txda_device;

#define TXDA_COPY_DRAM_VA	(1ull << 30)

/* After mmu, hwqs and irq are up; txda_copy_fini() before they go. */
int txda_copy_init(struct txda_device *tdev);
void txda_copy_fini(struct txda_device *tdev);

/* Fills [offset, offset + bytes) of DRAM with zeros and waits. -ENODEV, -EIO, -ETIMEDOUT. */
int txda_copy_clear(struct txda_device *tdev, u64 offset, u64 bytes);
/* DRAM to or from system memory at a bus address; waits. */
int txda_copy_read(struct txda_device *tdev, u64 offset, dma_addr_t to, u64 bytes);
int txda_copy_write(struct txda_device *tdev, u64 offset, dma_addr_t from, u64 bytes);

/* The chip was reset or resumed: sets the queue up again. */
int txda_copy_restart(struct txda_device *tdev);

#endif /* TXDA_COPY_H */
