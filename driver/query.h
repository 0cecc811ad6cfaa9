/* SPDX-License-Identifier: GPL-2.0 */
/* DEV_QUERY: properties, state and statistics of the chip. See drm/txda_drm.h for the contract. */
#ifndef TXDA_QUERY_H
#define TXDA_QUERY_H

struct drm_device;
struct drm_file;

int txda_ioctl_dev_query(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_QUERY_H */
