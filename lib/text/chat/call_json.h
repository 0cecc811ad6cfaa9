/* SPDX-License-Identifier: MIT */
/*
 * A tool call as a JSON object, byte by byte: finds the name and passes the arguments on while they
 * come. Internal to the reply parser.
 */
#ifndef TXDA_TEXT_CALL_JSON_H
#define TXDA_TEXT_CALL_JSON_H

#include "reply_parser.h"
#include "text_buf.h"

enum call_state {
	CALL_MORE,   /* all was taken, the call goes on */
	CALL_DONE,   /* it is complete; what was not taken belongs to others */
	CALL_WRONG,  /* it is none; nothing was said of it yet */
	CALL_BROKEN, /* it is malformed behind its name */
};

/* Follows one JSON value. Zero-initialise. */
struct json_value {
	bool begun, text, escaped, scalar, over;
	unsigned depth;
};

/* How many of the bytes belong to the value; sets over. */
size_t json_value_feed(struct json_value *v, const char *text, size_t len);

struct call_json {
	unsigned step;
	bool named, wants_value; /* the key at hand is that of the name; of the arguments */
	struct json_value value;
	bool quoted; /* the arguments are a JSON text within a string */
	char escape[8];
	unsigned n_escape;
	unsigned high;			  /* the first of a pair of surrogates */
	struct text_buf key, name, early; /* early: arguments that came before the name */
};

void call_json_init(struct call_json *c);
void call_json_free(struct call_json *c);

/*
 * Takes bytes up to the end of the object; *ret_used tells how many. Calls sink->call and
 * sink->arguments for call @index. *ret_error: -ENOMEM or the sink's; then the state means nothing.
 */
enum call_state call_json_feed(struct call_json *c, const char *text, size_t len,
			       const struct reply_sink *sink, unsigned index, size_t *ret_used,
			       int *ret_error);

#endif
