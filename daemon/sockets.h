/* SPDX-License-Identifier: MIT */
/*
 * What the daemon listens on: a Unix socket, and TCP where that is asked for; made here or handed
 * over by systemd, which is told by their families.
 *
 * TCP tells nothing of who connects. So it is opened for this machine alone unless there are API
 * keys, and without keys only if the settings say that it is to be so.
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
 * Takes over the listening sockets @inherited [n_inherited], and makes what is missing of the
 * settings' own: the Unix socket, TCP. What is wrong is in the log. -EINVAL: with the settings or
 * what was handed over. sockets_close() is due whatever is returned.
 */
int sockets_open(struct sockets *s, const struct config *c, const int *inherited,
		 unsigned n_inherited);
void sockets_close(struct sockets *s);

#endif
