/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Page tables in the chip's DRAM (pt.c), and the VMIDs that run on them (mmu.c).
 *
 * A page table tree belongs to one address space (vm.h), which serialises all changes to it. Tables
 * are written through the aperture; the driver keeps a copy of each, so that none is read back from
 * the chip and all can be rewritten when DRAM was lost. A change needs no memory beyond what
 * txda_pt_prepare_*() has allocated, so asynchronous binds cannot fail half-way.
 *
 * Lifetime: a table that maps nothing any more is freed after the next flush; the rest of the tree
 * keeps its DRAM until txda_pt_fini(), also when the chip is gone.
 * Threads: one caller at a time makes changes; may sleep. Map, unmap and flush allocate and free
 * nothing and take no lock under which memory is allocated, so fences may wait for them; prepare,
 * free, init and fini must not be used in code that fences wait for.
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
struct txda_user;

/**
 * struct txda_mmu - The chip's VMIDs.
 */
struct txda_mmu {
	/**
	 * @lock: Protects all members, and serialises flushes on the chip. No memory is allocated
	 * under it.
	 */
	struct mutex lock;

	/** @used: VMIDs that are taken. */
	u64 used;

	/** @aside: VMIDs without an owner for which the chip may still have old translations. */
	u64 aside;

	/** @pt: By VMID: the tree whose root is installed, or NULL. */
	struct txda_pt *pt[TXDA_MAX_VMIDS];
};

/**
 * struct txda_pt - One page table tree with its VMID.
 */
struct txda_pt {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @user: Charged with its tables, each of which holds it; NULL: the kernel. */
	struct txda_user *user;

	/** @lock: Protects the tables. Inside txda_mmu.lock. No memory is allocated under it. */
	struct mutex lock;

	/** @vmid: Its VMID on the chip. */
	u32 vmid;

	/**
	 * @online: The caller is inside drm_dev_enter(). If false, only the driver's copy is
	 * changed.
	 */
	bool online;

	/** @lost: Its DRAM was lost and must not be rewritten (vm.h reports this to the client). */
	bool lost;

	/** @root: The top table. */
	struct txda_pt_table *root;

	/** @tables: How many tables the tree has, for debugfs. */
	u32 tables;

	/** @dirty_start: Start of the range that the next flush covers. */
	u64 dirty_start;

	/** @dirty_end: Its end; 0: nothing changed. */
	u64 dirty_end;
};

/**
 * struct txda_pt_reserve - Preallocated tables for a change, and the tables that it frees.
 */
struct txda_pt_reserve {
	/** @leaves: Free tables of level 0. */
	struct list_head leaves;

	/** @dirs: Free tables of higher levels. */
	struct list_head dirs;

	/** @detached: Tables removed from the tree. */
	struct list_head detached;

	/**
	 * @stuck: The flush did not complete: @detached is quarantined (vram.h) instead of freed.
	 */
	bool stuck;
};

/**
 * struct txda_pt_need - Counts the level-0 tables that a mapping needs.
 */
struct txda_pt_need {
	/** @leaves: Number of tables. */
	u32 leaves;

	/** @next: Addresses below this one are counted already. */
	u64 next;
};

int txda_mmu_init(struct txda_device *tdev);

/*
 * An empty tree on a free VMID. In drm_dev_enter(). @user: who pays for tables (user.h), also those
 * prepared later, while the caller holds it; or NULL. -ENOSPC: no VMID or DRAM is free; -EDQUOT.
 */
int txda_pt_init(struct txda_device *tdev, struct txda_user *user, struct txda_pt *pt);
/*
 * Ends all translations. @pt->online as for changes. Returns true if the flush did not complete:
 * then its tables were quarantined, and the memory it mapped must be kept until the chip is reset.
 */
bool txda_pt_fini(struct txda_pt *pt);

/*
 * Allocates the tables that the change needs in the worst case. -ENOSPC: no DRAM; -EDQUOT: more
 * than the user may have; -ENOMEM.
 * txda_pt_reserve_free() must be called in any case, after the flush of the change.
 *
 * For a map, @need has counted all runs of the mapping by txda_pt_need_run(), in address order,
 * starting from {}.
 */
void txda_pt_need_run(struct txda_pt_need *need, u64 va, u64 bytes, u64 addr);
int txda_pt_prepare_map(struct txda_pt *pt, u64 va, u64 bytes, const struct txda_pt_need *need,
			struct txda_pt_reserve *reserve);
int txda_pt_prepare_unmap(struct txda_pt *pt, u64 va, u64 bytes, struct txda_pt_reserve *reserve);
void txda_pt_reserve_init(struct txda_pt_reserve *reserve);
void txda_pt_reserve_free(struct txda_pt_reserve *reserve);

/*
 * Maps [va, va + bytes) to one run of memory: @addr is a DRAM offset, bus address or peer offset,
 * as the aperture in @flags (TXDA_PTE_* without LEAF and VALID) says. Uses 2 MiB pages where va,
 * address and length allow. The range must have been unmapped before, but need not have been
 * flushed yet. -ENOSPC: @reserve is too small, a bug in the caller.
 */
int txda_pt_map(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes, u64 addr,
		u64 flags);
/*
 * Unmaps [va, va + bytes), splitting huge pages at its ends with tables from @reserve (-ENOSPC as
 * above). The chip may use the old translations until the next flush.
 */
int txda_pt_unmap(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes);
/*
 * When it returns 0, the chip does not access anything that was unmapped. -ENODEV: the tree is not
 * @online, which has the same effect: the chip was reset or cut off. -ETIMEDOUT: the flush did not
 * complete, or the chip does not answer; a chip reset was requested, and until then the memory that
 * was mapped must not be freed.
 */
int txda_pt_flush(struct txda_pt *pt, struct txda_pt_reserve *reserve);

/* Rewrites one tree and its root from the driver's copy. In drm_dev_enter(). */
void txda_mmu_rewrite(struct txda_pt *pt);
/*
 * After a chip reset, function reset or resume: rewrites all trees that are not lost. Fences may
 * wait for this. In drm_dev_enter().
 */
void txda_mmu_restart(struct txda_device *tdev);

/* Internal to pt.c and mmu.c. */
int txda_mmu_get_vmid(struct txda_pt *pt);
/* After this a restart skips the tree. */
void txda_mmu_detach(struct txda_pt *pt);
void txda_mmu_put_vmid(struct txda_pt *pt, bool stuck);
void txda_mmu_set_root(struct txda_pt *pt, u64 value);
int txda_mmu_flush(struct txda_pt *pt, u64 page, u64 count);
void txda_pt_write_tables(struct txda_pt *pt);
u64 txda_pt_root(const struct txda_pt *pt);

#endif /* TXDA_MMU_H */
