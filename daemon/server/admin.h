/* SPDX-License-Identifier: MIT */
/*
 * The routes for administrators: loading and unloading models, plans, chips, requests. docs/api.md
 * documents them. Users may list and cancel their own requests; everything else is restricted to
 * the users and groups of --admin-user and --admin-group, root and the daemon's own user.
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
/* Drops all waiting clients at shutdown. */
void admin_free_all(struct server *s);

#endif
