/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the kernels that txda supports, 6.12 and later. The rest of the driver is
 * written against the newest kernel and checks no versions.
 */
#ifndef TXDA_COMPAT_H
#define TXDA_COMPAT_H

#include <linux/module.h>
#include <linux/version.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <uapi/drm/drm.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "txda needs Linux 6.12 or later"
#endif

/*
 * drm_driver.date was removed in 6.14. Before that, DRM_IOCTL_VERSION copies it and warns when
 * NULL.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define TXDA_DRM_DATE .date = "20261120",
#else
#define TXDA_DRM_DATE
#endif

/*
 * Client names (DRM_IOCTL_SET_CLIENT_NAME) came in 6.13. Older kernels reject the ioctl as unknown,
 * so only its number is needed.
 */
#ifndef DRM_IOCTL_SET_CLIENT_NAME
#define DRM_IOCTL_SET_CLIENT_NAME _IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, 0xd1, 16)
#endif

/*
 * Since 6.14 fdinfo omits active memory unless the driver reports it; before, it is always
 * printed.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define TXDA_GEM_STATS (DRM_GEM_OBJECT_RESIDENT | DRM_GEM_OBJECT_PURGEABLE)
#else
#define TXDA_GEM_STATS (DRM_GEM_OBJECT_RESIDENT | DRM_GEM_OBJECT_PURGEABLE | DRM_GEM_OBJECT_ACTIVE)
#endif

/* Symbol namespaces became strings in 6.13. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define TXDA_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define TXDA_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

#endif /* TXDA_COMPAT_H */
