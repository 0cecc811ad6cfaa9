// SPDX-License-Identifier: GPL-2.0
#include "userptr.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <drm/drm_print.h>

#include "device.h"
#include "gem.h"
#include "host.h"

/* Pages pinned per call. */
#define TXDA_USERPTR_BATCH BIT(16)

/*
 * Counts the pages of @bo for the caller: in its user's locked memory, which is limited, and in
 * what the process has pinned. Both are atomics, so that txda_userptr_uncharge() waits for nobody.
 */
static int txda_userptr_charge(struct txda_bo *bo)
{
	unsigned long n = bo->base.size >> PAGE_SHIFT, limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (!capable(CAP_IPC_LOCK)) {
		bo->locked_by = get_uid(current_user());
		if (atomic_long_add_return(n, &bo->locked_by->locked_vm) > limit) {
			atomic_long_sub(n, &bo->locked_by->locked_vm);
			free_uid(bo->locked_by);
			bo->locked_by = NULL;
			return -EDQUOT;
		}
	}
	mmgrab(current->mm);
	bo->mm = current->mm;
	atomic64_add(n, &bo->mm->pinned_vm);
	return 0;
}

static void txda_userptr_uncharge(struct txda_bo *bo)
{
	unsigned long n = bo->base.size >> PAGE_SHIFT;

	atomic64_sub(n, &bo->mm->pinned_vm);
	mmdrop(bo->mm);
	if (bo->locked_by) {
		atomic_long_sub(n, &bo->locked_by->locked_vm);
		free_uid(bo->locked_by);
	}
}

/*
 * Why the range could not be pinned, given -EFAULT: missing memory or rights there, or a mapped
 * file whose pages must not be written without the file system's knowledge.
 */
static int txda_userptr_why(unsigned long start, unsigned long end, bool write)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	bool file = false;
	int err = -EFAULT;

	mmap_read_lock(mm);
	while (start < end) {
		vma = vma_lookup(mm, start);
		if (!vma || (vma->vm_flags & (VM_IO | VM_PFNMAP)) ||
		    !(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
			goto out;
		file |= vma->vm_file && (vma->vm_flags & VM_SHARED);
		start = vma->vm_end;
	}
	if (file)
		err = -EOPNOTSUPP;
out:
	mmap_read_unlock(mm);
	return err;
}

static int txda_userptr_pin_pages(struct txda_bo *bo, unsigned long start, unsigned long n)
{
	unsigned int flags = FOLL_LONGTERM | (bo->read_only ? 0 : FOLL_WRITE);
	unsigned long i = 0;
	int got;

	while (i < n) {
		got = pin_user_pages_fast(start + (i << PAGE_SHIFT), min(n - i, TXDA_USERPTR_BATCH),
					  flags, bo->pages + i);
		if (got <= 0)
			break;
		i += got;
		cond_resched();
	}
	if (i == n)
		return 0;

	unpin_user_pages(bo->pages, i);
	if (got && got != -EFAULT)
		return got;
	return txda_userptr_why(start + (i << PAGE_SHIFT), start + (n << PAGE_SHIFT),
				!bo->read_only);
}

int txda_userptr_pin(struct txda_bo *bo, u64 va)
{
	struct txda_device *tdev = to_txda(bo->base.dev);
	unsigned long n = bo->base.size >> PAGE_SHIFT;
	int err;

	if (!access_ok(u64_to_user_ptr(va), bo->base.size))
		return -EFAULT;
	if (n > totalram_pages())
		return -ENOMEM;
	err = txda_userptr_charge(bo);
	if (err) {
		drm_dbg(&tdev->drm,
			"%lu KiB more than RLIMIT_MEMLOCK (%lu KiB) allows are wanted\n",
			n << (PAGE_SHIFT - 10), rlimit(RLIMIT_MEMLOCK) >> 10);
		return err;
	}
	bo->pages = kvcalloc(n, sizeof(*bo->pages), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!bo->pages) {
		err = -ENOMEM;
		goto err_charge;
	}
	err = txda_userptr_pin_pages(bo, va, n);
	if (err)
		goto err_pages;
	atomic64_add(bo->base.size, &tdev->host_used);
	return 0;

err_pages:
	kvfree(bo->pages);
	bo->pages = NULL;
err_charge:
	txda_userptr_uncharge(bo);
	return err;
}

void txda_userptr_unpin(struct txda_bo *bo)
{
	unsigned long n = bo->base.size >> PAGE_SHIFT;

	if (!bo->pages)
		return;
	txda_bo_unmap_pages(bo);
	unpin_user_pages_dirty_lock(bo->pages, n, !bo->read_only);
	kvfree(bo->pages);
	bo->pages = NULL;
	txda_userptr_uncharge(bo);
	atomic64_sub(bo->base.size, &to_txda(bo->base.dev)->host_used);
}
