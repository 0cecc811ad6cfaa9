// SPDX-License-Identifier: GPL-2.0
// asks for: drm_gpuvm_bo_obtain_locked
#include <drm/drm_gpuvm.h>

struct drm_gpuvm_bo *probe(struct drm_gpuvm *vm, struct drm_gem_object *obj)
{
	return drm_gpuvm_bo_obtain_locked(vm, obj);
}
