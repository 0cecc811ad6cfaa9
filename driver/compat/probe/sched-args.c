// SPDX-License-Identifier: GPL-2.0
// asks for: drm_sched_init|arguments to function call
#include <drm/gpu_scheduler.h>

int probe(struct drm_gpu_scheduler *sched, const struct drm_sched_init_args *args)
{
	return drm_sched_init(sched, args);
}
