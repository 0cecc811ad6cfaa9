// SPDX-License-Identifier: GPL-2.0
#include "fair.h"

#include <linux/math64.h>
#include <linux/minmax.h>

#include "drm/txda_drm.h"

/* A step of priority is worth eight queues; one of nice is the same as for the CPU. */
#define TXDA_FAIR_PRIORITY_STEP 8
#define TXDA_FAIR_NICE_MUL	5
#define TXDA_FAIR_NICE_DIV	4
#define TXDA_FAIR_MIN		1u

void txda_fair_init(struct txda_fair *fair)
{
	INIT_LIST_HEAD(&fair->waiting);
	fair->level = 0;
}

void txda_fair_queue_init(struct txda_fair_queue *queue, struct txda_fair_user *user, u32 weight)
{
	queue->user = user;
	queue->time = 0;
	queue->weight = weight;
	INIT_LIST_HEAD(&queue->link);
}

u32 txda_fair_weight(u32 priority, int nice)
{
	u32 weight = TXDA_FAIR_WEIGHT;

	for (; priority > DRM_TXDA_PRIORITY_NORMAL; priority--)
		weight *= TXDA_FAIR_PRIORITY_STEP;
	for (; priority < DRM_TXDA_PRIORITY_NORMAL; priority++)
		weight /= TXDA_FAIR_PRIORITY_STEP;
	for (; nice < 0; nice++)
		weight = weight * TXDA_FAIR_NICE_MUL / TXDA_FAIR_NICE_DIV;
	for (; nice > 0; nice--)
		weight = weight * TXDA_FAIR_NICE_DIV / TXDA_FAIR_NICE_MUL;
	return max(weight, TXDA_FAIR_MIN);
}

static bool txda_fair_is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static void txda_fair_raise(u64 *time, u64 level)
{
	if (txda_fair_is_before(*time, level))
		*time = level;
}

static void txda_fair_add(u64 *time, u64 ns, u64 level)
{
	u64 most = level + TXDA_FAIR_MAX_LEAD_NS;

	*time += ns;
	if (txda_fair_is_before(most, *time))
		*time = most;
}

/*
 * A time that is not at most the maximum lead ahead of the level is behind it: after a long idle
 * time the difference wraps.
 */
static void txda_fair_enter(u64 *time, u64 level)
{
	if (*time - level > TXDA_FAIR_MAX_LEAD_NS)
		*time = level;
}

void txda_fair_wait(struct txda_fair *fair, struct txda_fair_queue *queue)
{
	if (!list_empty(&queue->link))
		return;
	txda_fair_enter(&queue->user->time, fair->level);
	txda_fair_enter(&queue->time, queue->user->level);
	list_add_tail(&queue->link, &fair->waiting);
}

void txda_fair_leave(struct txda_fair_queue *queue)
{
	list_del_init(&queue->link);
}

bool txda_fair_is_empty(const struct txda_fair *fair)
{
	return list_empty(&fair->waiting);
}

static bool txda_fair_is_next(const struct txda_fair_queue *queue,
			      const struct txda_fair_queue *best)
{
	if (queue->user->time != best->user->time)
		return txda_fair_is_before(queue->user->time, best->user->time);
	/* Times of different users' queues are not comparable. */
	return queue->user == best->user && txda_fair_is_before(queue->time, best->time);
}

/* A queue that starts to wait from now on does not come before @queue. */
static void txda_fair_level(struct txda_fair *fair, struct txda_fair_queue *queue)
{
	txda_fair_raise(&fair->level, queue->user->time);
	txda_fair_raise(&queue->user->level, queue->time);
}

struct txda_fair_queue *txda_fair_pick(struct txda_fair *fair)
{
	struct txda_fair_queue *queue, *best = NULL;

	list_for_each_entry(queue, &fair->waiting, link) {
		if (!best || txda_fair_is_next(queue, best))
			best = queue;
	}
	if (!best)
		return NULL;
	txda_fair_leave(best);
	txda_fair_level(fair, best);
	return best;
}

void txda_fair_charge(struct txda_fair *fair, struct txda_fair_queue *queue, u64 ns)
{
	u64 time = div_u64(ns * TXDA_FAIR_WEIGHT, queue->weight);

	txda_fair_add(&queue->time, time, queue->user->level);
	txda_fair_add(&queue->user->time, time, fair->level);
	if (txda_fair_is_empty(fair))
		txda_fair_level(fair, queue);
}

bool txda_fair_is_ahead(const struct txda_fair *fair, const struct txda_fair_user *user)
{
	u64 lead = user->time - fair->level;

	return lead && lead <= TXDA_FAIR_MAX_LEAD_NS;
}
