/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The chip's DRAM: who has which piece of it.
 *
 * A buddy allocator behind a mutex hands out pieces of 4 KiB and up, 2 MiB aligned where they are
 * so large, so that they can be mapped in huge pages. What the CPU must reach lies within the
 * BAR2 aperture; what it need not, beyond it first.
 *
 * Contents: a new piece holds whatever its last owner left there; gem.h clears what clients get,
 * mmu.h what page tables get.
 *
 * Lifetime: an allocation may outlive the chip (a client that keeps a handle after removal); it is
 * returned to the allocator whenever it goes, which lives as long as the DRM device. One that the
 * chip may still touch (a flush or copy that did not end) is put aside until the chip was reset.
 * Threads: any; all may sleep. Memory is allocated under the lock, so nothing that a fence waits
 * for may take it.
 */
#ifndef TXDA_VRAM_H
#define TXDA_VRAM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "compat/buddy.h"

struct file;
struct txda_device;
struct txda_runs;

/* Must lie within the aperture. */
#define TXDA_VRAM_MAPPABLE BIT(0)
/* One piece. */
#define TXDA_VRAM_CONTIGUOUS BIT(1)
/* Suspend need not save it. */
#define TXDA_VRAM_NO_SAVE BIT(2)

/**
 * struct txda_vram_block - One allocation.
 */
struct txda_vram_block {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @blocks: Of the buddy allocator, in the order of the buffer's bytes. */
	struct list_head blocks;

	/** @runs: Their offsets in DRAM. */
	struct txda_runs *runs;

	/** @bytes: As asked for. */
	u64 bytes;

	/** @taken: Sum of the sizes of @blocks, @bytes or more. */
	u64 taken;

	/** @flags: TXDA_VRAM_*. */
	unsigned int flags;

	/** @link: In txda_vram.live or txda_vram.limbo. */
	struct list_head link;

	/** @saved: For its contents while the chip has no power, or NULL. */
	struct file *saved;
};

/**
 * struct txda_vram - The chip's DRAM.
 */
struct txda_vram {
	/** @lock: The allocator, @live and @limbo. */
	struct mutex lock;

	/** @mm: The allocator; offset 0 is DRAM offset 0, firmware's share is never free. */
	struct txda_buddy mm;

	/** @reserved: Blocks of firmware's share. */
	struct list_head reserved;

	/** @live: All allocations in use. */
	struct list_head live;

	/** @limbo: Allocations without an owner that the chip may still touch. */
	struct list_head limbo;

	/** @used: Bytes that are handed out. Read without the lock for statistics. */
	atomic64_t used;

	/** @aperture: BAR2 as the CPU sees it, write-combined, or NULL when it has none. */
	void __iomem *aperture;

	/** @aperture_start: Physical address of BAR2. */
	resource_size_t aperture_start;

	/** @aperture_bytes: Of DRAM, what BAR2 shows, from offset 0. */
	u64 aperture_bytes;
};

/* After firmware's share is known (txda_device.dram_reserved). Undone by DRM's managed release. */
int txda_vram_init(struct txda_device *tdev);

/* @bytes a multiple of the page size. -ENOSPC: not so much is free. */
int txda_vram_alloc(struct txda_device *tdev, u64 bytes, unsigned int flags,
		    struct txda_vram_block **ret_block);
/* NULL is fine. */
void txda_vram_free(struct txda_vram_block *block);

/* Instead of txda_vram_free() when the chip may still touch it: free after the next reset. */
void txda_vram_put_aside(struct txda_vram_block *block);
/* The chip was reset or is gone: frees what was put aside. */
void txda_vram_free_aside(struct txda_device *tdev);

/* DRAM offset of the first byte of a contiguous allocation. */
u64 txda_vram_offset(const struct txda_vram_block *block);

/*
 * The piece that byte @at of the allocation lies in: DRAM offset of that byte, and how many bytes
 * follow in one piece.
 */
void txda_vram_piece(const struct txda_vram_block *block, u64 at, u64 *ret_offset, u64 *ret_bytes);

/*
 * Fills it with zeros: through the aperture where it is small and within, else by the copy engine.
 * In txda_device_enter(). -ENODEV, -EIO: do not use its contents; -ETIMEDOUT: as well, and it must
 * be put aside, not freed.
 */
int txda_vram_clear(struct txda_vram_block *block);

/*
 * For a sleep of the machine: all that is allocated, page tables excepted (mmu.h has them), goes to
 * pageable system memory, and back. The memory is taken by txda_vram_prepare_save(), while tasks
 * run and others can be swapped out; what was allocated since takes its own in txda_vram_save(),
 * which wants all queues idle. txda_vram_end_save() gives it back, whatever came of it. -ENOMEM,
 * -ENODEV,
 * -EIO.
 */
int txda_vram_prepare_save(struct txda_device *tdev);
int txda_vram_save(struct txda_device *tdev);
int txda_vram_restore(struct txda_device *tdev);
void txda_vram_end_save(struct txda_device *tdev);

#endif /* TXDA_VRAM_H */
