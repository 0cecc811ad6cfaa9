/* SPDX-License-Identifier: MIT */
/* What http.c (connections) and http_server.c (accepting, time) share. */
#ifndef TXDA_SERVER_HTTP_INTERNAL_H
#define TXDA_SERVER_HTTP_INTERNAL_H

#include "http.h"
#include "http_fds.h"

struct event;
struct evbuffer;

#define HTTP_MAX_LISTENERS 4

enum conn_state {
	CONN_READING,	/* a request, or waiting for one */
	CONN_BUSY,	/* the owner has the request and has not answered */
	CONN_STREAMING, /* the owner is answering */
	CONN_CLOSING,	/* the last answer goes out */
	CONN_LINGERING, /* everything went out; what still comes is thrown away until the client
			   closes */
};

struct http_conn {
	struct http_server *server;
	struct http_conn *prev, *next;
	int fd;
	enum conn_state state;
	struct http_peer peer;
	struct http_parser *parser;
	struct evbuffer *in, *out;
	struct http_fds fds;
	struct event *read_event, *write_event, *work_event;
	void *user;
	uint64_t since;	    /* ms: of the state, of the first byte of a head, of the head's end */
	uint64_t progress;  /* ms: when output last moved */
	uint64_t accounted; /* bytes taken from the budget */
	/* Of the request at hand. */
	uint64_t asked; /* ms: when it was complete; 0: none is */
	uint64_t answer_bytes;
	int status;
	char note[HTTP_NOTE];
	size_t thrown_away;
	unsigned minor;
	bool head_done; /* the head of the request was parsed */
	bool head_only; /* HEAD: answers have no body */
	bool keep_alive, chunked, congested, reading;
	bool half_closed; /* the peer writes no more */
	bool broken;	  /* writing failed; to be freed by the loop */
	bool linger;
};

struct http_server {
	struct event_base *base;
	struct http_options options;
	struct http_callbacks callbacks;
	struct http_conn *conns;
	unsigned n_conns;
	struct event *listeners[HTTP_MAX_LISTENERS];
	unsigned n_listeners;
	struct event *tick, *resume;
	bool tick_fast, draining;
};

struct http_conn *http_conn_new(struct http_server *s, int fd); /* takes @fd, also on failure */
void http_conn_free(struct http_conn *c);
void http_conn_lost(struct http_conn *c);
void http_conn_tick(struct http_conn *c, uint64_t now);
void http_conn_refuse(struct http_conn *c, int status, const char *message);

void http_server_retick(struct http_server *s, bool fast);
uint64_t http_now_ms(void);
void http_date(char *buf, size_t len);
const char *http_reason(int status);
void http_peer_of(int fd, struct http_peer *ret);

#endif
