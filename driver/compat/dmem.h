/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits of device memory by control group (6.14). Without them, or in a kernel with
 * CONFIG_CGROUP_DMEM off, nothing is limited.
 *
 * Differences: the size of a region became part of a struct in 7.3.
 */
#ifndef TXDA_COMPAT_DMEM_H
#define TXDA_COMPAT_DMEM_H

#include <drm/drm_drv.h>

#ifdef TXDA_HAVE_DMEM
#include <linux/cgroup_dmem.h>
#else
struct dmem_cgroup_pool_state;
struct dmem_cgroup_region;

static inline int dmem_cgroup_try_charge(struct dmem_cgroup_region *region, u64 size,
					 struct dmem_cgroup_pool_state **ret_pool,
					 struct dmem_cgroup_pool_state **ret_limit_pool)
{
	*ret_pool = NULL;
	return 0;
}

static inline void dmem_cgroup_uncharge(struct dmem_cgroup_pool_state *pool, u64 size)
{
}

static inline bool dmem_cgroup_state_evict_valuable(struct dmem_cgroup_pool_state *limit_pool,
						    struct dmem_cgroup_pool_state *test_pool,
						    bool ignore_low, bool *ret_hit_low)
{
	return true;
}

static inline void dmem_cgroup_pool_state_put(struct dmem_cgroup_pool_state *pool)
{
}
#endif

/* Undone by DRM's managed release. NULL: there are no limits. */
static inline struct dmem_cgroup_region *txda_dmem_region(struct drm_device *drm, const char *name,
							  u64 size)
{
#if defined(TXDA_HAVE_DMEM_INIT)
	return drmm_cgroup_register_region(drm, name, &(struct dmem_cgroup_init){.size = size});
#elif defined(TXDA_HAVE_DMEM)
	return drmm_cgroup_register_region(drm, name, size);
#else
	return NULL;
#endif
}

#endif /* TXDA_COMPAT_DMEM_H */
