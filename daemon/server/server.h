/* SPDX-License-Identifier: MIT */
/*
 * The server: routes of the API over HTTP, models behind it. docs/api.md is its manual for clients.
 *
 * Threads: one, that of the event loop; it makes a pool for text.
 */
#ifndef TXDA_SERVER_SERVER_H
#define TXDA_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

struct api_keys;
struct event_base;
struct model_found;
struct models;
struct server;

extern const struct model_text_ops server_text_ops; /* for the table */

/*
 * Adds every model of @config to @table; models_pump() begins the loads. Both must outlive the
 * server. What is wrong with a model is in the log, and the others are served.
 * -EINVAL: none can be, or one cannot and @config is strict.
 */
int server_new(struct event_base *base, struct config *config, struct models *table,
	       struct server **ret);
/* Ends everything at once. */
void server_free(struct server *s);

/*
 * Follows a list of models that was read again, and checked (models_validate()): what is not in it
 * is retired, what is new or lies elsewhere is added, the rest goes on with its new names, users,
 * keep-alive and pin. @found: what models_validate() found. False, and all is as it was: out of memory, or too many models.
 */
bool server_reconfigure(struct server *s, const struct config *fresh,
			const struct model_found *found, char *err, size_t errlen);

/*
 * The keys that clients over TCP need from now on; takes them. Before, and with NULL, everybody who
 * can connect is one user, as it may be on loopback only. Requests that are let in go on.
 */
void server_set_keys(struct server *s, struct api_keys *keys);
const struct api_keys *server_keys(const struct server *s);

/* A Unix or a TCP socket. */
int server_listen(struct server *s, int fd);
/* No new connections and requests; what runs goes on. */
void server_drain(struct server *s);
/* Drained: no connection and no request is left. */
bool server_idle(const struct server *s);
/* Ends what still runs, with errors for its clients. */
void server_abort(struct server *s);

/* Whether a load of the start is still under way. */
bool server_is_starting(const struct server *s);
/* Models that answer, or come when they are asked for, and those that failed for good; @text (may
 * be NULL) is a line on what goes on. */
void server_status(struct server *s, unsigned *ret_ready, unsigned *ret_failed, char *text,
		   size_t len);

#endif
