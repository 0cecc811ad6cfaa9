/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Page tables in the chip's DRAM, and the VMIDs that run on them.
 *
 * A page table tree belongs to one address space (vm.h), which serialises all changes to it. The
 * tables are written through the aperture. A change never needs memory once txda_pt_prepare() has
 * taken it, so that asynchronous binds cannot fail half-way.
 *
 * Lifetime: a tree keeps its DRAM until txda_pt_fini(), also when the chip is gone.
 * Threads: changes by one caller at a time; may sleep. What touches the chip is inside
 * drm_dev_enter() and does nothing once it is unplugged.
 */
#ifndef TXDA_MMU_H
#define TXDA_MMU_H

#include <linux/mutex.h>
#include <linux/types.h>

#include "txda_regs.h"

struct txda_device;
struct txda_vram_block;

/**
 * struct txda_mmu - The chip's VMIDs.
 */
struct txda_mmu {
	/** @lock: @used; and one flush at a time on the chip. */
	struct mutex lock;

	/** @used: VMIDs that are taken. */
	u64 used;

	/** @pt: By VMID: the tree whose root is set, or NULL. */
	struct txda_pt *pt[TXDA_MAX_VMIDS];
};

/**
 * struct txda_pt - One page table tree with its VMID.
 */
struct txda_pt {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @vmid: The chip's number for it. */
	u32 vmid;

	/** @root: The top table. The private part of mmu.c knows the others. */
	struct txda_pt_table *root;

	/** @tables: How many tables the tree has, for debugfs. */
	u32 tables;
};

int txda_mmu_init(struct txda_device *tdev);

/* A tree with no mappings on a free VMID. -ENOSPC: no VMID or DRAM is free. */
int txda_pt_init(struct txda_device *tdev, struct txda_pt *pt);
void txda_pt_fini(struct txda_pt *pt);

/* Takes the tables that mapping [va, va + bytes) in pages of 4 KiB can need at worst. -ENOSPC. */
struct txda_pt_reserve;
int txda_pt_prepare(struct txda_pt *pt, u64 va, u64 bytes, struct txda_pt_reserve **ret_reserve);
void txda_pt_reserve_free(struct txda_pt *pt, struct txda_pt_reserve *reserve);

/*
 * Maps [va, va + bytes) to one run of memory: @addr is a DRAM offset, bus address or peer offset as
 * the aperture in @flags (TXDA_PTE_* without LEAF and VALID) says. Uses 2 MiB pages where va,
 * address and length allow. What was mapped there must have been unmapped before.
 */
void txda_pt_map(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes, u64 addr,
		 u64 flags);
/*
 * Unmaps [va, va + bytes), splitting huge pages at its ends from @reserve, and flushes: when it
 * returns, no access of the chip uses what was there. -ENODEV: gone, which is as good; -ETIMEDOUT:
 * the flush did not end, the caller calls for a reset before it frees memory.
 */
int txda_pt_unmap(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes);

/* After a chip reset that kept DRAM (or a restore): writes all roots again. */
void txda_mmu_restart(struct txda_device *tdev);

#endif /* TXDA_MMU_H */
