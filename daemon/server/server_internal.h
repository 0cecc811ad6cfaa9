/* SPDX-License-Identifier: MIT */
/* The server's state, shared by the files of this directory. */
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
	struct budget *budget;		 /* borrowed */
	struct api_keys *keys;		 /* of TCP clients; NULL: no key is required */
	unsigned turned_away;		 /* requests over TCP without a valid key, not logged yet */
	char turned_from[HTTP_ADDRESS];	 /* the most recent of them */
	struct descriptors *descriptors; /* that clients passed */
	struct admin_wait *loads;	 /* clients that wait for a load or a plan */
	struct event *loads_event;
	struct exchange *exchanges;
	unsigned n_exchanges;
	unsigned seconds; /* already counted by the check event */
	struct metrics_server metrics;
	struct chips_metrics chips;
	struct json_out out; /* scratch buffer for answers, one at a time */
	bool draining;
};

void server_reply_error(struct server *s, struct http_conn *c, const struct api_error *e,
			const char *headers);
/* Sends s->out as JSON. */
void server_reply_out(struct server *s, struct http_conn *c, int status, const char *headers);

/* Access checks: the daemon, a model, administration. */
bool server_permits(const struct server *s, const struct http_conn *c);
bool server_permits_model(const struct http_conn *c, const struct served_model *m);
bool server_is_admin(const struct server *s, const struct http_conn *c);
/* Whether the peer may see the metrics of all users, and the health of all models. */
bool server_sees_all(const struct server *s, const struct http_conn *c);
/* Whether the peer may know that the model exists: its users, and administrators. */
bool server_may_see(const struct server *s, const struct http_conn *c,
		    const struct served_model *m);
/*
 * The model of that name, if the peer may see it; NULL as @name: the first one that it may use. A
 * model that the peer may not see is treated as non-existent: NULL, with the same error.
 */
struct served_model *server_find_model(struct server *s, const struct http_conn *c,
				       const char *name, struct api_error *e);
/* Whether a model is ready, or can be loaded on demand. */
bool server_is_served(const struct served_model *m);

/* Why a model does not answer, as an error for clients. */
void model_unavailable(const struct served_model *m, struct api_error *e);

/* The client's identity for messages: a uid, or the name of a key's user. */
struct user_text {
	char text[IDENTITY_NAME];
};
struct user_text server_user(const struct http_conn *c);

/* auth.c: http_callbacks.on_head, with the server as @arg. */
bool server_authorise(void *arg, const struct http_conn *c, const struct http_request *r,
		      struct identity *ret, struct http_refusal *refusal);
/* Called once per second: logs how many requests were refused, in one line. */
void server_log_refused(struct server *s);

/* routes.c: answers the request or passes it to an exchange. */
void server_route(struct server *s, struct http_conn *c, const struct http_request *r);

#endif
