/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The syncobjs of a job or bind operation: what it waits for and what it signals.
 *
 * Everything that can fail is done by txda_syncs_get() and txda_syncs_add_waits(); signalling after
 * a job was armed cannot.
 *
 * The elements of one call run in order. So a wait for what an earlier element of the same call
 * signals is fine, although no syncobj knows of it yet, and costs nothing.
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

/*
 * -ENOENT: no such syncobj; -EINVAL: bad flags or point; else as txda_array_get(). After a failure
 * @ret_syncs is empty.
 */
int txda_syncs_get(struct drm_file *file, const struct drm_txda_array *array,
		   struct txda_syncs *ret_syncs);
/* Also of an empty (zeroed) struct. */
void txda_syncs_put(struct txda_syncs *syncs);

/**
 * struct txda_sync_table - What the elements of a call signal, up to the one that is at work.
 */
struct txda_sync_table {
	/**
	 * @slot: A hash table by syncobj, or NULL when no element but the last signals anything.
	 */
	struct txda_sync_slot *slot;

	/** @bits: Log2 of its size. */
	u32 bits;
};

/* For the @count elements of a call. -ENOMEM. */
int txda_sync_table_init(struct txda_sync_table *table, const struct txda_syncs *all, u32 count);
/* Also of an empty (zeroed) struct. */
void txda_sync_table_fini(struct txda_sync_table *table);

/*
 * Adds the waits of an element as dependencies of its job, and what it signals to @table: for one
 * element after the other. @context: fences of it are in order with the job anyway; 0: none are.
 * -ENOENT: nobody has submitted that point, or the syncobj has no fence. -EINTR: the caller was
 * killed.
 */
int txda_syncs_add_waits(const struct txda_syncs *syncs, struct txda_sync_table *table, u64 context,
			 struct drm_sched_job *job);
/* Puts @fence into all syncobjs to signal; once. */
void txda_syncs_signal(struct txda_syncs *syncs, struct dma_fence *fence);

#endif /* TXDA_SYNC_H */
