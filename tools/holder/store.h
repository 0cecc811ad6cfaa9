/* SPDX-License-Identifier: MIT */
/*
 * Keeps descriptors for a program while it does not run, as requested by sd_notify(3)'s messages:
 * FDSTORE=1, FDSTOREREMOVE=1, FDNAME=. The descriptors of a message are kept completely or not at
 * all. Not thread-safe. Errors are printed on standard error.
 */
#ifndef TXDA_HOLDER_STORE_H
#define TXDA_HOLDER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define STORE_MAX_FDS	  4096
#define STORE_MAX_NAME	  255
#define STORE_MESSAGE_FDS 253 /* that one message can carry */

struct stored {
	int fd;
	char name[STORE_MAX_NAME + 1];
};

struct store {
	unsigned max, n;
	struct stored *fds; /* [n], in the order in which they came */
};

/* -ENOMEM */
int store_init(struct store *s, unsigned max);
void store_fini(struct store *s);
/*
 * Handles a message, whose bytes need not end in NUL. Takes over @fds: keeps or closes them. True:
 * it contains READY=1.
 */
bool store_message(struct store *s, const char *text, size_t len, const int *fds, unsigned n_fds);
void store_clear(struct store *s);

/*
 * Passes them on, in the process that becomes the program: as descriptors from 3 on, and in the
 * environment. -errno.
 */
int store_export(const struct store *s, pid_t pid);

#endif
