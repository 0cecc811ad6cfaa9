/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that come with the bytes of a connection (SCM_RIGHTS).
 *
 * The kernel ends a read with the bytes that descriptors were sent with. So the last byte of such a
 * read identifies their request, also when requests follow each other closely. Descriptors that
 * come with a request that does not ask for any are closed with it.
 *
 * Data with descriptors for which there is no room is not read, as the kernel would close the
 * descriptors at once, in the reading thread: the client has to wait.
 *
 * Threads: none shared.
 */
#ifndef TXDA_HTTP_HTTP_FDS_H
#define TXDA_HTTP_HTTP_FDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "descriptors.h"

struct http_fds {
	struct descriptors *owner; /* borrowed; NULL: none are taken */
	user_id uid;		   /* the peer's */
	bool full;		   /* the last read found no room: retry later */
	uint64_t received;	   /* bytes of the connection so far */
	unsigned n;
	struct {
		int fd;
		uint64_t end; /* position after the read that received it */
	} fds[DESCRIPTORS_MAX];
	/*
	 * Some were closed at once: the error (-errno), and the positions of the reads between
	 * which that happened.
	 */
	int lost;
	uint64_t lost_from, lost_to;
};

/* Like recv(2) without flags; keeps the descriptors. EAGAIN and @f->full: no room for them. */
ssize_t http_fds_recv(struct http_fds *f, int socket, void *buf, size_t len);
/*
 * Moves those of the request whose last byte is before @end to *ret, a new set, or NULL if there
 * are none. -E2BIG: more than DESCRIPTORS_MAX arrived; -EMFILE: too many are held; -ENOMEM. On an
 * error they are closed.
 */
int http_fds_take(struct http_fds *f, uint64_t end, struct descriptor_set **ret);
/* Closes those of requests that end at or before @end; UINT64_MAX: all. */
void http_fds_drop(struct http_fds *f, uint64_t end);

#endif
