/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that clients passed to the daemon, and what was mapped of them.
 *
 * They are counted, and limited for all clients together. A user may have three times as many as
 * are left for the others, so that no user can take them all. Closing a descriptor can take as long
 * as its owner likes (a file of a FUSE file system, a lingering socket, gigabytes to be freed), so
 * separate threads do it: one as long as it makes progress, up to DESCRIPTOR_THREADS while some are
 * stuck, at most three of them for one user. A descriptor counts until it is closed, so a user who
 * passes descriptors that cannot be closed uses up only their own share. For the same reason
 * descriptors are received even where they are not wanted: otherwise the kernel would close them in
 * the thread that reads, or that closes the connection.
 *
 * Threads: any.
 */
#ifndef TXDA_HTTP_DESCRIPTORS_H
#define TXDA_HTTP_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user_id.h"

#define DESCRIPTORS_AT_ONCE 253 /* in one message, the kernel's limit */
#define DESCRIPTORS_MAX	    16	/* of one request */
#define DESCRIPTOR_MAPS	    3
#define DESCRIPTOR_THREADS  8

struct descriptors;

/* The descriptors of one request. */
struct descriptor_set {
	struct descriptors *owner; /* a reference */
	struct descriptor_set *next;
	user_id uid;	 /* the user who passed them */
	bool connection; /* its descriptor is a socket that may carry others */
	unsigned n_fds, n_maps;
	int fds[DESCRIPTORS_MAX];
	struct {
		void *ptr;
		size_t len;
	} maps[DESCRIPTOR_MAPS];
};

/* @limit: number held at a time. Returns one reference. Starts the thread. */
int descriptors_new(unsigned limit, struct descriptors **ret);
/* Drops a reference. NULL is accepted. The last one waits for the threads, for a limited time. */
void descriptors_unref(struct descriptors *d);
unsigned descriptors_held(struct descriptors *d);
/* Number of connections waiting to be closed. NULL is accepted. */
unsigned descriptors_connections(struct descriptors *d);
/* The same for one user. */
unsigned descriptors_closing(struct descriptors *d, user_id uid);
/* How many more this user may hold; only one thread may receive them. */
unsigned descriptors_room(struct descriptors *d, user_id uid);
void descriptors_take(struct descriptors *d, user_id uid, unsigned n);
/* An empty set, or NULL. Descriptors put into it must have been counted. */
struct descriptor_set *descriptors_set(struct descriptors *d, user_id uid);
/* Closes a connection of @uid: the peer sees end of file at once. NULL as @d is accepted. */
void descriptors_close(struct descriptors *d, user_id uid, int connection);
/* Unmaps and closes its contents asynchronously, and frees it. NULL is accepted. */
void descriptors_discard(struct descriptor_set *set);

#endif
