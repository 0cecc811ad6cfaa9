/* SPDX-License-Identifier: MIT */
/*
 * An HTTP/1.1 server on Unix sockets and TCP, in one event loop.
 *
 * It reads requests (http_parser.h), hands each whole one to the owner, and sends what the owner
 * answers: a reply in one piece or a stream. A connection has one request in the owner's hands at a
 * time; pipelined ones wait.
 *
 * What a client can do to it is bounded: the number of connections, the time that a head, a body and
 * a stalled reader may take, and the bytes held for a user (struct budget). A user may have three
 * times as many connections as are left then, and one of its own that idles makes room for a new
 * one. Where many users have all of them, who has most of those that idle loses one. A sixteenth of
 * all is kept for administrators. A client that goes away is noticed at once, also while it waits
 * or does not read. A client that only shuts down its writing side still gets its answer.
 *
 * Slow readers: http_stream_write() always takes what it is given. The owner asks
 * http_conn_congested() before it makes more and gets on_drained() when there is room again.
 *
 * Descriptors may come with the bytes of a request (http_fds.h). The owner takes them while it is
 * handed the request, or they are closed. TCP brings none.
 *
 * Over TCP nobody is known until on_head() has said who it is, which it does for each request anew.
 * What all of TCP can take is less than half of the connections, so that the Unix sockets are
 * served whatever happens there:
 *	- of connections that have not been known yet there are an eighth at most: a new one closes
 *	  the oldest, and none lives longer than a head may take. Each has a moment for its head,
 *	  however many come: further ones wait in the listener's queue meanwhile;
 *	- users that are known share the rest: each may have three times as many as are left.
 * A client that shuts down its writing side cannot be told from one that closed, and counts as gone.
 *
 * The process must ignore SIGPIPE.
 *
 * Answers tell in the header Openai-Processing-Ms how long the owner took.
 *
 * Threads: all in the thread of the event loop. No function here calls back into the owner, except
 * that the callbacks come from the loop, and on_answered() from what completes an answer.
 */
#ifndef TXDA_SERVER_HTTP_H
#define TXDA_SERVER_HTTP_H

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

#define HTTP_ADDRESS 80 /* bytes of an address in words, with its end */

struct http_peer {
	uid_t uid; /* (uid_t)-1: unknown */
	gid_t gid;
	pid_t pid;		    /* 0: unknown */
	const struct identity *key; /* over TCP: whom on_head() named last; NULL: nobody yet */
	bool tcp;
	char address[HTTP_ADDRESS]; /* over TCP; else "" */
};

/* How on_head() turns a request away. */
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
	unsigned max_connections; /* with those that were not closed yet (descriptors.h); those that
				     are told so find room beyond it, a quarter of it */
	unsigned head_seconds;	  /* from the first byte of a request to the end of its head */
	unsigned body_seconds;	  /* from there to the end of the body */
	unsigned idle_seconds;	  /* between requests */
	unsigned stall_seconds;	  /* without a byte taken while output waits */
	size_t congested_bytes;	  /* output that waits: more is congested, a quarter is drained */
	struct budget *budget;
	struct descriptors *descriptors; /* that clients pass; NULL: they cannot */
};

struct http_callbacks {
	/*
	 * Over TCP: the head of a request is complete, its body is still to come. Says for whom it
	 * asks, or (false) how it is turned away.
	 */
	bool (*on_head)(void *arg, const struct http_conn *c, const struct http_request *r,
			struct identity *ret, struct http_refusal *refusal);
	/*
	 * A request is complete; @r is valid until it is answered or this returns, the body can be
	 * taken (http_conn_take_body()). Must lead to one answer, now or later, unless on_gone()
	 * comes first.
	 */
	void (*on_request)(void *arg, struct http_conn *c, const struct http_request *r);
	/* Makes the body of an error of this layer: a string to be freed, or NULL. */
	char *(*error_body)(void *arg, int status, const char *message);
	/* The client went away before its answer was complete: the connection must not be used any
	 * more. @user: http_conn_set_user() */
	void (*on_gone)(void *arg, void *user);
	/*
	 * An answer is complete, or its client went away before it was (status 499). @r NULL: the
	 * request could not be read. Called from within http_reply() and the like: it may log and
	 * count, and nothing else.
	 */
	void (*on_answered)(void *arg, const struct http_conn *c, const struct http_request *r,
			    const struct http_answer *a);
	/* Whether the peer of a Unix socket is an administrator, for whom connections are kept. */
	bool (*is_admin)(void *arg, const struct http_conn *c);
	/* No longer congested. */
	void (*on_drained)(void *arg, void *user);
	void *arg;
};

int http_server_new(struct event_base *base, const struct http_options *options,
		    const struct http_callbacks *callbacks, struct http_server **ret);
/* Closes everything at once, without callbacks. */
void http_server_free(struct http_server *s);
/* Accepts connections from a listening socket, Unix or TCP, which stays the caller's. -ENOMEM,
 * -ENOSPC. */
int http_server_listen(struct http_server *s, int fd);
/* Accepts no more, closes idle connections, and each other one after its answer. */
void http_server_drain(struct http_server *s);
/* Closes, with whatever is answered there, connections over TCP of users whom @stays does not know. */
void http_server_drop(struct http_server *s, bool (*stays)(const void *arg, uid_t uid),
		      const void *arg);
unsigned http_server_connections(const struct http_server *s);
/* Connections over TCP from which no request was let in so far. */
unsigned http_server_unknown(const struct http_server *s);
/* How many of these were closed for new ones since the start. */
uint64_t http_server_evicted(const struct http_server *s);

/* The account of who asks; borrowed. */
struct account *http_conn_account(const struct http_conn *c);
const struct http_peer *http_conn_peer(const struct http_conn *c);
/* The further groups of the peer of a Unix socket, up to @max; returns how many there are. */
unsigned http_conn_groups(const struct http_conn *c, gid_t *groups, unsigned max);
/* Words on the request at hand, for the log. */
void http_conn_set_note(struct http_conn *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void http_conn_set_user(struct http_conn *c, void *user);
char *http_conn_take_body(struct http_conn *c, size_t *ret_len); /* to be freed by the caller */
/* Within on_request(): the descriptors that came with the request, as http_fds_take(). */
int http_conn_take_fds(struct http_conn *c, struct descriptor_set **ret);

/* @headers: further header lines, each with its CRLF, or NULL. The body is copied. */
void http_reply(struct http_conn *c, int status, const char *type, const char *headers,
		const char *body, size_t len);
/* The body is taken out of @body, without a copy. */
void http_reply_buffer(struct http_conn *c, int status, const char *type, const char *headers,
		       struct evbuffer *body);
void http_stream_begin(struct http_conn *c, int status, const char *type, const char *headers);
void http_stream_write(struct http_conn *c, const char *data, size_t len);
void http_stream_end(struct http_conn *c);
bool http_conn_congested(struct http_conn *c);

#endif
