/* SPDX-License-Identifier: MIT */
/* Shared by http.c (connections), http_server.c (accepting, timers) and http_turn.c (shares of time). */
#ifndef TXDA_HTTP_HTTP_INTERNAL_H
#define TXDA_HTTP_HTTP_INTERNAL_H

#include <stdatomic.h>
#include <sys/queue.h>

#include <event2/buffer.h>
#include <event2/util.h>

#include "http.h"
#include "http_fds.h"

struct event;
struct sockaddr_storage;

#define HTTP_MAX_LISTENERS 32

enum conn_state {
	CONN_READING,	/* receiving a request, or waiting for one */
	CONN_BUSY,	/* the owner has the request and has not answered */
	CONN_STREAMING, /* the owner is answering */
	CONN_CLOSING,	/* the last answer is being sent */
	CONN_LINGERING, /* all was sent; input is discarded until the client closes */
};

struct http_conn {
	struct http_server *server;
	struct http_conn *prev, *next;
	int fd;
	enum conn_state state;
	struct http_peer peer;
	struct account *account; /* account of the peer; a reference */
	bool admitted;		 /* counted in the peer's number of connections */
	bool waits;		 /* in account->waiting, and not read meanwhile */
	TAILQ_ENTRY(http_conn) wait_link;
	struct identity key; /* peer.key, if set */
	struct http_parser *parser;
	struct evbuffer *in, *out;
	struct http_fds fds;
	struct event *read_event, *write_event, *work_event;
	void *user;
	uint64_t since;	    /* ms: of the state, of a head's first byte, of the head's end */
	uint64_t progress;  /* ms: last progress of output */
	uint64_t heard;	    /* ms: last input that was thrown away */
	uint64_t accounted; /* bytes taken from the budget */
	/* State of the current request. */
	uint64_t asked; /* ms: when it was complete; 0: no request */
	uint64_t answer_bytes;
	int status;
	char note[HTTP_NOTE];
	size_t thrown_away;
	unsigned minor;
	bool head_done; /* the head of the request was parsed */
	bool head_only; /* HEAD: answers have no body */
	bool keep_alive, chunked, congested, reading;
	bool half_closed; /* the peer has shut down its writing side */
	bool broken;	  /* writing failed; freed by the loop */
	bool linger;
};

struct http_server {
	struct event_base *base;
	struct http_options options;
	struct http_callbacks callbacks;
	struct http_conn *conns;
	atomic_uint n_conns; /* only the loop changes it */
	unsigned n_admitted;
	struct event *listeners[HTTP_MAX_LISTENERS];
	bool is_tcp[HTTP_MAX_LISTENERS];
	unsigned n_listeners;
	struct event *tick, *resume;
	struct http_storm *storm;
	bool tick_fast, draining;
	TAILQ_HEAD(, account) turns; /* of users with connections that wait for them */
	struct event *next_turn;
	struct account *turn_of;	/* whose time the loop spends; a reference */
	uint64_t turn_since_ns;		/* what has not been counted yet */
	user_id last_user;		/* whose time was counted last */
	uint64_t last_ms, other_ms;	/* when that was, and when for another user */
	int schedstat;			/* of the loop's thread; -1: not open */
	uint64_t looked_ns, delayed_ns; /* when it was read, and how long the loop had waited */
	uint64_t evicted;		/* connections of unknown peers, for new ones */
};

/* Assigns the connection to an account; false: out of memory, and nothing has changed. */
bool http_conn_set_account(struct http_conn *c, user_id uid, const char *name);
/* Takes @fd, also on failure. */
struct http_conn *http_conn_new(struct http_server *s, int fd, const struct http_peer *peer);
void http_conn_free(struct http_conn *c);
void http_conn_lost(struct http_conn *c);
void http_conn_tick(struct http_conn *c, uint64_t now);
void http_conn_refuse(struct http_conn *c, int status, const char *message);
/* Answers with an error; the rest of the connection's data is not interpreted any more. */
void http_conn_refuse_with(struct http_conn *c, int status, const char *headers,
			   const char *message);
/* Reads from a connection that has waited for its turn. May free @c. */
void http_conn_resume(struct http_conn *c);
/* Between two requests, with the last answer completely sent. */
static inline bool http_conn_between(const struct http_conn *c)
{
	return c->state == CONN_READING && !http_parser_started(c->parser) &&
	       !evbuffer_get_length(c->out);
}
static inline bool http_conn_idle(const struct http_conn *c)
{
	return !c->waits && (c->state == CONN_LINGERING || http_conn_between(c));
}

/*
 * http_turn.c: what the loop does between begin and end is counted as the time of @a; charge counts
 * what has passed so far. If the user is not known yet, @a is NULL, and http_turn_of() sets the
 * account before the end.
 */
void http_turn_begin(struct http_server *s, struct account *a);
void http_turn_of(struct http_server *s, struct account *a);
void http_turn_charge(struct http_server *s);
void http_turn_end(struct http_server *s);
bool http_turn_has_time(struct http_server *s, const struct account *a);
/* Whether the user's share of time is used up. */
bool http_turn_over(const struct http_conn *c);
/* Puts the connection behind the user's others that wait. */
void http_turn_wait(struct http_conn *c);
void http_turn_leave(struct http_conn *c);
/* Continues waiting connections, users in turns; a callback of the event loop. */
void http_turn_next(evutil_socket_t fd, short what, void *arg);

/* http_tcp.c */
/* How long the next connection has to wait until there may be room for it; 0: there is. */
unsigned http_tcp_wait_ms(const struct http_server *s);
/*
 * For a newly accepted connection from @address: makes room for it and sets the socket's options.
 */
void http_tcp_accepted(struct http_server *s, int fd, const struct sockaddr_storage *address,
		       struct http_peer *ret);
/* The head of a request is complete: authorises it, or answers with an error and returns false. */
bool http_tcp_authorise(struct http_conn *c, const struct http_request *r);

void http_server_retick(struct http_server *s, bool fast);
void http_date(char *buf, size_t len);
const char *http_reason(int status);
/* Closes a connection that has no struct (any more). */
void http_close(struct http_server *s, const struct http_peer *peer, int fd);

#endif
