/* SPDX-License-Identifier: MIT */
/*
 * Worker threads for text (JSON, templates, tokens, grammars), which would block the event loop.
 *
 * The loop's thread adds jobs and gets them back from textpool_dispatch() when textpool_fd() is
 * readable. Each user has a queue of its own, and the queues are served round-robin. A job is
 *
 *	brief	if its time is bounded, as for the next events of a stream: one thread runs
 *		nothing else, so that brief jobs wait only for other brief ones;
 *	long	otherwise. One user's long jobs use all but one of the other threads at most, so
 *		that endless work of one user leaves a thread to the others. When all threads
 *		are busy, one more is created for a user who has none, up to a limit: so endless
 *		work of several users does not block others either.
 *
 * Long jobs beside those of other users may take TEXTPOOL_BURST_NS at once, and then one
 * TEXTPOOL_PART-th of the time; what takes more continues with a low priority (job.low_ns). Where
 * priorities cannot be set, such a user has one thread at most.
 *
 * Jobs of one user and of the same kind start in the order in which they were added. Brief jobs
 * belong to a step of the engine, where many sequences have output at once: the pool is woken once
 * for all of them (textpool_kick()), and so is the loop.
 */
#ifndef TXDA_TEXT_TEXTPOOL_H
#define TXDA_TEXT_TEXTPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "user_id.h"

#define TEXTPOOL_PART	  4
#define TEXTPOOL_BURST_NS 250000000ull
#define TEXTPOOL_DEBT_NS  10000000000ull /* the longest time for which a user has no more */
#define TEXTPOOL_NEAR_NS  1000000000ull	 /* others without a job for that long do not count */

struct textpool;
struct textpool_share;

struct textpool_job {
	user_id user;
	bool brief;
	uint64_t deadline_ns; /* to start, CLOCK_MONOTONIC; 0: none */
	/*
	 * For run() of a long job: from when on its user has had more than a share of the time, so
	 * that the processes that work for it get a low priority; 0: never, since nobody else has
	 * had work when it began.
	 */
	uint64_t low_ns;
	void (*run)(struct textpool_job *job);	/* runs in a pool thread */
	void (*done)(struct textpool_job *job); /* in the loop's thread: gives it back */
	bool ran;				/* for done(); false: too late, or shutdown */

	/* Private to the pool. */
	bool admitted, waits;
	struct textpool_share *share;
	TAILQ_ENTRY(textpool_job) link;
};

/*
 * @n_threads from the start, up to @max_threads for users who have none. 0, or -errno of
 * pthread_create(3) and eventfd(2).
 */
int textpool_new(unsigned n_threads, unsigned max_threads, unsigned max_jobs,
		 struct textpool **ret);
/* Waits for running jobs; done() is called for all that are left. NULL is accepted. */
void textpool_free(struct textpool *pool);

/*
 * -EAGAIN: the user has reached its share (three times as many of max_jobs as are left for the
 * others), or all are in use. Counts jobs added by this function that have not been returned yet.
 */
int textpool_add(struct textpool *pool, struct textpool_job *job);
/* Adds a follow-up job of an admitted request; never refused. */
void textpool_again(struct textpool *pool, struct textpool_job *job);
/* Wakes the pool for the brief jobs that were added. */
void textpool_kick(struct textpool *pool);
/* True: it had not started, and the owner has it again without done(). */
bool textpool_drop(struct textpool *pool, struct textpool_job *job);

int textpool_fd(const struct textpool *pool);
void textpool_dispatch(struct textpool *pool);

#endif
