/* SPDX-License-Identifier: MIT */
/* Whom news are for. */
#ifndef TXDA_SERVER_CLIENT_H
#define TXDA_SERVER_CLIENT_H

struct replica;

/* News of an engine request: what engine_request.client points to. */
struct client {
	/* In the event loop's thread. May free the client. */
	void (*news)(struct client *c);
	struct replica *replica; /* on which the request runs; set by model_submit() */
};

/* News of a connection: what http_conn_set_user() is given. */
struct conn_user {
	void (*gone)(struct conn_user *u);
	void (*drained)(struct conn_user *u);
};

#endif
