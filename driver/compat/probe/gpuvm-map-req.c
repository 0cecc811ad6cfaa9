// SPDX-License-Identifier: GPL-2.0
// asks for: drm_gpuvm_(map_req|sm_map)|arguments to function call
#include <drm/drm_gpuvm.h>

int probe(struct drm_gpuvm *vm, const struct drm_gpuvm_map_req *req)
{
	return drm_gpuvm_sm_map(vm, NULL, req);
}
