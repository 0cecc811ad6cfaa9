// SPDX-License-Identifier: GPL-2.0
// asks for: DRM_GPU_SCHED_STAT_NO_HANG
#include <drm/gpu_scheduler.h>

enum drm_gpu_sched_stat probe(void)
{
	return DRM_GPU_SCHED_STAT_NO_HANG;
}
