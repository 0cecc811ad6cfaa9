/* SPDX-License-Identifier: MIT */
/*
 * Threads that find out what the constraints of requests allow (struct engine_constraint_ops), so
 * that a grammar that takes milliseconds a token holds up its own sequence only.
 *
 * A sequence has one job: to accept the token that was chosen last and to find the next mask.
 *
 *	idle ---submit---> waiting ---a worker---> working ---> idle, done is set, notify() is called
 *	     ---end------> ended   ---a worker---> the constraint is freed
 *
 * Whoever is ended while it waits or works is freed likewise. From submit or end until a worker is
 * through with it, a job holds a reference to its request.
 *
 * Shares: of the users whose jobs wait, the one goes next that occupies the fewest workers, then the
 * one whose jobs took the least CPU time. No user occupies all workers. A user who comes back after idling is lifted to the least
 * of the active ones, or to the one who was served last.
 *
 * Threads: submit, wait and end are the engine thread's; so are the results once done is set.
 */
#ifndef TXDA_ENGINE_MASK_WORKERS_H
#define TXDA_ENGINE_MASK_WORKERS_H

#include "engine.h"

struct mask_workers;

/* Part of a sequence; zero at first. */
struct mask_job {
	/* Set before mask_workers_submit(), the request before anything. */
	struct engine_request *request;
	int32_t token; /* to be accepted first; -1: none */
	bool last;     /* no token follows: the mask is not needed */

	/* The results; valid while @done is set, the mask until the next submit. */
	atomic_bool done;
	int error; /* -errno of the constraint, which has the words */
	bool over; /* nothing may follow */
	struct engine_mask mask;

	/* The workers' own. */
	enum { MASK_JOB_IDLE, MASK_JOB_WAITING, MASK_JOB_WORKING } state;
	bool ended;
	unsigned user;
	struct mask_job *prev, *next;
};

/*
 * Starts the threads. @max_jobs: most that wait at a time. @notify is called from a worker after
 * each job that is done.
 */
int mask_workers_new(unsigned max_jobs, void (*notify)(void *arg), void *arg,
		     struct mask_workers **ret);
/* Ends the threads; all jobs must have been ended before. NULL is accepted. */
void mask_workers_free(struct mask_workers *w);

void mask_workers_submit(struct mask_workers *w, struct mask_job *job);
/* Waits until the job is done, until @deadline_ns (CLOCK_MONOTONIC) at most; whether it is. */
bool mask_workers_wait(struct mask_workers *w, struct mask_job *job, uint64_t deadline_ns);
/* The request has ended: frees its constraint, once a job at hand is through. */
void mask_workers_end(struct mask_workers *w, struct mask_job *job);

#endif
