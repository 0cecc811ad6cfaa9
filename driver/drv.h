/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The DRM driver: features, ioctls, and the operations of its nodes.
 */
#ifndef TXDA_DRV_H
#define TXDA_DRV_H

#include <linux/types.h>

struct drm_driver;

extern const struct drm_driver txda_drm_driver;

/* Module parameter: the time limit of jobs whose queue sets none. */
extern unsigned int txda_job_timeout_ms;

#endif /* TXDA_DRV_H */
