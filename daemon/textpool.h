/* SPDX-License-Identifier: MIT */
/*
 * A few threads for work on text (JSON, templates, tokens) that would hold up the event loop.
 *
 * The loop's thread adds jobs, a pool thread runs them in order of arrival, and the loop's thread
 * gets them back from textpool_dispatch() when textpool_fd() is readable.
 */
#ifndef TXDA_DAEMON_TEXTPOOL_H
#define TXDA_DAEMON_TEXTPOOL_H

struct textpool;

struct textpool_job {
	void (*run)(struct textpool_job *job); /* in a pool thread */
	void (*done)(
		struct textpool_job *job); /* in the loop's thread; the job is the owner's again */
	struct textpool_job *next;	   /* the pool's own */
};

/* 0, or -errno of pthread_create(3) and eventfd(2). */
int textpool_new(unsigned n_threads, unsigned max_jobs, struct textpool **ret);
/* Waits for the jobs that run; done() is called for all that are left, run or not. NULL is
 * accepted. */
void textpool_free(struct textpool *pool);

/* -EAGAIN: max_jobs are queued or running already. */
int textpool_add(struct textpool *pool, struct textpool_job *job);

int textpool_fd(const struct textpool *pool);
void textpool_dispatch(struct textpool *pool);

#endif
