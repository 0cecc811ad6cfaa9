// SPDX-License-Identifier: GPL-2.0
#include "host.h"

#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#ifdef CONFIG_X86
#include <asm/set_memory.h>
#endif

#include "compat/slab.h"
#include "device.h"
#include "gem.h"
#include "runs.h"

/* Size of the chip's huge pages. */
#define TXDA_HOST_MAX_ORDER (TXDA_HUGE_SHIFT - PAGE_SHIFT)

/* Pages in host buffers of all chips. */
static atomic_long_t txda_host_pages;

int txda_host_charge(unsigned long pages)
{
	unsigned long most = totalram_pages() / 2;
	long used = atomic_long_read(&txda_host_pages);

	/* Not add and take back: meanwhile a size beyond all bounds would fail everybody's. */
	do {
		if (pages > most || used > (long)(most - pages))
			return -ENOSPC;
	} while (!atomic_long_try_cmpxchg(&txda_host_pages, &used, used + (long)pages));
	return 0;
}

void txda_host_uncharge(unsigned long pages)
{
	atomic_long_sub(pages, &txda_host_pages);
}

/* Allocates the largest block available without reclaim; reduces @order to its size. */
static struct page *txda_host_take(struct device *dev, unsigned int *order)
{
	gfp_t gfp = GFP_HIGHUSER | __GFP_ZERO | __GFP_ACCOUNT | __GFP_NOWARN | __GFP_COMP;
	struct page *page;

	for (; *order; (*order)--) {
		page = alloc_pages_node(dev_to_node(dev), gfp | __GFP_NORETRY, *order);
		if (page)
			return page;
	}
	return alloc_pages_node(dev_to_node(dev), gfp | __GFP_RETRY_MAYFAIL, 0);
}

static void txda_host_put_pages(struct page **pages, unsigned long n)
{
	unsigned long i, step;

	for (i = 0; i < n && pages[i]; i += step) {
		unsigned int order = compound_order(pages[i]);

		step = 1ul << order;
		__free_pages(pages[i], order);
		cond_resched();
	}
}

static int txda_host_get_pages(struct device *dev, struct page **pages, unsigned long n)
{
	unsigned int order = TXDA_HOST_MAX_ORDER;
	unsigned long i = 0, j;
	struct page *page;

	while (i < n) {
		if (fatal_signal_pending(current))
			return -EINTR;
		order = min_t(unsigned int, order, ilog2(n - i));
		page = txda_host_take(dev, &order);
		if (!page)
			return -ENOMEM;
		for (j = 0; j < 1ul << order; j++)
			pages[i++] = page + j;
		cond_resched();
	}
	return 0;
}

/* All mappings of a page must have the same cache attributes, including the kernel's own. */
static int txda_host_set_wc(struct txda_bo *bo, unsigned long n)
{
#ifdef CONFIG_X86
	/* -EINVAL here means that memory for bookkeeping is missing: the arguments are valid. */
	return set_pages_array_wc(bo->pages, n) ? -ENOMEM : 0;
#else
	return 0;
#endif
}

static void txda_host_clear_wc(struct txda_bo *bo, unsigned long n)
{
#ifdef CONFIG_X86
	set_pages_array_wb(bo->pages, n);
#endif
}

int txda_host_alloc(struct txda_bo *bo)
{
	struct txda_device *tdev = to_txda(bo->base.dev);
	struct device *dev = &tdev->pdev->dev;
	unsigned long n = bo->base.size >> PAGE_SHIFT;
	int err;

	err = txda_host_charge(n);
	if (err)
		return err;
	bo->pages = kvcalloc(n, sizeof(*bo->pages), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!bo->pages) {
		err = -ENOMEM;
		goto err_uncharge;
	}
	err = txda_host_get_pages(dev, bo->pages, n);
	if (!err && (bo->flags & DRM_TXDA_BO_WRITE_COMBINE))
		err = txda_host_set_wc(bo, n);
	if (err)
		goto err_pages;
	atomic64_add(bo->base.size, &tdev->host_used);
	return 0;

err_pages:
	txda_host_put_pages(bo->pages, n);
	kvfree(bo->pages);
	bo->pages = NULL;
err_uncharge:
	txda_host_uncharge(n);
	return err;
}

void txda_host_free(struct txda_bo *bo)
{
	unsigned long n = bo->base.size >> PAGE_SHIFT;

	if (!bo->pages)
		return;
	txda_bo_unmap_pages(bo);
	if (bo->flags & DRM_TXDA_BO_WRITE_COMBINE)
		txda_host_clear_wc(bo, n);
	txda_host_put_pages(bo->pages, n);
	kvfree(bo->pages);
	bo->pages = NULL;
	kvfree(bo->runs);
	bo->runs = NULL;
	txda_host_uncharge(n);
	atomic64_sub(bo->base.size, &to_txda(bo->base.dev)->host_used);
}

int txda_host_check_dma(struct device *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	/* An IOMMU that translates maps whole pages as they are. */
	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY)
		return 0;
	/* Only bounce buffers limit the size. */
	if (dma_max_mapping_size(dev) == SIZE_MAX)
		return 0;
	dev_warn_once(dev, "no host memory for clients: DMA goes through swiotlb here\n");
	return -EOPNOTSUPP;
}

static enum dma_data_direction txda_bo_dma_dir(const struct txda_bo *bo)
{
	return bo->read_only ? DMA_TO_DEVICE : DMA_BIDIRECTIONAL;
}

int txda_bo_map_pages(struct txda_bo *bo)
{
	struct device *dev = bo->base.dev->dev;
	unsigned int segment = ALIGN_DOWN(dma_get_max_seg_size(dev), PAGE_SIZE);
	struct sg_table *sgt;
	int err;

	err = txda_host_check_dma(dev);
	if (err)
		return err;
	sgt = kzalloc_obj(*sgt, GFP_KERNEL);
	if (!sgt)
		return -ENOMEM;
	err = sg_alloc_table_from_pages_segment(sgt, bo->pages, bo->base.size >> PAGE_SHIFT, 0,
						bo->base.size, segment, GFP_KERNEL);
	if (err)
		goto err_free;
	err = dma_map_sgtable(dev, sgt, txda_bo_dma_dir(bo), 0);
	if (err)
		goto err_table;
	err = txda_runs_from_sgt(sgt, bo->base.size, &bo->runs);
	if (err)
		goto err_unmap;

	bo->sgt = sgt;
	return 0;

err_unmap:
	dma_unmap_sgtable(dev, sgt, txda_bo_dma_dir(bo), 0);
err_table:
	sg_free_table(sgt);
err_free:
	kfree(sgt);
	return err;
}

void txda_bo_unmap_pages(struct txda_bo *bo)
{
	if (!bo->sgt)
		return;
	dma_unmap_sgtable(bo->base.dev->dev, bo->sgt, txda_bo_dma_dir(bo), 0);
	sg_free_table(bo->sgt);
	kfree(bo->sgt);
	bo->sgt = NULL;
}
