/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The syncobjs of a job or bind operation: what it waits for and what it signals.
 *
 * Everything that can fail is done by txda_syncs_get() and txda_syncs_add_waits(); signalling after
 * a job was armed cannot.
 *
 * The elements of a call run in order. So a wait for a signal of an earlier element of the same
 * call is valid although the syncobj has no fence for it yet, and costs nothing.
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

	/** @chain: For timeline signals, one preallocated chain link each. */
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
/* Also accepts an empty (zeroed) struct. */
void txda_syncs_put(struct txda_syncs *syncs);

/**
 * struct txda_sync_table - Signals of a call's elements, up to the current one.
 */
struct txda_sync_table {
	/**
	 * @slot: A hash table by syncobj, or NULL when only the last element signals anything.
	 */
	struct txda_sync_slot *slot;

	/** @bits: Log2 of its size. */
	u32 bits;
};

/* For the @count elements of a call. -ENOMEM. */
int txda_sync_table_init(struct txda_sync_table *table, const struct txda_syncs *all, u32 count);
/* Also accepts an empty (zeroed) struct. */
void txda_sync_table_fini(struct txda_sync_table *table);

/*
 * Adds an element's waits as dependencies of its job, and its signals to @table. Call for the
 * elements in order. @context: fences of this context are in order with the job anyway; 0: none.
 * -ENOENT: the point was never submitted, or the syncobj has no fence. -EINTR: the caller was
 * killed.
 */
int txda_syncs_add_waits(const struct txda_syncs *syncs, struct txda_sync_table *table, u64 context,
			 struct drm_sched_job *job);
/* Installs @fence in all syncobjs to signal; call once. */
void txda_syncs_signal(struct txda_syncs *syncs, struct dma_fence *fence);

#endif /* TXDA_SYNC_H */
