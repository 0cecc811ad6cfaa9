// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "reply_internal.h"

#define PYTHON_TAG "<|python_tag|>"

/* Callback of the parsers of calls. */
static int on_call(void *arg, const struct reply_call *call)
{
	return reply_on_call(arg, call);
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	return reply_give_arguments(arg, index, text, len);
}

struct reply_parser *reply_parser_new(const struct reply_options *options,
				      const struct reply_sink *sink)
{
	struct reply_parser *p = calloc(1, sizeof(*p));
	bool harmony = options->reasoning == REPLY_CHANNELS || options->tools == REPLY_HARMONY;

	if (!p)
		return NULL;
	p->options = *options;
	p->format = reply_format(options->tools);
	p->sink = *sink;
	p->inner = (struct reply_sink){.call = on_call, .arguments = on_arguments, .arg = p};
	p->part = harmony		  ? PART_HEADER
		  : options->in_reasoning ? PART_REASONING
		  : options->reasoning	  ? PART_START
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
	free(p->space.data);
	free(p);
}

/* ---- pending text ---------------------------------------------------------------------------- */

bool reply_is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void reply_drop(struct reply_parser *p, size_t n)
{
	p->pending.len -= n;
	memmove(p->pending.data, p->pending.data + n, p->pending.len);
}

void reply_drop_space(struct reply_parser *p)
{
	size_t n = 0;

	while (n < p->pending.len && reply_is_space(p->pending.data[n]))
		n++;
	if (n)
		reply_drop(p, n);
}

bool reply_begins(const struct reply_parser *p, const char *mark)
{
	size_t len = mark ? strlen(mark) : 0;

	return p->pending.len >= len && !memcmp(p->pending.data, mark, len);
}

bool reply_may_become(const struct reply_parser *p, const char *mark)
{
	return mark && p->pending.len < strlen(mark) &&
	       !memcmp(p->pending.data, mark, p->pending.len);
}

size_t reply_find(const struct reply_parser *p, const char *mark, bool *ret_found)
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

/* A single character is more likely to be text. */
bool reply_is_cut_mark(const struct reply_parser *p, size_t n)
{
	return p->cut_off && n > 1;
}

size_t reply_trimmed(const char *text, size_t n, bool breaks_only)
{
	while (n && (breaks_only ? text[n - 1] == '\n' : reply_is_space(text[n - 1])))
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
		reply_drop(p, n);
}

int reply_emit_space(struct reply_parser *p)
{
	size_t n = p->space.len;

	p->space.len = 0;
	/* Calls at the beginning are no part of a text. */
	if (!n || (p->calls && !p->spoke))
		return 0;
	p->spoke = true;
	return p->sink.content(p->sink.arg, p->space.data, n);
}

int reply_emit(struct reply_parser *p, bool reasoning, size_t n)
{
	int error = n && !reasoning ? reply_emit_space(p) : 0;

	if (n && !reasoning)
		p->spoke = true;
	if (n && !error)
		error = reasoning ? p->sink.reasoning(p->sink.arg, p->pending.data, n)
				  : p->sink.content(p->sink.arg, p->pending.data, n);
	reply_drop(p, n);
	return error;
}

/* ---- reasoning ------------------------------------------------------------------------------- */

static int part_start(struct reply_parser *p, bool final)
{
	const char *mark = reply_think(p->options.reasoning);
	size_t n = 0, left;

	while (n < p->pending.len && reply_is_space(p->pending.data[n]))
		n++;
	left = p->pending.len - n;
	if (left < strlen(mark)) {
		bool begins = !memcmp(p->pending.data + n, mark, left);

		if (!final && begins)
			return 0;
		if (begins && reply_is_cut_mark(p, left))
			p->pending.len = 0;
		p->part = PART_SNIFF;
		return 1;
	}
	p->part = PART_SNIFF;
	if (!memcmp(p->pending.data + n, mark, strlen(mark))) {
		reply_drop(p, n + strlen(mark));
		p->part = PART_REASONING;
		p->trim = true;
	}
	return 1;
}

static int part_reasoning(struct reply_parser *p, bool final)
{
	const char *mark = reply_think_end(p->options.reasoning);
	size_t n, shown;
	bool found;
	int error;

	trim_start(p);
	n = reply_find(p, mark, &found);
	shown = reply_trimmed(p->pending.data, n, true);
	error = reply_emit(p, true, shown);
	if (error || (!found && !final))
		return error;
	/* A mark that was cut off is not part of the reasoning. */
	reply_drop(p, found ? n - shown + strlen(mark) : p->pending.len);
	p->part = found ? PART_SNIFF : p->part;
	p->trim = true;
	return found;
}

/* ---- content --------------------------------------------------------------------------------- */

/* The mark before all calls, which is not content. */
static const char *opening(const struct reply_parser *p)
{
	return p->format->section ? p->format->section : p->format->begin;
}

/* Whether a GLM-4 reply begins with a function's name on its own line, followed by arguments. */
static int sniff_line(struct reply_parser *p, bool final)
{
	const char *text = p->pending.data, *end = memchr(text, '\n', p->pending.len);
	size_t n = end ? (size_t)(end - text) : p->pending.len;

	if (n <= REPLY_MAX_NAME && n + 2 > p->pending.len && !final)
		return 0;
	p->part = PART_PLAIN;
	if (end && n && n <= REPLY_MAX_NAME && n + 1 < p->pending.len && end[1] == '{' &&
	    reply_function(p, text, n))
		reply_begin_call(p, true);
	return 1;
}

/* Whether the content as a whole is a call. */
static int part_sniff(struct reply_parser *p, bool final)
{
	char first = p->options.tools == REPLY_PYTHONIC ? '[' : '{';
	size_t n = 0;

	trim_start(p);
	if (!p->format->whole) {
		p->part = p->format->syntax ? PART_CONTENT : PART_PLAIN;
		return 1;
	}
	if (!p->pending.len)
		return 0;
	if (p->options.tools == REPLY_GLM4)
		return sniff_line(p, final);
	while (n < p->pending.len && reply_is_space(p->pending.data[n]))
		n++;
	if (n == p->pending.len && !final)
		return 0;
	if (n < p->pending.len && p->pending.data[n] == first) {
		reply_begin_call(p, false);
		return 1;
	}
	if (n && n < p->pending.len && p->pending.data[n] == PYTHON_TAG[0])
		reply_drop(p, n);
	if (reply_begins(p, PYTHON_TAG)) {
		reply_drop(p, strlen(PYTHON_TAG));
		reply_begin_call(p, false);
		return 1;
	}
	if (p->pending.len && reply_may_become(p, PYTHON_TAG)) {
		if (!final)
			return 0;
		if (reply_is_cut_mark(p, p->pending.len))
			p->pending.len = 0;
	}
	p->part = PART_PLAIN;
	return 1;
}

static int part_content(struct reply_parser *p, bool final)
{
	const char *mark = opening(p);
	size_t n, shown;
	bool found;
	int error;

	trim_start(p);
	n = reply_find(p, mark, &found);
	if (final && !found) {
		/* Perhaps only the beginning of a call's mark arrived. */
		if (reply_is_cut_mark(p, p->pending.len - n))
			n = reply_trimmed(p->pending.data, n, false);
		else if (!p->calls)
			n = p->pending.len;
		error = reply_emit(p, false, n);
		p->pending.len = 0;
		return error;
	}
	/* White space before a call is not part of the content. */
	shown = reply_trimmed(p->pending.data, n, false);
	error = reply_emit(p, false, shown);
	if (error || !found)
		return error;
	if (!text_buf_add(&p->space, p->pending.data, n - shown))
		return -ENOMEM;
	reply_drop(p, n - shown + strlen(mark));
	p->in_section = p->format->section;
	if (p->format->section)
		p->part = PART_BETWEEN;
	else
		reply_begin_call(p, true);
	return 1;
}

static int part_plain(struct reply_parser *p)
{
	trim_start(p);
	return reply_emit(p, false, p->pending.len);
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
	case PART_HEADER:
	case PART_MESSAGE: return reply_step_harmony(p, final);
	default:
		return p->part < PART_TAG_NAME ? reply_step_call(p, final)
					       : reply_step_tags(p, final);
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

void reply_parser_cut_off(struct reply_parser *p)
{
	p->cut_off = true;
}

int reply_parser_flush(struct reply_parser *p)
{
	int result = 1;

	/* A call without a name so far has its text in held, with nothing pending. */
	while (result > 0 && (p->pending.len || (p->part == PART_OBJECT && p->held.len)))
		result = step(p, true);
	if (result >= 0 && !p->cut_off)
		result = reply_end_arguments(p);
	return result < 0 ? result : 0;
}

bool reply_parser_in_arguments(const struct reply_parser *p)
{
	return p->given.begun && !p->given.over && !p->given.scalar;
}
