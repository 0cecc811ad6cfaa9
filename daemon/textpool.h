/* SPDX-License-Identifier: MIT */
/*
 * Threads for work on text (JSON, templates, tokens, grammars), which would hold up the event loop.
 *
 * The loop's thread adds jobs and gets them back from textpool_dispatch() when textpool_fd() is
 * readable. Each user has a queue of its own, and the users take turns. A job is
 *
 *	brief	when its time is bounded, as for the next events of a stream: one thread does
 *		nothing else, so that such jobs never wait for others than their like;
 *	long	otherwise. One user's run in all but one of the other threads at most, so that
 *		whoever sends work that takes for ever leaves one to the others.
 *
 * Jobs of one user that are of one sort begin in the order in which they were added. Brief ones are
 * for a step of the engine, of whose sequences many have something to say at once: the pool is woken
 * once for all of them (textpool_kick()), and so is the loop.
 */
#ifndef TXDA_DAEMON_TEXTPOOL_H
#define TXDA_DAEMON_TEXTPOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#define TEXTPOOL_DAEMON ((uid_t)-2) /* the user of the daemon's own jobs */

struct textpool;
struct textpool_share;

struct textpool_job {
	uid_t user;
	bool brief;
	uint64_t deadline_ns;			/* CLOCK_MONOTONIC: not begun after that; 0: none */
	void (*run)(struct textpool_job *job);	/* in a pool thread */
	void (*done)(struct textpool_job *job); /* the loop's thread; it is the owner's again */
	bool ran;				/* for done(): false: too late, or the pool ends */

	/* The pool's own. */
	bool admitted, waits;
	struct textpool_share *share;
	TAILQ_ENTRY(textpool_job) link;
};

/* 0, or -errno of pthread_create(3) and eventfd(2). */
int textpool_new(unsigned n_threads, unsigned max_jobs, struct textpool **ret);
/* Waits for the jobs that run; done() is called for all that are left. NULL is accepted. */
void textpool_free(struct textpool *pool);

/*
 * -EAGAIN: of max_jobs the user has three times as many as are left for the others, or all are
 * taken. Counted are those that were added so and did not come back yet.
 */
int textpool_add(struct textpool *pool, struct textpool_job *job);
/* Further work for what was let in; never refused. */
void textpool_again(struct textpool *pool, struct textpool_job *job);
/* Wakes the pool for the brief jobs that were added. */
void textpool_kick(struct textpool *pool);
/* True: it had not begun, and is the owner's again without done(). */
bool textpool_drop(struct textpool *pool, struct textpool_job *job);

int textpool_fd(const struct textpool *pool);
void textpool_dispatch(struct textpool *pool);

#endif
