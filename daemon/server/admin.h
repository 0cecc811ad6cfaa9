/* SPDX-License-Identifier: MIT */
/*
 * The routes for administrators: models come and go, plans, chips, requests. docs/api.md says what
 * each takes and answers. Everybody may list and cancel requests of his own; all else is for the
 * users and groups of --admin-user and --admin-group, root and the daemon's own user.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_SERVER_ADMIN_H
#define TXDA_SERVER_ADMIN_H

#include "http.h"

struct server;

void admin_load(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_unload(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_sleep(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_pin(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_plan(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_cancel(struct server *s, struct http_conn *c, const struct http_request *r);
/* admin_list.c */
void admin_devices(struct server *s, struct http_conn *c, const struct http_request *r);
void admin_requests(struct server *s, struct http_conn *c, const struct http_request *r);

/* Whether the peer is an administrator; answers with 403 if not. */
bool admin_check(struct server *s, struct http_conn *c);
/* Forgets those who wait, at the end. */
void admin_free_all(struct server *s);

#endif
