/* SPDX-License-Identifier: MIT */
/*
 * Takes what a model generates apart, as it comes: reasoning, content and tool calls, in the formats
 * of reply_format.h.
 *
 * Reasoning stands at the beginning, between its marks (<think> and </think>), or in messages of its
 * own; line breaks around it are not part of it nor of the content.
 *
 * Arguments are given out while they come, as the JSON text that was generated; those that are
 * written otherwise (Python, tags) are translated. What begins as a call and turns out to be none
 * before its name is known is content; later, arguments are what they are. Text that may still
 * become a mark is held back. What stands between a call and the mark at its end is dropped. A reply
 * that ends behind a call's mark, or within the mark of a further call or of the end of reasoning, was
 * cut off: the rest is not content.
 *
 * Memory: what is held back is bounded by the text itself. One thread at a time.
 */
#ifndef TXDA_TEXT_REPLY_PARSER_H
#define TXDA_TEXT_REPLY_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "reply_format.h"

#define REPLY_MAX_NAME 256 /* bytes of a function's name; longer ones are not a call */

struct reply_call {
	unsigned index; /* 0, 1, ... */
	const char *name;
	size_t name_len;
	const char *id; /* that the model wrote, NULL: none; at most REPLY_MAX_NAME bytes */
	size_t id_len;
};

/* Told what there is; nonzero ends the feeding and is its result. Names and texts are UTF-8 if the
 * generated text is. */
struct reply_sink {
	int (*reasoning)(void *arg, const char *text, size_t len);
	int (*content)(void *arg, const char *text, size_t len);
	/* A call begins; its arguments follow in pieces, none if it has none. */
	int (*call)(void *arg, const struct reply_call *call);
	int (*arguments)(void *arg, unsigned index, const char *text, size_t len);
	void *arg;
};

struct reply_options {
	enum reply_tools tools;
	enum reply_reasoning reasoning; /* is looked for */
	bool in_reasoning;		/* the prompt has begun it already */
	/*
	 * The request's tools as OpenAI has them, or NULL; borrowed. They tell strings from numbers
	 * in formats that write both alike, and calls from content in those without marks.
	 */
	const cJSON *functions;
};

struct reply_parser;

/* NULL: out of memory. @sink is copied. */
struct reply_parser *reply_parser_new(const struct reply_options *options,
				      const struct reply_sink *sink);
void reply_parser_free(struct reply_parser *p);

/* Takes whole characters. 0, -ENOMEM, or what the sink returned: then only free it. */
int reply_parser_feed(struct reply_parser *p, const char *text, size_t len);
/* The end: gives out what was held back. */
int reply_parser_flush(struct reply_parser *p);

#endif
