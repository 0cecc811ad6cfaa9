/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that txda builds for, 6.12 and later. The rest of the driver is
 * written against the newest of them and asks for no version.
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

/* drm_driver.date went in 6.14; before that VERSION copies it out and warns when it is NULL. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define TXDA_DRM_DATE .date = "20261120",
#else
#define TXDA_DRM_DATE
#endif

/* Naming a client came in 6.13. Older kernels answer it as unknown, which needs only its number. */
#ifndef DRM_IOCTL_SET_CLIENT_NAME
#define DRM_IOCTL_SET_CLIENT_NAME _IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, 0xd1, 16)
#endif

/* fdinfo leaves active memory out unless it is told since 6.14; before that it prints it always. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define TXDA_GEM_STATS DRM_GEM_OBJECT_RESIDENT
#else
#define TXDA_GEM_STATS (DRM_GEM_OBJECT_RESIDENT | DRM_GEM_OBJECT_ACTIVE)
#endif

/* The name of a symbol namespace became a string in 6.13. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define TXDA_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#else
#define TXDA_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#endif

#endif /* TXDA_COMPAT_H */
