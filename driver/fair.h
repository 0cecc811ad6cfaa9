/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who is next when more queues want a hardware queue than there are. Only the rules: share.h
 * applies them.
 *
 * Time on the chip is shared fairly among users, and each user's part among the user's queues, so
 * that more queues do not mean more time. A queue has a weight: two queues that always have work
 * get time in the ratio of their weights. Whoever had the least weighted time is next; who was idle
 * starts level with those that were not, so that nobody saves time up. Time that nobody else wanted
 * is not held against who had it. Whatever the weights, everybody's turn comes: a fence of a job
 * must signal some day, so nobody gets further ahead than TXDA_FAIR_MAX_LEAD_NS.
 *
 * Times are in nanoseconds of one clock; their sums may wrap. The caller serialises.
 */
#ifndef TXDA_FAIR_H
#define TXDA_FAIR_H

#include <linux/list.h>
#include <linux/time64.h>
#include <linux/types.h>

/* The weight of a queue of normal priority whose client has the nice value 0. */
#define TXDA_FAIR_WEIGHT 1024
/* As much weighted time more than the others is remembered, at most. */
#define TXDA_FAIR_MAX_LEAD_NS (60ull * NSEC_PER_SEC)

/**
 * struct txda_fair_user - A user with queues.
 */
struct txda_fair_user {
	/** @time: Weighted time that its queues had; not behind txda_fair.level when they wait. */
	u64 time;

	/**
	 * @level: The time of its queue that was last picked, or ran while nobody waited: that of
	 * one that starts to wait.
	 */
	u64 level;
};

/**
 * struct txda_fair_queue - A queue.
 */
struct txda_fair_queue {
	/** @user: Whose it is. */
	struct txda_fair_user *user;

	/** @time: Weighted time that it had. */
	u64 time;

	/** @weight: From txda_fair_weight(). */
	u32 weight;

	/** @link: In txda_fair.waiting, or empty. */
	struct list_head link;
};

/**
 * struct txda_fair - Queues that wait for the same hardware.
 */
struct txda_fair {
	/** @waiting: struct txda_fair_queue, longest wait first. */
	struct list_head waiting;

	/**
	 * @level: The time of the user that was last picked, or ran while nobody waited: that of
	 * one that starts to wait.
	 */
	u64 level;
};

void txda_fair_init(struct txda_fair *fair);
void txda_fair_queue_init(struct txda_fair_queue *queue, struct txda_fair_user *user, u32 weight);

/* @priority: enum drm_txda_priority; @nice: as in setpriority(2), -20 to 19. */
u32 txda_fair_weight(u32 priority, int nice);

/* The queue has work and no hardware. It may be waiting already. */
void txda_fair_wait(struct txda_fair *fair, struct txda_fair_queue *queue);
/* It waits no longer, if it did. */
void txda_fair_leave(struct txda_fair_queue *queue);
bool txda_fair_is_empty(const struct txda_fair *fair);
/* Takes the next one out, or NULL. */
struct txda_fair_queue *txda_fair_pick(struct txda_fair *fair);
/* The queue had the hardware for @ns. */
void txda_fair_charge(struct txda_fair *fair, struct txda_fair_queue *queue, u64 ns);

/* It had more than its part while others waited, and waits longer than others because of it. */
bool txda_fair_is_ahead(const struct txda_fair *fair, const struct txda_fair_user *user);

#endif /* TXDA_FAIR_H */
