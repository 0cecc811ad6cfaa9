/* SPDX-License-Identifier: MIT */
/*
 * An HTTP/1.1 server on Unix sockets and TCP, in one event loop.
 *
 * It reads requests (http_parser.h), passes each complete one to the owner, and sends the owner's
 * answer: a reply in one piece or a stream. A connection has one request in progress at a time;
 * pipelined ones wait.
 *
 * A client's use of resources is bounded: the number of connections, the time for a head, for a
 * body and for a stalled reader, and the bytes held for a user (struct budget). A user may have
 * three times as many connections as are left then, and an idle one of its own is closed to make
 * room for a new one. When many users together use all of them, the user with the most idle ones
 * loses one. One sixteenth of all is reserved for administrators. A client that disconnects is
 * noticed at once, also while it waits or does not read. A client that only shuts down its writing
 * side still gets its answer.
 *
 * While several users are served, each may use an eighth of the loop's time for accepting and
 * reading its connections (budget.h), besides a short burst. Connections of a user beyond that wait
 * and are served in turns with those of others, so that no request queues behind everything another
 * user sends. Connections beyond the user's share of connections are then closed without an answer.
 * So a flood of connections costs others only the time to accept them.
 *
 * Slow readers: http_stream_write() always accepts the data. The owner checks http_conn_congested()
 * before it produces more and gets on_drained() when there is room again.
 *
 * Descriptors may arrive with the bytes of a request (http_fds.h). The owner takes them in
 * on_request(), or they are closed. TCP carries none.
 *
 * Over TCP a peer is unauthenticated until on_head() has identified its user, which it does for
 * each request. All of TCP together may use less than half of the connections, so that the Unix
 * sockets are always served:
 *	- unauthenticated connections: at most an eighth of the limit. A new one closes the oldest,
 *	  and none lives longer than the time for a head. Each gets a moment to send its head,
 *	  however many arrive: further ones wait in the listen queue meanwhile;
 *	- authenticated users share the rest: each may have three times as many as are left.
 * Over TCP a client that shuts down its writing side is indistinguishable from one that closed, and
 * is treated as disconnected.
 *
 * The process must ignore SIGPIPE.
 *
 * Answers state in the header Openai-Processing-Ms how long the owner took.
 *
 * Threads: only the thread of the event loop. No function here calls back into the owner: callbacks
 * come from the loop, except on_answered(), which is called by whatever completes an answer.
 */
#ifndef TXDA_HTTP_HTTP_H
#define TXDA_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "budget.h"
#include "http_parser.h"
#include "identity.h"

struct descriptor_set;
struct descriptors;
struct evbuffer;
struct event_base;
struct http_server;
struct http_conn;

#define HTTP_NOTE 128 /* bytes of http_conn_set_note() */

#define HTTP_ADDRESS 80 /* bytes of an address as text, including the NUL */

struct http_peer {
	user_id uid; /* USER_UNKNOWN: unknown */
	gid_t gid;
	pid_t pid;		    /* 0: unknown */
	const struct identity *key; /* over TCP: the user last named by on_head(); NULL: none yet */
	bool tcp;
	char address[HTTP_ADDRESS]; /* over TCP; else "" */
};

/* The answer with which on_head() refuses a request. */
struct http_refusal {
	int status;
	const char *headers; /* as for http_reply() */
	char message[256];
};

/* For the log. */
struct http_answer {
	int status;
	uint64_t bytes;	  /* of the body */
	uint64_t ms;	  /* from the complete request to the end of the answer */
	const char *note; /* of http_conn_set_note(), or "" */
};

struct http_options {
	struct http_limits limits;
	/*
	 * Includes connections that are not closed yet (descriptors.h). An eighth more may be open
	 * while their clients are told that there are too many.
	 */
	unsigned max_connections;
	unsigned head_seconds;	/* from the first byte of a request to the end of its head */
	unsigned body_seconds;	/* from there to the end of the body */
	unsigned idle_seconds;	/* between requests */
	unsigned stall_seconds; /* while output waits and the client accepts no byte */
	size_t congested_bytes; /* pending output: more is congested, a quarter is drained */
	struct budget *budget;
	struct descriptors *descriptors; /* passed by clients; NULL: none are accepted */
};

struct http_callbacks {
	/*
	 * Over TCP: the head of a request is complete, its body not yet received. Identifies the
	 * user, or returns false and how to refuse it.
	 */
	bool (*on_head)(void *arg, const struct http_conn *c, const struct http_request *r,
			struct identity *ret, struct http_refusal *refusal);
	/*
	 * A request is complete; @r is valid until it is answered or this returns, and the body can
	 * be taken (http_conn_take_body()). The owner must answer exactly once, now or later,
	 * unless on_gone() is called first.
	 */
	void (*on_request)(void *arg, struct http_conn *c, const struct http_request *r);
	/* Formats the body of an error reported by this layer: a string to be freed, or NULL. */
	char *(*error_body)(void *arg, int status, const char *message);
	/*
	 * The client disconnected before its answer was complete: the connection must not be used
	 * any more. @user: http_conn_set_user()
	 */
	void (*on_gone)(void *arg, void *user);
	/*
	 * An answer is complete, or its client disconnected before (status 499). @r NULL: the
	 * request could not be parsed. Called from within http_reply() and the like: it may only
	 * log and count.
	 */
	void (*on_answered)(void *arg, const struct http_conn *c, const struct http_request *r,
			    const struct http_answer *a);
	/*
	 * Whether the peer of a Unix socket is an administrator, for whom connections are reserved.
	 */
	bool (*is_admin)(void *arg, const struct http_conn *c);
	/* No longer congested. */
	void (*on_drained)(void *arg, void *user);
	void *arg;
};

int http_server_new(struct event_base *base, const struct http_options *options,
		    const struct http_callbacks *callbacks, struct http_server **ret);
/* Closes everything at once, without callbacks. */
void http_server_free(struct http_server *s);
/*
 * Accepts connections from a listening socket, Unix or TCP, which stays the caller's. -ENOMEM,
 * -ENOSPC.
 */
int http_server_listen(struct http_server *s, int fd);
/* Stops accepting, closes idle connections at once and others after their answer. */
void http_server_drain(struct http_server *s);
/*
 * Closes connections over TCP of users for whom @stays returns false, including answers in
 * progress.
 */
void http_server_drop(struct http_server *s, bool (*stays)(const void *arg, user_id uid),
		      const void *arg);
unsigned http_server_connections(const struct http_server *s);
/* Number of connections over TCP without an authorised request so far. */
unsigned http_server_unknown(const struct http_server *s);
/* How many of these were closed to make room since the start. */
uint64_t http_server_evicted(const struct http_server *s);

/* The account of the client; borrowed. */
struct account *http_conn_account(const struct http_conn *c);
const struct http_peer *http_conn_peer(const struct http_conn *c);
/*
 * The supplementary groups of the peer of a Unix socket; returns how many there are. -1: more than
 * @max, or they cannot be told; none is written.
 */
int http_conn_groups(const struct http_conn *c, gid_t *groups, unsigned max);
/* A note on the current request, for the log. */
void http_conn_set_note(struct http_conn *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void http_conn_set_user(struct http_conn *c, void *user);
char *http_conn_take_body(struct http_conn *c, size_t *ret_len); /* to be freed by the caller */
/* Within on_request(): the descriptors of the request, as http_fds_take(). */
int http_conn_take_fds(struct http_conn *c, struct descriptor_set **ret);

/* @headers: further header lines, each with its CRLF, or NULL. The body is copied. */
void http_reply(struct http_conn *c, int status, const char *type, const char *headers,
		const char *body, size_t len);
/* Takes the body out of @body, without a copy. */
void http_reply_buffer(struct http_conn *c, int status, const char *type, const char *headers,
		       struct evbuffer *body);
void http_stream_begin(struct http_conn *c, int status, const char *type, const char *headers);
void http_stream_write(struct http_conn *c, const char *data, size_t len);
void http_stream_end(struct http_conn *c);
bool http_conn_congested(struct http_conn *c);

#endif
