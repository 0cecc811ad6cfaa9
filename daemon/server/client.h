/* SPDX-License-Identifier: MIT */
/* Whom news of an engine request are for: what engine_request.client points to. */
#ifndef TXDA_SERVER_CLIENT_H
#define TXDA_SERVER_CLIENT_H

struct client {
	/* In the event loop's thread. May free the client. */
	void (*news)(struct client *c);
};

#endif
