// SPDX-License-Identifier: GPL-2.0
#include "mmu.h"

#include <linux/bitops.h>
#include <linux/iopoll.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "device.h"
#include "reset.h"
#include "vram.h"

/*
 * The current op finishes first, and this chip may be sharing the CPU with others (device model).
 */
#define TXDA_FLUSH_TIMEOUT_US (10 * USEC_PER_SEC)
#define TXDA_FLUSH_ALL	      0xffffffffu

int txda_mmu_init(struct txda_device *tdev)
{
	if (!tdev->vram.aperture) {
		drm_err(&tdev->drm, "the chip maps no DRAM in BAR%d, which page tables need\n",
			TXDA_BAR_DRAM);
		return -ENODEV;
	}
	return drmm_mutex_init(&tdev->drm, &tdev->mmu.lock);
}

int txda_mmu_get_vmid(struct txda_pt *pt)
{
	struct txda_mmu *mmu = &pt->tdev->mmu;
	u32 vmid;
	int err = -ENOSPC;

	mutex_lock(&mmu->lock);
	for (vmid = 0; vmid < pt->tdev->info.max_vms; vmid++) {
		if (mmu->used & BIT_ULL(vmid))
			continue;
		mmu->used |= BIT_ULL(vmid);
		mmu->pt[vmid] = pt;
		pt->vmid = vmid;
		err = 0;
		break;
	}
	mutex_unlock(&mmu->lock);

	return err;
}

void txda_mmu_detach(struct txda_pt *pt)
{
	struct txda_mmu *mmu = &pt->tdev->mmu;

	mutex_lock(&mmu->lock);
	mmu->pt[pt->vmid] = NULL;
	mutex_unlock(&mmu->lock);
}

void txda_mmu_put_vmid(struct txda_pt *pt, bool stuck)
{
	struct txda_mmu *mmu = &pt->tdev->mmu;

	mutex_lock(&mmu->lock);
	if (stuck)
		mmu->aside |= BIT_ULL(pt->vmid);
	else
		mmu->used &= ~BIT_ULL(pt->vmid);
	mutex_unlock(&mmu->lock);
}

static void txda_mmu_write_root(struct txda_pt *pt, u64 value)
{
	lockdep_assert_held(&pt->tdev->mmu.lock);

	/* The tables are complete before the chip gets the root. */
	wmb();
	txda_write_pair(pt->tdev, TXDA_REG_VM(pt->vmid) + TXDA_VM_ROOT_LO, value);
}

void txda_mmu_set_root(struct txda_pt *pt, u64 value)
{
	mutex_lock(&pt->tdev->mmu.lock);
	txda_mmu_write_root(pt, value);
	mutex_unlock(&pt->tdev->mmu.lock);
}

int txda_mmu_flush(struct txda_pt *pt, u64 page, u64 count)
{
	struct txda_device *tdev = pt->tdev;
	u32 reg = TXDA_REG_VM(pt->vmid);
	u32 value;
	int err;

	mutex_lock(&tdev->mmu.lock);
	/* The entries are changed before the TLB is flushed. */
	wmb();
	txda_write_pair(tdev, reg + TXDA_VM_FLUSH_PAGE_LO, page);
	txda_write(tdev, reg + TXDA_VM_FLUSH_COUNT, min_t(u64, count, TXDA_FLUSH_ALL));
	txda_write(tdev, reg + TXDA_VM_FLUSH, 1);
	err = read_poll_timeout(txda_read, value, !value || value == ~0u, 20, TXDA_FLUSH_TIMEOUT_US,
				false, tdev, reg + TXDA_VM_FLUSH);
	mutex_unlock(&tdev->mmu.lock);

	if (!err && !value)
		return 0;
	/* Of a chip that does not answer nobody knows what it does. */
	if (err)
		drm_err(&tdev->drm, "flush of address space %u did not end (%#x)\n", pt->vmid,
			value);
	txda_reset_schedule(tdev, "flush of translations did not end");
	return -ETIMEDOUT;
}

static void txda_mmu_rewrite_locked(struct txda_pt *pt)
{
	mutex_lock(&pt->lock);
	txda_pt_write_tables(pt);
	txda_mmu_write_root(pt, txda_pt_root(pt));
	mutex_unlock(&pt->lock);
}

void txda_mmu_rewrite(struct txda_pt *pt)
{
	mutex_lock(&pt->tdev->mmu.lock);
	txda_mmu_rewrite_locked(pt);
	mutex_unlock(&pt->tdev->mmu.lock);
}

void txda_mmu_restart(struct txda_device *tdev)
{
	struct txda_mmu *mmu = &tdev->mmu;
	u32 vmid;

	mutex_lock(&mmu->lock);
	for (vmid = 0; vmid < tdev->info.max_vms; vmid++) {
		struct txda_pt *pt = mmu->pt[vmid];

		if (pt && !pt->lost)
			txda_mmu_rewrite_locked(pt);
	}
	/* The reset ended any flush that was in progress. */
	mmu->used &= ~mmu->aside;
	mmu->aside = 0;
	mutex_unlock(&mmu->lock);
}
