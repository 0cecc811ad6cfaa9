// SPDX-License-Identifier: GPL-2.0
/*
 * Page table trees: see mmu.h.
 */
#include <linux/gfp.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "device.h"
#include "mmu.h"
#include "vram.h"

#ifndef CONFIG_64BIT
#error "page table entries are stored in single 64-bit writes, which takes a 64-bit kernel"
#endif

#define TXDA_PT_TOP (TXDA_PT_LEVELS - 1)

/**
 * struct txda_pt_table - One table.
 */
struct txda_pt_table {
	/** @link: In a struct txda_pt_reserve, while it is not part of a tree. */
	struct list_head link;

	/** @user: Charged with it, or NULL. */
	struct txda_user *user;

	/** @block: Its DRAM. */
	struct txda_vram_block *block;

	/** @offset: DRAM offset of @block. */
	u64 offset;

	/** @io: The table's memory as mapped through the aperture. */
	u64 __iomem *io;

	/** @live: Number of valid entries. */
	u32 live;

	/** @pte: The entries. */
	u64 *pte;

	/** @child: Tables that entries point to, or NULL in level 0. */
	struct txda_pt_table **child;
};

static u64 txda_pt_span(u32 level)
{
	return 1ull << (TXDA_PAGE_SHIFT + level * TXDA_PT_SHIFT);
}

static u32 txda_pt_index(u64 va, u32 level)
{
	return (va >> (TXDA_PAGE_SHIFT + level * TXDA_PT_SHIFT)) & (TXDA_PT_ENTRIES - 1);
}

static void txda_pt_table_free(struct txda_pt_table *table, bool aside)
{
	if (table->block) {
		if (aside)
			txda_vram_quarantine(table->block);
		else
			txda_vram_free(table->block);
	}
	if (table->user)
		txda_user_uncharge(table->user, TXDA_USER_TABLES);
	free_page((unsigned long)table->child);
	free_page((unsigned long)table->pte);
	kfree(table);
}

static int txda_pt_table_new(struct txda_pt *pt, bool dir, struct txda_pt_table **ret_table)
{
	struct txda_device *tdev = pt->tdev;
	struct txda_pt_table *table = kzalloc_obj(*table, GFP_KERNEL_ACCOUNT);
	int err;

	if (!table)
		return -ENOMEM;
	if (pt->user) {
		err = txda_user_charge(pt->user, TXDA_USER_TABLES);
		if (err)
			goto err_free;
		table->user = pt->user;
	}
	err = -ENOMEM;
	table->pte = (u64 *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!table->pte)
		goto err_free;
	if (dir) {
		table->child = (struct txda_pt_table **)get_zeroed_page(GFP_KERNEL_ACCOUNT);
		if (!table->child)
			goto err_free;
	}
	err = txda_vram_alloc(tdev, TXDA_PT_BYTES,
			      TXDA_VRAM_MAPPABLE | TXDA_VRAM_CONTIGUOUS | TXDA_VRAM_NO_SAVE, NULL,
			      &table->block);
	if (err)
		goto err_free;
	table->offset = txda_vram_offset(table->block);
	table->io = tdev->vram.aperture + table->offset;

	*ret_table = table;
	return 0;

err_free:
	txda_pt_table_free(table, false);
	return err;
}

static int txda_pt_reserve_fill(struct txda_pt *pt, struct list_head *list, bool dir, u64 count)
{
	struct txda_pt_table *table;
	int err;

	while (count--) {
		err = txda_pt_table_new(pt, dir, &table);
		if (err)
			return err;
		list_add(&table->link, list);
	}
	return 0;
}

void txda_pt_reserve_init(struct txda_pt_reserve *reserve)
{
	INIT_LIST_HEAD(&reserve->leaves);
	INIT_LIST_HEAD(&reserve->dirs);
	INIT_LIST_HEAD(&reserve->detached);
	reserve->stuck = false;
}

static void txda_pt_tables_free(struct list_head *list, bool aside)
{
	struct txda_pt_table *table, *next;

	list_for_each_entry_safe(table, next, list, link)
		txda_pt_table_free(table, aside);
	INIT_LIST_HEAD(list);
}

void txda_pt_reserve_free(struct txda_pt_reserve *reserve)
{
	txda_pt_tables_free(&reserve->leaves, false);
	txda_pt_tables_free(&reserve->dirs, false);
	txda_pt_tables_free(&reserve->detached, reserve->stuck);
}

/* Regions of 2^shift bytes that [va, va + bytes) touches. */
static u64 txda_pt_regions(u64 va, u64 bytes, u32 shift)
{
	return ((va + bytes - 1) >> shift) - (va >> shift) + 1;
}

void txda_pt_need_run(struct txda_pt_need *need, u64 va, u64 bytes, u64 addr)
{
	u64 end = va + bytes;
	u64 first = ALIGN(va, SZ_2M), last = ALIGN_DOWN(end, SZ_2M);

	/* The part between @first and @last is mapped with huge pages. */
	if (!IS_ALIGNED(va ^ addr, SZ_2M) || first >= last) {
		first = end;
		last = end;
	}

	if (va < first && max(va, need->next) < first) {
		u64 from = max(va, need->next);

		need->leaves += txda_pt_regions(from, first - from, TXDA_HUGE_SHIFT);
		need->next = ALIGN(first, SZ_2M);
	}
	if (last < end && max(last, need->next) < end) {
		u64 from = max(last, need->next);

		need->leaves += txda_pt_regions(from, end - from, TXDA_HUGE_SHIFT);
		need->next = ALIGN(end, SZ_2M);
	}
}

/* Huge pages that extend beyond the range at its ends must be split. */
static u64 txda_pt_splits(u64 va, u64 bytes)
{
	return !IS_ALIGNED(va, SZ_2M) + !IS_ALIGNED(va + bytes, SZ_2M);
}

int txda_pt_prepare_map(struct txda_pt *pt, u64 va, u64 bytes, const struct txda_pt_need *need,
			struct txda_pt_reserve *reserve)
{
	u64 dirs = 0;
	u32 level;
	int err;

	for (level = 2; level <= TXDA_PT_TOP; level++)
		dirs += txda_pt_regions(va, bytes, TXDA_PAGE_SHIFT + level * TXDA_PT_SHIFT);

	err = txda_pt_reserve_fill(pt, &reserve->leaves, false,
				   need->leaves + txda_pt_splits(va, bytes));
	if (err)
		return err;
	return txda_pt_reserve_fill(pt, &reserve->dirs, true, dirs);
}

int txda_pt_prepare_unmap(struct txda_pt *pt, u64 va, u64 bytes, struct txda_pt_reserve *reserve)
{
	return txda_pt_reserve_fill(pt, &reserve->leaves, false, txda_pt_splits(va, bytes));
}

static void txda_pt_set(struct txda_pt *pt, struct txda_pt_table *table, u32 i, u64 value)
{
	if (!table->pte[i] && value)
		table->live++;
	else if (table->pte[i] && !value)
		table->live--;
	table->pte[i] = value;
	if (pt->online)
		writeq(value, &table->io[i]);
}

static void txda_pt_write_table(struct txda_pt_table *table)
{
	u32 i;

	for (i = 0; i < TXDA_PT_ENTRIES; i++)
		writeq(table->pte[i], &table->io[i]);
}

/* Installs @child, whose contents are complete, in entry @i. */
static void txda_pt_link(struct txda_pt *pt, struct txda_pt_table *table, u32 i,
			 struct txda_pt_table *child)
{
	if (pt->online) {
		txda_pt_write_table(child);
		/* Contents must be visible before the entry that points to them. */
		wmb();
	}
	table->child[i] = child;
	txda_pt_set(pt, table, i, child->offset | TXDA_PTE_VALID);
	pt->tables++;
}

static struct txda_pt_table *txda_pt_take(struct list_head *list)
{
	struct txda_pt_table *table = list_first_entry_or_null(list, struct txda_pt_table, link);

	if (!WARN_ON_ONCE(!table))
		list_del_init(&table->link);
	return table;
}

static void txda_pt_dirty(struct txda_pt *pt, u64 va, u64 bytes)
{
	if (!pt->dirty_end || va < pt->dirty_start)
		pt->dirty_start = va;
	pt->dirty_end = max(pt->dirty_end, va + bytes);
}

/* The table of @level for @va; missing tables on the path are taken from @reserve. */
static struct txda_pt_table *txda_pt_walk(struct txda_pt *pt, struct txda_pt_reserve *reserve,
					  u64 va, u32 level)
{
	struct txda_pt_table *table = pt->root, *child;
	u32 l, i;

	for (l = TXDA_PT_TOP; l > level; l--) {
		i = txda_pt_index(va, l);
		child = table->child[i];
		if (!child) {
			if (WARN_ON_ONCE(table->pte[i]))
				return NULL;
			child = txda_pt_take(l == 1 ? &reserve->leaves : &reserve->dirs);
			if (!child)
				return NULL;
			txda_pt_link(pt, table, i, child);
		}
		table = child;
	}
	return table;
}

int txda_pt_map(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes, u64 addr,
		u64 flags)
{
	u64 end = va + bytes;
	int err = 0;

	mutex_lock(&pt->lock);
	while (va < end) {
		u32 level = IS_ALIGNED(va | addr, SZ_2M) && end - va >= SZ_2M;
		u64 page = txda_pt_span(level);
		struct txda_pt_table *table = txda_pt_walk(pt, reserve, va, level);
		u32 i = txda_pt_index(va, level);

		if (!table || WARN_ON_ONCE(table->pte[i])) {
			err = -ENOSPC;
			break;
		}
		/* Continues to the end of this table without another walk. */
		do {
			txda_pt_set(pt, table, i, addr | flags | TXDA_PTE_VALID | TXDA_PTE_LEAF);
			va += page;
			addr += page;
			i++;
		} while (!level && i < TXDA_PT_ENTRIES && va < end && !table->pte[i]);
	}
	/* Must reach DRAM before any doorbell of a job that uses it. */
	wmb();
	mutex_unlock(&pt->lock);

	return err;
}

/* Replaces the huge page in entry @i by a table of small pages. */
static struct txda_pt_table *txda_pt_split(struct txda_pt *pt, struct txda_pt_reserve *reserve,
					   struct txda_pt_table *table, u32 i)
{
	struct txda_pt_table *child = txda_pt_take(&reserve->leaves);
	u64 pte = table->pte[i];
	u32 j;

	if (!child)
		return NULL;
	for (j = 0; j < TXDA_PT_ENTRIES; j++)
		child->pte[j] = pte + ((u64)j << TXDA_PAGE_SHIFT);
	child->live = TXDA_PT_ENTRIES;
	txda_pt_link(pt, table, i, child);
	return child;
}

static void txda_pt_detach(struct txda_pt *pt, struct txda_pt_reserve *reserve,
			   struct txda_pt_table *table, u32 i)
{
	list_add(&table->child[i]->link, &reserve->detached);
	table->child[i] = NULL;
	txda_pt_set(pt, table, i, 0);
	pt->tables--;
}

/* Clears [va, end), which lies within @table. Recurses once per level. */
static int txda_pt_clear(struct txda_pt *pt, struct txda_pt_reserve *reserve,
			 struct txda_pt_table *table, u32 level, u64 va, u64 end)
{
	u64 span = txda_pt_span(level), next;
	int err;

	for (; va < end; va = next) {
		u32 i = txda_pt_index(va, level);
		u64 start = ALIGN_DOWN(va, span);
		struct txda_pt_table *child;

		next = min(end, start + span);
		if (!table->pte[i])
			continue;

		child = level ? table->child[i] : NULL;
		if (!child && next - va == span) {
			txda_pt_set(pt, table, i, 0);
			txda_pt_dirty(pt, start, span);
			continue;
		}
		if (!child) {
			/* The chip's TLB may hold the whole huge page. */
			txda_pt_dirty(pt, start, span);
			child = txda_pt_split(pt, reserve, table, i);
			if (!child)
				return -ENOSPC;
		}
		err = txda_pt_clear(pt, reserve, child, level - 1, va, next);
		if (err)
			return err;
		if (!child->live) {
			txda_pt_detach(pt, reserve, table, i);
			txda_pt_dirty(pt, start, span);
		}
	}
	return 0;
}

int txda_pt_unmap(struct txda_pt *pt, struct txda_pt_reserve *reserve, u64 va, u64 bytes)
{
	int err;

	mutex_lock(&pt->lock);
	err = txda_pt_clear(pt, reserve, pt->root, TXDA_PT_TOP, va, va + bytes);
	mutex_unlock(&pt->lock);

	return err;
}

int txda_pt_flush(struct txda_pt *pt, struct txda_pt_reserve *reserve)
{
	u64 start = pt->dirty_start, end = pt->dirty_end;
	int err;

	if (!end)
		return 0;
	pt->dirty_end = 0;
	if (!pt->online)
		return -ENODEV;
	err = txda_mmu_flush(pt, start >> TXDA_PAGE_SHIFT, (end - start) >> TXDA_PAGE_SHIFT);
	reserve->stuck |= err == -ETIMEDOUT;
	return err;
}

int txda_pt_init(struct txda_device *tdev, struct txda_user *user, struct txda_pt *pt)
{
	int err;

	memset(pt, 0, sizeof(*pt));
	pt->tdev = tdev;
	pt->user = user;
	mutex_init(&pt->lock);
	err = txda_pt_table_new(pt, true, &pt->root);
	if (err)
		goto err_mutex;
	pt->tables = 1;
	txda_pt_write_table(pt->root);
	err = txda_mmu_get_vmid(pt);
	if (err)
		goto err_free;
	txda_mmu_set_root(pt, txda_pt_root(pt));
	return 0;

err_free:
	txda_pt_table_free(pt->root, false);
err_mutex:
	mutex_destroy(&pt->lock);
	return err;
}

/* All tables of the tree, children before parents. */
static void txda_pt_collect(struct txda_pt_table *table, struct list_head *list)
{
	u32 i;

	for (i = 0; table->child && i < TXDA_PT_ENTRIES; i++)
		if (table->child[i])
			txda_pt_collect(table->child[i], list);
	list_add_tail(&table->link, list);
}

bool txda_pt_fini(struct txda_pt *pt)
{
	LIST_HEAD(tables);
	bool stuck = false;

	txda_mmu_detach(pt);
	if (pt->online) {
		txda_mmu_set_root(pt, 0);
		stuck = txda_mmu_flush(pt, 0, U64_MAX) == -ETIMEDOUT;
	}
	txda_pt_collect(pt->root, &tables);
	txda_pt_tables_free(&tables, stuck);
	txda_mmu_put_vmid(pt, stuck);
	pt->root = NULL;
	pt->tables = 0;
	mutex_destroy(&pt->lock);
	return stuck;
}

void txda_pt_write_tables(struct txda_pt *pt)
{
	LIST_HEAD(tables);
	struct txda_pt_table *table, *next;

	txda_pt_collect(pt->root, &tables);
	list_for_each_entry_safe(table, next, &tables, link) {
		txda_pt_write_table(table);
		list_del_init(&table->link);
	}
}

u64 txda_pt_root(const struct txda_pt *pt)
{
	return pt->root->offset | TXDA_PTE_VALID;
}
