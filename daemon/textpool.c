// SPDX-License-Identifier: MIT
#include "textpool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_THREADS 16

struct job_list {
	struct textpool_job *first, **end;
};

struct textpool {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job_list waiting, finished; /* under lock */
	unsigned n_jobs, max_jobs;	   /* loop's thread only; waiting, running or finished */
	bool stop;			   /* under lock */
	int fd;
	unsigned n_threads;
	pthread_t threads[MAX_THREADS];
};

static void list_init(struct job_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

static void list_append(struct job_list *list, struct textpool_job *job)
{
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
}

static struct textpool_job *list_pop(struct job_list *list)
{
	struct textpool_job *job = list->first;

	if (job && !(list->first = job->next))
		list->end = &list->first;
	return job;
}

static void *work(void *arg)
{
	struct textpool *pool = arg;
	struct textpool_job *job;
	const uint64_t one = 1;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		job = list_pop(&pool->waiting);
		if (!job) {
			pthread_cond_wait(&pool->wake, &pool->lock);
			continue;
		}
		pthread_mutex_unlock(&pool->lock);
		job->run(job);
		pthread_mutex_lock(&pool->lock);
		list_append(&pool->finished, job);
		/* Fails only when the counter is full, and then the loop is awake anyway. */
		if (write(pool->fd, &one, sizeof(one)) < 0)
			continue;
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int textpool_new(unsigned n_threads, unsigned max_jobs, struct textpool **ret)
{
	struct textpool *pool = calloc(1, sizeof(*pool));
	int err = 0;

	if (!pool)
		return -ENOMEM;
	pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (pool->fd < 0) {
		err = -errno;
		free(pool);
		return err;
	}
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	list_init(&pool->waiting);
	list_init(&pool->finished);
	pool->max_jobs = max_jobs;
	while (pool->n_threads < n_threads && pool->n_threads < MAX_THREADS) {
		err = -pthread_create(&pool->threads[pool->n_threads], NULL, work, pool);
		if (err) {
			textpool_free(pool);
			return err;
		}
		pool->n_threads++;
	}
	*ret = pool;
	return 0;
}

void textpool_free(struct textpool *pool)
{
	struct textpool_job *job;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->n_threads; i++)
		pthread_join(pool->threads[i], NULL);
	while ((job = list_pop(&pool->finished)) || (job = list_pop(&pool->waiting)))
		job->done(job);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	close(pool->fd);
	free(pool);
}

int textpool_add(struct textpool *pool, struct textpool_job *job)
{
	if (pool->n_jobs == pool->max_jobs)
		return -EAGAIN;
	pool->n_jobs++;
	pthread_mutex_lock(&pool->lock);
	list_append(&pool->waiting, job);
	pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int textpool_fd(const struct textpool *pool)
{
	return pool->fd;
}

void textpool_dispatch(struct textpool *pool)
{
	struct job_list jobs;
	struct textpool_job *job;
	uint64_t count;

	if (read(pool->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	pthread_mutex_lock(&pool->lock);
	list_init(&jobs);
	if (pool->finished.first) {
		jobs = pool->finished;
		list_init(&pool->finished);
	}
	pthread_mutex_unlock(&pool->lock);
	while ((job = jobs.first)) {
		jobs.first = job->next;
		pool->n_jobs--;
		job->done(job);
	}
}
