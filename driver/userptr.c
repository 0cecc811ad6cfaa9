// SPDX-License-Identifier: GPL-2.0
#include "userptr.h"

#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <drm/drm_print.h>

#include "device.h"
#include "gem.h"
#include "host.h"

/* Pages pinned per call. */
#define TXDA_USERPTR_BATCH BIT(16)

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
	if (account_locked_vm(current->mm, n, true)) {
		drm_dbg(&tdev->drm,
			"%lu KiB more than RLIMIT_MEMLOCK (%lu KiB) allows are wanted\n",
			n << (PAGE_SHIFT - 10), rlimit(RLIMIT_MEMLOCK) >> 10);
		return -EDQUOT;
	}
	bo->pages = kvcalloc(n, sizeof(*bo->pages), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!bo->pages) {
		err = -ENOMEM;
		goto err_account;
	}
	err = txda_userptr_pin_pages(bo, va, n);
	if (err)
		goto err_pages;
	mmgrab(current->mm);
	bo->mm = current->mm;
	atomic64_add(bo->base.size, &tdev->host_used);
	return 0;

err_pages:
	kvfree(bo->pages);
	bo->pages = NULL;
err_account:
	account_locked_vm(current->mm, n, false);
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
	account_locked_vm(bo->mm, n, false);
	mmdrop(bo->mm);
	atomic64_sub(bo->base.size, &to_txda(bo->base.dev)->host_used);
}
