// SPDX-License-Identifier: GPL-2.0
#include "sync.h"

#include <linux/dma-fence-chain.h>
#include <linux/dma-fence-unwrap.h>
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <drm/drm_syncobj.h>
#include <drm/gpu_scheduler.h>

#include "array.h"

/*
 * Up to this many fences of a timeline are examined one by one; beyond that it is waited for as a
 * whole.
 */
#define TXDA_SYNC_UNWRAP 64

static int txda_sync_check(const struct drm_txda_sync *sync)
{
	if (sync->flags & ~(DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE))
		return -EINVAL;
	/* A timeline starts at 0, so point 0 cannot be signalled and needs no wait. */
	if (!!sync->point != !!(sync->flags & DRM_TXDA_SYNC_TIMELINE))
		return -EINVAL;
	return 0;
}

static bool txda_sync_is_signal(const struct drm_txda_sync *sync)
{
	return sync->flags & DRM_TXDA_SYNC_SIGNAL;
}

static bool txda_sync_is_timeline(const struct drm_txda_sync *sync)
{
	return sync->flags & DRM_TXDA_SYNC_TIMELINE;
}

static int txda_syncs_fill(struct drm_file *file, struct txda_syncs *syncs)
{
	u32 i;
	int err;

	for (i = 0; i < syncs->count; i++) {
		const struct drm_txda_sync *sync = &syncs->sync[i];

		err = txda_sync_check(sync);
		if (err)
			return err;
		syncs->obj[i] = drm_syncobj_find(file, sync->handle);
		if (!syncs->obj[i])
			return -ENOENT;
		if (txda_sync_is_signal(sync) && txda_sync_is_timeline(sync)) {
			syncs->chain[i] = dma_fence_chain_alloc();
			if (!syncs->chain[i])
				return -ENOMEM;
		}
	}
	return 0;
}

int txda_syncs_get(struct drm_file *file, const struct drm_txda_array *array,
		   struct txda_syncs *ret_syncs)
{
	struct txda_syncs syncs = {};
	int err;

	*ret_syncs = syncs;
	syncs.sync =
		txda_array_get(array, sizeof(*syncs.sync), sizeof(*syncs.sync), DRM_TXDA_MAX_SYNCS);
	if (IS_ERR_OR_NULL(syncs.sync))
		return PTR_ERR_OR_ZERO(syncs.sync);

	syncs.count = array->count;
	syncs.obj = kcalloc(syncs.count, sizeof(*syncs.obj) + sizeof(*syncs.chain), GFP_KERNEL);
	if (!syncs.obj) {
		kvfree(syncs.sync);
		return -ENOMEM;
	}
	syncs.chain = (struct dma_fence_chain **)(syncs.obj + syncs.count);

	err = txda_syncs_fill(file, &syncs);
	if (err) {
		txda_syncs_put(&syncs);
		return err;
	}
	*ret_syncs = syncs;
	return 0;
}

void txda_syncs_put(struct txda_syncs *syncs)
{
	u32 i;

	for (i = 0; i < syncs->count; i++) {
		if (syncs->obj[i])
			drm_syncobj_put(syncs->obj[i]);
		dma_fence_chain_free(syncs->chain[i]);
	}
	kfree(syncs->obj);
	kvfree(syncs->sync);
	memset(syncs, 0, sizeof(*syncs));
}

/* ---- Signals of earlier elements ------------------------------------------------------------ */

/**
 * struct txda_sync_slot - A syncobj signalled by some element.
 */
struct txda_sync_slot {
	/** @obj: The syncobj, NULL: the slot is free. */
	const struct drm_syncobj *obj;

	/** @point: The highest point that will be signalled. */
	u64 point;

	/** @binary: The last signal was a binary one. */
	bool binary;
};

int txda_sync_table_init(struct txda_sync_table *table, const struct txda_syncs *all, u32 count)
{
	u32 i, k, signals = 0;

	memset(table, 0, sizeof(*table));
	for (i = 0; i + 1 < count; i++) {
		for (k = 0; k < all[i].count; k++)
			signals += txda_sync_is_signal(&all[i].sync[k]);
	}
	if (!signals)
		return 0;
	/* The last element fills slots as well; at least half of them stay free. */
	table->bits = ilog2(roundup_pow_of_two(2 * (signals + DRM_TXDA_MAX_SYNCS)));
	table->slot = kvcalloc(1ul << table->bits, sizeof(*table->slot), GFP_KERNEL_ACCOUNT);
	return table->slot ? 0 : -ENOMEM;
}

void txda_sync_table_fini(struct txda_sync_table *table)
{
	kvfree(table->slot);
}

/* The slot of the syncobj, or the free one where it would be inserted. */
static struct txda_sync_slot *txda_sync_table_find(const struct txda_sync_table *table,
						   const struct drm_syncobj *obj)
{
	u32 i = hash_ptr(obj, table->bits);

	while (table->slot[i].obj && table->slot[i].obj != obj)
		i = (i + 1) & (BIT(table->bits) - 1);
	return &table->slot[i];
}

static void txda_sync_table_add(struct txda_sync_table *table, const struct txda_syncs *syncs)
{
	u32 k;

	for (k = 0; table->slot && k < syncs->count; k++) {
		const struct drm_txda_sync *sync = &syncs->sync[k];
		struct txda_sync_slot *slot;

		if (!txda_sync_is_signal(sync))
			continue;
		slot = txda_sync_table_find(table, syncs->obj[k]);
		slot->obj = syncs->obj[k];
		slot->point = max(slot->point, sync->point);
		slot->binary = !txda_sync_is_timeline(sync);
	}
}

/*
 * The fence of an earlier element whose signal of @obj satisfies a wait for @point of it (0: the
 * syncobj is binary), or NULL.
 */
static const struct txda_sync_slot *txda_syncs_earlier(const struct txda_sync_table *table,
						       const struct drm_syncobj *obj, u64 point)
{
	const struct txda_sync_slot *slot = table->slot ? txda_sync_table_find(table, obj) : NULL;

	return slot && slot->obj && slot->point >= point ? slot : NULL;
}

/* ---- Waits ---------------------------------------------------------------------------------- */

/*
 * Splits timelines and merged fences into their parts: usually a client waits for its own last job
 * on the same queue, next to fences that are done. Waiting for the container would stall the ring
 * until the last job has returned from the chip. Consumes @fence.
 */
static int txda_sync_add_fence(struct drm_sched_job *job, struct dma_fence *fence, u64 context)
{
	struct dma_fence_unwrap cursor;
	struct dma_fence *part;
	u32 n = 0;
	int err = 0;

	dma_fence_unwrap_for_each(part, &cursor, fence) {
		/* A client can make such chains arbitrarily long. */
		if (n++ == TXDA_SYNC_UNWRAP) {
			dma_fence_put(cursor.chain);
			return drm_sched_job_add_dependency(job, fence);
		}
		if (part->context == context || dma_fence_is_signaled(part))
			continue;
		err = drm_sched_job_add_dependency(job, dma_fence_get(part));
		if (err) {
			dma_fence_put(cursor.chain);
			break;
		}
	}
	dma_fence_put(fence);
	return err;
}

static int txda_sync_add_wait(const struct txda_syncs *syncs, u32 k,
			      const struct txda_sync_table *table, u64 context,
			      struct drm_sched_job *job)
{
	const struct drm_txda_sync *sync = &syncs->sync[k];
	struct drm_syncobj *obj = syncs->obj[k];
	const struct txda_sync_slot *earlier = txda_syncs_earlier(table, obj, sync->point);
	struct dma_fence *fence = drm_syncobj_fence_get(obj);
	bool missing = false;

	if (txda_sync_is_timeline(sync)) {
		/*
		 * The point does not exist yet: it will be added after all existing ones, when the
		 * earlier element is done.
		 */
		if (!fence || dma_fence_chain_find_seqno(&fence, sync->point))
			missing = !earlier;
	} else if (earlier && earlier->binary) {
		/* A binary signal replaces whatever fence the syncobj has now. */
		dma_fence_put(fence);
		fence = NULL;
	} else {
		missing = !fence && !earlier;
	}

	if (missing) {
		dma_fence_put(fence);
		return -ENOENT;
	}
	return fence ? txda_sync_add_fence(job, fence, context) : 0;
}

int txda_syncs_add_waits(const struct txda_syncs *syncs, struct txda_sync_table *table, u64 context,
			 struct drm_sched_job *job)
{
	u32 k;
	int err;

	/* A call has many elements, and an element many fences, so this loop can be long. */
	cond_resched();
	if (fatal_signal_pending(current))
		return -EINTR;
	for (k = 0; k < syncs->count; k++) {
		if (txda_sync_is_signal(&syncs->sync[k]))
			continue;
		err = txda_sync_add_wait(syncs, k, table, context, job);
		if (err)
			return err;
	}
	txda_sync_table_add(table, syncs);
	return 0;
}

/* ---- Signals -------------------------------------------------------------------------------- */

void txda_syncs_signal(struct txda_syncs *syncs, struct dma_fence *fence)
{
	u32 i;

	for (i = 0; i < syncs->count; i++) {
		if (!txda_sync_is_signal(&syncs->sync[i]))
			continue;
		if (syncs->chain[i]) {
			drm_syncobj_add_point(syncs->obj[i], syncs->chain[i], fence,
					      syncs->sync[i].point);
			syncs->chain[i] = NULL;
		} else {
			drm_syncobj_replace_fence(syncs->obj[i], fence);
		}
	}
}
