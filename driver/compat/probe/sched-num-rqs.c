// SPDX-License-Identifier: GPL-2.0
// asks for: num_rqs|drm_sched_init_args
#include <drm/gpu_scheduler.h>

u32 probe(const struct drm_sched_init_args *args)
{
	return args->num_rqs;
}
