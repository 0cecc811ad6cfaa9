// SPDX-License-Identifier: MIT
#include "reply_parser.h"

#include <errno.h>
#include <string.h>

#include "call_json.h"
#include "call_python.h"

#define HERMES_BEGIN "<tool_call>"
#define HERMES_END   "</tool_call>"
#define PYTHON_TAG   "<|python_tag|>"
#define CALLS_BEGIN                                                                                \
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                            \
	"calls\xE2\x96\x81"                                                                        \
	"begin\xEF\xBD\x9C>"
#define CALLS_END                                                                                  \
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                            \
	"calls\xE2\x96\x81"                                                                        \
	"end\xEF\xBD\x9C>"
#define CALL_BEGIN                                                                                 \
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                            \
	"call\xE2\x96\x81"                                                                         \
	"begin\xEF\xBD\x9C>"
#define CALL_END                                                                                   \
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                            \
	"call\xE2\x96\x81"                                                                         \
	"end\xEF\xBD\x9C>"
#define CALL_SEP                                                                                   \
	"<\xEF\xBD\x9Ctool\xE2\x96\x81"                                                            \
	"sep\xEF\xBD\x9C>"

enum part {
	PART_START, /* is there reasoning? */
	PART_REASONING,
	PART_SNIFF,	/* is the content a call? */
	PART_CONTENT,	/* may have calls in it */
	PART_PLAIN,	/* has none */
	PART_CALL,	/* JSON, or a list of Python calls */
	PART_KIND,	/* deepseek: up to the separator */
	PART_NAME,	/* deepseek: up to the line's end */
	PART_FENCE,	/* deepseek: white space and ```json */
	PART_ARGUMENTS, /* deepseek */
	PART_SKIP,	/* what is left of a call, up to the mark at its end */
	PART_END,	/* behind a call: its mark */
	PART_BETWEEN,	/* behind a call and its mark */
};

struct reply_parser {
	struct reply_options options;
	struct reply_sink sink;	 /* the owner's */
	struct reply_sink inner; /* of the parsers of calls */
	enum part part;
	struct text_buf pending; /* not dealt with */
	struct text_buf held;	 /* the text of what may be a call, should it be none */
	bool trim;		 /* line breaks at the beginning are no part */
	unsigned calls, index;	 /* that have begun; of the call at hand */
	struct call_json json;
	struct call_python python;
	struct json_value value;
};

/* The parsers of calls tell it here. */
static int on_call(void *arg, unsigned index, const char *name, size_t len)
{
	struct reply_parser *p = arg;

	p->calls = index + 1;
	return p->sink.call(p->sink.arg, index, name, len);
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	struct reply_parser *p = arg;

	return p->sink.arguments(p->sink.arg, index, text, len);
}

struct reply_parser *reply_parser_new(const struct reply_options *options,
				      const struct reply_sink *sink)
{
	struct reply_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->options = *options;
	p->sink = *sink;
	p->inner = (struct reply_sink){.call = on_call, .arguments = on_arguments, .arg = p};
	p->part = options->in_reasoning ? PART_REASONING
		  : options->reasoning	? PART_START
					: PART_SNIFF;
	p->trim = options->in_reasoning;
	call_json_init(&p->json);
	call_python_init(&p->python);
	return p;
}

void reply_parser_free(struct reply_parser *p)
{
	if (!p)
		return;
	call_json_free(&p->json);
	call_python_free(&p->python);
	free(p->pending.data);
	free(p->held.data);
	free(p);
}

const char *reply_mark(enum reply_tools tools, unsigned i)
{
	static const char *const hermes[] = {HERMES_BEGIN, HERMES_END, NULL};
	static const char *const llama[] = {PYTHON_TAG, NULL};
	static const char *const deepseek[] = {CALLS_BEGIN, CALLS_END, CALL_BEGIN,
					       CALL_END,    CALL_SEP,  NULL};
	static const char *const none[] = {NULL};
	const char *const *marks = tools == REPLY_HERMES     ? hermes
				   : tools == REPLY_LLAMA    ? llama
				   : tools == REPLY_PYTHONIC ? llama
				   : tools == REPLY_DEEPSEEK ? deepseek
							     : none;

	for (unsigned k = 0; k < i; k++) {
		if (!marks[k])
			return NULL;
	}
	return marks[i];
}

/* ---- pending text ---------------------------------------------------------------------------- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void drop(struct reply_parser *p, size_t n)
{
	p->pending.len -= n;
	memmove(p->pending.data, p->pending.data + n, p->pending.len);
}

static void drop_space(struct reply_parser *p)
{
	size_t n = 0;

	while (n < p->pending.len && is_space(p->pending.data[n]))
		n++;
	if (n)
		drop(p, n);
}

static bool begins_with(const struct reply_parser *p, const char *mark)
{
	size_t len = strlen(mark);

	return p->pending.len >= len && !memcmp(p->pending.data, mark, len);
}

/* The pending text may still become the mark. */
static bool may_become(const struct reply_parser *p, const char *mark)
{
	return p->pending.len < strlen(mark) && !memcmp(p->pending.data, mark, p->pending.len);
}

/* Where @mark is in the pending text. If it is not there: how much can be no part of it. */
static size_t find_mark(const struct reply_parser *p, const char *mark, bool *ret_found)
{
	size_t len = strlen(mark), n = p->pending.len;
	const char *text = p->pending.data;

	*ret_found = false;
	for (size_t at = 0; at < n; at++) {
		const char *next = memchr(text + at, mark[0], n - at);

		if (!next)
			return n;
		at = (size_t)(next - text);
		if (n - at >= len) {
			*ret_found = !memcmp(next, mark, len);
			if (*ret_found)
				return at;
		} else if (!memcmp(next, mark, n - at)) {
			return at;
		}
	}
	return n;
}

/* Cuts white space (or line breaks alone) off the end of @n bytes. */
static size_t without_space(const char *text, size_t n, bool breaks_only)
{
	while (n && (breaks_only ? text[n - 1] == '\n' : is_space(text[n - 1])))
		n--;
	return n;
}

static void trim_start(struct reply_parser *p)
{
	size_t n = 0;

	while (p->trim && n < p->pending.len && p->pending.data[n] == '\n')
		n++;
	if (n < p->pending.len)
		p->trim = false;
	if (n)
		drop(p, n);
}

/* Gives out the first @n bytes of the pending text. */
static int give(struct reply_parser *p, bool reasoning, size_t n)
{
	int error = 0;

	if (n)
		error = reasoning ? p->sink.reasoning(p->sink.arg, p->pending.data, n)
				  : p->sink.content(p->sink.arg, p->pending.data, n);
	drop(p, n);
	return error;
}

static int say(struct reply_parser *p, const char *text, size_t len)
{
	return len ? p->sink.content(p->sink.arg, text, len) : 0;
}

/* ---- reasoning ------------------------------------------------------------------------------- */

/*
 * Each part's function returns 1 when it has got on, 0 when it needs more text, or an error.
 * @final: there is no more.
 */
static int part_start(struct reply_parser *p, bool final)
{
	size_t n = 0, left;

	while (n < p->pending.len && is_space(p->pending.data[n]))
		n++;
	left = p->pending.len - n;
	if (left < strlen(REPLY_THINK)) {
		if (!final && (!left || !memcmp(p->pending.data + n, REPLY_THINK, left)))
			return 0;
		p->part = PART_SNIFF;
		return 1;
	}
	p->part = PART_SNIFF;
	if (!memcmp(p->pending.data + n, REPLY_THINK, strlen(REPLY_THINK))) {
		drop(p, n + strlen(REPLY_THINK));
		p->part = PART_REASONING;
		p->trim = true;
	}
	return 1;
}

static int part_reasoning(struct reply_parser *p, bool final)
{
	size_t n, shown;
	bool found;
	int error;

	trim_start(p);
	n = find_mark(p, REPLY_THINK_END, &found);
	if (final && !found)
		n = p->pending.len;
	shown = without_space(p->pending.data, n, true);
	error = give(p, true, shown);
	if (error || (!found && !final))
		return error;
	drop(p, n - shown + (found ? strlen(REPLY_THINK_END) : 0));
	p->part = found ? PART_SNIFF : p->part;
	p->trim = true;
	return found;
}

/* ---- content --------------------------------------------------------------------------------- */

static void begin_call(struct reply_parser *p)
{
	call_json_free(&p->json);
	call_python_free(&p->python);
	call_json_init(&p->json);
	call_python_init(&p->python);
	p->held.len = 0;
	p->value = (struct json_value){0};
	p->index = p->calls;
	p->part = p->options.tools == REPLY_DEEPSEEK ? PART_KIND : PART_CALL;
}

/* Whether the content as a whole is a call. */
static int part_sniff(struct reply_parser *p, bool final)
{
	char first = p->options.tools == REPLY_PYTHONIC ? '[' : '{';
	size_t n = 0;

	trim_start(p);
	if (p->options.tools != REPLY_LLAMA && p->options.tools != REPLY_PYTHONIC) {
		p->part = p->options.tools == REPLY_NO_TOOLS ? PART_PLAIN : PART_CONTENT;
		return 1;
	}
	while (n < p->pending.len && is_space(p->pending.data[n]))
		n++;
	if (n == p->pending.len && !final)
		return 0;
	if (n < p->pending.len && p->pending.data[n] == first) {
		begin_call(p);
		return 1;
	}
	if (n && n < p->pending.len && p->pending.data[n] == PYTHON_TAG[0])
		drop(p, n);
	if (begins_with(p, PYTHON_TAG)) {
		drop(p, strlen(PYTHON_TAG));
		begin_call(p);
		return 1;
	}
	if (p->pending.len && may_become(p, PYTHON_TAG) && !final)
		return 0;
	p->part = PART_PLAIN;
	return 1;
}

static int part_content(struct reply_parser *p, bool final)
{
	const char *mark = p->options.tools == REPLY_HERMES ? HERMES_BEGIN : CALLS_BEGIN;
	size_t n, shown;
	bool found;
	int error;

	trim_start(p);
	n = find_mark(p, mark, &found);
	if (final && !found)
		return give(p, false, p->pending.len);
	/* White space before a call is no part of the content. */
	shown = without_space(p->pending.data, n, false);
	error = give(p, false, shown);
	if (error || !found)
		return error;
	drop(p, n - shown + strlen(mark));
	if (p->options.tools == REPLY_HERMES)
		begin_call(p);
	else
		p->part = PART_BETWEEN;
	return 1;
}

static int part_plain(struct reply_parser *p)
{
	trim_start(p);
	return give(p, false, p->pending.len);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* It was none: its text is content. */
static int no_call(struct reply_parser *p)
{
	int error = 0;

	if (p->options.tools == REPLY_HERMES)
		error = say(p, HERMES_BEGIN, strlen(HERMES_BEGIN));
	if (!error)
		error = say(p, p->held.data, p->held.len);
	p->held.len = 0;
	p->part = p->options.tools == REPLY_HERMES ? PART_CONTENT : PART_PLAIN;
	return error;
}

static int part_call(struct reply_parser *p, bool final)
{
	bool python = p->options.tools == REPLY_PYTHONIC;
	enum call_state state;
	size_t used;
	int error;

	if (python)
		state = call_python_feed(&p->python, p->pending.data, p->pending.len, &p->inner,
					 &p->index, &used, &error);
	else
		state = call_json_feed(&p->json, p->pending.data, p->pending.len, &p->inner,
				       p->index, &used, &error);
	if (error)
		return error;
	if (p->calls <= p->index && !text_buf_add(&p->held, p->pending.data, used))
		return -ENOMEM;
	drop(p, used);
	if (state == CALL_WRONG && p->calls > (python ? 0 : p->index))
		state = CALL_BROKEN;
	switch (state) {
	case CALL_MORE:
		if (!final || p->calls > (python ? 0 : p->index))
			return 0;
		error = no_call(p);
		return error ? error : 1;
	case CALL_WRONG: error = no_call(p); return error ? error : 1;
	case CALL_BROKEN: p->part = PART_SKIP; return 1;
	default: p->part = PART_END; return 1;
	}
}

/* Up to the mark at the end of a call that went wrong, or to the end of it all. */
static int part_skip(struct reply_parser *p)
{
	const char *mark = p->options.tools == REPLY_HERMES ? HERMES_END : CALL_END;
	bool found;
	size_t n = find_mark(p, mark, &found);

	drop(p, n + (found ? strlen(mark) : 0));
	if (found)
		p->part = PART_BETWEEN;
	return found;
}

static int part_end(struct reply_parser *p, bool final)
{
	const char *mark = p->options.tools == REPLY_HERMES ? HERMES_END : "";

	drop_space(p);
	if (!final && may_become(p, mark))
		return 0;
	if (begins_with(p, mark))
		drop(p, strlen(mark));
	else if (may_become(p, mark))
		drop(p, p->pending.len); /* cut off */
	p->part = PART_BETWEEN;
	return 1;
}

static int part_between(struct reply_parser *p, bool final)
{
	bool hermes = p->options.tools == REPLY_HERMES, llama = p->options.tools == REPLY_LLAMA;
	const char *mark = hermes ? HERMES_BEGIN : llama ? "{" : CALL_BEGIN;

	drop_space(p);
	while (llama && p->pending.len && p->pending.data[0] == ';') {
		drop(p, 1);
		drop_space(p);
	}
	if (!p->pending.len)
		return 0;
	if (p->options.tools == REPLY_DEEPSEEK && begins_with(p, CALLS_END)) {
		drop(p, strlen(CALLS_END));
		return 1;
	}
	if (!final && (may_become(p, mark) || may_become(p, CALLS_END)))
		return 0;
	if (p->options.tools == REPLY_PYTHONIC || !begins_with(p, mark)) {
		p->part = hermes || p->options.tools == REPLY_DEEPSEEK ? PART_CONTENT : PART_PLAIN;
		return 1;
	}
	if (!llama)
		drop(p, strlen(mark));
	begin_call(p);
	return 1;
}

/* ---- deepseek -------------------------------------------------------------------------------- */

/* The first @n pending bytes are the name. */
static int take_name(struct reply_parser *p, size_t n, enum part next)
{
	size_t first = 0, end = without_space(p->pending.data, n, false);
	int error;

	while (first < end && is_space(p->pending.data[first]))
		first++;
	if (first == end || end - first > REPLY_MAX_NAME) {
		p->part = PART_SKIP;
		return 0;
	}
	error = on_call(p, p->index, p->pending.data + first, end - first);
	p->part = next;
	return error;
}

static int part_kind(struct reply_parser *p)
{
	bool found;
	size_t n = find_mark(p, CALL_SEP, &found);
	int error = 0;

	if (n > REPLY_MAX_NAME) {
		p->part = PART_SKIP;
		return 1;
	}
	if (!found)
		return 0;
	if (n == strlen("function") && !memcmp(p->pending.data, "function", n))
		p->part = PART_NAME;
	else
		error = take_name(p, n, PART_ARGUMENTS);
	drop(p, n + strlen(CALL_SEP));
	return error ? error : 1;
}

static int part_name(struct reply_parser *p)
{
	const char *end = memchr(p->pending.data, '\n', p->pending.len);
	size_t n = end ? (size_t)(end - p->pending.data) : p->pending.len;
	int error;

	if (n > REPLY_MAX_NAME) {
		p->part = PART_SKIP;
		return 1;
	}
	if (!end)
		return 0;
	error = take_name(p, n, PART_FENCE);
	drop(p, n);
	return error ? error : 1;
}

static int part_fence(struct reply_parser *p, bool final)
{
	drop_space(p);
	if (!final && may_become(p, "```json"))
		return 0;
	if (begins_with(p, "```json"))
		drop(p, strlen("```json"));
	p->part = PART_ARGUMENTS;
	return 1;
}

static int part_arguments(struct reply_parser *p)
{
	size_t n;
	int error = 0;

	if (!p->value.begun)
		drop_space(p);
	if (!p->pending.len)
		return 0;
	/* A call without arguments. */
	if (!p->value.begun && p->pending.data[0] != '{') {
		p->part = PART_SKIP;
		return 1;
	}
	n = json_value_feed(&p->value, p->pending.data, p->pending.len);
	error = on_arguments(p, p->index, p->pending.data, n);
	drop(p, n);
	if (p->value.over)
		p->part = PART_SKIP;
	return error ? error : p->value.over;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int step(struct reply_parser *p, bool final)
{
	switch (p->part) {
	case PART_START: return part_start(p, final);
	case PART_REASONING: return part_reasoning(p, final);
	case PART_SNIFF: return part_sniff(p, final);
	case PART_CONTENT: return part_content(p, final);
	case PART_PLAIN: return part_plain(p);
	case PART_CALL: return part_call(p, final);
	case PART_KIND: return part_kind(p);
	case PART_NAME: return part_name(p);
	case PART_FENCE: return part_fence(p, final);
	case PART_ARGUMENTS: return part_arguments(p);
	case PART_SKIP: return part_skip(p);
	case PART_END: return part_end(p, final);
	default: return part_between(p, final);
	}
}

int reply_parser_feed(struct reply_parser *p, const char *text, size_t len)
{
	int result = 1;

	if (!text_buf_add(&p->pending, text, len))
		return -ENOMEM;
	while (result > 0 && p->pending.len)
		result = step(p, false);
	return result < 0 ? result : 0;
}

int reply_parser_flush(struct reply_parser *p)
{
	int result = 1;

	/* A call that was never named has its text in held, with nothing pending. */
	while (result > 0 && (p->pending.len || (p->part == PART_CALL && p->held.len)))
		result = step(p, true);
	return result < 0 ? result : 0;
}
