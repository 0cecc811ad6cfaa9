/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An open file of a node: the objects of one client on one chip, and its usage.
 *
 * Lifetime: from open to the last close. Then DRM drops the file's GEM handles, and this module its
 * queues and then its address spaces; their mappings hold the buffers, so nothing of the client
 * runs any more when its memory is freed.
 * Threads: any; the xarrays have their own locks.
 */
#ifndef TXDA_FILE_H
#define TXDA_FILE_H

#include <linux/atomic.h>
#include <linux/sched.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>
#include <drm/drm_file.h>

struct drm_printer;
struct txda_device;
struct txda_user;

enum txda_queue_class_id {
	TXDA_CLASS_COMPUTE = 0, /* DRM_TXDA_QUEUE_COMPUTE */
	TXDA_CLASS_COPY = 1,	/* DRM_TXDA_QUEUE_COPY */
	TXDA_CLASS_COUNT
};

/**
 * struct txda_client - Who a client is, for reports that may come after its end.
 */
struct txda_client {
	/** @id: Of its file; drm-client-id in fdinfo. */
	u64 id;

	/** @uid: The user that opened the file. */
	kuid_t uid;

	/** @pid: The process, in the initial namespace. */
	pid_t pid;

	/** @comm: Its name. */
	char comm[TASK_COMM_LEN];
};

/**
 * struct txda_file - One client of one chip.
 */
struct txda_file {
	/** @tdev: The chip; the DRM file holds it. */
	struct txda_device *tdev;

	/** @drm: The DRM file. */
	struct drm_file *drm;

	/** @user: The user that opened it, with a reference. */
	struct txda_user *user;

	/** @opened_ns: When it was opened. */
	u64 opened_ns;

	/** @vms: struct txda_vm by id; ids start at 1. */
	struct xarray vms;

	/** @queues: struct txda_queue by id; ids start at 1. */
	struct xarray queues;

	/** @busy_ns: Time for which finished jobs kept queues of each class busy. */
	atomic64_t busy_ns[TXDA_CLASS_COUNT];

	/** @busy_shown: The last value shown, with running jobs included; never decreases. */
	atomic64_t busy_shown[TXDA_CLASS_COUNT];
};

static inline struct txda_file *to_txda_file(struct drm_file *file)
{
	return file->driver_priv;
}

int txda_file_open(struct drm_device *drm, struct drm_file *file);
/* The calling process as the client behind @file. */
void txda_file_identify(const struct txda_file *file, struct txda_client *ret_client);
void txda_file_close(struct drm_device *drm, struct drm_file *file);
/* fdinfo, see Documentation/gpu/drm-usage-stats.rst. Reads no register. */
void txda_file_show_fdinfo(struct drm_printer *p, struct drm_file *file);

#endif /* TXDA_FILE_H */
