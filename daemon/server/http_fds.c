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

/* Closes them, a set after the other. */
static void discard(struct http_fds *f, const int *fds, unsigned n)
{
	while (n) {
		struct descriptor_set *set = descriptors_set(f->owner);

		/* Without memory they stay open and counted: closing may block. */
		if (!set)
			return;
		for (; n && set->n_fds < DESCRIPTORS_MAX; n--)
			set->fds[set->n_fds++] = *fds++;
		descriptors_discard(set);
	}
}

/* Keeps what came, as far as there is room. */
static void keep(struct http_fds *f, const struct cmsghdr *c)
{
	unsigned n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	unsigned room = DESCRIPTORS_MAX - f->n, left = descriptors_free(f->owner);
	unsigned kept = room < left ? room : left;
	int fds[DESCRIPTORS_AT_ONCE];

	n = n < DESCRIPTORS_AT_ONCE ? n : DESCRIPTORS_AT_ONCE;
	memcpy(fds, CMSG_DATA(c), n * sizeof(*fds));
	descriptors_take(f->owner, n);
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

ssize_t http_fds_recv(struct http_fds *f, int socket, void *buf, size_t len)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS_AT_ONCE * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = NULL;
	ssize_t got;

	if (!f->owner)
		return recv(socket, buf, len, 0);
	/* At the limit the kernel lets go of them. */
	if (descriptors_free(f->owner)) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	got = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	if (got < 0)
		return got;
	f->received += (uint64_t)got;
	if (msg.msg_control)
		c = CMSG_FIRSTHDR(&msg);
	for (; c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			keep(f, c);
	}
	/* At the limit, or at that of the process. */
	if (msg.msg_flags & MSG_CTRUNC)
		lose(f, -EMFILE);
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
