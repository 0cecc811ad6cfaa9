/* SPDX-License-Identifier: MIT */
/*
 * Parses a tool call that is a JSON object, byte by byte: finds the name and passes arguments on as
 * they arrive. Internal to the reply parser.
 */
#ifndef TXDA_TEXT_CALL_JSON_H
#define TXDA_TEXT_CALL_JSON_H

#include <stdbool.h>

#include "reply_sink.h"
#include "text_buf.h"

enum call_state {
	CALL_MORE,   /* everything was consumed, the call continues */
	CALL_DONE,   /* it is complete; unconsumed bytes belong to what follows */
	CALL_WRONG,  /* it is not a call; nothing was reported yet */
	CALL_BROKEN, /* it is malformed after its name */
};

/* Follows one JSON value. Zero-initialise. */
struct json_value {
	bool begun, text, escaped, scalar, over;
	unsigned depth;
};

/* Returns how many of the bytes belong to the value; sets over. */
size_t json_value_feed(struct json_value *v, const char *text, size_t len);

struct call_json {
	unsigned step;
	bool named, wants_value; /* the current key is that of the name; of the arguments */
	struct json_value value;
	bool quoted; /* the arguments are a JSON text within a string */
	char escape[8];
	unsigned n_escape;
	unsigned high;			  /* the first half of a surrogate pair */
	struct text_buf key, name, early; /* early: arguments that preceded the name */
};

void call_json_init(struct call_json *c);
void call_json_free(struct call_json *c);

/*
 * Consumes bytes up to the end of the object; *ret_used is their number. Calls sink->call and
 * sink->arguments for call @index. *ret_error: -ENOMEM or the sink's; then the state is
 * meaningless.
 */
enum call_state call_json_feed(struct call_json *c, const char *text, size_t len,
			       const struct reply_sink *sink, unsigned index, size_t *ret_used,
			       int *ret_error);

#endif
