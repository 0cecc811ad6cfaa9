/* SPDX-License-Identifier: MIT */
/*
 * A private daemon, which serves one model to this program only. It lives as long as this process:
 * private_stop() ends it, and if this process is killed the kernel does (PR_SET_PDEATHSIG). It
 * leaves nothing in the file system: the socket is created in a directory that only its owner may
 * enter, and both are removed as soon as a descriptor for connecting is open; its log is in memory.
 * Compiled models stay in the cache, see txdad(8).
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
 * Starts txdad for the model in @dir, an absolute path. It is listening when this returns.
 * @options: further arguments, NULL-terminated. 0, or 1 after an error, reported on stderr.
 */
int private_start(struct private_daemon *d, const char *dir, char *const *options);

/* Whether it has ended, or is about to; then reports that on stderr, with the end of its log. */
bool private_failed(struct private_daemon *d);

/* Ends it and waits until it has ended. Has no effect without one. */
void private_stop(struct private_daemon *d);

#endif
