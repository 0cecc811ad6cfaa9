/* SPDX-License-Identifier: MIT */
/*
 * A thread that accepts connections in place of the event loop while users connect beyond their
 * shares.
 *
 * When a user has neither a free connection slot nor loop time left, further connections are closed
 * immediately. Each takes only microseconds, but a client can open many thousands per second, and a
 * loop that is never idle is scheduled behind other busy threads, which delays every token of every
 * user. So from the first such connection until there was none for STORM_QUIET_MS, this thread
 * accepts: it closes connections of users whom the loop has blocked in the last STORM_BLOCK_MS, and
 * passes all others to the loop, which they reach as fast as before.
 *
 *	loop: accepts --- http_storm_block() ---> thread: accepts --- quiet, http_storm_end() ---> loop
 *
 * Threads: the event loop's, which also calls the callbacks unless stated otherwise.
 */
#ifndef TXDA_HTTP_HTTP_STORM_H
#define TXDA_HTTP_HTTP_STORM_H

#include <stdbool.h>
#include <sys/types.h>

#include "http.h"

#define STORM_LISTENERS 32
#define STORM_BACKLOG	32 /* the listening sockets' backlog in that time */
#define STORM_QUIET_MS	200
#define STORM_BLOCK_MS	10
#define STORM_USERS	16

struct event_base;
struct descriptors;
struct http_storm;

struct http_storm_options {
	struct event_base *base;
	struct descriptors *descriptors; /* of clients, may be NULL */
	/* Whether accepting must pause. Called by the thread, unlike the others. */
	bool (*has_to_wait)(void *arg);
	/* A connection of a user who is not blocked; takes over @fd. */
	void (*take)(void *arg, int fd, const struct http_peer *peer);
	/* @n connections of the user were closed since the last call. */
	void (*closed)(void *arg, user_id uid, unsigned n);
	void (*over)(void *arg); /* the loop accepts again */
	void *arg;
};

int http_storm_new(const struct http_storm_options *options, struct http_storm **ret);
/* NULL is accepted. */
void http_storm_free(struct http_storm *s);
/*
 * Blocks the user for STORM_BLOCK_MS; starts accepting from @listeners in the thread if it does not
 * yet.
 */
void http_storm_block(struct http_storm *s, user_id uid, const int *listeners, unsigned n);
bool http_storm_is_active(const struct http_storm *s);
/* Stops it at once, without a call of over(). */
void http_storm_end(struct http_storm *s);

/* The identity of the peer of a Unix socket. */
void http_storm_peer(int fd, struct http_peer *ret);

#endif
