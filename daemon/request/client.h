/* SPDX-License-Identifier: MIT */
/* Callbacks for request and connection events. */
#ifndef TXDA_REQUEST_CLIENT_H
#define TXDA_REQUEST_CLIENT_H

/* The user pointer of http_conn_set_user(). */
struct conn_user {
	void (*gone)(struct conn_user *u);
	void (*drained)(struct conn_user *u);
};

#endif
