/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Host memory for buffers: kernel pages, and their DMA mappings for the chip.
 *
 * Pages are allocated in blocks as large as available, so that few translations cover them. They
 * cannot be swapped; they are charged to the creator's memory cgroup, and all chips together use at
 * most half of the machine's memory.
 */
#ifndef TXDA_HOST_H
#define TXDA_HOST_H

struct device;
struct txda_bo;

/* Counts host memory against the limit of the machine. -ENOSPC: there is too much. */
int txda_host_charge(unsigned long pages);
void txda_host_uncharge(unsigned long pages);

/* Gives @bo zeroed pages. -ENOSPC: over the limit of the machine; -ENOMEM; -EINTR. */
int txda_host_alloc(struct txda_bo *bo);
/* Does nothing for a buffer without pages. */
void txda_host_free(struct txda_bo *bo);

/* Maps the pages of @bo for DMA: fills @bo->sgt and @bo->runs. In drm_dev_enter(). */
int txda_bo_map_pages(struct txda_bo *bo);
/* Undoes it. Does nothing if it was not mapped, or if the chip was removed meanwhile. */
void txda_bo_unmap_pages(struct txda_bo *bo);

/*
 * -EOPNOTSUPP: the chip would access copies of memory that is mapped for it (bounce buffers, as in
 * confidential virtual machines and with swiotlb=force). Buffers are shared by the CPU and the chip
 * for as long as they exist, and no call says who has written what.
 */
int txda_host_check_dma(struct device *dev);

#endif /* TXDA_HOST_H */
