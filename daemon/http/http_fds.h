/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that come with the bytes of a connection (SCM_RIGHTS).
 *
 * The kernel ends a read with the bytes with which descriptors were sent. So the last byte of such
 * a read tells to which request they belong, also when requests follow each other closely. What
 * comes with a request that does not ask for descriptors is closed with it.
 *
 * Nothing is read that brings descriptors for which there is no room, as the kernel would close
 * them at once, in the thread that reads: the client has to wait.
 *
 * Threads: none shared.
 */
#ifndef TXDA_SERVER_HTTP_FDS_H
#define TXDA_SERVER_HTTP_FDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "descriptors.h"

struct http_fds {
	struct descriptors *owner; /* borrowed; NULL: none are taken */
	uid_t uid;		   /* the peer's */
	bool full;		   /* the last read found no room: to be tried again later */
	uint64_t received;	   /* bytes of the connection so far */
	unsigned n;
	struct {
		int fd;
		uint64_t end; /* of the read that brought it */
	} fds[DESCRIPTORS_MAX];
	/* Some were closed at once: why (-errno), and with the reads that end between these. */
	int lost;
	uint64_t lost_from, lost_to;
};

/* As recv(2) without flags; keeps the descriptors. EAGAIN and @f->full: no room for them. */
ssize_t http_fds_recv(struct http_fds *f, int socket, void *buf, size_t len);
/*
 * Moves those of the request whose last byte is before @end to *ret, a set of its own, NULL if
 * there are none. -E2BIG: more than DESCRIPTORS_MAX came; -EMFILE: too many are held;
 * -ENOMEM. They are gone then.
 */
int http_fds_take(struct http_fds *f, uint64_t end, struct descriptor_set **ret);
/* Closes those of requests that are over at @end; UINT64_MAX: all. */
void http_fds_drop(struct http_fds *f, uint64_t end);

#endif
