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

/* Closes them, one set after the other. */
static void discard(struct http_fds *f, const int *fds, unsigned n)
{
	while (n) {
		struct descriptor_set *set = descriptors_set(f->owner, f->uid);

		/* If out of memory they stay open and counted: closing may block. */
		if (!set)
			return;
		for (; n && set->n_fds < DESCRIPTORS_MAX; n--)
			set->fds[set->n_fds++] = *fds++;
		descriptors_discard(set);
	}
}

/* Moves the descriptors of a message to @fds [DESCRIPTORS_AT_ONCE]; counts them. */
static unsigned collect(struct http_fds *f, struct msghdr *msg, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *c = msg->msg_control ? CMSG_FIRSTHDR(msg) : NULL; c;
	     c = CMSG_NXTHDR(msg, c)) {
		unsigned more = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		more = more < DESCRIPTORS_AT_ONCE - n ? more : DESCRIPTORS_AT_ONCE - n;
		memcpy(fds + n, CMSG_DATA(c), more * sizeof(*fds));
		n += more;
	}
	descriptors_take(f->owner, f->uid, n);
	return n;
}

/* Keeps received descriptors up to the limit @left. */
static void keep(struct http_fds *f, const int *fds, unsigned n, unsigned left)
{
	unsigned room = DESCRIPTORS_MAX - f->n, kept = room < left ? room : left;

	kept = kept < n ? kept : n;
	for (unsigned i = 0; i < kept; i++) {
		f->fds[f->n].fd = fds[i];
		f->fds[f->n++].end = f->received;
	}
	if (kept == n)
		return;
	lose(f, kept == room ? -E2BIG : -EMFILE);
	discard(f, fds + kept, n - kept);
}

/*
 * Peeks at a message first. If there is no room for its descriptors, here or in the process, they
 * stay in the socket: receiving them then would close them at once, in this thread.
 */
ssize_t http_fds_recv(struct http_fds *f, int socket, void *buf, size_t len)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS_AT_ONCE * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[DESCRIPTORS_AT_ONCE];
	unsigned n, room;
	ssize_t got;

	if (!f->owner)
		return recv(socket, buf, len, 0);
	room = descriptors_room(f->owner, f->uid);
	if (room) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	got = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | MSG_PEEK);
	if (got <= 0)
		return got;
	n = collect(f, &msg, fds);
	f->full = msg.msg_flags & MSG_CTRUNC;
	if (f->full) {
		discard(f, fds, n);
		errno = EAGAIN;
		return -1;
	}
	/* Receives the same bytes again; this opens the descriptors here. */
	got = recv(socket, buf, (size_t)got, 0);
	if (got > 0)
		f->received += (uint64_t)got;
	keep(f, fds, n, room);
	return got;
}

/* How many of them, ordered by arrival, belong to requests that end at @end. */
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

/* Clears the record of losses up to @end; returns the error. */
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
	set = descriptors_set(f->owner, f->uid);
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
