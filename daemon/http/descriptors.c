// SPDX-License-Identifier: MIT
#include "descriptors.h"
#include "clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define END_SECONDS  2 /* how long shutdown waits for sets that are still to be closed */
#define SLOW_SECONDS 1 /* after this time another thread takes over the remaining sets */
#define SHARES	     1024
#define PEEK_BYTES   65536 /* that a closed connection has unread; more is left to the threads */
/* Threads that one user's sets may keep busy: a FUSE file closes when it likes. */
#define BUSY_PER_USER 3

struct descriptors {
	atomic_uint refs, held, connections;
	atomic_uint shares[SHARES];  /* held by users, by uid modulo SHARES */
	atomic_uint closing[SHARES]; /* connections of these users that wait to be closed */
	unsigned limit;
	pthread_mutex_t lock;
	pthread_cond_t work, over;
	struct descriptor_set *first, **last;
	unsigned n_threads, n_busy;
	unsigned char busy[SHARES]; /* threads at work on sets of these users */
	unsigned at_work;	    /* number of the thread that currently takes sets; 0: none */
	unsigned last_number;	    /* of a thread */
	struct timespec overdue;    /* when another thread takes over */
	bool ending, abandoned;
};

static void destroy(struct descriptors *d)
{
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->work);
	pthread_cond_destroy(&d->over);
	free(d);
}

static void close_any(int fd)
{
	const struct linger none = {0};

	/*
	 * Disables lingering, so that close() does not wait for the peer. Non-sockets return an
	 * error, which is ignored.
	 */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(fd);
}

static void close_all(const struct cmsghdr *c)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	int fd;

	if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	for (size_t i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		close_any(fd);
	}
}

/* Closes descriptors still queued in a socket that was shut down. */
static void drain(int socket)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS_AT_ONCE * sizeof(int))];
	} control;
	char buf[16384];
	ssize_t got;

	do {
		struct iovec iov = {.iov_base = buf, .iov_len = sizeof(buf)};
		struct msghdr msg = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes),
		};
		struct cmsghdr *c = NULL;

		got = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (got > 0)
			c = CMSG_FIRSTHDR(&msg);
		for (; c; c = CMSG_NXTHDR(&msg, c))
			close_all(c);
	} while (got > 0);
}

static atomic_uint *share_of(struct descriptors *d, user_id uid)
{
	return &d->shares[uid % SHARES];
}

static void let_go(struct descriptors *d, struct descriptor_set *set)
{
	if (set->connection)
		drain(set->fds[0]);
	for (unsigned i = 0; i < set->n_maps; i++)
		munmap(set->maps[i].ptr, set->maps[i].len);
	for (unsigned i = 0; i < set->n_fds; i++) {
		close_any(set->fds[i]);
		atomic_fetch_sub(share_of(d, set->uid), 1);
		atomic_fetch_sub(&d->held, 1);
	}
	if (set->connection) {
		atomic_fetch_sub(&d->closing[set->uid % SHARES], 1);
		atomic_fetch_sub(&d->connections, 1);
	}
	free(set);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *closer(void *arg);

static int start_thread(struct descriptors *d)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Signals are handled by the daemon's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = -pthread_create(&thread, &attr, closer, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	d->n_threads += !error;
	return error;
}

static bool is_overdue(const struct descriptors *d)
{
	const struct timespec *t = &d->overdue;

	return clock_ns() >= (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* The first set of a user who may keep another thread; NULL: none. */
static struct descriptor_set **find_set(struct descriptors *d)
{
	struct descriptor_set **at = &d->first;

	while (*at && d->busy[(*at)->uid % SHARES] >= BUSY_PER_USER)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static struct descriptor_set *take_set(struct descriptors *d)
{
	struct descriptor_set **at = find_set(d), *set = *at;

	*at = set->next;
	if (!*at)
		d->last = at;
	return set;
}

/* Waits until there are sets and no other thread takes them; false: shutting down. */
static bool wait_for_work(struct descriptors *d, unsigned me)
{
	for (;;) {
		bool some = find_set(d);

		if (some && (!d->at_work || d->at_work == me || is_overdue(d)))
			return true;
		if (d->at_work == me)
			d->at_work = 0;
		if (some)
			pthread_cond_timedwait(&d->work, &d->lock, &d->overdue);
		else if (d->ending && !d->first)
			return false;
		else
			pthread_cond_wait(&d->work, &d->lock);
	}
}

/*
 * One thread closes one set after the other. Another one watches it and takes over when a set takes
 * too long.
 */
static void *closer(void *arg)
{
	struct descriptors *d = arg;
	struct descriptor_set *set;
	user_id uid;
	bool last;
	unsigned me;

	pthread_mutex_lock(&d->lock);
	me = ++d->last_number;
	while (wait_for_work(d, me)) {
		set = take_set(d);
		uid = set->uid;
		d->busy[uid % SHARES]++;
		d->at_work = me;
		clock_gettime(CLOCK_MONOTONIC, &d->overdue);
		d->overdue.tv_sec += SLOW_SECONDS;
		d->n_busy++;
		/* If no thread can be created, the existing ones carry on. */
		if (d->n_busy == d->n_threads && d->n_threads < DESCRIPTOR_THREADS)
			start_thread(d);
		pthread_mutex_unlock(&d->lock);
		let_go(d, set);
		pthread_mutex_lock(&d->lock);
		d->n_busy--;
		d->busy[uid % SHARES]--;
		/* Wakes threads that wait for the shutdown, or for this user. */
		pthread_cond_broadcast(&d->work);
	}
	last = !--d->n_threads;
	if (last)
		pthread_cond_signal(&d->over);
	last = last && d->abandoned;
	pthread_mutex_unlock(&d->lock);
	if (last)
		destroy(d);
	return NULL;
}

int descriptors_new(unsigned limit, struct descriptors **ret)
{
	struct descriptors *d = calloc(1, sizeof(*d));
	pthread_condattr_t attr;
	int error;

	if (!d)
		return -ENOMEM;
	d->limit = limit;
	d->last = &d->first;
	atomic_init(&d->refs, 1);
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->work, &attr);
	pthread_cond_init(&d->over, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&d->lock);
	error = start_thread(d);
	pthread_mutex_unlock(&d->lock);
	if (error) {
		destroy(d);
		return error;
	}
	*ret = d;
	return 0;
}

void descriptors_unref(struct descriptors *d)
{
	struct timespec deadline;
	bool over;

	/* Sets hold no reference once they have been passed to the threads. */
	if (!d || atomic_fetch_sub(&d->refs, 1) != 1)
		return;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += END_SECONDS;
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_broadcast(&d->work);
	while (d->n_threads && !pthread_cond_timedwait(&d->over, &d->lock, &deadline))
		;
	over = !d->n_threads;
	d->abandoned = !over;
	pthread_mutex_unlock(&d->lock);
	if (over)
		destroy(d);
}

unsigned descriptors_held(struct descriptors *d)
{
	return atomic_load(&d->held);
}

unsigned descriptors_connections(struct descriptors *d)
{
	return d ? atomic_load(&d->connections) : 0;
}

unsigned descriptors_closing(struct descriptors *d, user_id uid)
{
	return d ? atomic_load(&d->closing[uid % SHARES]) : 0;
}

unsigned descriptors_room(struct descriptors *d, user_id uid)
{
	unsigned long held = atomic_load(&d->held), own = atomic_load(share_of(d, uid));
	unsigned long left = held < d->limit ? d->limit - held : 0;

	/* A share: at most three times as many as would be left. */
	return own < 3 * left ? (unsigned)((3 * left - own + 3) / 4) : 0;
}

void descriptors_take(struct descriptors *d, user_id uid, unsigned n)
{
	atomic_fetch_add(share_of(d, uid), n);
	atomic_fetch_add(&d->held, n);
}

struct descriptor_set *descriptors_set(struct descriptors *d, user_id uid)
{
	struct descriptor_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->owner = d;
	set->uid = uid;
	atomic_fetch_add(&d->refs, 1);
	return set;
}

/*
 * Reads the data queued in a socket that was shut down, so that the peer sees end of file rather
 * than a reset. False: it may contain descriptors. Peeking without room for descriptors opens none,
 * stops at the first ones and reports their presence.
 */
static bool read_plain(int socket)
{
	char buf[PEEK_BYTES];
	struct iovec iov = {.iov_base = buf, .iov_len = sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t seen = recvmsg(socket, &msg, MSG_PEEK | MSG_DONTWAIT);

	if (seen <= 0)
		return true;
	if (msg.msg_flags & MSG_CTRUNC || seen == sizeof(buf))
		return false;
	return recv(socket, buf, (size_t)seen, MSG_DONTWAIT) == seen;
}

void descriptors_close(struct descriptors *d, user_id uid, int connection)
{
	struct descriptor_set *set = NULL;

	if (d && !shutdown(connection, SHUT_RDWR) && !read_plain(connection))
		set = descriptors_set(d, uid);
	if (!set) {
		close(connection);
		return;
	}
	set->connection = true;
	set->fds[set->n_fds++] = connection;
	atomic_fetch_add(&d->closing[uid % SHARES], 1);
	atomic_fetch_add(&d->connections, 1);
	descriptors_take(d, uid, 1);
	descriptors_discard(set);
}

void descriptors_discard(struct descriptor_set *set)
{
	struct descriptors *d;

	if (!set)
		return;
	d = set->owner;
	set->next = NULL;
	pthread_mutex_lock(&d->lock);
	*d->last = set;
	d->last = &set->next;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	descriptors_unref(d);
}
