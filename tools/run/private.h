/* SPDX-License-Identifier: MIT */
/*
 * A daemon of this program's own, which serves one model to it and to nobody else.
 *
 * It lives as long as this process: private_stop() ends it, and should this process be killed the
 * kernel does (PR_SET_PDEATHSIG). Nothing of it is in the file system: the socket is made in a
 * directory that only its owner may enter, and both are removed as soon as there is a descriptor
 * to connect by; its log is in memory. What it compiles stays in the cache, see txdad(8).
 */
#ifndef TXDA_RUN_PRIVATE_H
#define TXDA_RUN_PRIVATE_H

#include <stdbool.h>
#include <sys/types.h>

#define PRIVATE_MAX_OPTIONS 24

struct private_daemon {
	pid_t pid; /* 0: none */
	int pid_fd, log_fd;
	int socket_fd;	 /* O_PATH */
	char socket[32]; /* to connect to: its name below /proc/self/fd */
};

/*
 * Starts txdad for the model in @dir, an absolute path. It listens when this returns, so that there
 * is nothing to wait for. @options: further arguments for it, up to a NULL. 0, or 1 after an error,
 * which was said on stderr.
 */
int private_start(struct private_daemon *d, const char *dir, char *const *options);

/* Whether it has ended, or is about to; says so on stderr, with the end of its log. */
bool private_failed(struct private_daemon *d);

/* Ends it and waits for that. Nothing happens where there is none. */
void private_stop(struct private_daemon *d);

#endif
