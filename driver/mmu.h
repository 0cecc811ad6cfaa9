/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Page tables in the chip's DRAM (pt.c), and the VMIDs that run on them (mmu.c).
 *
 * A page table tree belongs to one address space (vm.h), which serialises all changes to it. The
 * tables are written through the aperture; the driver keeps a copy of each, so that none is ever
 * read from the chip and all can be written again when DRAM was lost. A change never needs memory
 * once txda_pt_prepare_*() has taken it, so that asynchronous binds cannot fail half-way.
 *
 * Lifetime: a table that maps nothing any more goes with the next flush; the rest of the tree keeps
 * its DRAM until txda_pt_fini(), also when the chip is gone.
 * Threads: changes by one caller at a time; may sleep. Map, unmap and flush allocate and free
 * nothing and take no lock under which memory is allocated, so that fences may wait for them;
 * prepare, free, init and fini are not for such sections.
 */
#ifndef TXDA_MMU_H
#define TXDA_MMU_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "txda_regs.h"

struct txda_device;
struct txda_pt;
struct txda_pt_table;

/**
 * struct txda_mmu - The chip's VMIDs.
 */
struct txda_mmu {
	/**
	 * @lock: All members; and one flush at a time on the chip. No memory is allocated under
	 * it.
	 */
	struct mutex lock;

	/** @used: VMIDs that are taken. */
	u64 used;

	/** @aside: Of these, without an owner, but the chip may still use old translations. */
	u64 aside;

	/** @pt: By VMID: the tree whose root is set, or NULL. */
	struct txda_pt *pt[TXDA_MAX_VMIDS];
};

/**
 * struct txda_pt - One page table tree with its VMID.
 */
struct txda_pt {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @lock: The tables. Inside txda_mmu.lock. No memory is allocated under it. */
	struct mutex lock;

	/** @vmid: The chip's number for it. */
	u32 vmid;

	/**
	 * @online: The caller is inside drm_dev_enter(). When it is not, only the driver's copy
	 * changes.
	 */
	bool online;

	/** @lost: Its DRAM was lost and is not to be written again (vm.h says so to the client). */
	bool lost;

	/** @root: The top table. */
	struct txda_pt_table *root;

	/** @tables: How many tables the tree has, for debugfs. */
	u32 tables;

	/** @dirty_start: Start of what the next flush is about. */
	u64 dirty_start;

	/** @dirty_end: Its end; 0: nothing changed. */
	u64 dirty_end;
};

/**
 * struct txda_pt_reserve - Tables that a change may need, and those that it freed.
 */
struct txda_pt_reserve {
	/** @leaves: Tables of level 0. */
	struct list_head leaves;

	/** @dirs: Tables of other levels. */
	struct list_head dirs;

	/** @detached: Tables that are not part of the tree any more. */
	struct list_head detached;

	/** @stuck: The flush did not end: @detached is put aside (vram.h) instead of freed. */
	bool stuck;
};

/**
 * struct txda_pt_need - Counts the tables of level 0 that a mapping needs.
 */
struct txda_pt_need {
	/** @leaves: So many. */
	u32 leaves;

	/** @next: Addresses below are counted already. */
	u64 next;
};

int txda_mmu_init(struct txda_device *tdev);

/* A tree with no mappings on a free VMID. In drm_dev_enter(). -ENOSPC: no VMID or DRAM is free. */
int txda_pt_init(struct txda_device *tdev, struct txda_pt *pt);
/*
 * All translations end. @pt->online as for changes. True: the flush did not end, so its tables were
 * put aside, and what it mapped must be kept until the chip was reset.
 */
bool txda_pt_fini(struct txda_pt *pt);

/*
 * Takes what the change may need at worst. -ENOSPC: no DRAM; -ENOMEM. In any case
 * txda_pt_reserve_free() undoes it, and is called after the flush of the change.
 *
 * Map: @need has counted all runs of the mapping by txda_pt_need_run(), in the order of their
 * addresses; it begins as {}.
 */
void txda_pt_need_run(struct txda_pt_need *need, u64 va, u64 bytes, u64 addr);
int txda_pt_prepare_map(struct txda_pt *pt, u64 va, u64 bytes, const struct txda_pt_need *need,
			struct txda_pt_reserve *reserve);
int txda_pt_prepare_unmap(struct txda_pt *pt, u64 va, u64 bytes, struct txda_pt_reserve *reserve);
void txda_pt_reserve_init(struct txda_pt_reserve *reserve);
void txda_pt_reserve_free(struct txda_pt_reserve *reserve);

/*
 * Maps [va, va + bytes) to one run of memory: @addr is a DRAM offset, bus address or peer offset as
 * the aperture in @flags (TXDA_PTE_* without LEAF and VALID) says. Uses 2 MiB pages where va,
 * address and length allow. What was mapped there must have been unmapped before, which need not
 * have been flushed yet. -ENOSPC: @reserve is too small, a bug of the caller.
 */
int txda_pt_map(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes, u64 addr,
		u64 flags);
/*
 * Unmaps [va, va + bytes), splitting huge pages at its ends from @reserve (-ENOSPC as above). The
 * chip may use what was there until the next flush.
 */
int txda_pt_unmap(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes);
/*
 * When it returns 0, no access of the chip uses what was unmapped. -ENODEV: gone, which is as good;
 * -ETIMEDOUT: the flush did not end, a reset of the chip was called for, and until then what was
 * mapped must not be freed.
 */
int txda_pt_flush(struct txda_pt *pt, struct txda_pt_reserve *reserve);

/* Writes one tree and its root again, from the driver's copy. In drm_dev_enter(). */
void txda_mmu_rewrite(struct txda_pt *pt);
/*
 * After a chip reset, function reset or resume: writes all trees that are not lost again. Fences
 * may wait for this. In drm_dev_enter().
 */
void txda_mmu_restart(struct txda_device *tdev);

/* Between pt.c and mmu.c. */
int txda_mmu_get_vmid(struct txda_pt *pt);
/* No restart finds the tree any more. */
void txda_mmu_detach(struct txda_pt *pt);
void txda_mmu_put_vmid(struct txda_pt *pt, bool stuck);
void txda_mmu_set_root(struct txda_pt *pt, u64 value);
int txda_mmu_flush(struct txda_pt *pt, u64 page, u64 count);
void txda_pt_write_tables(struct txda_pt *pt);
u64 txda_pt_root(const struct txda_pt *pt);

#endif /* TXDA_MMU_H */
