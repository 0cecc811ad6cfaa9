/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Weighted fair queueing for hardware queues that several clients' queues take turns on. Only the
 * rules: share.h applies them.
 *
 * Time on the chip is shared fairly among users, and each user's share among the user's queues, so
 * that more queues do not mean more time. A queue has a weight: two queues that always have work
 * get time in the ratio of their weights. The next queue is the one whose user, then which itself,
 * has had the least weighted time. A user or queue that was idle starts at the level of the
 * others, so that idle time gives no credit. Time used while nobody waited is not charged. The lead
 * over others is limited to TXDA_FAIR_MAX_LEAD_NS, so that every queue gets its turn whatever the
 * weights: the fence of a job must signal eventually.
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
/* The maximum lead in weighted time over the others. */
#define TXDA_FAIR_MAX_LEAD_NS (60ull * NSEC_PER_SEC)

/**
 * struct txda_fair_user - A user with queues.
 */
struct txda_fair_user {
	/** @time: Weighted time of its queues; at least txda_fair.level while one of them waits. */
	u64 time;

	/**
	 * @level: The time of its queue that was last picked, or that ran while nobody waited; the
	 * least time with which a queue starts to wait.
	 */
	u64 level;
};

/**
 * struct txda_fair_queue - A queue.
 */
struct txda_fair_queue {
	/** @user: The user that it belongs to. */
	struct txda_fair_user *user;

	/** @time: Its weighted time. */
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
	 * @level: The time of the user that was last picked, or that ran while nobody waited; the
	 * least time with which a user starts to wait.
	 */
	u64 level;
};

void txda_fair_init(struct txda_fair *fair);
void txda_fair_queue_init(struct txda_fair_queue *queue, struct txda_fair_user *user, u32 weight);

/* @priority: enum drm_txda_priority; @nice: as in setpriority(2), -20 to 19. */
u32 txda_fair_weight(u32 priority, int nice);

/* The queue has work and no hardware. It may be waiting already. */
void txda_fair_wait(struct txda_fair *fair, struct txda_fair_queue *queue);
/* It does not wait any more; it may not have been waiting. */
void txda_fair_leave(struct txda_fair_queue *queue);
bool txda_fair_is_empty(const struct txda_fair *fair);
/* Removes and returns the next one, or NULL. */
struct txda_fair_queue *txda_fair_pick(struct txda_fair *fair);
/* The queue had the hardware for @ns. */
void txda_fair_charge(struct txda_fair *fair, struct txda_fair_queue *queue, u64 ns);

/* It has had more than its share while others waited, so that others are served before it. */
bool txda_fair_is_ahead(const struct txda_fair *fair, const struct txda_fair_user *user);

#endif /* TXDA_FAIR_H */
