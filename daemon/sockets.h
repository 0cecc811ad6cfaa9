/* SPDX-License-Identifier: MIT */
/*
 * The daemon's listening sockets: a Unix socket, and TCP if enabled; created here or passed by
 * systemd, which are told apart by address family.
 *
 * TCP does not identify the peer. So it is opened on loopback only unless there are API keys, and
 * without keys only if the settings explicitly allow it.
 */
#ifndef TXDA_DAEMON_SOCKETS_H
#define TXDA_DAEMON_SOCKETS_H

#include <stdbool.h>

#include "config.h"
#include "listen.h"

#define SOCKETS_MAX 32

struct sockets {
	struct listen_socket all[SOCKETS_MAX]; /* [n] */
	unsigned n, n_unix;
	bool tcp;
};

/*
 * Takes over the listening sockets @inherited [n_inherited], and creates those of the settings that
 * are missing: the Unix socket, TCP. Errors are logged. -EINVAL: in the settings or an inherited
 * socket. sockets_close() must be called in any case.
 */
int sockets_open(struct sockets *s, const struct config *c, const int *inherited,
		 unsigned n_inherited);
void sockets_close(struct sockets *s);

#endif
