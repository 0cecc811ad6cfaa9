/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the reply parser: its state, the text that was not handled yet, and the
 * parts of a reply. Each part's function returns 1 if it made progress, 0 if it needs more text, or
 * an error; @final: there is no more text.
 */
#ifndef TXDA_TEXT_REPLY_INTERNAL_H
#define TXDA_TEXT_REPLY_INTERNAL_H

#include "call_json.h"
#include "call_python.h"
#include "reply_parser.h"

enum part {
	PART_START, /* before reasoning or content */
	PART_REASONING,
	PART_SNIFF,   /* may be a call or content */
	PART_CONTENT, /* may contain calls */
	PART_PLAIN,   /* contains none */
	/* reply_calls.c */
	PART_CALL,	/* its first byte */
	PART_OBJECT,	/* JSON, or a list of Python calls */
	PART_NAME,	/* up to the mark after it */
	PART_LINE,	/* deepseek: a name up to the line's end */
	PART_FENCE,	/* deepseek: white space and ```json */
	PART_ARGUMENTS, /* JSON */
	PART_SKIP,	/* the rest of a call, up to its end mark */
	PART_END,	/* after a call: its mark */
	PART_BETWEEN,	/* after a call and its mark */
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
	struct reply_sink inner; /* for the parsers of calls */
	enum part part;
	struct text_buf pending; /* not handled yet */
	struct text_buf held;	 /* text of a possible call, in case it is none */
	struct text_buf
		space;	 /* white space around calls: of the content if more of that follows */
	bool spoke;	 /* there was content */
	bool in_section; /* before the mark after all calls */
	unsigned nulls;	 /* bytes of arguments that may be null, held back */
	bool cut_off;	 /* the reply did not end by itself */
	bool trim;	 /* leading line breaks are not part of the text */
	bool list;	 /* mistral: within [ and ] */
	bool marked;	 /* the current call follows a mark */
	unsigned calls, index; /* calls begun; index of the current one */
	struct call_json json;
	struct call_python python;
	struct json_value value;
	struct json_value given; /* the last call's arguments, as the owner has them */
	/* Tags. */
	const cJSON *properties; /* of the call's function, NULL: not known */
	unsigned n_arguments;
	enum { TYPE_TEXT, TYPE_JSON, TYPE_ANY } type; /* of the value */
	bool first;				      /* byte of it */
	/* Harmony: the kind of the current message; whether there were messages of a kind. */
	enum { MESSAGE_CONTENT, MESSAGE_REASONING, MESSAGE_CALL } message;
	bool messages, had[2];
};

/* ---- pending text ---------------------------------------------------------------------------- */

bool reply_is_space(char c);
void reply_drop(struct reply_parser *p, size_t n);
void reply_drop_space(struct reply_parser *p);
/* Whether the pending text begins with @mark, or may become it. NULL is "". */
bool reply_begins(const struct reply_parser *p, const char *mark);
bool reply_may_become(const struct reply_parser *p, const char *mark);
/*
 * The position of @mark in the pending text. If it is not there: the number of bytes that cannot be
 * part of it.
 */
size_t reply_find(const struct reply_parser *p, const char *mark, bool *ret_found);
/* Whether a cut-off reply's last @n bytes, the beginning of a mark, are not to be shown. */
bool reply_is_cut_mark(const struct reply_parser *p, size_t n);
/* The length @n without trailing white space (or only line breaks). */
size_t reply_trimmed(const char *text, size_t n, bool breaks_only);
/* Emits the white space around earlier calls, before more content. */
int reply_emit_space(struct reply_parser *p);
/* Emits the first @n bytes of the pending text and drops them. */
int reply_emit(struct reply_parser *p, bool reasoning, size_t n);

/* ---- calls ----------------------------------------------------------------------------------- */

/* After a call's mark, which is dropped. @marked: content cannot look like this call. */
void reply_begin_call(struct reply_parser *p, bool marked);
/* A call of that name begins. */
int reply_on_call(struct reply_parser *p, const struct reply_call *call);
/* The last call's arguments have ended: gives what turned out not to be null. */
int reply_end_arguments(struct reply_parser *p);
int reply_on_arguments(struct reply_parser *p, const char *text, size_t len);
int reply_give_arguments(struct reply_parser *p, unsigned index, const char *text, size_t len);
/* Whether the request has a function of that name; true if nothing is known about functions. */
const cJSON *reply_function(const struct reply_parser *p, const char *name, size_t len);

int reply_step_call(struct reply_parser *p, bool final);
int reply_step_tags(struct reply_parser *p, bool final);
int reply_step_harmony(struct reply_parser *p, bool final);
/* It was not a call: its text is content, unless the reply was cut off after its mark. */
int reply_no_call(struct reply_parser *p, bool cut_off);

#endif
