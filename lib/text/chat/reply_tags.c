// SPDX-License-Identifier: MIT
/*
 * Calls whose arguments are between marks, translated to a JSON object as they arrive.
 *
 * The notation has no types. A value's type is that of the function's schema; without one, a value
 * that is valid JSON is used as it is, and any other is a string.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "json_strict.h"
#include "reply_internal.h"

#define MAX_KEY 1024

bool reply_is_text(const cJSON *schema)
{
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(schema, "type");
	const cJSON *values = cJSON_GetObjectItemCaseSensitive(schema, "enum"), *value;

	if (cJSON_IsString(type))
		return !strcmp(type->valuestring, "string");
	cJSON_ArrayForEach(value, values)
		if (!cJSON_IsString(value))
			return false;
	return !type && cJSON_IsArray(values) && values->child;
}

static int type_of(const cJSON *schema)
{
	if (reply_is_text(schema))
		return TYPE_TEXT;
	return cJSON_IsString(cJSON_GetObjectItemCaseSensitive(schema, "type")) ? TYPE_JSON
										: TYPE_ANY;
}

/* Emits text with the escapes of a JSON string. */
static int give_escaped(struct reply_parser *p, const char *text, size_t n)
{
	struct text_buf out = {0};
	char code[8];
	bool ok = true;
	int error = -ENOMEM;

	for (size_t i = 0; i < n && ok; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			snprintf(code, sizeof(code), "\\%c", c);
		else if (c == '\n')
			snprintf(code, sizeof(code), "\\n");
		else if (c < 0x20)
			snprintf(code, sizeof(code), "\\u%04x", c);
		else
			snprintf(code, sizeof(code), "%c", c);
		ok = text_buf_add_string(&out, code);
	}
	if (ok)
		error = reply_on_arguments(p, out.data, out.len);
	free(out.data);
	return error;
}

static int give_string(struct reply_parser *p, const char *text)
{
	return reply_on_arguments(p, text, strlen(text));
}

/* ---- the name -------------------------------------------------------------------------------- */

/* The end of the name: its mark, or (GLM) a key's or the call's; @n if it is not there. */
static size_t find_name_end(const struct reply_parser *p, bool *found, bool *own)
{
	const struct reply_format *f = p->format;
	size_t n = reply_find(p, f->name_end, found), other;
	bool there;

	*own = *found;
	if (p->options.tools != REPLY_GLM)
		return n;
	other = reply_find(p, f->key, &there);
	if (other < n) {
		n = other;
		*found = there;
		*own = false;
	}
	other = reply_find(p, f->end, &there);
	if (other < n) {
		n = other;
		*found = there;
		*own = false;
	}
	return n;
}

static bool is_name(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)text[i] <= ' ' || strchr("<>{}\"'()", text[i]))
			return false;
	}
	return n && n <= REPLY_MAX_NAME;
}

/* Not a call: the text after the mark is parsed as content. */
static int none(struct reply_parser *p, bool cut_off)
{
	int error = reply_no_call(p, cut_off);

	if (cut_off)
		p->pending.len = 0;
	return error ? error : 1;
}

static int part_name(struct reply_parser *p, bool final)
{
	const struct reply_format *f = p->format;
	const char *before = f->before_name;
	struct reply_call call = {.index = p->index};
	bool found, own;
	size_t first = 0, n;
	int error;

	/* White space is part of the content if this is not a call, so it is kept. */
	while (first < p->pending.len && reply_is_space(p->pending.data[first]))
		first++;
	if (before) {
		size_t len, left = p->pending.len - first;

		before += before[0] == '\n';
		len = strlen(before);
		if (memcmp(p->pending.data + first, before, left < len ? left : len))
			return none(p, false);
		if (left < len)
			return final ? none(p, true) : 0;
		first += len;
	}
	n = find_name_end(p, &found, &own);
	if (found && n < first && own) {
		/* Skips line breaks before GLM's name. */
		reply_drop(p, n + 1);
		return 1;
	}
	if (!found && n - (n < first ? n : first) <= REPLY_MAX_NAME)
		return final ? none(p, true) : 0;
	if (n < first || !is_name(p->pending.data + first,
				  reply_trimmed(p->pending.data + first, n - first, false)))
		return none(p, false);
	call.name = p->pending.data + first;
	call.name_len = reply_trimmed(call.name, n - first, false);
	p->properties = reply_function(p, call.name, call.name_len);
	p->properties = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(p->properties, "parameters"), "properties");
	p->n_arguments = 0;
	p->part = PART_TAG;
	error = reply_on_call(p, &call);
	reply_drop(p, n + (own ? strlen(f->name_end) : 0));
	return error ? error : 1;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* What ends the arguments, without white space. */
static const char *arguments_end(const struct reply_parser *p)
{
	return p->format->after ? "</function>" : p->format->end;
}

static int part_tag(struct reply_parser *p)
{
	const char *end = arguments_end(p);
	int error;

	reply_drop_space(p);
	if (reply_begins(p, p->format->key)) {
		reply_drop(p, strlen(p->format->key));
		p->part = PART_TAG_KEY;
		return 1;
	}
	if (reply_begins(p, end)) {
		if (p->format->after)
			reply_drop(p, strlen(end));
		p->part = PART_END;
	} else if (!p->pending.len || reply_may_become(p, end) ||
		   reply_may_become(p, p->format->key)) {
		return 0;
	} else {
		p->part = PART_SKIP;
	}
	error = give_string(p, p->n_arguments ? "}" : "{}");
	return error ? error : 1;
}

static int part_key(struct reply_parser *p)
{
	const struct reply_format *f = p->format;
	const cJSON *schema;
	bool found;
	size_t n = reply_find(p, f->key_end, &found);
	char key[MAX_KEY + 1];
	int error;

	if (n > MAX_KEY) {
		p->part = PART_SKIP;
		return 1;
	}
	if (!found)
		return 0;
	memcpy(key, p->pending.data, n);
	key[n] = '\0';
	reply_drop(p, n + strlen(f->key_end));
	error = give_string(p, p->n_arguments++ ? ", \"" : "{\"");
	if (!error)
		error = give_escaped(p, key, n);
	if (!error)
		error = give_string(p, "\": ");
	schema = cJSON_GetObjectItemCaseSensitive(p->properties, key);
	p->held.len = 0;
	p->first = true;
	p->type = type_of(schema);
	p->part = f->value ? PART_TAG_VALUE_MARK : PART_TAG_VALUE;
	return error ? error : 1;
}

static int part_value_mark(struct reply_parser *p, bool final)
{
	const char *mark = p->format->value;

	/* DeepSeek's attribute states whether the value is a string. */
	if (p->options.tools == REPLY_DSML) {
		bool found;
		size_t n = reply_find(p, mark, &found);

		if (!found)
			return 0;
		p->type = n == 4 && !memcmp(p->pending.data, "true", 4) ? TYPE_TEXT : TYPE_JSON;
		reply_drop(p, n);
	}
	reply_drop_space(p);
	if (reply_begins(p, mark)) {
		reply_drop(p, strlen(mark));
		p->part = PART_TAG_VALUE;
		return 1;
	}
	if (!p->pending.len || (reply_may_become(p, mark) && !final))
		return 0;
	p->part = PART_SKIP;
	return 1;
}

/* A value as JSON, or a Python constant; otherwise it is a string. */
static int give_value(struct reply_parser *p, const char *text, size_t n)
{
	static const char *const words[][2] = {
		{"True", "true"}, {"False", "false"}, {"None", "null"}};
	int error;

	while (n && reply_is_space(*text)) {
		text++;
		n--;
	}
	n = reply_trimmed(text, n, false);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (n == strlen(words[i][0]) && !memcmp(text, words[i][0], n))
			return give_string(p, words[i][1]);
	}
	if (n && !txda_json_check(text, n, TXDA_JSON_MAX_DEPTH, NULL))
		return reply_on_arguments(p, text, n);
	error = give_string(p, "\"");
	if (!error)
		error = give_escaped(p, text, n);
	return error ? error : give_string(p, "\"");
}

/* Strings are emitted as they arrive, except for a line break that may be the last one. */
static int part_value(struct reply_parser *p)
{
	const struct reply_format *f = p->format;
	bool breaks = !f->value, found, text = p->type == TYPE_TEXT;
	size_t n = reply_find(p, f->value_end, &found), shown;
	int error = 0;

	if (p->first) {
		if (text)
			error = give_string(p, "\"");
		p->first = false;
		if (breaks && reply_begins(p, "\n")) {
			reply_drop(p, 1);
			n -= n > 0;
		}
	}
	shown = n;
	if (breaks && n && p->pending.data[n - 1] == '\n')
		shown--;
	if (text && !error)
		error = give_escaped(p, p->pending.data, shown);
	else if (!text && !text_buf_add(&p->held, p->pending.data, shown))
		error = -ENOMEM;
	reply_drop(p, shown);
	if (error || !found)
		return error;
	reply_drop(p, n - shown + strlen(f->value_end));
	p->part = PART_TAG;
	error = text ? give_string(p, "\"") : give_value(p, p->held.data, p->held.len);
	return error ? error : 1;
}

int reply_step_tags(struct reply_parser *p, bool final)
{
	switch (p->part) {
	case PART_TAG_NAME: return part_name(p, final);
	case PART_TAG: return part_tag(p);
	case PART_TAG_KEY: return part_key(p);
	case PART_TAG_VALUE_MARK: return part_value_mark(p, final);
	default: return part_value(p);
	}
}
