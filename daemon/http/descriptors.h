/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that clients passed to the daemon, and what was mapped of them.
 *
 * They are counted, and there is a limit for all clients together. A user may have three times as
 * many as are left for the others, so that none takes them all. To let go of one can take as long
 * as its owner likes (a file of a FUSE file system, a socket that lingers, gigabytes that have to
 * be freed), so that is done in threads of its own: in one, as long as it gets on, in up to
 * DESCRIPTOR_THREADS while some do not. Until then it counts: who passes what cannot be closed
 * takes his share, and nothing else. For the same reason descriptors are received even where nobody
 * wants them: the kernel would let go of them in the thread that reads, or that closes the
 * connection.
 *
 * Threads: any.
 */
#ifndef TXDA_SERVER_DESCRIPTORS_H
#define TXDA_SERVER_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DESCRIPTORS_AT_ONCE 253 /* in one message, as the kernel has it */
#define DESCRIPTORS_MAX	    16	/* of one request */
#define DESCRIPTOR_MAPS	    3
#define DESCRIPTOR_THREADS  8

struct descriptors;

/* Those of one request. */
struct descriptor_set {
	struct descriptors *owner; /* a reference */
	struct descriptor_set *next;
	uid_t uid;	 /* who passed them */
	bool connection; /* its one descriptor is a socket from which others may come */
	unsigned n_fds, n_maps;
	int fds[DESCRIPTORS_MAX];
	struct {
		void *ptr;
		size_t len;
	} maps[DESCRIPTOR_MAPS];
};

/* @limit: held at a time. One reference. Starts the thread. */
int descriptors_new(unsigned limit, struct descriptors **ret);
/* Drops a reference. NULL is accepted. The last one waits for the threads, but not for long. */
void descriptors_unref(struct descriptors *d);
unsigned descriptors_held(struct descriptors *d);
/* How many connections wait to be closed. NULL is accepted. */
unsigned descriptors_connections(struct descriptors *d);
/* How many of a user's do. */
unsigned descriptors_closing(struct descriptors *d, uid_t uid);
/* How many more of a user's may be held; one thread alone takes them. */
unsigned descriptors_room(struct descriptors *d, uid_t uid);
void descriptors_take(struct descriptors *d, uid_t uid, unsigned n);
/* An empty set, or NULL. Whatever is put into it was counted. */
struct descriptor_set *descriptors_set(struct descriptors *d, uid_t uid);
/* Closes a connection of @uid: the peer sees its end at once. NULL as @d is accepted. */
void descriptors_close(struct descriptors *d, uid_t uid, int connection);
/* Unmaps and closes all of it soon, and frees it. NULL is accepted. */
void descriptors_discard(struct descriptor_set *set);

#endif
