/* SPDX-License-Identifier: MIT */
/*
 * Threads that compute the masks of requests' constraints (struct engine_constraint_ops), so that a
 * grammar that takes milliseconds per token delays only its own sequence.
 *
 * A sequence has one job: to accept the last chosen token and to compute the next mask.
 *
 *	idle ---submit---> waiting ---a worker---> working ---> idle, done is set, notify() is called
 *	     ---end------> ended   ---a worker---> the constraint is freed
 *
 * A job that is ended while waiting or working is freed in the same way. From submit or end until a
 * worker has finished with it, a job holds a reference to its request.
 *
 * Fair shares: among users with waiting jobs, the next is the one that occupies the fewest workers,
 * then the one whose jobs took the least CPU time. No user occupies all workers. The CPU time of a
 * user who returns after being idle is raised to the minimum of the active ones, or to that of the
 * user served last.
 *
 * Threads: submit, wait and end are called by the engine thread, which may read the results once
 * done is set.
 */
#ifndef TXDA_ENGINE_MASK_WORKERS_H
#define TXDA_ENGINE_MASK_WORKERS_H

#include "engine_request.h"

struct mask_workers;

/* Embedded in a sequence; initially zero. */
struct mask_job {
	/* Set before mask_workers_submit(), the request before any call. */
	struct engine_request *request;
	int32_t token; /* to be accepted first; -1: none */
	bool last;     /* no token follows: the mask is not needed */

	/* The results; valid while @done is set, the mask until the next submit. */
	atomic_bool done;
	int error; /* -errno of the constraint, which has the message */
	bool over; /* nothing may follow */
	struct engine_mask mask;

	/* Private to the workers. */
	enum { MASK_JOB_IDLE, MASK_JOB_WAITING, MASK_JOB_WORKING } state;
	bool ended;
	unsigned user;
	struct mask_job *prev, *next;
};

/*
 * Starts the threads. @max_jobs: maximum number of waiting jobs. @notify is called by a worker
 * after each finished job.
 */
int mask_workers_new(unsigned max_jobs, void (*notify)(void *arg), void *arg,
		     struct mask_workers **ret);
/* Stops the threads; all jobs must have been ended before. NULL is accepted. */
void mask_workers_free(struct mask_workers *w);

void mask_workers_submit(struct mask_workers *w, struct mask_job *job);
/*
 * Waits until the job is done, at most until @deadline_ns (CLOCK_MONOTONIC); returns whether it is.
 */
bool mask_workers_wait(struct mask_workers *w, struct mask_job *job, uint64_t deadline_ns);
/* The request has ended: frees its constraint, after a job in progress. */
void mask_workers_end(struct mask_workers *w, struct mask_job *job);

#endif
