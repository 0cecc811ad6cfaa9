/* SPDX-License-Identifier: MIT */
/*
 * The server: routes of the API over HTTP, backed by the models. docs/api.md is the manual for
 * clients.
 *
 * Threads: one, that of the event loop; it creates a pool of text workers.
 */
#ifndef TXDA_SERVER_SERVER_H
#define TXDA_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

struct api_keys;
struct budget;
struct event_base;
struct model_found;
struct models;
struct server;

extern const struct model_text_ops server_text_ops; /* for the table */

/*
 * Adds every model of @config to @table; models_pump() starts the loads. All must outlive the
 * server, @budget also the models, whose constraints are charged to it. Models with errors are
 * logged, and the others are served. -EINVAL: no model can be served, or one cannot and @config is
 * strict.
 */
int server_new(struct event_base *base, struct config *config, struct budget *budget,
	       struct models *table, struct server **ret);
/* Frees everything immediately, without waiting. */
void server_free(struct server *s);

/*
 * Applies a model list that was read again and checked (models_validate()): models not in it are
 * retired, new or moved ones are added, and the rest get their new names, users, keep-alive and
 * pin. @found: the result of models_validate(). On false nothing has changed: out of memory, or too
 * many models.
 */
bool server_reconfigure(struct server *s, const struct config *fresh,
			const struct model_found *found, char *err, size_t errlen);

/*
 * Sets the API keys required from clients over TCP; takes them over. Before, and with NULL, all TCP
 * clients are one user, which is allowed on loopback only. Running requests continue.
 */
void server_set_keys(struct server *s, struct api_keys *keys);
const struct api_keys *server_keys(const struct server *s);

/* Adds a Unix or TCP socket. */
int server_listen(struct server *s, int fd);
/* Refuses new connections and requests; running requests continue. */
void server_drain(struct server *s);
/* Drained: there is no connection and no request. */
bool server_idle(const struct server *s);
/* Aborts what is still running, with errors for its clients. */
void server_abort(struct server *s);

/* Whether a load from the start is still in progress. */
bool server_is_starting(const struct server *s);
/*
 * Models that are ready or can be loaded on demand, and those that failed permanently; @text (may
 * be NULL) gets a one-line status.
 */
void server_status(struct server *s, unsigned *ret_ready, unsigned *ret_failed, char *text,
		   size_t len);

#endif
