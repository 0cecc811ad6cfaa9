/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that are kept for a program while it does not run, as it asks for them in
 * sd_notify(3)'s words: FDSTORE=1, FDSTOREREMOVE=1, FDNAME=. A message's descriptors are kept all
 * or none.
 *
 * Not for threads. Errors go to standard error: there is nobody else to tell.
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
 * Does what a message says, whose bytes need not end in NUL. Takes @fds over: keeps or closes them.
 * True: it says READY=1.
 */
bool store_message(struct store *s, const char *text, size_t len, const int *fds, unsigned n_fds);
void store_clear(struct store *s);

/* The program's environment, in the process that becomes it: descriptors from 3 on, and what tells
 * of them. -errno. */
int store_export(const struct store *s, pid_t pid);

#endif
