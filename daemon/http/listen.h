/* SPDX-License-Identifier: MIT */
/*
 * The listening socket: made here or handed over by systemd.
 *
 * A daemon holds a lock on PATH.lock as long as it lives. So of two daemons started at once one
 * gets the socket and the other says so, and a socket file that a killed daemon left behind is
 * replaced only when nobody can listen on it.
 */
#ifndef TXDA_SERVER_LISTEN_H
#define TXDA_SERVER_LISTEN_H

#include <stddef.h>
#include <sys/types.h>

struct listen_socket {
	int fd, lock_fd; /* lock_fd: -1 when systemd made the socket */
	char path[112];	 /* "" when systemd made the socket */
};

/* -EADDRINUSE: somebody listens there. -ENAMETOOLONG, -EEXIST (a file that is no socket), ...; the
 * words in err. */
int listen_socket_open(const char *path, mode_t mode, const char *group, struct listen_socket *ret,
		       char *err, size_t errlen);
/* Takes an inherited socket: it must be a listening Unix stream socket, or -EINVAL. */
int listen_socket_adopt(int fd, struct listen_socket *ret, char *err, size_t errlen);
/* Closes it and removes the file that listen_socket_open() made. */
void listen_socket_close(struct listen_socket *s);

#endif
