/* SPDX-License-Identifier: MIT */
/*
 * The listening socket: created here or passed by systemd.
 *
 * A daemon holds a lock on PATH.lock as long as it lives. So if two daemons start at once, one gets
 * the socket and the other reports an error, and a socket file left by a killed daemon is replaced
 * only when nobody can be listening on it.
 */
#ifndef TXDA_HTTP_LISTEN_H
#define TXDA_HTTP_LISTEN_H

#include <stddef.h>
#include <sys/types.h>

#define LISTEN_BACKLOG 256 /* connections that the kernel queues until they are accepted */

struct listen_socket {
	int fd, lock_fd; /* lock_fd: -1 for a socket from systemd */
	char path[112];	 /* "" for a socket from systemd */
};

/*
 * -EADDRINUSE: another process listens there. -ENAMETOOLONG, -EEXIST (a file that is not a socket),
 * ...; the message is in err.
 */
int listen_socket_open(const char *path, mode_t mode, const char *group, struct listen_socket *ret,
		       char *err, size_t errlen);
/*
 * Adopts an inherited socket: it must be a listening Unix stream socket, or -EINVAL. From then on it
 * queues as many connections as the daemon's own.
 */
int listen_socket_adopt(int fd, struct listen_socket *ret, char *err, size_t errlen);
/* Closes it and removes the file created by listen_socket_open(). */
void listen_socket_close(struct listen_socket *s);

#endif
