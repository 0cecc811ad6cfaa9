/* SPDX-License-Identifier: MIT */
/* The server's state, shared by the files of this directory. */
#ifndef TXDA_SERVER_SERVER_INTERNAL_H
#define TXDA_SERVER_SERVER_INTERNAL_H

#include "budget.h"
#include "chips.h"
#include "exchange.h"
#include "http.h"
#include "metrics.h"
#include "server.h"
#include "service.h"

struct api_keys;

struct server {
	struct service service; /* the part that requests see */
	struct event_base *base;
	struct http_server *http;
	struct event *pool_event, *check_event;
	struct budget *budget; /* borrowed */
	struct api_keys *keys; /* of TCP clients; NULL: no key is required */
	unsigned refused;      /* unauthenticated requests over TCP, not logged yet */
	char refused_from[HTTP_ADDRESS], refused_why[HTTP_NOTE]; /* the most recent of them */
	struct admin_wait *loads; /* clients that wait for a load or a plan */
	struct event *loads_event;
	unsigned seconds; /* already counted by the check event */
	struct metrics_server metrics;
	struct chips_metrics chips;
};

/* Whether a model is ready, or can be loaded on demand. */
bool server_is_served(const struct served_model *m);

/* auth.c: http_callbacks.on_head, with the server as @arg. */
bool server_authorise(void *arg, const struct http_conn *c, const struct http_request *r,
		      struct identity *ret, struct http_refusal *refusal);
/* Counts a request over TCP whose peer is not authenticated; it has been answered. */
void server_count_refused(struct server *s, const struct http_conn *c, const struct http_answer *a);
/* Called once per second: logs how many requests were refused, in one line. */
void server_log_refused(struct server *s);

/* routes.c: answers the request or passes it to an exchange. */
void server_route(struct server *s, struct http_conn *c, const struct http_request *r);

#endif
