/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Host memory of buffers: pages of the kernel, and how pages are shown to the chip.
 *
 * Pages come in pieces as large as there are, so that few translations cover them. They cannot be
 * swapped; they are charged to the memory cgroup of who makes them, and all chips together take at
 * most half of the machine's memory.
 */
#ifndef TXDA_HOST_H
#define TXDA_HOST_H

struct sg_table;
struct txda_bo;

/* Gives @bo zeroed pages. -ENOSPC: over the limit of the machine; -ENOMEM; -EINTR. */
int txda_host_alloc(struct txda_bo *bo);
/* Nothing to do for a buffer without pages. */
void txda_host_free(struct txda_bo *bo);

/* Maps the pages of @bo for the chip: @bo->sgt and @bo->runs. In drm_dev_enter(). */
int txda_bo_map_pages(struct txda_bo *bo);
/* Undoes it. Nothing to do when it has not been done or the chip went meanwhile. */
void txda_bo_unmap_pages(struct txda_bo *bo);

#endif /* TXDA_HOST_H */
