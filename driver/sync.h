/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The syncobjs of a job or bind operation: what it waits for and what it signals.
 *
 * Everything that can fail is done by txda_syncs_get(); signalling after a job was armed cannot.
 * Signals of one call are visible to the waits of later elements of the same call (job 2 may wait
 * for a point that job 1 signals).
 */
#ifndef TXDA_SYNC_H
#define TXDA_SYNC_H

#include <linux/types.h>

#include "drm/txda_drm.h"

struct dma_fence;
struct dma_fence_chain;
struct drm_file;
struct drm_sched_job;
struct drm_syncobj;

/**
 * struct txda_syncs - The syncs of one element.
 */
struct txda_syncs {
	/** @sync: As the client gave them, checked. */
	struct drm_txda_sync *sync;

	/** @obj: Their syncobjs, with references. */
	struct drm_syncobj **obj;

	/** @chain: For timeline signals, a link each. */
	struct dma_fence_chain **chain;

	/** @count: Of all three. */
	u32 count;
};

/* -ENOENT: no such syncobj; -EINVAL: bad flags or point; as txda_array_get(). */
int txda_syncs_get(struct drm_file *file, const struct drm_txda_array *array,
		   struct txda_syncs *ret_syncs);
void txda_syncs_put(struct txda_syncs *syncs);

/* Adds the waits to the job as dependencies. -ENOENT: a point that nobody has submitted yet. */
int txda_syncs_add_waits(struct txda_syncs *syncs, struct drm_sched_job *job);
/* Puts @fence into all syncobjs to signal. */
void txda_syncs_signal(struct txda_syncs *syncs, struct dma_fence *fence);

#endif /* TXDA_SYNC_H */
