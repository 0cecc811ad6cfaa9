/* SPDX-License-Identifier: MIT */
/*
 * What the files of the reply parser share: its state, the text that is not dealt with yet, and the
 * parts of a reply. Each part's function returns 1 when it has got on, 0 when it needs more text, or
 * an error; @final: there is no more.
 */
#ifndef TXDA_TEXT_REPLY_INTERNAL_H
#define TXDA_TEXT_REPLY_INTERNAL_H

#include "call_json.h"
#include "call_python.h"
#include "reply_parser.h"

enum part {
	PART_START, /* is there reasoning? */
	PART_REASONING,
	PART_SNIFF,   /* is the content a call? */
	PART_CONTENT, /* may have calls in it */
	PART_PLAIN,   /* has none */
	/* reply_calls.c */
	PART_CALL,	/* its first byte */
	PART_OBJECT,	/* JSON, or a list of Python calls */
	PART_NAME,	/* up to the mark behind it */
	PART_LINE,	/* deepseek: a name up to the line's end */
	PART_FENCE,	/* deepseek: white space and ```json */
	PART_ARGUMENTS, /* JSON */
	PART_SKIP,	/* what is left of a call, up to the mark at its end */
	PART_END,	/* behind a call: its mark */
	PART_BETWEEN,	/* behind a call and its mark */
	/* reply_tags.c */
	PART_TAG_NAME,
	PART_TAG, /* a key's mark, or the end */
	PART_TAG_KEY,
	PART_TAG_VALUE_MARK,
	PART_TAG_VALUE,
	/* reply_harmony.c */
	PART_HEADER,
	PART_MESSAGE,
};

struct reply_parser {
	struct reply_options options;
	const struct reply_format *format;
	struct reply_sink sink;	 /* the owner's */
	struct reply_sink inner; /* of the parsers of calls */
	enum part part;
	struct text_buf pending; /* not dealt with */
	struct text_buf held;	 /* the text of what may be a call, should it be none */
	struct text_buf space;	 /* what stands before that, in the same case content */
	bool trim;		 /* line breaks at the beginning are no part */
	bool list;		 /* mistral: within [ and ] */
	bool marked;		 /* the call at hand stands behind a mark */
	unsigned calls, index;	 /* that have begun; of the call at hand */
	struct call_json json;
	struct call_python python;
	struct json_value value;
	/* Tags. */
	const cJSON *properties; /* of the call's function, NULL: not known */
	unsigned n_arguments;
	enum { TYPE_TEXT, TYPE_JSON, TYPE_ANY } type; /* of the value */
	bool first;				      /* byte of it */
	/* Harmony: where the message at hand goes; whether such ones have been. */
	enum { MESSAGE_CONTENT, MESSAGE_REASONING, MESSAGE_CALL } message;
	bool messages, had[2];
};

/* ---- pending text ---------------------------------------------------------------------------- */

bool reply_is_space(char c);
void reply_drop(struct reply_parser *p, size_t n);
void reply_drop_space(struct reply_parser *p);
/* The pending text begins with @mark; may still become it. NULL is "". */
bool reply_begins(const struct reply_parser *p, const char *mark);
bool reply_may_become(const struct reply_parser *p, const char *mark);
/* Where @mark is in the pending text. If it is not there: how much cannot be part of it. */
size_t reply_find(const struct reply_parser *p, const char *mark, bool *ret_found);
/* @n without the white space (or line breaks alone) at its end. */
size_t reply_trimmed(const char *text, size_t n, bool breaks_only);
/* Gives the first @n bytes of the pending text out and drops them. */
int reply_emit(struct reply_parser *p, bool reasoning, size_t n);

/* ---- calls ----------------------------------------------------------------------------------- */

/* Behind a call's mark, which is dropped. @marked: no text of content can be such a call. */
void reply_begin_call(struct reply_parser *p, bool marked);
/* A call of that name begins. */
int reply_on_call(struct reply_parser *p, const struct reply_call *call);
int reply_on_arguments(struct reply_parser *p, const char *text, size_t len);
/* Whether the request has a function of that name; all do where nothing is known. */
const cJSON *reply_function(const struct reply_parser *p, const char *name, size_t len);

int reply_step_call(struct reply_parser *p, bool final);
int reply_step_tags(struct reply_parser *p, bool final);
int reply_step_harmony(struct reply_parser *p, bool final);
/* It was none: its text is content, unless the reply was cut off behind its mark. */
int reply_no_call(struct reply_parser *p, bool cut_off);

#endif
