/* SPDX-License-Identifier: MIT */
/*
 * Parses tool calls that are a list of Python calls, [f(a=1, b='x'), g()], byte by byte; arguments
 * are translated to JSON as they arrive. Internal to the reply parser.
 *
 * Values: strings ('...' or "..."), numbers, True, False, None (and JSON's words), lists, tuples,
 * dicts, nested up to PYTHON_DEPTH.
 */
#ifndef TXDA_TEXT_CALL_PYTHON_H
#define TXDA_TEXT_CALL_PYTHON_H

#include "call_json.h"

#define PYTHON_DEPTH 64

struct call_python {
	unsigned step;
	unsigned n_arguments;
	char quote;	     /* of the current string */
	bool escaped, comma; /* comma: required before the next value of a list */
	unsigned depth;
	char brackets[PYTHON_DEPTH]; /* their closing brackets in JSON */
	struct text_buf name, word, out;
};

void call_python_init(struct call_python *c);
void call_python_free(struct call_python *c);

/*
 * Consumes bytes up to the list's end; @index is incremented for each call. Otherwise as
 * call_json_feed().
 */
enum call_state call_python_feed(struct call_python *c, const char *text, size_t len,
				 const struct reply_sink *sink, unsigned *index, size_t *ret_used,
				 int *ret_error);

#endif
