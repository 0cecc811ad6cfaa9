/* SPDX-License-Identifier: GPL-2.0 */
/*
 * drm_gpuvm. The arguments of drm_gpuvm_sm_map() became a struct in 6.18; drm_gpuvm_bo_obtain() got
 * its _locked suffix in 7.0.
 */
#ifndef TXDA_COMPAT_GPUVM_H
#define TXDA_COMPAT_GPUVM_H

#include <drm/drm_gpuvm.h>

#ifndef TXDA_HAVE_GPUVM_BO_OBTAIN_LOCKED
#define drm_gpuvm_bo_obtain_locked drm_gpuvm_bo_obtain
#endif

static inline int txda_gpuvm_sm_map(struct drm_gpuvm *vm, void *priv, u64 va, u64 bytes,
				    struct drm_gem_object *obj, u64 offset)
{
#ifdef TXDA_HAVE_GPUVM_MAP_REQ
	const struct drm_gpuvm_map_req req = {
		.map.va.addr = va,
		.map.va.range = bytes,
		.map.gem.obj = obj,
		.map.gem.offset = offset,
	};

	return drm_gpuvm_sm_map(vm, priv, &req);
#else
	return drm_gpuvm_sm_map(vm, priv, va, bytes, obj, offset);
#endif
}

#endif /* TXDA_COMPAT_GPUVM_H */
