/* SPDX-License-Identifier: MIT */
/*
 * Takes what a model generates apart, as it comes: reasoning, content and tool calls.
 *
 * Reasoning stands between <think> and </think> at the beginning; line breaks around it are no part
 * of it nor of the content. Tool calls come in the formats that checkpoints are trained on:
 *
 *	hermes     <tool_call>{"name": "f", "arguments": {...}}</tool_call>, also after content (Qwen)
 *	llama      {"name": "f", "parameters": {...}}, several with ; between them, at the beginning,
 *	           maybe behind <|python_tag|> (Llama 3.x)
 *	pythonic   [f(a=1, b='x'), g()] at the beginning (Llama 3.2 and 4)
 *	deepseek   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then the arguments
 *	           in a ```json block (V3, R1) or f<｜tool▁sep｜>{...} (V3.1),
 *	           <｜tool▁call▁end｜>...<｜tool▁calls▁end｜>
 *
 * Arguments are given out while they come, as the JSON text that was generated (pythonic ones are
 * translated). What begins as a call and turns out to be none before its name is known is content;
 * later, arguments are what they are. Text that may still become a mark is held back.
 *
 * Memory: what is held back is bounded by the text itself. One thread at a time.
 */
#ifndef TXDA_TEXT_REPLY_PARSER_H
#define TXDA_TEXT_REPLY_PARSER_H

#include <stdbool.h>
#include <stddef.h>

enum reply_tools {
	REPLY_NO_TOOLS, /* text that looks like a call is content */
	REPLY_HERMES,
	REPLY_LLAMA,
	REPLY_PYTHONIC,
	REPLY_DEEPSEEK,
};

#define REPLY_MAX_NAME 256 /* bytes of a function's name; longer ones are no call */

/* Told what there is; nonzero ends the feeding and is its result. Names and texts are UTF-8 if the
 * generated text is. */
struct reply_sink {
	int (*reasoning)(void *arg, const char *text, size_t len);
	int (*content)(void *arg, const char *text, size_t len);
	/* Call @index begins (0, 1, ...); its arguments follow in pieces, none if it has none. */
	int (*call)(void *arg, unsigned index, const char *name, size_t len);
	int (*arguments)(void *arg, unsigned index, const char *text, size_t len);
	void *arg;
};

struct reply_options {
	enum reply_tools tools;
	bool reasoning;	   /* <think> at the beginning is looked for */
	bool in_reasoning; /* the prompt has begun it already */
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

/* The marks that are control tokens in some vocabularies, so that they are not left out of the
 * text: number @i, NULL behind the last. */
const char *reply_mark(enum reply_tools tools, unsigned i);
#define REPLY_THINK	"<think>"
#define REPLY_THINK_END "</think>"

#endif
