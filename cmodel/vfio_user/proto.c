// SPDX-License-Identifier: MIT
#include "proto.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io.h"

/* More than a peer may send, so that excess ones are received and closed as well. */
#define CONTROL_FDS 64

int vu_message_init(struct vu_message *m, struct vu_reply *r)
{
	*m = (struct vu_message){.body = malloc(VU_MAX_MESSAGE)};
	*r = (struct vu_reply){.body = malloc(VU_MAX_MESSAGE), .fd = -1};
	if (m->body && r->body)
		return 0;
	vu_message_free(m, r);
	return -ENOMEM;
}

void vu_message_free(struct vu_message *m, struct vu_reply *r)
{
	vu_message_close_fds(m);
	free(m->body);
	free(r->body);
}

void vu_message_close_fds(struct vu_message *m)
{
	for (unsigned i = 0; i < m->n_fds; i++) {
		if (m->fd[i] >= 0)
			close(m->fd[i]);
	}
	m->n_fds = 0;
}

/* Takes the descriptors out of the control data; false: there are too many. */
static bool take_fds(struct vu_message *m, struct msghdr *msg)
{
	bool ok = !(msg->msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (m->n_fds < VU_MAX_FDS) {
				m->fd[m->n_fds++] = fd;
			} else {
				close(fd);
				ok = false;
			}
		}
	}
	return ok;
}

/* Reads exactly @bytes, and descriptors that come with them. */
static int receive_exactly(int sock, void *buf, size_t bytes, struct vu_message *m)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(CONTROL_FDS * sizeof(int))];
	} control;

	for (size_t at = 0; at < bytes;) {
		struct iovec iov = {(uint8_t *)buf + at, bytes - at};
		struct msghdr msg = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes),
		};
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == ECONNRESET ? -ECONNRESET : -errno;
		if (!take_fds(m, &msg))
			return -EPROTO;
		if (!n)
			return -ECONNRESET;
		at += (size_t)n;
	}
	return 0;
}

int vu_proto_receive(int sock, struct vu_message *m)
{
	int ret;

	m->n_fds = 0;
	m->body_bytes = 0;
	ret = receive_exactly(sock, &m->header, sizeof(m->header), m);
	if (!ret && (m->header.bytes < sizeof(m->header) || m->header.bytes > VU_MAX_MESSAGE))
		ret = -EPROTO;
	if (!ret) {
		m->body_bytes = m->header.bytes - (uint32_t)sizeof(m->header);
		ret = receive_exactly(sock, m->body, m->body_bytes, m);
	}
	if (ret)
		vu_message_close_fds(m);
	return ret;
}

static int send_all(int sock, struct iovec *iov, size_t n_iov, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_iov};

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	while (msg.msg_iovlen) {
		ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EPIPE ? -ECONNRESET : -errno;
		/* The descriptor was sent with the first bytes. */
		msg.msg_control = NULL;
		msg.msg_controllen = 0;
		io_advance(&msg, (size_t)n);
	}
	return 0;
}

int vu_proto_reply(int sock, const struct vu_message *m, const struct vu_reply *r)
{
	uint32_t body = r->error ? 0 : r->body_bytes;
	struct vu_header header = {
		.id = m->header.id,
		.command = m->header.command,
		.bytes = (uint32_t)sizeof(header) + body,
		.flags = VU_TYPE_REPLY | (r->error ? VU_ERROR : 0),
		.error = (uint32_t)r->error,
	};
	struct iovec iov[2] = {{&header, sizeof(header)}, {r->body, body}};

	return send_all(sock, iov, body ? 2 : 1, r->error ? -1 : r->fd);
}
