// SPDX-License-Identifier: MIT
/* Calls as JSON objects, as lists of Python calls, and as a name followed by a JSON object. */
#include <errno.h>
#include <string.h>

#include "reply_internal.h"

#define SEP "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>" /* DeepSeek's */

const cJSON *reply_function(const struct reply_parser *p, const char *name, size_t len)
{
	const cJSON *tool;

	cJSON_ArrayForEach(tool, p->options.functions) {
		const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
		const char *known =
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function, "name"));

		if (known && strlen(known) == len && !memcmp(known, name, len))
			return function;
	}
	return NULL;
}

static const char null[] = "null";

int reply_end_arguments(struct reply_parser *p)
{
	unsigned n = p->nulls;

	p->nulls = 0;
	if (!n || n == strlen(null))
		return 0;
	json_value_feed(&p->given, null, n);
	return p->sink.arguments(p->sink.arg, p->calls - 1, null, n);
}

int reply_on_call(struct reply_parser *p, const struct reply_call *call)
{
	int error = reply_end_arguments(p);

	p->calls = call->index + 1;
	p->given = (struct json_value){0};
	return error ? error : p->sink.call(p->sink.arg, call);
}

int reply_give_arguments(struct reply_parser *p, unsigned index, const char *text, size_t len)
{
	size_t at = 0;
	int error = 0;

	/* null stands for no arguments, so what may become it is held back. */
	for (; at < len && !p->given.begun; at++) {
		if (p->nulls < 4 && text[at] == null[p->nulls])
			p->nulls++;
		else if (!reply_is_space(text[at]) || (p->nulls && p->nulls < 4))
			break;
	}
	if (at == len)
		return 0;
	if (p->nulls) {
		json_value_feed(&p->given, null, p->nulls);
		error = p->sink.arguments(p->sink.arg, index, null, p->nulls);
		p->nulls = 0;
	}
	json_value_feed(&p->given, text + at, len - at);
	return error ? error : p->sink.arguments(p->sink.arg, index, text + at, len - at);
}

int reply_on_arguments(struct reply_parser *p, const char *text, size_t len)
{
	return len ? reply_give_arguments(p, p->index, text, len) : 0;
}

void reply_begin_call(struct reply_parser *p, bool marked)
{
	call_json_free(&p->json);
	call_python_free(&p->python);
	call_json_init(&p->json);
	call_python_init(&p->python);
	p->held.len = 0;
	p->value = (struct json_value){0};
	p->index = p->calls;
	p->marked = marked;
	p->part = PART_CALL;
}

int reply_no_call(struct reply_parser *p, bool cut_off)
{
	const char *mark = p->marked && !p->list ? p->format->begin : NULL;
	int error = 0;

	if (!cut_off || (!p->marked && !p->calls)) {
		error = reply_emit_space(p);
		p->spoke = p->spoke || mark || p->held.len;
		if (!error && mark)
			error = p->sink.content(p->sink.arg, mark, strlen(mark));
		if (!error && p->held.len)
			error = p->sink.content(p->sink.arg, p->held.data, p->held.len);
	}
	p->held.len = 0;
	p->list = false;
	p->part = p->format->whole ? PART_PLAIN : PART_CONTENT;
	return error;
}

/* The first byte distinguishes a list (Mistral) from a name. */
static int part_call(struct reply_parser *p, bool final)
{
	bool mistral = p->format->begin && p->format->begin[0] == '[';

	if (mistral && !p->list) {
		reply_drop_space(p);
		if (!p->pending.len && !final)
			return 0;
		if (reply_begins(p, "[")) {
			p->list = true;
			reply_drop(p, 1);
		}
	}
	switch (p->format->syntax) {
	case SYNTAX_TAGS: p->part = PART_TAG_NAME; break;
	case SYNTAX_NAMED: p->part = p->list ? PART_OBJECT : PART_NAME; break;
	default: p->part = PART_OBJECT; break;
	}
	if (mistral && !p->list)
		p->part = reply_begins(p, "{") ? PART_OBJECT : PART_NAME;
	return 1;
}

static int part_object(struct reply_parser *p, bool final)
{
	bool python = p->format->syntax == SYNTAX_PYTHON, named;
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
	named = p->calls > (python ? 0 : p->index);
	if (!named && !text_buf_add(&p->held, p->pending.data, used))
		return -ENOMEM;
	reply_drop(p, used);
	if (state == CALL_WRONG && named)
		state = CALL_BROKEN;
	switch (state) {
	case CALL_MORE:
		if (!final || named)
			return 0;
		error = reply_no_call(p, true);
		return error ? error : 1;
	case CALL_WRONG: error = reply_no_call(p, false); return error ? error : 1;
	case CALL_BROKEN: p->part = PART_SKIP; return 1;
	default: p->part = PART_END; return 1;
	}
}

/* Skips what does not belong to a call: up to its end mark, or to the mark of what follows. */
static int part_skip(struct reply_parser *p)
{
	const struct reply_format *f = p->format;
	const char *marks[] = {f->end, f->begin, f->section_end};
	size_t n = p->pending.len;
	bool any = false;

	for (unsigned i = 0; i < 3; i++) {
		bool found;
		size_t at = marks[i] ? reply_find(p, marks[i], &found) : n;

		if (at < n) {
			n = at;
			any = found;
		}
	}
	reply_drop(p, n);
	p->list = false;
	if (!any)
		return 0;
	if (f->end && reply_begins(p, f->end))
		reply_drop(p, strlen(f->end));
	p->part = PART_BETWEEN;
	return 1;
}

static int part_end(struct reply_parser *p, bool final)
{
	const char *mark = p->list ? NULL : p->format->end;

	reply_drop_space(p);
	p->part = mark ? PART_SKIP : PART_BETWEEN;
	if (reply_may_become(p, mark)) {
		if (final)
			p->pending.len = 0; /* cut off */
		else
			p->part = PART_END;
		return final;
	}
	return 1;
}

/* In a list: a comma and another call, or ]. */
static int next_of_list(struct reply_parser *p)
{
	char c = p->pending.data[0];

	if (c == ',' || c == ']')
		reply_drop(p, 1);
	if (c == ',')
		reply_begin_call(p, true);
	else
		p->list = false;
	return 1;
}

static int part_between(struct reply_parser *p, bool final)
{
	const struct reply_format *f = p->format;
	bool llama = p->options.tools == REPLY_LLAMA, glm4 = p->options.tools == REPLY_GLM4;
	const char *mark = llama ? "{" : glm4 ? f->between : f->begin;
	size_t n = 0;

	if (!p->list && !p->in_section) {
		while (n < p->pending.len && reply_is_space(p->pending.data[n]))
			n++;
		if (!text_buf_add(&p->space, p->pending.data, n))
			return -ENOMEM;
	}
	reply_drop_space(p);
	while (llama && p->pending.len && p->pending.data[0] == ';') {
		reply_drop(p, 1);
		reply_drop_space(p);
	}
	if (!p->pending.len)
		return 0;
	if (p->list)
		return next_of_list(p);
	if (f->section_end && reply_begins(p, f->section_end)) {
		reply_drop(p, strlen(f->section_end));
		p->in_section = false;
		return 1;
	}
	if (reply_may_become(p, mark) || reply_may_become(p, f->section_end)) {
		if (!final)
			return 0;
		p->pending.len = 0; /* cut off */
		return 1;
	}
	if (!mark || !reply_begins(p, mark)) {
		p->part = f->whole ? PART_PLAIN : PART_CONTENT;
		return 1;
	}
	if (!llama)
		reply_drop(p, strlen(mark));
	reply_begin_call(p, !llama);
	return 1;
}

/* ---- a name, and a JSON object --------------------------------------------------------------- */

/* Strips white space from both ends. */
static void strip(const char **text, size_t *n)
{
	*n = reply_trimmed(*text, *n, false);
	while (*n && reply_is_space(**text)) {
		(*text)++;
		(*n)--;
	}
}

/* Kimi's functions.NAME:NUMBER is also the id; Mistral's NAME[CALL_ID]ID has one after it. */
static void split_id(const struct reply_parser *p, struct reply_call *call)
{
	static const char mark[] = "[CALL_ID]";
	const char *at;

	if (p->options.tools == REPLY_KIMI) {
		call->id = call->name;
		call->id_len = call->name_len;
		at = memrchr(call->name, ':', call->name_len);
		if (at)
			call->name_len = (size_t)(at - call->name);
		if (call->name_len > strlen("functions.") &&
		    !memcmp(call->name, "functions.", 10)) {
			call->name += 10;
			call->name_len -= 10;
		}
		return;
	}
	at = memmem(call->name, call->name_len, mark, strlen(mark));
	if (!at)
		return;
	call->id = at + strlen(mark);
	call->id_len = call->name_len - (size_t)(call->id - call->name);
	call->name_len = (size_t)(at - call->name);
	strip(&call->name, &call->name_len);
}

/* The first @n pending bytes are the name. */
static int take_name(struct reply_parser *p, size_t n, enum part next)
{
	struct reply_call call = {.index = p->index, .name = p->pending.data, .name_len = n};

	strip(&call.name, &call.name_len);
	split_id(p, &call);
	if (!call.name_len || call.name_len > REPLY_MAX_NAME) {
		p->part = PART_SKIP;
		return 0;
	}
	p->part = next;
	return reply_on_call(p, &call);
}

/* The arguments after [TOOL_CALLS], where some models leave out [ARGS]. */
static size_t find_brace(const struct reply_parser *p, size_t n, bool *found)
{
	const char *brace = memchr(p->pending.data, '{', n);

	if (!brace)
		return n;
	*found = true;
	return (size_t)(brace - p->pending.data);
}

static int part_name(struct reply_parser *p)
{
	const char *mark = p->options.tools == REPLY_DEEPSEEK ? SEP
			   : p->options.tools == REPLY_MISTRAL_LIST
				   ? reply_format(REPLY_MISTRAL)->name_end
				   : p->format->name_end;
	bool found, brace = false, mistral = p->format->begin && p->format->begin[0] == '[';
	size_t n = reply_find(p, mark, &found);
	int error = 0;

	if (mistral)
		n = find_brace(p, n, &brace);
	if (n > 2 * REPLY_MAX_NAME) {
		p->part = PART_SKIP;
		return 1;
	}
	if (!found && !brace)
		return 0;
	if (p->options.tools == REPLY_DEEPSEEK && n == strlen("function") &&
	    !memcmp(p->pending.data, "function", n))
		p->part = PART_LINE;
	else
		error = take_name(p, n, PART_ARGUMENTS);
	reply_drop(p, n + (brace ? 0 : strlen(mark)));
	return error ? error : 1;
}

static int part_line(struct reply_parser *p)
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
	reply_drop(p, n);
	return error ? error : 1;
}

static int part_fence(struct reply_parser *p, bool final)
{
	reply_drop_space(p);
	if (!final && reply_may_become(p, "```json"))
		return 0;
	if (reply_begins(p, "```json"))
		reply_drop(p, strlen("```json"));
	p->part = PART_ARGUMENTS;
	return 1;
}

static int part_arguments(struct reply_parser *p)
{
	size_t n;
	int error = 0;

	if (!p->value.begun)
		reply_drop_space(p);
	if (!p->pending.len)
		return 0;
	/* A call without arguments. */
	if (!p->value.begun && p->pending.data[0] != '{') {
		p->part = PART_SKIP;
		return 1;
	}
	n = json_value_feed(&p->value, p->pending.data, p->pending.len);
	error = reply_on_arguments(p, p->pending.data, n);
	reply_drop(p, n);
	if (p->value.over)
		p->part = p->options.tools == REPLY_DEEPSEEK ? PART_SKIP : PART_END;
	return error ? error : p->value.over;
}

int reply_step_call(struct reply_parser *p, bool final)
{
	switch (p->part) {
	case PART_CALL: return part_call(p, final);
	case PART_OBJECT: return part_object(p, final);
	case PART_NAME: return part_name(p);
	case PART_LINE: return part_line(p);
	case PART_FENCE: return part_fence(p, final);
	case PART_ARGUMENTS: return part_arguments(p);
	case PART_SKIP: return part_skip(p);
	case PART_END: return part_end(p, final);
	default: return part_between(p, final);
	}
}
