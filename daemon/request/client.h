/* SPDX-License-Identifier: MIT */
/* Who gets the events of a connection. */
#ifndef TXDA_SERVER_CLIENT_H
#define TXDA_SERVER_CLIENT_H

/* What http_conn_set_user() is given. */
struct conn_user {
	void (*gone)(struct conn_user *u);
	void (*drained)(struct conn_user *u);
};

#endif
