/* SPDX-License-Identifier: MIT */
/*
 * A thread that accepts connections in place of the event loop while users connect who have neither
 * a place nor time of the loop left. Such a connection is closed before anything is made of it,
 * which takes microseconds; but clients make as many as they find time for, and a loop that is
 * never idle waits for a processor behind everything else that computes, with every token of every
 * user. So from the first such connection until none has come for STORM_QUIET_MS this thread
 * accepts: it closes the connections of users whom the loop has named in the last STORM_NAMED_MS,
 * and hands all others to the loop. Others wait as long as before until they are accepted.
 *
 *	loop: accepts ---- http_storm_name() ----> thread: accepts ---- quiet, http_storm_end() ----> loop
 *
 * Threads: the event loop's, which also makes the callbacks where nothing else is said.
 */
#ifndef TXDA_HTTP_HTTP_STORM_H
#define TXDA_HTTP_HTTP_STORM_H

#include <stdbool.h>
#include <sys/types.h>

#include "http.h"

#define STORM_LISTENERS 32
#define STORM_BACKLOG	32 /* connections in the kernel's queue meanwhile */
#define STORM_QUIET_MS	200
#define STORM_NAMED_MS	10
#define STORM_USERS	16

struct event_base;
struct descriptors;
struct http_storm;

struct http_storm_options {
	struct event_base *base;
	struct descriptors *descriptors; /* of clients, may be NULL */
	/* Whether nothing may be accepted now. Called by the thread, unlike the others. */
	bool (*has_to_wait)(void *arg);
	/* A connection of a user who is not named; the callee takes over @fd. */
	void (*take)(void *arg, int fd, const struct http_peer *peer);
	/* @n connections of the user were closed since the last call. */
	void (*closed)(void *arg, uid_t uid, unsigned n);
	void (*over)(void *arg); /* the loop accepts again */
	void *arg;
};

int http_storm_new(const struct http_storm_options *options, struct http_storm **ret);
/* NULL is accepted. */
void http_storm_free(struct http_storm *s);
/* The user's connections are surplus; begins a storm with these listeners if there is none. */
void http_storm_name(struct http_storm *s, uid_t uid, const int *listeners, unsigned n);
bool http_storm_goes_on(const struct http_storm *s);
/* Ends it: nothing is accepted any more, and over() is not called. */
void http_storm_end(struct http_storm *s);

/* Who is at the other end of a Unix socket. */
void http_storm_peer(int fd, struct http_peer *ret);

#endif
