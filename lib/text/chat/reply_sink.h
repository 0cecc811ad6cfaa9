/* SPDX-License-Identifier: MIT */
/* What the parsers of replies and of calls (reply_parser.h) pass on. */
#ifndef TXDA_TEXT_REPLY_SINK_H
#define TXDA_TEXT_REPLY_SINK_H

#include <stddef.h>

#define REPLY_MAX_NAME 256 /* bytes of a function's name; longer ones are not a call */

struct reply_call {
	unsigned index; /* 0, 1, ... */
	const char *name;
	size_t name_len;
	const char *id; /* written by the model, NULL: none; at most REPLY_MAX_NAME bytes */
	size_t id_len;
};

/*
 * Receives the parts; a nonzero result ends the parsing and is returned. Names and texts are UTF-8
 * if the generated text is.
 */
struct reply_sink {
	int (*reasoning)(void *arg, const char *text, size_t len);
	int (*content)(void *arg, const char *text, size_t len);
	/* A call begins; its arguments follow in pieces, none if it has none. */
	int (*call)(void *arg, const struct reply_call *call);
	int (*arguments)(void *arg, unsigned index, const char *text, size_t len);
	void *arg;
};

#endif
