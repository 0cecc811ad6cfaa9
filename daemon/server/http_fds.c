// SPDX-License-Identifier: MIT
#include "http_fds.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

static void lose(struct http_fds *f, int error)
{
	if (!f->lost)
		f->lost_from = f->received;
	f->lost = error;
	f->lost_to = f->received;
}

static void discard(struct http_fds *f, const int *fds, unsigned n)
{
	struct descriptor_set *set = descriptors_set(f->owner);

	for (unsigned i = 0; i < n && set; i++)
		set->fds[set->n_fds++] = fds[i];
	/* Without memory they stay open and counted: closing may block. */
	descriptors_discard(set);
}

/* Keeps what came, for which there is room. */
static unsigned keep(struct http_fds *f, const struct cmsghdr *c)
{
	unsigned n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

	for (unsigned i = 0; i < n; i++) {
		memcpy(&f->fds[f->n].fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		f->fds[f->n++].end = f->received;
	}
	descriptors_take(f->owner, n);
	return n;
}

ssize_t http_fds_recv(struct http_fds *f, int socket, void *buf, size_t len)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	unsigned room = DESCRIPTORS_MAX - f->n, free_ones, n = 0;
	bool full;
	ssize_t got;

	if (!f->owner)
		return recv(socket, buf, len, 0);
	free_ones = descriptors_free(f->owner);
	full = free_ones < room;
	/* No more than there is room for: the kernel lets go of the rest, which does not call what
	 * may block in a close. */
	room = full ? free_ones : room;
	if (room) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_LEN(room * sizeof(int));
	}
	got = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	if (got < 0)
		return got;
	f->received += (uint64_t)got;
	for (struct cmsghdr *c = room ? CMSG_FIRSTHDR(&msg) : NULL; c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			n += keep(f, c);
	}
	/* Fewer than there was room for: the process may open no more. */
	if (msg.msg_flags & MSG_CTRUNC)
		lose(f, full || n < room ? -EMFILE : -E2BIG);
	return got;
}

/* How many of them, which are in the order of their coming, are of requests that end at @end. */
static unsigned count_until(const struct http_fds *f, uint64_t end)
{
	unsigned n = 0;

	while (n < f->n && f->fds[n].end <= end)
		n++;
	return n;
}

static void remove_first(struct http_fds *f, unsigned n)
{
	f->n -= n;
	memmove(f->fds, f->fds + n, f->n * sizeof(f->fds[0]));
}

/* Forgets what was lost up to @end; returns why. */
static int take_loss(struct http_fds *f, uint64_t end)
{
	int lost = f->lost;

	if (!lost || f->lost_from > end)
		return 0;
	if (f->lost_to <= end)
		f->lost = 0;
	else
		f->lost_from = end + 1;
	return lost;
}

int http_fds_take(struct http_fds *f, uint64_t end, struct descriptor_set **ret)
{
	unsigned n = count_until(f, end);
	struct descriptor_set *set;
	int lost = take_loss(f, end);

	if (lost) {
		http_fds_drop(f, end);
		return lost;
	}
	if (!n) {
		*ret = NULL;
		return 0;
	}
	set = descriptors_set(f->owner);
	if (!set)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		set->fds[set->n_fds++] = f->fds[i].fd;
	remove_first(f, n);
	*ret = set;
	return 0;
}

void http_fds_drop(struct http_fds *f, uint64_t end)
{
	unsigned n = count_until(f, end);
	int fds[DESCRIPTORS_MAX];

	take_loss(f, end);
	if (!n)
		return;
	for (unsigned i = 0; i < n; i++)
		fds[i] = f->fds[i].fd;
	remove_first(f, n);
	discard(f, fds, n);
}
