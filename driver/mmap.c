// SPDX-License-Identifier: GPL-2.0
/*
 * CPU mappings of buffers: see gem.h.
 *
 * Device memory is mapped through BAR2, write-combined. Pages are mapped on first access, together
 * with their neighbourhood, since each fault costs a trap; as a huge page where the buffer, its
 * memory and the mapping have one in the same place. Mappings hold a reference to their buffer and
 * are inherited by fork().
 */
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <drm/drm_drv.h>
#include <drm/drm_vma_manager.h>

#include "compat/huge.h"
#include "device.h"
#include "evict.h"
#include "gem.h"

/* Size of the neighbourhood, and its alignment. */
#define TXDA_FAULT_AROUND SZ_2M

static unsigned long txda_gem_pfn(struct txda_device *tdev, struct txda_bo *bo, u64 at)
{
	u64 offset, bytes;

	if (bo->kind == TXDA_BO_HOST)
		return page_to_pfn(bo->pages[at >> PAGE_SHIFT]);
	txda_bo_run(bo, at, &offset, &bytes);
	return (tdev->vram.aperture_start + offset) >> PAGE_SHIFT;
}

static vm_fault_t txda_gem_fault_pages(struct vm_fault *vmf, struct txda_device *tdev,
				       struct txda_bo *bo)
{
	struct vm_area_struct *vma = vmf->vma;
	pgoff_t page = vmf->pgoff - drm_vma_node_start(&bo->base.vma_node);
	pgoff_t pages = bo->base.size >> PAGE_SHIFT;
	unsigned long addr = vmf->address & PAGE_MASK;
	unsigned long from, to, a;
	vm_fault_t ret;

	lockdep_assert_held_read(&tdev->gem.fault_lock);

	/* Also when it is idle: its memory may be gone. */
	if (page >= pages || txda_bo_is_idle(bo))
		return VM_FAULT_SIGBUS;
	ret = vmf_insert_pfn(vma, addr, txda_gem_pfn(tdev, bo, (u64)page << PAGE_SHIFT));
	if (ret != VM_FAULT_NOPAGE)
		return ret;

	from = max(ALIGN_DOWN(addr, TXDA_FAULT_AROUND), vma->vm_start);
	from = max(from, addr - min(addr, page << PAGE_SHIFT));
	to = min(ALIGN(addr + 1, TXDA_FAULT_AROUND), vma->vm_end);
	to = min(to, addr + ((pages - page) << PAGE_SHIFT));
	for (a = from; a < to; a += PAGE_SIZE) {
		u64 at = ((u64)page << PAGE_SHIFT) + a - addr;

		/* Only an error for the page that was accessed matters. */
		if (a != addr &&
		    vmf_insert_pfn(vma, a, txda_gem_pfn(tdev, bo, at)) != VM_FAULT_NOPAGE)
			break;
	}
	return VM_FAULT_NOPAGE;
}

/*
 * The function is being reset, or the machine suspends: waits until that is over, on the first
 * attempt without mmap_lock, since other threads of the process may need it meanwhile.
 */
static vm_fault_t txda_gem_fault_wait(struct vm_fault *vmf, struct txda_device *tdev)
{
	struct file *file;
	int err;

	if (!fault_flag_allow_retry_first(vmf->flags)) {
		err = txda_reset_wait(tdev);
		/* A pending signal is handled first, then the access is retried. */
		return err && err != -ERESTARTSYS ? VM_FAULT_SIGBUS : VM_FAULT_NOPAGE;
	}
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	/*
	 * The mapping may be removed once the lock is dropped, and its file may be the last that
	 * holds the DRM device and this module.
	 */
	file = get_file(vmf->vma->vm_file);
	mmap_read_unlock(vmf->vma->vm_mm);
	txda_reset_wait(tdev);
	fput(file);
	return VM_FAULT_RETRY;
}

#ifdef TXDA_HUGE_FAULTS
static vm_fault_t txda_gem_fault_huge(struct vm_fault *vmf, struct txda_device *tdev,
				      struct txda_bo *bo)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = ALIGN_DOWN(vmf->address, PMD_SIZE);
	u64 at, offset, bytes;

	lockdep_assert_held_read(&tdev->gem.fault_lock);

	if (txda_bo_is_idle(bo) || addr < vma->vm_start || vma->vm_end - addr < PMD_SIZE)
		return VM_FAULT_FALLBACK;
	at = (u64)(vma->vm_pgoff - drm_vma_node_start(&bo->base.vma_node)) << PAGE_SHIFT;
	at += addr - vma->vm_start;
	if (at >= bo->base.size)
		return VM_FAULT_FALLBACK;
	txda_bo_run(bo, at, &offset, &bytes);
	if (bytes < PMD_SIZE || !IS_ALIGNED(tdev->vram.aperture_start + offset, PMD_SIZE))
		return VM_FAULT_FALLBACK;
	return txda_insert_pfn_pmd(vmf, (tdev->vram.aperture_start + offset) >> PAGE_SHIFT);
}
#else
static vm_fault_t txda_gem_fault_huge(struct vm_fault *vmf, struct txda_device *tdev,
				      struct txda_bo *bo)
{
	return VM_FAULT_FALLBACK;
}
#endif

static vm_fault_t txda_gem_fault_sized(struct vm_fault *vmf, bool huge)
{
	struct txda_bo *bo = to_txda_bo(vmf->vma->vm_private_data);
	struct txda_device *tdev = to_txda(bo->base.dev);
	vm_fault_t ret;
	int idx, err;

	/* Host memory stays valid without the chip. */
	if (bo->kind == TXDA_BO_HOST) {
		if (huge)
			return VM_FAULT_FALLBACK;
		down_read(&tdev->gem.fault_lock);
		ret = txda_gem_fault_pages(vmf, tdev, bo);
		up_read(&tdev->gem.fault_lock);
		return ret;
	}

	err = txda_bars_enter(tdev, &idx);
	/* Only for a single page does the kernel promise that mmap_lock is held, to drop it. */
	if (err == -EAGAIN)
		return huge ? VM_FAULT_FALLBACK : txda_gem_fault_wait(vmf, tdev);
	if (err)
		return VM_FAULT_SIGBUS;
	down_read(&tdev->gem.fault_lock);
	ret = huge ? txda_gem_fault_huge(vmf, tdev, bo) : txda_gem_fault_pages(vmf, tdev, bo);
	up_read(&tdev->gem.fault_lock);
	txda_bars_exit(tdev, idx);

	return ret;
}

static vm_fault_t txda_gem_fault(struct vm_fault *vmf)
{
	return txda_gem_fault_sized(vmf, false);
}

#ifdef TXDA_HUGE_FAULTS
static vm_fault_t txda_gem_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	return order == PMD_ORDER ? txda_gem_fault_sized(vmf, true) : VM_FAULT_FALLBACK;
}

unsigned long txda_gem_get_unmapped_area(struct file *file, unsigned long addr, unsigned long len,
					 unsigned long pgoff, unsigned long flags)
{
	/*
	 * Large buffers start where a huge page does. The file's offset tells only which buffer it
	 * is.
	 */
	return thp_get_unmapped_area(file, addr, len, 0, flags);
}
#endif

const struct vm_operations_struct txda_gem_vm_ops = {
	.fault = txda_gem_fault,
#ifdef TXDA_HUGE_FAULTS
	.huge_fault = txda_gem_huge_fault,
#endif
	.open = drm_gem_vm_open,
	.close = drm_gem_vm_close,
};

/* An imported buffer is mapped by its exporter. */
static int txda_gem_mmap_import(struct txda_bo *bo, struct dma_buf *dma_buf,
				struct vm_area_struct *vma)
{
	int err;

	if (bo->read_only) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	vma->vm_private_data = NULL;
	vma->vm_ops = NULL;
	err = dma_buf_mmap(dma_buf, vma, 0);
	if (err)
		return err;
	vm_flags_set(vma, VM_DONTEXPAND);
	/* The exporter's mapping has a reference of its own. */
	drm_gem_object_put(&bo->base);
	return 0;
}

int txda_gem_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma)
{
	struct txda_bo *bo = to_txda_bo(obj);

	if (bo->flags & DRM_TXDA_BO_NO_MMAP)
		return -EPERM;
	switch (bo->kind) {
	case TXDA_BO_DMABUF:
		return txda_gem_mmap_import(bo, bo->base.import_attach->dmabuf, vma);
	case TXDA_BO_PEER:
		return txda_gem_mmap_import(bo, bo->peer_buf, vma);
	case TXDA_BO_USERPTR:
		return -EPERM;
	case TXDA_BO_DEVICE:
	case TXDA_BO_HOST:
		break;
	}

	/* Private (copy-on-write) mappings are not supported. */
	if ((vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == VM_MAYWRITE)
		return -EINVAL;

	vm_flags_set(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	if (bo->kind == TXDA_BO_DEVICE) {
		vm_flags_set(vma, VM_IO);
		vma->vm_page_prot = pgprot_decrypted(pgprot_writecombine(vma->vm_page_prot));
	} else if (bo->flags & DRM_TXDA_BO_WRITE_COMBINE) {
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	}
	return 0;
}
