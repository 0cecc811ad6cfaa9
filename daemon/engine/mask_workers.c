// SPDX-License-Identifier: MIT
#include "mask_workers.h"
#include "clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 8

struct user {
	user_id uid;
	unsigned working;	       /* jobs */
	uint64_t spent_ns;	       /* CPU time of its jobs, possibly raised */
	struct mask_job *first, *last; /* waiting */
};

struct mask_workers {
	void (*notify)(void *arg);
	void *arg;
	pthread_t threads[MAX_THREADS];
	unsigned n_threads;

	pthread_mutex_t lock;
	pthread_cond_t work, done;
	bool stopping;
	struct mask_job *ended; /* to be freed, linked by next */
	uint64_t last_spent_ns; /* the user who was served last */
	unsigned n_users, max_users;
	unsigned most;	    /* maximum number of workers per user */
	struct user *users; /* [max_users] */
};

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- users; the lock is held ----------------------------------------------------------------- */

static bool is_active(const struct user *user)
{
	return user->first || user->working;
}

/* The entry of @uid; a new one replaces that of the idle user with the least CPU time. */
static unsigned find_user(struct mask_workers *w, user_id uid)
{
	unsigned spare = w->max_users;

	for (unsigned i = 0; i < w->n_users; i++) {
		if (w->users[i].uid == uid)
			return i;
		if (!is_active(&w->users[i]) &&
		    (spare == w->max_users || w->users[i].spent_ns < w->users[spare].spent_ns))
			spare = i;
	}
	if (w->n_users < w->max_users)
		spare = w->n_users++;
	w->users[spare] = (struct user){.uid = uid};
	return spare;
}

/* Idle time is not credited to a returning user. */
static void lift(struct mask_workers *w, struct user *user)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < w->n_users; i++) {
		if (is_active(&w->users[i]) && w->users[i].spent_ns < least)
			least = w->users[i].spent_ns;
	}
	if (least == UINT64_MAX)
		least = w->last_spent_ns;
	if (user->spent_ns < least)
		user->spent_ns = least;
}

static void unlink_job(struct mask_workers *w, struct mask_job *job)
{
	struct user *user = &w->users[job->user];

	*(job->prev ? &job->prev->next : &user->first) = job->next;
	*(job->next ? &job->next->prev : &user->last) = job->prev;
}

/* The next job, or NULL. One worker is reserved for other users. */
static struct mask_job *next_job(struct mask_workers *w)
{
	const struct user *best = NULL;

	for (unsigned i = 0; i < w->n_users; i++) {
		const struct user *user = &w->users[i];

		if (user->first && user->working < w->most &&
		    (!best || user->working < best->working ||
		     (user->working == best->working && user->spent_ns < best->spent_ns)))
			best = user;
	}
	return best ? best->first : NULL;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static void compute(struct mask_job *job)
{
	struct engine_constraint *c = job->request->constraint;

	job->over = false;
	job->error = 0;
	if (job->token >= 0) {
		job->error = c->ops->accept(c, job->token);
		job->over = job->error > 0;
		job->error = job->over ? 0 : job->error;
	}
	if (!job->error && !job->over && !job->last)
		job->error = c->ops->mask(c, &job->mask);
}

static void free_constraint(struct engine_request *r)
{
	r->constraint->ops->free(r->constraint);
	r->constraint = NULL;
	engine_request_unref(r);
}

/* Unlocks while it works. */
static void work(struct mask_workers *w, struct mask_job *job)
{
	struct engine_request *r = job->request;
	struct user *user = &w->users[job->user];
	uint64_t start = cpu_ns();

	unlink_job(w, job);
	job->state = MASK_JOB_WORKING;
	user->working++;
	pthread_mutex_unlock(&w->lock);
	compute(job);
	pthread_mutex_lock(&w->lock);
	user->working--;
	user->spent_ns += cpu_ns() - start;
	w->last_spent_ns = user->spent_ns;
	job->state = MASK_JOB_IDLE;
	if (job->ended) {
		pthread_mutex_unlock(&w->lock);
		free_constraint(r);
	} else {
		/* From here on the job belongs to the engine thread. */
		atomic_store_explicit(&job->done, true, memory_order_release);
		pthread_cond_broadcast(&w->done);
		pthread_mutex_unlock(&w->lock);
		w->notify(w->arg);
		engine_request_unref(r);
	}
	pthread_mutex_lock(&w->lock);
}

static void *worker(void *arg)
{
	struct mask_workers *w = arg;
	struct mask_job *job;

	pthread_setname_np(pthread_self(), "txda-masks");
	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		job = w->ended;
		if (job) {
			w->ended = job->next;
			pthread_mutex_unlock(&w->lock);
			free_constraint(job->request);
			pthread_mutex_lock(&w->lock);
			continue;
		}
		job = next_job(w);
		if (job)
			work(w, job);
		else
			pthread_cond_wait(&w->work, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* ---- the engine thread's side ---------------------------------------------------------------- */

void mask_workers_submit(struct mask_workers *w, struct mask_job *job)
{
	struct user *user;

	engine_request_ref(job->request);
	atomic_store_explicit(&job->done, false, memory_order_relaxed);
	pthread_mutex_lock(&w->lock);
	job->user = find_user(w, job->request->uid);
	user = &w->users[job->user];
	if (!is_active(user))
		lift(w, user);
	job->state = MASK_JOB_WAITING;
	job->prev = user->last;
	job->next = NULL;
	*(job->prev ? &job->prev->next : &user->first) = job;
	user->last = job;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

bool mask_workers_wait(struct mask_workers *w, struct mask_job *job, uint64_t deadline_ns)
{
	const struct timespec deadline = {(time_t)(deadline_ns / NS_PER_S),
					  (long)(deadline_ns % NS_PER_S)};
	int error = 0;

	pthread_mutex_lock(&w->lock);
	while (!atomic_load_explicit(&job->done, memory_order_acquire) && !error)
		error = pthread_cond_timedwait(&w->done, &w->lock, &deadline);
	pthread_mutex_unlock(&w->lock);
	return atomic_load_explicit(&job->done, memory_order_acquire);
}

void mask_workers_end(struct mask_workers *w, struct mask_job *job)
{
	pthread_mutex_lock(&w->lock);
	job->ended = true;
	if (job->state == MASK_JOB_IDLE)
		engine_request_ref(job->request);
	else if (job->state == MASK_JOB_WAITING)
		unlink_job(w, job);
	if (job->state != MASK_JOB_WORKING) {
		job->next = w->ended;
		w->ended = job;
		pthread_cond_signal(&w->work);
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

/*
 * Half as many as there are CPUs: the others are for the engine, the clients and a device model. At
 * least two, so that one user's long job leaves one to the others.
 */
static unsigned thread_count(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	return n < 2 ? 2 : n > MAX_THREADS ? MAX_THREADS : (unsigned)n;
}

int mask_workers_new(unsigned max_jobs, void (*notify)(void *arg), void *arg,
		     struct mask_workers **ret)
{
	struct mask_workers *w = calloc(1, sizeof(*w));
	pthread_condattr_t monotonic;
	sigset_t all, old;
	int error = 0;

	if (!w)
		return -ENOMEM;
	w->notify = notify;
	w->arg = arg;
	w->max_users = max_jobs + MAX_THREADS;
	w->most = thread_count() - 1;
	w->users = calloc(w->max_users, sizeof(*w->users));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* Signals are handled by the daemon's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (w->users && !error && w->n_threads < thread_count()) {
		error = -pthread_create(&w->threads[w->n_threads], NULL, worker, w);
		w->n_threads += !error;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!w->n_threads) {
		mask_workers_free(w);
		return error ? error : -ENOMEM;
	}
	*ret = w;
	return 0;
}

void mask_workers_free(struct mask_workers *w)
{
	struct mask_job *job;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	while ((job = w->ended)) {
		w->ended = job->next;
		free_constraint(job->request);
	}
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->done);
	free(w->users);
	free(w);
}
