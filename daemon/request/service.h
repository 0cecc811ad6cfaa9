/* SPDX-License-Identifier: MIT */
/*
 * What all requests share: settings, models, text workers, and the list of open requests; with the
 * errors and permissions that depend on it. The server owns it (server/server.h).
 *
 * Threads: the event loop's, except for @config, which text workers read.
 */
#ifndef TXDA_REQUEST_SERVICE_H
#define TXDA_REQUEST_SERVICE_H

#include <stdbool.h>

#include "api_error.h"
#include "config.h"
#include "http.h"
#include "identity.h"
#include "json_out.h"
#include "models.h"

struct descriptors;
struct event;
struct exchange;
struct textpool;

struct service {
	struct config *config;
	struct models *table; /* borrowed */
	struct textpool *pool;
	struct event *kick_event; /* wakes the pool, once for all brief jobs of an iteration */
	struct descriptors *descriptors; /* that clients passed */
	struct exchange *exchanges;
	unsigned n_exchanges;
	struct json_out out; /* scratch buffer for answers, one at a time */
	bool draining;	     /* no new requests */
};

void service_reply_error(struct service *s, struct http_conn *c, const struct api_error *e,
			 const char *headers);
/* Sends s->out as JSON. */
void service_reply_out(struct service *s, struct http_conn *c, int status, const char *headers);

/* Access checks: the daemon, a model, administration. */
bool service_permits(const struct service *s, const struct http_conn *c);
bool service_permits_model(const struct http_conn *c, const struct served_model *m);
bool service_is_admin(const struct service *s, const struct http_conn *c);
/* Whether the peer may see the metrics of all users, and the health of all models. */
bool service_sees_all(const struct service *s, const struct http_conn *c);
/* Whether the peer may know that the model exists: its users, and administrators. */
bool service_may_see(const struct service *s, const struct http_conn *c,
		     const struct served_model *m);
/*
 * The model of that name, if the peer may see it; NULL as @name: the first one that it may use. A
 * model that the peer may not see is treated as non-existent: NULL, with the same error.
 */
struct served_model *service_find_model(struct service *s, const struct http_conn *c,
					const char *name, struct api_error *e);

/* Why a model does not answer, as an error for clients. */
void model_unavailable(const struct served_model *m, struct api_error *e);

/* The client's identity for messages: a uid, or the name of a key's user. */
struct user_text {
	char text[IDENTITY_NAME];
};
struct user_text service_user(const struct http_conn *c);

#endif
