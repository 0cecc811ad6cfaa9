/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own use of the copy engine: clearing new buffers, saving DRAM.
 *
 * It has an address space of its own, which maps all of DRAM at TXDA_COPY_DRAM_VA and nothing of
 * any client, a command buffer with a staging area, and one hardware copy queue. One operation at a
 * time, in slices, so that a large one neither trips a timeout nor shuts others out.
 *
 * An operation without progress for some seconds fails by itself, before anybody who waits for
 * its caller has to give up. A queue that stopped is set up again; one that cannot be stopped is
 * dead until the chip was reset, which is called for.
 *
 * Threads: any, may sleep. Inside drm_dev_enter(), with the chip up. Not for what fences wait for.
 */
#ifndef TXDA_COPY_H
#define TXDA_COPY_H

#include <linux/bits.h>
#include <linux/sizes.h>
#include <linux/types.h>

struct txda_copy;
struct txda_device;

#define TXDA_COPY_DRAM_VA     BIT_ULL(30)
#define TXDA_COPY_STAGE_BYTES SZ_256K

/* After mmu, hwqs and irq are up; txda_copy_fini() before they go. */
int txda_copy_init(struct txda_device *tdev);
void txda_copy_fini(struct txda_device *tdev);

/*
 * Fills [offset, offset + bytes) of DRAM with zeros and waits. -ENODEV; -EIO: it failed and is
 * over; -ETIMEDOUT: the chip may go on writing until it was reset.
 */
int txda_copy_clear(struct txda_device *tdev, u64 offset, u64 bytes);

/* The staging area, and copies of at most TXDA_COPY_STAGE_BYTES to and from it. For one user. */
void *txda_copy_stage(struct txda_device *tdev);
int txda_copy_out(struct txda_device *tdev, u64 offset, u64 bytes);
int txda_copy_in(struct txda_device *tdev, u64 offset, u64 bytes);

/* The chip was reset or resumed: sets page tables and queue up again. */
int txda_copy_restart(struct txda_device *tdev);

#endif /* TXDA_COPY_H */
