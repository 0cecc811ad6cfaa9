// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of idle buffers: who may use a buffer in which state, which ones lose their memory
 * and in what order, and how much there is to take. See txda_test.c for how they are run.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "evict.h"
#include "gem.h"
#include "runs.h"
#include "vram.h"

#define TXDA_TEST_BOS 4

/* The idle buffers of a chip that has nothing else. */
static struct txda_evict *txda_test_evict(struct kunit *test)
{
	struct txda_evict *evict = kunit_kzalloc(test, sizeof(*evict), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, evict);
	mutex_init(&evict->lock);
	txda_idle_init(evict);
	return evict;
}

/* A buffer of @pages pages, in use by nobody, with memory; a page of device memory is mappable. */
static struct txda_bo *txda_test_bo(struct kunit *test, enum txda_bo_kind kind, u32 pages)
{
	static struct txda_vram_block vram = {.mappable = PAGE_SIZE};
	static struct txda_runs memory;
	struct txda_bo *bo = kunit_kzalloc(test, sizeof(*bo), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, bo);
	INIT_LIST_HEAD(&bo->idle_link);
	bo->kind = kind;
	bo->base.size = (size_t)pages << PAGE_SHIFT;
	bo->runs = &memory;
	if (kind == TXDA_BO_DEVICE)
		bo->vram = &vram;
	return bo;
}

/* Makes @bo idle; it was in use, or idle. */
static void txda_test_idle(struct kunit *test, struct txda_evict *evict, struct txda_bo *bo,
			   u32 advice)
{
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, advice), 1);
	txda_idle_enter(evict, bo, advice);
}

/* ---- States --------------------------------------------------------------------------------- */

static void txda_test_idle_pins(struct kunit *test)
{
	struct txda_evict *evict = txda_test_evict(test);
	struct txda_bo *bo = txda_test_bo(test, TXDA_BO_DEVICE, 3);

	/* In use twice: only WILLNEED has nothing against that, and it changes nothing. */
	KUNIT_EXPECT_TRUE(test, txda_bo_pin(bo));
	txda_bo_pin_more(bo);
	KUNIT_EXPECT_FALSE(test, txda_bo_is_idle(bo));
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_COLD), -EBUSY);
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_DONTNEED), -EBUSY);
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_WILLNEED), 0);
	txda_bo_unpin(bo);
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_COLD), -EBUSY);
	txda_bo_unpin(bo);
	KUNIT_EXPECT_EQ(test, evict->bytes, 0);

	/* Idle: nobody can begin to use it. */
	txda_test_idle(test, evict, bo, DRM_TXDA_COLD);
	KUNIT_EXPECT_TRUE(test, txda_bo_is_idle(bo));
	KUNIT_EXPECT_FALSE(test, txda_bo_pin(bo));
	KUNIT_EXPECT_TRUE(test, txda_bo_is_idle(bo));

	/* While a thread changes that, nobody can, either, and nobody takes its memory. */
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_WILLNEED), 1);
	KUNIT_EXPECT_EQ(test, evict->bytes, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&evict->idle[TXDA_IDLE_COLD]));
	KUNIT_EXPECT_FALSE(test, txda_bo_pin(bo));
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_WILLNEED), -EBUSY);
	KUNIT_EXPECT_EQ(test, txda_idle_begin(evict, bo, DRM_TXDA_COLD), -EBUSY);
	txda_idle_end(bo);
	KUNIT_EXPECT_EQ(test, bo->advice, DRM_TXDA_WILLNEED);
	KUNIT_EXPECT_FALSE(test, txda_bo_is_idle(bo));
	KUNIT_EXPECT_TRUE(test, txda_bo_pin(bo));
	txda_bo_unpin(bo);
}

static void txda_test_idle_counts(struct kunit *test)
{
	struct txda_evict *evict = txda_test_evict(test);
	struct txda_bo *device = txda_test_bo(test, TXDA_BO_DEVICE, 3);
	struct txda_bo *host = txda_test_bo(test, TXDA_BO_HOST, 5);

	/* Host memory is pageable or dropped; what is only cold stays. */
	txda_test_idle(test, evict, host, DRM_TXDA_COLD);
	KUNIT_EXPECT_EQ(test, evict->pages, 0);
	txda_test_idle(test, evict, host, DRM_TXDA_DONTNEED);
	KUNIT_EXPECT_EQ(test, evict->pages, 5);
	KUNIT_EXPECT_EQ(test, evict->bytes, 0);

	/* From one advice to another it is counted once, at its end. */
	txda_test_idle(test, evict, device, DRM_TXDA_COLD);
	KUNIT_EXPECT_EQ(test, evict->bytes, 3 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, evict->mappable, PAGE_SIZE);
	KUNIT_EXPECT_FALSE(test, list_empty(&evict->idle[TXDA_IDLE_COLD]));
	txda_test_idle(test, evict, device, DRM_TXDA_DONTNEED);
	KUNIT_EXPECT_EQ(test, evict->bytes, 3 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, evict->mappable, PAGE_SIZE);
	KUNIT_EXPECT_TRUE(test, list_empty(&evict->idle[TXDA_IDLE_COLD]));
	KUNIT_EXPECT_FALSE(test, list_empty(&evict->idle[TXDA_IDLE_DEVICE]));

	/* Without memory there is nothing to take, and taking it off twice is no matter. */
	mutex_lock(&evict->lock);
	txda_idle_del(evict, device);
	txda_idle_del(evict, device);
	mutex_unlock(&evict->lock);
	KUNIT_EXPECT_EQ(test, evict->bytes, 0);
	KUNIT_EXPECT_EQ(test, evict->mappable, 0);
	device->runs = NULL;
	txda_test_idle(test, evict, device, DRM_TXDA_COLD);
	KUNIT_EXPECT_EQ(test, evict->bytes, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&device->idle_link));
	KUNIT_EXPECT_EQ(test, evict->pages, 5);
}

/* ---- Order ---------------------------------------------------------------------------------- */

/* What a test does with the buffers that it is offered, and which these were. */
struct txda_test_take {
	struct txda_evict *evict;
	struct txda_bo *seen[TXDA_TEST_BOS];
	u32 n_seen;
	/* The first @n_refused get this error. */
	u32 n_refused;
	int err;
};

static int txda_test_take(struct txda_bo *bo, void *arg)
{
	struct txda_test_take *take = arg;

	if (take->n_seen < TXDA_TEST_BOS)
		take->seen[take->n_seen] = bo;
	if (take->n_seen++ < take->n_refused)
		return take->err;
	txda_idle_del(take->evict, bo);
	bo->runs = NULL;
	return 0;
}

/* Whether one lost its memory, after the first @n_refused got @err. */
static bool txda_test_try(struct txda_test_take *take, u32 n_refused, int err)
{
	bool taken;

	take->n_seen = 0;
	take->n_refused = n_refused;
	take->err = err;
	mutex_lock(&take->evict->lock);
	taken = txda_idle_try(take->evict, txda_test_take, take);
	mutex_unlock(&take->evict->lock);
	return taken;
}

static void txda_test_idle_order(struct kunit *test)
{
	struct txda_test_take take = {.evict = txda_test_evict(test)};
	struct txda_bo *bo[TXDA_TEST_BOS], *used = txda_test_bo(test, TXDA_BO_DEVICE, 1);
	struct txda_bo *host = txda_test_bo(test, TXDA_BO_HOST, 1);
	u32 i;

	for (i = 0; i < TXDA_TEST_BOS; i++)
		bo[i] = txda_test_bo(test, TXDA_BO_DEVICE, 1);
	/* Never chosen: who is pinned, and host memory, which is the shrinker's. */
	KUNIT_EXPECT_TRUE(test, txda_bo_pin(used));
	KUNIT_EXPECT_EQ(test, txda_idle_begin(take.evict, used, DRM_TXDA_DONTNEED), -EBUSY);
	txda_test_idle(test, take.evict, host, DRM_TXDA_DONTNEED);
	KUNIT_EXPECT_FALSE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_EQ(test, take.n_seen, 0);

	/* What may be dropped first, and of each kind the least recently declared first. */
	txda_test_idle(test, take.evict, bo[0], DRM_TXDA_COLD);
	txda_test_idle(test, take.evict, bo[1], DRM_TXDA_DONTNEED);
	txda_test_idle(test, take.evict, bo[2], DRM_TXDA_COLD);
	txda_test_idle(test, take.evict, bo[3], DRM_TXDA_DONTNEED);
	/* Declared again: it is the most recent. */
	txda_test_idle(test, take.evict, bo[1], DRM_TXDA_DONTNEED);
	KUNIT_EXPECT_EQ(test, take.evict->bytes, 4 * PAGE_SIZE);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[3]);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[1]);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[0]);
	KUNIT_EXPECT_EQ(test, take.evict->bytes, PAGE_SIZE);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[2]);
	KUNIT_EXPECT_FALSE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_EQ(test, take.evict->bytes, 0);
	KUNIT_EXPECT_EQ(test, take.evict->pages, 1);
}

static void txda_test_idle_refused(struct kunit *test)
{
	struct txda_test_take take = {.evict = txda_test_evict(test)};
	struct txda_bo *bo[TXDA_TEST_BOS];
	u32 i;

	for (i = 0; i < TXDA_TEST_BOS; i++) {
		bo[i] = txda_test_bo(test, TXDA_BO_DEVICE, 1);
		txda_test_idle(test, take.evict, bo[i], i ? DRM_TXDA_COLD : DRM_TXDA_DONTNEED);
	}
	/* One that would not help keeps its place. */
	KUNIT_EXPECT_FALSE(test, txda_test_try(&take, TXDA_TEST_BOS, -ENOENT));
	KUNIT_EXPECT_EQ(test, take.n_seen, TXDA_TEST_BOS);
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[0] && take.seen[1] == bo[1]);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[0]);

	/* Those that cannot be moved are tried last from then on, in the same order. */
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 2, -ENOMEM));
	KUNIT_EXPECT_EQ(test, take.n_seen, 3);
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[1] && take.seen[2] == bo[3]);
	bo[3]->runs = bo[1]->runs;
	txda_test_idle(test, take.evict, bo[3], DRM_TXDA_COLD);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 1, -ENOSPC));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[1] && take.seen[1] == bo[2]);

	/* After another error nobody else is tried, and nobody lost anything. */
	KUNIT_EXPECT_FALSE(test, txda_test_try(&take, 1, -EIO));
	KUNIT_EXPECT_EQ(test, take.n_seen, 1);
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[3]);
	KUNIT_EXPECT_EQ(test, take.evict->bytes, 2 * PAGE_SIZE);
	KUNIT_EXPECT_TRUE(test, txda_test_try(&take, 0, 0));
	KUNIT_EXPECT_TRUE(test, take.seen[0] == bo[3]);
}

static struct kunit_case txda_idle_cases[] = {
	KUNIT_CASE(txda_test_idle_pins),
	KUNIT_CASE(txda_test_idle_counts),
	KUNIT_CASE(txda_test_idle_order),
	KUNIT_CASE(txda_test_idle_refused),
	{},
};

static struct kunit_suite txda_idle_suite = {
	.name = "txda_idle",
	.test_cases = txda_idle_cases,
};

kunit_test_suites(&txda_idle_suite);
