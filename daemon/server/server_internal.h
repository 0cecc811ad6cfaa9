/* SPDX-License-Identifier: MIT */
/* The server's state, for the files of this directory. */
#ifndef TXDA_SERVER_SERVER_INTERNAL_H
#define TXDA_SERVER_SERVER_INTERNAL_H

#include "budget.h"
#include "chips.h"
#include "exchange.h"
#include "http.h"
#include "models.h"
#include "server.h"

struct api_keys;
struct descriptors;

struct server {
	struct event_base *base;
	struct config *config;
	struct models *table; /* borrowed */
	struct http_server *http;
	struct textpool *pool;
	struct event *pool_event, *kick_event, *check_event;
	struct budget budget;
	struct api_keys *keys; /* of TCP; NULL: no key is asked for */
	unsigned turned_away;  /* requests over TCP without a valid key that were not logged yet */
	char turned_from[HTTP_ADDRESS];	 /* the last of them */
	struct descriptors *descriptors; /* that clients passed */
	struct admin_wait *loads;	 /* clients that wait for the end of a load, or a plan */
	struct event *loads_event;
	struct exchange *exchanges;
	unsigned n_exchanges;
	unsigned seconds; /* that the check event has counted */
	struct metrics_server metrics;
	struct chips_metrics chips;
	struct json_out out; /* for answers being written, one at a time */
	bool draining;
};

void server_reply_error(struct server *s, struct http_conn *c, const struct api_error *e,
			const char *headers);
/* Sends s->out as JSON. */
void server_reply_out(struct server *s, struct http_conn *c, int status, const char *headers);

/* Whether the peer may use the daemon; a model; what is for administrators. */
bool server_permits(const struct server *s, const struct http_conn *c);
bool server_permits_model(const struct http_conn *c, const struct served_model *m);
bool server_is_admin(const struct server *s, const struct http_conn *c);
/* Whether the peer sees the metrics of all users, and the health of all models. */
bool server_sees_all(const struct server *s, const struct http_conn *c);
/* Whether the peer may know that there is the model: who may use it, and who may load it. */
bool server_may_see(const struct server *s, const struct http_conn *c,
		    const struct served_model *m);
/*
 * The model of that name, if the peer may see it; NULL as @name: the first one that it may use. What
 * it may not see does not exist for it: NULL, with the same error.
 */
struct served_model *server_find_model(struct server *s, const struct http_conn *c,
				       const char *name, struct api_error *e);
/* Whether a model answers, or comes when it is asked for. */
bool server_is_served(const struct served_model *m);

/* Why a model does not answer, as an error for clients. */
void model_unavailable(const struct served_model *m, struct api_error *e);

/* Who asks, for words: a uid, or the name of a key's user. */
struct user_text {
	char text[IDENTITY_NAME];
};
struct user_text server_user(const struct http_conn *c);

/* auth.c: http_callbacks.on_head, with the server as @arg. */
bool server_let_in(void *arg, const struct http_conn *c, const struct http_request *r,
		   struct identity *ret, struct http_refusal *refusal);
/* Once a second: a line on who was turned away. */
void server_log_turned_away(struct server *s);

/* routes.c: answers the request or hands it to an exchange. */
void server_route(struct server *s, struct http_conn *c, const struct http_request *r);

#endif
