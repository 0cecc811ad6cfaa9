/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Allocator of the chip's DRAM.
 *
 * A buddy allocator behind a mutex hands out blocks of 4 KiB and up, 2 MiB aligned if they are that
 * large, so that they can be mapped with huge pages. Memory that the CPU must access is allocated
 * within the BAR2 aperture; other memory preferably beyond it.
 *
 * Contents: a new block holds what its previous owner left there; gem.h clears clients' buffers,
 * mmu.h page tables. The allocator knows which free memory is zero, from the function reset in
 * probe or because scrub.h has cleared it after its owner left, so most buffers need no clearing
 * when they are made.
 *
 * Lifetime: an allocation may outlive the chip (a client that keeps a handle after removal) and is
 * returned to the allocator whenever it is freed; the allocator lives as long as the DRM device. A
 * block that the chip may still access (a flush or copy that did not complete) is quarantined until
 * the chip is reset.
 * Threads: any; all functions may sleep. Memory is allocated under the lock, so code that fences
 * wait for must not take it.
 */
#ifndef TXDA_VRAM_H
#define TXDA_VRAM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "compat/buddy.h"

struct dmem_cgroup_pool_state;
struct file;
struct txda_device;
struct txda_runs;

/* Must lie within the aperture. */
#define TXDA_VRAM_MAPPABLE BIT(0)
/* A single contiguous block. */
#define TXDA_VRAM_CONTIGUOUS BIT(1)
/* Suspend need not save its contents. */
#define TXDA_VRAM_NO_SAVE BIT(2)
/* Preferably memory that is zero already, as far as the allocator looks for it in the range. */
#define TXDA_VRAM_CLEAR BIT(3)
/* Allocated only to be cleared: has no owner, and does not count as used. */
#define TXDA_VRAM_SCRUB BIT(4)

/**
 * struct txda_vram_block - One allocation.
 */
struct txda_vram_block {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @blocks: Blocks of the buddy allocator, in buffer order. */
	struct list_head blocks;

	/** @runs: Their offsets in DRAM. */
	struct txda_runs *runs;

	/** @bytes: Requested size. */
	u64 bytes;

	/** @taken: Sum of the sizes of @blocks, at least @bytes. */
	u64 taken;

	/** @mappable: How much of @taken lies within the aperture. */
	u64 mappable;

	/** @flags: TXDA_VRAM_*. */
	unsigned int flags;

	/** @link: In txda_vram.live or txda_vram.limbo. */
	struct list_head link;

	/** @saved: System memory for its contents while the chip has no power, or NULL. */
	struct file *saved;
};

/**
 * struct txda_vram - The chip's DRAM.
 */
struct txda_vram {
	/** @lock: Protects the allocator, @live, @limbo, @freed and @forgetful. */
	struct mutex lock;

	/**
	 * @mm: The allocator; offset 0 is DRAM offset 0, and the firmware's share is never free.
	 */
	struct txda_buddy mm;

	/** @reserved: Blocks that make up the firmware's share. */
	struct list_head reserved;

	/** @live: All allocations in use. */
	struct list_head live;

	/**
	 * @limbo: Quarantined allocations: without an owner, but the chip may still access them.
	 */
	struct list_head limbo;

	/** @freed: Bytes freed and not cleared since; fewer if some were reused. */
	u64 freed;

	/** @forgetful: Memory that the allocator believes to be zero may not be, see below. */
	bool forgetful;

	/** @used: Bytes allocated. Read without the lock for statistics. */
	atomic64_t used;

	/** @used_mappable: How much of @used lies within the aperture. Protected by @lock. */
	u64 used_mappable;

	/** @aperture: CPU mapping of BAR2, write-combined, or NULL if there is none. */
	void __iomem *aperture;

	/** @aperture_start: Physical address of BAR2. */
	resource_size_t aperture_start;

	/** @aperture_bytes: How much of DRAM, from offset 0, is visible through BAR2. */
	u64 aperture_bytes;
};

/*
 * Call after the firmware's share is known (txda_device.dram_reserved). Undone by DRM's managed
 * release.
 */
int txda_vram_init(struct txda_device *tdev);

/* The size of the largest allocation with @flags, were all memory free. */
u64 txda_vram_most(const struct txda_device *tdev, unsigned int flags);
/*
 * @bytes: a multiple of the page size. @group: the control group that is charged, whose own idle
 * buffers make room even if it protects them; or NULL. -ENOSPC: not enough free memory.
 */
int txda_vram_alloc(struct txda_device *tdev, u64 bytes, unsigned int flags,
		    struct dmem_cgroup_pool_state *group, struct txda_vram_block **ret_block);
/* NULL is allowed. */
void txda_vram_free(struct txda_vram_block *block);
/* The same for a block that was cleared and not written since. */
void txda_vram_free_clear(struct txda_vram_block *block);

/*
 * Used instead of txda_vram_free() when the chip may still access the block: frees it after the
 * next reset.
 */
void txda_vram_quarantine(struct txda_vram_block *block);
/* The chip was reset or is gone: frees the quarantined blocks. */
void txda_vram_free_quarantined(struct txda_device *tdev);

/* DRAM offset of the first byte of a contiguous allocation. */
u64 txda_vram_offset(const struct txda_vram_block *block);

/*
 * The block that contains byte @at of the allocation: DRAM offset of that byte, and how many
 * contiguous bytes follow.
 */
void txda_vram_piece(const struct txda_vram_block *block, u64 at, u64 *ret_offset, u64 *ret_bytes);

/*
 * Bytes that nobody has where an allocation with @flags may be; not all of them need be usable for
 * any one.
 */
u64 txda_vram_free_bytes(struct txda_device *tdev, unsigned int flags);

/*
 * Contents of free memory: zeros, when the driver has reset the function in probe; unknown after a
 * loss of power or a reset by somebody else, until the next probe.
 */
void txda_vram_set_clear(struct txda_device *tdev);
void txda_vram_set_unknown(struct txda_device *tdev);

/* Bytes of it that are not known to be zero. */
u64 txda_vram_dirty(const struct txda_vram_block *block);
/* @bytes of txda_vram.freed have been cleared. */
void txda_vram_note_scrubbed(struct txda_device *tdev, u64 bytes);

/*
 * Fills the parts that are not known to be zero with zeros: through the aperture if it is small and
 * within it, else by the copy engine. In txda_device_enter(). -ENODEV, -EIO: the contents are
 * undefined; -ETIMEDOUT: the same, and the block must be quarantined, not freed.
 */
int txda_vram_clear(struct txda_vram_block *block);

/*
 * For system suspend: saves all allocations except page tables (mmu.h restores those) to pageable
 * system memory, and restores them. txda_vram_prepare_save() allocates the memory while tasks run
 * and other memory can be swapped out; blocks allocated since then get theirs in txda_vram_save(),
 * which requires all queues to be idle. txda_vram_end_save() frees it in any case. -ENOMEM,
 * -ENODEV, -EIO.
 */
int txda_vram_prepare_save(struct txda_device *tdev);
int txda_vram_save(struct txda_device *tdev);
int txda_vram_restore(struct txda_device *tdev);
void txda_vram_end_save(struct txda_device *tdev);

#endif /* TXDA_VRAM_H */
