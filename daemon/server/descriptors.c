// SPDX-License-Identifier: MIT
#include "descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>

#define END_SECONDS 2 /* that the end waits for what is still to be closed */

struct descriptors {
	atomic_uint refs, held;
	unsigned limit;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct descriptor_set *first, **last;
	bool ending;
};

static void release(struct descriptors *d)
{
	if (atomic_fetch_sub(&d->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->work);
	free(d);
}

static void close_any(int fd)
{
	const struct linger none = {0};

	/* A socket need not wait for its peer. What is none says so. */
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

/* Closes what still comes from a socket that was shut down. */
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

static void let_go(struct descriptors *d, struct descriptor_set *set)
{
	if (set->connection)
		drain(set->fds[0]);
	for (unsigned i = 0; i < set->n_maps; i++)
		munmap(set->maps[i].ptr, set->maps[i].len);
	for (unsigned i = 0; i < set->n_fds; i++) {
		close_any(set->fds[i]);
		atomic_fetch_sub(&d->held, 1);
	}
	free(set);
}

static void *closer(void *arg)
{
	struct descriptors *d = arg;

	pthread_mutex_lock(&d->lock);
	while (d->first || !d->ending) {
		struct descriptor_set *set = d->first;

		if (!set) {
			pthread_cond_wait(&d->work, &d->lock);
			continue;
		}
		d->first = set->next;
		if (!d->first)
			d->last = &d->first;
		pthread_mutex_unlock(&d->lock);
		let_go(d, set);
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	release(d);
	return NULL;
}

int descriptors_new(unsigned limit, struct descriptors **ret)
{
	struct descriptors *d = calloc(1, sizeof(*d));
	sigset_t all, old;
	int error;

	if (!d)
		return -ENOMEM;
	d->limit = limit;
	d->last = &d->first;
	atomic_init(&d->refs, 2); /* the caller's and the thread's */
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->work, NULL);
	/* Signals are for the daemon's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = -pthread_create(&d->thread, NULL, closer, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		atomic_store(&d->refs, 1);
		release(d);
		return error;
	}
	*ret = d;
	return 0;
}

static void end_thread(struct descriptors *d)
{
	struct timespec deadline;
	pthread_t thread = d->thread;

	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_signal(&d->work);
	pthread_mutex_unlock(&d->lock);
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += END_SECONDS;
	if (pthread_timedjoin_np(thread, NULL, &deadline))
		pthread_detach(thread);
}

void descriptors_unref(struct descriptors *d)
{
	if (!d)
		return;
	/* The thread has the last one; sets have none once it is in its hands. */
	if (atomic_fetch_sub(&d->refs, 1) == 2)
		end_thread(d);
}

unsigned descriptors_held(struct descriptors *d)
{
	return atomic_load(&d->held);
}

unsigned descriptors_free(struct descriptors *d)
{
	unsigned held = atomic_load(&d->held);

	return held < d->limit ? d->limit - held : 0;
}

void descriptors_take(struct descriptors *d, unsigned n)
{
	atomic_fetch_add(&d->held, n);
}

struct descriptor_set *descriptors_set(struct descriptors *d)
{
	struct descriptor_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->owner = d;
	atomic_fetch_add(&d->refs, 1);
	return set;
}

void descriptors_close(struct descriptors *d, int connection)
{
	struct descriptor_set *set;
	int unread = 0;

	if (d && !shutdown(connection, SHUT_RDWR))
		ioctl(connection, SIOCINQ, &unread);
	set = unread ? descriptors_set(d) : NULL;
	if (!set) {
		close(connection);
		return;
	}
	set->connection = true;
	set->fds[set->n_fds++] = connection;
	descriptors_take(d, 1);
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
