/* SPDX-License-Identifier: MIT */
/*
 * Splits a model's output, as it is generated, into reasoning, content and tool calls, in the
 * formats of reply_format.h.
 *
 * Reasoning is at the beginning, between its marks (<think> and </think>), or in separate messages;
 * line breaks around it belong neither to it nor to the content.
 *
 * Arguments are emitted as they arrive, as the JSON text that was generated; other notations
 * (Python, tags) are translated, and null is no arguments at all. White space around calls belongs
 * to the content only if there is text on both sides. Text that begins like a call, but turns out
 * to be none before its name is known, is content; after that, malformed arguments are emitted as
 * they are. Text that may still become a mark is held back. Text between a call and its end mark is
 * dropped. A reply that ends after a call's mark, or within the mark of a further call or of the
 * end of reasoning, was cut off: the rest is not content.
 *
 * Memory: held-back text is bounded by the length of the text. One thread at a time.
 */
#ifndef TXDA_TEXT_REPLY_PARSER_H
#define TXDA_TEXT_REPLY_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "reply_format.h"
#include "reply_sink.h"

struct reply_options {
	enum reply_tools tools;
	enum reply_reasoning reasoning; /* format to look for */
	bool in_reasoning;		/* the prompt has already started it */
	/*
	 * The request's tools as OpenAI has them, or NULL; borrowed. They distinguish strings from
	 * numbers in formats that write both alike, and calls from content in formats without
	 * marks.
	 */
	const cJSON *functions;
};

struct reply_parser;

/* NULL: out of memory. @sink is copied. */
struct reply_parser *reply_parser_new(const struct reply_options *options,
				      const struct reply_sink *sink);
void reply_parser_free(struct reply_parser *p);

/* Takes whole characters. 0, -ENOMEM, or the sink's result: then the parser can only be freed. */
int reply_parser_feed(struct reply_parser *p, const char *text, size_t len);
/*
 * Before the flush of a reply that did not end by itself: the beginning of a mark of more than one
 * character is not content then.
 */
void reply_parser_cut_off(struct reply_parser *p);
/* The end of the reply: emits what was held back. */
int reply_parser_flush(struct reply_parser *p);
/* Whether the last call's arguments have begun, and are not complete. */
bool reply_parser_in_arguments(const struct reply_parser *p);

#endif
