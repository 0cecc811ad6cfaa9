/* SPDX-License-Identifier: MIT */
/*
 * A small HTTP/1.1 client on a Unix socket: one request per connection, the answer is read as it
 * arrives. Blocking; interrupted() ends a wait with -EINTR, the connection's time limit with
 * -ETIMEDOUT.
 */
#ifndef TXDA_RUN_CLIENT_H
#define TXDA_RUN_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "text_buf.h"

/*
 * Time from the connection to the end of the answer. What the daemon answers at once, it answers
 * within milliseconds even if it is busy.
 */
enum client_limit { CLIENT_NO_LIMIT = 0, CLIENT_SHORT_MS = 5000 };

struct client {
	int fd;
	uint64_t deadline_ms; /* of clock_ms(); 0: none */
	int status;	      /* of the answer */
	int chunked;
	int until_close; /* neither length nor chunks */
	uint64_t left;	 /* remaining bytes of the body or the chunk */
	int ended;
	unsigned char buf[16384];
	size_t at, len; /* read and not used yet */
};

/* $TXDA_SOCKET, $XDG_RUNTIME_DIR/txda.sock if it is there, else /run/txda/txda.sock. */
const char *client_default_socket(void);
/* Errors of connect(2): -ENOENT and -ECONNREFUSED: no listener; and of peer_check(). */
int client_open(struct client *c, const char *socket_path, enum client_limit limit);
/* Reports on stderr why the daemon's socket @path could not be used; @error of any function here. */
void client_report(const char *program, const char *path, int error);
/*
 * Sends a request (@body NULL: GET) and reads the head of the answer. -EPROTO: the answer is not
 * HTTP.
 */
int client_request(struct client *c, const char *path, const char *body, size_t len);
/* Reads part of the body: the number of bytes, 0 at its end, -EPIPE if it was cut off. */
long client_read(struct client *c, char *buf, size_t len);
/*
 * Reads the rest of the body into @text, NUL-terminated, whose data must be freed in any case.
 * -EFBIG: it has @max bytes or more.
 */
int client_read_all(struct client *c, size_t max, struct text_buf *text);
/* Reads the rest of the body as JSON; NULL if it is not JSON, or longer than 16 MiB. */
cJSON *client_read_json(struct client *c);
void client_close(struct client *c);

#endif
