// SPDX-License-Identifier: MIT
#include "textpool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "priority.h"

#define BATCH	 64	/* brief jobs per wake-up */
#define BATCH_NS 500000 /* maximum delay before the loop is woken for finished jobs */
#define PAYERS	 64	/* users of whom is known what they used */

TAILQ_HEAD(job_list, textpool_job);

/* The jobs of one user. */
struct textpool_share {
	user_id user;
	struct job_list waiting[2]; /* by job->brief */
	unsigned n_jobs, n_admitted;
	unsigned running; /* number of long ones running */
	TAILQ_ENTRY(textpool_share) link;
};

TAILQ_HEAD(share_list, textpool_share);

/* A user's long jobs are paid for, by the passing time, until @paid_ns. */
struct payer {
	user_id user;
	uint64_t paid_ns;
};

/* When a user last added a job. */
struct visit {
	user_id user;
	uint64_t ns; /* 0: none */
};

struct textpool {
	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t wake, wake_brief;
	struct share_list shares;    /* users with jobs, in the order of their turns */
	struct textpool_share spare; /* for users whose entry could not be allocated */
	struct job_list finished;
	unsigned n_unannounced; /* finished jobs for which the loop was not woken yet */
	uint64_t finished_ns;	/* when the first of those finished */
	unsigned n_brief;	/* waiting */
	unsigned n_admitted, max_jobs;
	bool stop;
	int fd;
	unsigned n_threads, n_base, max_threads;
	unsigned n_running; /* long jobs */
	struct payer payers[PAYERS];
	struct visit visits[2]; /* of the two last users, the last one first */
	bool has_priorities;
	pthread_t *
		threads; /* [max_threads]; the first is for brief jobs, unless it is the only one */
};

/* ---- shares ---------------------------------------------------------------------------------- */

static struct textpool_share *find_share(const struct textpool *pool, user_id user)
{
	struct textpool_share *s;

	TAILQ_FOREACH(s, &pool->shares, link) {
		if (s->user == user && s != &pool->spare)
			return s;
	}
	return NULL;
}

static struct textpool_share *take_share(struct textpool *pool, user_id user)
{
	struct textpool_share *s = find_share(pool, user);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			s = &pool->spare;
		if (!s->n_jobs) {
			s->user = user;
			TAILQ_INIT(&s->waiting[false]);
			TAILQ_INIT(&s->waiting[true]);
			TAILQ_INSERT_TAIL(&pool->shares, s, link);
		}
	}
	s->n_jobs++;
	return s;
}

/* Removes the job from the pool. */
static void leave(struct textpool *pool, struct textpool_job *job)
{
	struct textpool_share *s = job->share;

	s->n_admitted -= job->admitted;
	pool->n_admitted -= job->admitted;
	job->share = NULL;
	if (--s->n_jobs)
		return;
	TAILQ_REMOVE(&pool->shares, s, link);
	if (s != &pool->spare)
		free(s);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void note_visit(struct textpool *pool, user_id user)
{
	if (pool->visits[0].user != user || !pool->visits[0].ns) {
		pool->visits[1] = pool->visits[0];
		pool->visits[0].user = user;
	}
	pool->visits[0].ns = clock_ns();
}

/* Whether others than the user have work for the daemon. */
static bool has_others(const struct textpool *pool, user_id user, uint64_t now)
{
	const struct visit *v = &pool->visits[pool->visits[0].user == user];
	const struct textpool_share *s;

	TAILQ_FOREACH(s, &pool->shares, link) {
		if (s->user != user)
			return true;
	}
	return v->ns && now - v->ns < TEXTPOOL_NEAR_NS;
}

/* The user's entry, or that of the one who used least of late. */
static unsigned find_payer(const struct textpool *pool, user_id user)
{
	unsigned least = 0;

	for (unsigned i = 0; i < PAYERS; i++) {
		const struct payer *p = &pool->payers[i];

		if (p->paid_ns && p->user == user)
			return i;
		if (p->paid_ns < pool->payers[least].paid_ns)
			least = i;
	}
	return least;
}

/* The time until which the user has paid, at least as long ago as a burst takes to be earned. */
static uint64_t paid_until(const struct textpool *pool, user_id user, uint64_t now)
{
	const uint64_t earned = TEXTPOOL_PART * TEXTPOOL_BURST_NS;
	const struct payer *p = &pool->payers[find_payer(pool, user)];
	uint64_t least = now > earned ? now - earned : 1;

	return p->user == user && p->paid_ns > least ? p->paid_ns : least;
}

static void charge(struct textpool *pool, user_id user, uint64_t now, uint64_t spent)
{
	uint64_t paid = paid_until(pool, user, now) + TEXTPOOL_PART * spent;

	pool->payers[find_payer(pool, user)] = (struct payer){
		.user = user,
		.paid_ns = paid < now + TEXTPOOL_DEBT_NS ? paid : now + TEXTPOOL_DEBT_NS,
	};
}

/* For job->low_ns. */
static uint64_t low_from(const struct textpool *pool, const struct textpool_job *job, uint64_t now)
{
	uint64_t paid;

	if (!pool->has_priorities || job->brief || !has_others(pool, job->user, now))
		return 0;
	paid = paid_until(pool, job->user, now);
	return paid < now ? now + (now - paid) / TEXTPOOL_PART : now;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void unqueue(struct textpool *pool, struct textpool_job *job)
{
	TAILQ_REMOVE(&job->share->waiting[job->brief], job, link);
	pool->n_brief -= job->brief;
	job->waits = false;
}

static void count_running(struct textpool *pool, const struct textpool_job *job, int n)
{
	if (job->brief)
		return;
	job->share->running += (unsigned)n;
	pool->n_running += (unsigned)n;
}

/* Threads for long jobs. */
static unsigned for_long(unsigned threads)
{
	return threads > 1 ? threads - 1 : 1;
}

/*
 * Whether a long job of the user may run: threads beyond the initial ones are for users who have
 * none.
 */
static bool may_run(const struct textpool *pool, const struct textpool_share *s)
{
	unsigned most = pool->n_base > 2 ? pool->n_base - 2 : 1;

	if (s->running && !pool->has_priorities) {
		uint64_t now = clock_ns();

		if (has_others(pool, s->user, now) && paid_until(pool, s->user, now) >= now)
			return false;
	}
	return !s->running || (s->running < most && pool->n_running < for_long(pool->n_base));
}

/* The next job, from the user whose turn it is. */
static struct textpool_job *pick(struct textpool *pool, bool brief_only)
{
	struct textpool_share *s;

	TAILQ_FOREACH(s, &pool->shares, link) {
		struct textpool_job *job = NULL;

		if (!brief_only && may_run(pool, s))
			job = TAILQ_FIRST(&s->waiting[false]);
		if (!job)
			job = TAILQ_FIRST(&s->waiting[true]);
		if (!job)
			continue;
		unqueue(pool, job);
		count_running(pool, job, 1);
		TAILQ_REMOVE(&pool->shares, s, link);
		TAILQ_INSERT_TAIL(&pool->shares, s, link);
		return job;
	}
	return NULL;
}

static bool is_late(const struct textpool_job *job)
{
	return job->deadline_ns && clock_ns() >= job->deadline_ns;
}

/* Wakes the loop for finished jobs, unless the next job will finish soon, too. */
static void announce(struct textpool *pool, const struct textpool_job *next)
{
	const uint64_t one = 1;

	if (!pool->n_unannounced || (next && next->brief && pool->n_unannounced < BATCH &&
				     clock_ns() - pool->finished_ns < BATCH_NS))
		return;
	/* Fails only when the counter is full, and then the loop has been woken anyway. */
	if (write(pool->fd, &one, sizeof(one)) == sizeof(one))
		pool->n_unannounced = 0;
}

static void run(struct textpool *pool, struct textpool_job *job)
{
	uint64_t start = job->brief ? 0 : clock_ns();

	job->low_ns = low_from(pool, job, start);
	pthread_mutex_unlock(&pool->lock);
	job->ran = !is_late(job);
	if (job->ran)
		job->run(job);
	pthread_mutex_lock(&pool->lock);
	if (!job->brief) {
		uint64_t now = clock_ns();

		charge(pool, job->user, now, now - start);
	}
	count_running(pool, job, -1);
	TAILQ_INSERT_TAIL(&pool->finished, job, link);
	if (!pool->n_unannounced++)
		pool->finished_ns = clock_ns();
}

static void *work(void *arg)
{
	struct textpool *pool = arg;
	bool brief_only;

	pthread_mutex_lock(&pool->lock);
	brief_only = pool->n_threads > 1 && pthread_equal(pthread_self(), pool->threads[0]);
	while (!pool->stop) {
		struct textpool_job *job = pick(pool, brief_only);

		announce(pool, job);
		if (job)
			run(pool, job);
		else
			pthread_cond_wait(brief_only ? &pool->wake_brief : &pool->wake,
					  &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int add_thread(struct textpool *pool)
{
	int err = -pthread_create(&pool->threads[pool->n_threads], NULL, work, pool);

	pool->n_threads += !err;
	return err;
}

int textpool_new(unsigned n_threads, unsigned max_threads, unsigned max_jobs, struct textpool **ret)
{
	struct textpool *pool = calloc(1, sizeof(*pool));
	int err = 0;

	if (!pool)
		return -ENOMEM;
	pool->n_base = n_threads;
	pool->max_threads = max_threads > n_threads ? max_threads : n_threads;
	pool->threads = calloc(pool->max_threads, sizeof(*pool->threads));
	pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (pool->fd < 0 || !pool->threads) {
		err = pool->fd < 0 ? -errno : -ENOMEM;
		if (pool->fd >= 0)
			close(pool->fd);
		free(pool->threads);
		free(pool);
		return err;
	}
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pthread_cond_init(&pool->wake_brief, NULL);
	TAILQ_INIT(&pool->shares);
	TAILQ_INIT(&pool->finished);
	pool->max_jobs = max_jobs;
	pool->has_priorities = priority_works();
	/* The threads wait until all exist, since their roles depend on the number. */
	pthread_mutex_lock(&pool->lock);
	while (pool->n_threads < n_threads && !err)
		err = add_thread(pool);
	pthread_mutex_unlock(&pool->lock);
	if (err) {
		textpool_free(pool);
		return err;
	}
	*ret = pool;
	return 0;
}

/* Returns finished jobs and, at shutdown, those that never started. False: there were none. */
static bool give_back(struct textpool *pool, bool all)
{
	struct job_list jobs = TAILQ_HEAD_INITIALIZER(jobs);
	struct textpool_job *job;

	pthread_mutex_lock(&pool->lock);
	while (all && (job = pick(pool, false))) {
		count_running(pool, job, -1);
		job->ran = false;
		TAILQ_INSERT_TAIL(&pool->finished, job, link);
	}
	TAILQ_CONCAT(&jobs, &pool->finished, link);
	TAILQ_FOREACH(job, &jobs, link)
		leave(pool, job);
	pthread_mutex_unlock(&pool->lock);
	if (TAILQ_EMPTY(&jobs))
		return false;
	while ((job = TAILQ_FIRST(&jobs))) {
		TAILQ_REMOVE(&jobs, job, link);
		job->done(job);
	}
	return true;
}

void textpool_free(struct textpool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_cond_broadcast(&pool->wake_brief);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->n_threads; i++)
		pthread_join(pool->threads[i], NULL);
	while (give_back(pool, true))
		;
	pthread_cond_destroy(&pool->wake);
	pthread_cond_destroy(&pool->wake_brief);
	pthread_mutex_destroy(&pool->lock);
	close(pool->fd);
	free(pool->threads);
	free(pool);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Whether a user who has no thread would have to wait for one. */
static bool lacks_thread(const struct textpool *pool)
{
	const struct textpool_share *s;
	unsigned needed = pool->n_running;

	TAILQ_FOREACH(s, &pool->shares, link) {
		needed += !s->running && !TAILQ_EMPTY(&s->waiting[false]);
	}
	return needed > for_long(pool->n_threads) && pool->n_threads < pool->max_threads;
}

/* The lock must be held. */
static void queue(struct textpool *pool, struct textpool_job *job, bool admitted)
{
	struct textpool_share *s = take_share(pool, job->user);

	note_visit(pool, job->user);
	job->share = s;
	job->admitted = admitted;
	s->n_admitted += admitted;
	pool->n_admitted += admitted;
	TAILQ_INSERT_TAIL(&s->waiting[job->brief], job, link);
	job->waits = true;
	pool->n_brief += job->brief;
	if (job->brief)
		return;
	/* If no thread can be created the job waits. */
	if (lacks_thread(pool))
		add_thread(pool);
	pthread_cond_signal(&pool->wake);
}

int textpool_add(struct textpool *pool, struct textpool_job *job)
{
	const struct textpool_share *s;
	unsigned left;
	bool full;

	pthread_mutex_lock(&pool->lock);
	s = find_share(pool, job->user);
	left = pool->max_jobs - pool->n_admitted;
	full = !left || (s && s->n_admitted >= 3 * (uint64_t)left);
	if (!full)
		queue(pool, job, true);
	pthread_mutex_unlock(&pool->lock);
	return full ? -EAGAIN : 0;
}

void textpool_again(struct textpool *pool, struct textpool_job *job)
{
	pthread_mutex_lock(&pool->lock);
	queue(pool, job, false);
	pthread_mutex_unlock(&pool->lock);
}

void textpool_kick(struct textpool *pool)
{
	unsigned n;

	pthread_mutex_lock(&pool->lock);
	n = pool->n_brief;
	if (n && pool->n_threads > 1) {
		pthread_cond_signal(&pool->wake_brief);
		n = n > BATCH ? n - BATCH : 0;
	}
	for (; n; n = n > BATCH ? n - BATCH : 0)
		pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
}

bool textpool_drop(struct textpool *pool, struct textpool_job *job)
{
	bool waits;

	pthread_mutex_lock(&pool->lock);
	waits = job->waits;
	if (waits) {
		unqueue(pool, job);
		leave(pool, job);
	}
	pthread_mutex_unlock(&pool->lock);
	return waits;
}

int textpool_fd(const struct textpool *pool)
{
	return pool->fd;
}

void textpool_dispatch(struct textpool *pool)
{
	uint64_t count;

	/* Before taking the list, so that a job finished later makes the fd readable again. */
	if (read(pool->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	give_back(pool, false);
}
