/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The buddy allocator for device memory. 7.0 (and some stable kernels) moved it out of DRM and
 * renamed it from drm_buddy_* to gpu_buddy_*.
 */
#ifndef TXDA_COMPAT_BUDDY_H
#define TXDA_COMPAT_BUDDY_H

#ifdef TXDA_HAVE_GPU_BUDDY

#include <linux/gpu_buddy.h>

#define txda_buddy		gpu_buddy
#define txda_buddy_block	gpu_buddy_block
#define txda_buddy_init		gpu_buddy_init
#define txda_buddy_fini		gpu_buddy_fini
#define txda_buddy_alloc_blocks gpu_buddy_alloc_blocks
#define txda_buddy_free_list	gpu_buddy_free_list
#define txda_buddy_block_offset gpu_buddy_block_offset
#define txda_buddy_block_size	gpu_buddy_block_size
#define txda_buddy_is_clear	gpu_buddy_block_is_clear
#define txda_buddy_all_clear(m) gpu_buddy_reset_clear(m, true)
#define TXDA_BUDDY_CLEAR	GPU_BUDDY_CLEAR_ALLOCATION
#define TXDA_BUDDY_CLEARED	GPU_BUDDY_CLEARED
#define TXDA_BUDDY_RANGE	GPU_BUDDY_RANGE_ALLOCATION
#define TXDA_BUDDY_CONTIGUOUS	GPU_BUDDY_CONTIGUOUS_ALLOCATION

#else

#include <drm/drm_buddy.h>

#define txda_buddy		drm_buddy
#define txda_buddy_block	drm_buddy_block
#define txda_buddy_init		drm_buddy_init
#define txda_buddy_fini		drm_buddy_fini
#define txda_buddy_alloc_blocks drm_buddy_alloc_blocks
#define txda_buddy_free_list	drm_buddy_free_list
#define txda_buddy_block_offset drm_buddy_block_offset
#define txda_buddy_block_size	drm_buddy_block_size
#define txda_buddy_is_clear	drm_buddy_block_is_clear
/* Missing in some of these kernels: there free memory counts as not cleared. */
#define txda_buddy_all_clear(m)
#define TXDA_BUDDY_CLEAR      DRM_BUDDY_CLEAR_ALLOCATION
#define TXDA_BUDDY_CLEARED    DRM_BUDDY_CLEARED
#define TXDA_BUDDY_RANGE      DRM_BUDDY_RANGE_ALLOCATION
#define TXDA_BUDDY_CONTIGUOUS DRM_BUDDY_CONTIGUOUS_ALLOCATION

#endif

#endif /* TXDA_COMPAT_BUDDY_H */
