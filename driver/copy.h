/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own use of the copy engine: clearing new buffers, saving DRAM.
 *
 * It has its own address space, which maps all of DRAM at TXDA_COPY_DRAM_VA and no client memory, a
 * command buffer with a staging area, and one hardware copy queue. It runs one operation at a time,
 * in slices, so that a large one neither trips a timeout nor blocks others for long.
 *
 * An operation without progress for some seconds fails by itself, before anyone waiting for its
 * caller has to give up. A queue that stopped is set up again. If it cannot be stopped, a chip
 * reset is requested and the queue is unusable until then.
 *
 * Threads: any, may sleep. Call inside drm_dev_enter() with the chip up. Must not be used in code
 * that fences wait for.
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
 * Fills [offset, offset + bytes) of DRAM with zeros and waits. -ENODEV; -EIO: failed, and the
 * engine has stopped; -ETIMEDOUT: the engine may continue writing until the chip is reset.
 */
int txda_copy_clear(struct txda_device *tdev, u64 offset, u64 bytes);

/*
 * The staging area, and copies of at most TXDA_COPY_STAGE_BYTES to and from it. One user at a
 * time.
 */
void *txda_copy_stage(struct txda_device *tdev);
int txda_copy_out(struct txda_device *tdev, u64 offset, u64 bytes);
int txda_copy_in(struct txda_device *tdev, u64 offset, u64 bytes);

/* Call after a chip reset or resume: sets up page tables and queue again. */
int txda_copy_restart(struct txda_device *tdev);

#endif /* TXDA_COPY_H */
