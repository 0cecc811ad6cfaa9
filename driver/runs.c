// SPDX-License-Identifier: GPL-2.0
#include "runs.h"

#include <linux/align.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "txda_regs.h"

struct txda_runs *txda_runs_new(u32 max)
{
	struct txda_runs *runs;

	runs = kvzalloc(struct_size(runs, run, max), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (runs)
		runs->max = max;
	return runs;
}

void txda_runs_add(struct txda_runs *runs, u64 addr, u64 bytes)
{
	struct txda_run *last = runs->count ? &runs->run[runs->count - 1] : NULL;

	if (!last || last->addr + (runs->bytes - last->at) != addr) {
		if (WARN_ON_ONCE(runs->count == runs->max))
			return;
		runs->run[runs->count].at = runs->bytes;
		runs->run[runs->count].addr = addr;
		runs->count++;
	}
	runs->bytes += bytes;
}

int txda_runs_from_sgt(struct sg_table *sgt, u64 bytes, struct txda_runs **ret_runs)
{
	struct txda_runs *runs = txda_runs_new(sgt->nents);
	struct scatterlist *sg;
	u64 addr, len;
	int i;

	if (!runs)
		return -ENOMEM;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		addr = sg_dma_address(sg);
		len = min_t(u64, sg_dma_len(sg), bytes - runs->bytes);
		if (!len)
			break;
		if (!IS_ALIGNED(len, 1u << TXDA_PAGE_SHIFT) || (addr & ~TXDA_PTE_ADDR_MASK) ||
		    ((addr + len - 1) & ~(TXDA_PTE_ADDR_MASK | (BIT(TXDA_PAGE_SHIFT) - 1))))
			goto err_free;
		txda_runs_add(runs, addr, len);
	}
	if (runs->bytes < bytes)
		goto err_free;

	*ret_runs = runs;
	return 0;

err_free:
	kvfree(runs);
	return -EINVAL;
}

void txda_runs_find(const struct txda_runs *runs, u64 at, u64 *ret_addr, u64 *ret_bytes)
{
	u32 low = 0, high = runs->count;
	u64 end;

	/* The last run that begins at or before @at. */
	while (high - low > 1) {
		u32 mid = low + (high - low) / 2;

		if (runs->run[mid].at <= at)
			low = mid;
		else
			high = mid;
	}

	end = low + 1 < runs->count ? runs->run[low + 1].at : runs->bytes;
	*ret_addr = runs->run[low].addr + (at - runs->run[low].at);
	*ret_bytes = end - at;
}
