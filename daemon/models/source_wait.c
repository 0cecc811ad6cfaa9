// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "source.h"

/* Freed by whoever of both is last. */
struct look {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done, given_up; /* under lock */
	struct txda_context *context;
	struct model_spec spec;
	struct model_found found;
	int result;
	char err[512];
};

static void free_look(struct look *l)
{
	txda_context_unref(l->context);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *run(void *arg)
{
	struct look *l = arg;
	bool last;

	l->result = source_look(l->context, &l->spec, &l->found, l->err, sizeof(l->err));
	pthread_mutex_lock(&l->lock);
	l->done = true;
	last = l->given_up;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (last)
		free_look(l);
	return NULL;
}

static struct look *new_look(struct txda_context *context, const struct model_spec *spec)
{
	struct look *l = calloc(1, sizeof(*l));
	pthread_condattr_t clock;

	if (!l)
		return NULL;
	l->context = txda_context_ref(context);
	l->spec = *spec;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &clock);
	pthread_condattr_destroy(&clock);
	return l;
}

/* Whether it has ended in time; if not, it belongs to its thread. */
static bool await(struct look *l, unsigned ms)
{
	uint64_t end = clock_ns() + ms * 1000000ull;
	const struct timespec until = {.tv_sec = (time_t)(end / 1000000000),
				       .tv_nsec = (long)(end % 1000000000)};
	bool done;
	int r = 0;

	pthread_mutex_lock(&l->lock);
	while (!l->done && !r)
		r = pthread_cond_timedwait(&l->changed, &l->lock, &until);
	done = l->done;
	l->given_up = !done;
	pthread_mutex_unlock(&l->lock);
	return done;
}

int source_look_within(struct txda_context *context, const struct model_spec *spec, unsigned ms,
		       struct model_found *ret, char *err, size_t errlen)
{
	struct look *l = new_look(context, spec);
	pthread_t thread;
	int r = l ? -pthread_create(&thread, NULL, run, l) : -ENOMEM;

	if (r) {
		snprintf(err, errlen, "cannot look at %.400s: %s", spec->path, strerror(-r));
		if (l)
			free_look(l);
		return r;
	}
	if (!await(l, ms)) {
		pthread_detach(thread);
		snprintf(err, errlen, "%.400s: its file system did not answer within %u ms",
			 spec->path, ms);
		return -ETIMEDOUT;
	}
	pthread_join(thread, NULL);
	r = l->result;
	*ret = l->found;
	snprintf(err, errlen, "%s", l->err);
	free_look(l);
	return r;
}
