// SPDX-License-Identifier: MIT
#include "call_json.h"

#include <errno.h>
#include <string.h>

#include "utf8.h"

enum step {
	STEP_OBJECT,	/* { */
	STEP_KEY_START, /* " or } */
	STEP_KEY,
	STEP_COLON,
	STEP_VALUE, /* its first byte */
	STEP_NAME,
	STEP_ARGUMENTS,
	STEP_QUOTED, /* arguments within a string */
	STEP_OTHER,
	STEP_NEXT, /* , or } */
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t json_value_feed(struct json_value *v, const char *text, size_t len)
{
	size_t i = 0;

	for (; i < len && !v->over; i++) {
		char c = text[i];

		if (v->text) {
			if (v->escaped)
				v->escaped = false;
			else if (c == '\\')
				v->escaped = true;
			else if (c == '"')
				v->text = false;
			v->over = !v->text && !v->depth;
			continue;
		}
		if (v->scalar && (is_space(c) || c == ',' || c == '}' || c == ']' || c == ';')) {
			v->over = true;
			break;
		}
		if (c == '"') {
			v->text = true;
		} else if (c == '{' || c == '[') {
			v->depth++;
		} else if (c == '}' || c == ']') {
			if (v->depth)
				v->depth--;
			v->over = !v->depth;
		} else if (!v->depth) {
			v->scalar = true;
		}
		v->begun = true;
	}
	return i;
}

void call_json_init(struct call_json *c)
{
	*c = (struct call_json){0};
}

void call_json_free(struct call_json *c)
{
	free(c->key.data);
	free(c->name.data);
	free(c->early.data);
}

/* ---- strings --------------------------------------------------------------------------------- */

static unsigned hex(const char *digits)
{
	unsigned value = 0;

	for (unsigned i = 0; i < 4; i++) {
		unsigned char c = (unsigned char)digits[i] | 0x20;

		value = value << 4 | (c >= 'a' ? c - 'a' + 10u : c - (unsigned)'0');
	}
	return value;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* A byte after a backslash; true when the escape is complete: *ret_len bytes in out. */
static bool take_escape(struct call_json *c, char byte, char out[8], size_t *ret_len)
{
	static const char shorts[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
	unsigned code;

	*ret_len = 0;
	c->escape[c->n_escape++] = byte;
	if (c->escape[0] != 'u') {
		const char *found = strchr(shorts, byte);

		while (found && (found - shorts) % 2)
			found = strchr(found + 1, byte);
		out[0] = found && *found ? found[1] : byte;
		*ret_len = 1;
		return true;
	}
	if (c->n_escape > 1 && !is_hex(byte))
		return true;
	if (c->n_escape < 5)
		return false;
	code = hex(c->escape + 1);
	if (code >= 0xD800 && code < 0xDC00) {
		c->high = code;
		return true;
	}
	if (code >= 0xDC00 && code < 0xE000) {
		if (!c->high)
			return true;
		code = 0x10000 + ((c->high - 0xD800) << 10) + (code - 0xDC00);
	}
	c->high = 0;
	*ret_len = utf8_encode(code, (uint8_t *)out);
	return true;
}

/* A byte inside a string; returns 1 at its end, 0, or -ENOMEM. Decoded text is appended to @buf. */
static int take_string(struct call_json *c, char byte, struct text_buf *buf)
{
	char out[8];
	size_t len;

	if (c->escape[7]) {
		if (!take_escape(c, byte, out, &len))
			return 0;
		c->escape[7] = 0;
		return text_buf_add(buf, out, len) ? 0 : -ENOMEM;
	}
	if (byte == '"')
		return 1;
	if (byte == '\\') {
		c->escape[7] = 1;
		c->n_escape = 0;
		return 0;
	}
	return text_buf_add(buf, &byte, 1) ? 0 : -ENOMEM;
}

static bool key_is(const struct call_json *c, const char *name)
{
	return c->key.len == strlen(name) && !memcmp(c->key.data, name, c->key.len);
}

/* ---- the call -------------------------------------------------------------------------------- */

static int pass_on(struct call_json *c, const struct reply_sink *sink, unsigned index,
		   const char *text, size_t len)
{
	if (!len)
		return 0;
	if (!c->named)
		return text_buf_add(&c->early, text, len) ? 0 : -ENOMEM;
	return sink->arguments(sink->arg, index, text, len);
}

static int take_name(struct call_json *c, const struct reply_sink *sink, unsigned index)
{
	int error;

	c->named = true;
	error = sink->call(sink->arg, &(struct reply_call){.index = index,
							   .name = c->name.data ? c->name.data : "",
							   .name_len = c->name.len});
	if (!error && c->early.len)
		error = sink->arguments(sink->arg, index, c->early.data, c->early.len);
	c->early.len = 0;
	return error;
}

static enum call_state wrong(const struct call_json *c)
{
	return c->named ? CALL_BROKEN : CALL_WRONG;
}

/* The first byte of a value; only a quote is consumed. */
static void begin_value(struct call_json *c, char byte, size_t *used)
{
	bool arguments = key_is(c, "arguments") || key_is(c, "parameters");

	c->value = (struct json_value){0};
	if (key_is(c, "name") && byte == '"' && !c->named) {
		c->step = STEP_NAME;
		(*used)++;
	} else if (arguments && byte == '"') {
		c->step = STEP_QUOTED;
		(*used)++;
	} else {
		c->step = arguments ? STEP_ARGUMENTS : STEP_OTHER;
	}
}

/* One byte outside of values; CALL_DONE at the end of the object. */
static enum call_state take_sign(struct call_json *c, char byte, int *ret_error)
{
	int result;

	switch (c->step) {
	case STEP_OBJECT:
		if (byte != '{')
			return CALL_WRONG;
		c->step = STEP_KEY_START;
		return CALL_MORE;
	case STEP_KEY_START:
		if (byte == '}')
			return c->named ? CALL_DONE : CALL_WRONG;
		if (byte != '"')
			return wrong(c);
		c->key.len = 0;
		c->step = STEP_KEY;
		return CALL_MORE;
	case STEP_KEY:
		result = take_string(c, byte, &c->key);
		if (result < 0)
			*ret_error = result;
		else if (result)
			c->step = STEP_COLON;
		return CALL_MORE;
	case STEP_COLON:
		if (byte != ':')
			return wrong(c);
		c->step = STEP_VALUE;
		return CALL_MORE;
	default:
		if (byte == '}')
			return c->named ? CALL_DONE : CALL_WRONG;
		if (byte != ',')
			return wrong(c);
		c->step = STEP_KEY_START;
		return CALL_MORE;
	}
}

/* Bytes of a string that is the name or contains the arguments. */
static enum call_state take_text(struct call_json *c, const char *text, size_t len,
				 const struct reply_sink *sink, unsigned index, size_t *used,
				 int *ret_error)
{
	struct text_buf decoded = {0};
	bool is_name = c->step == STEP_NAME;
	int result = 0;

	/*
	 * Byte by byte, so that a name that is too long ends at the same place however the text is
	 * split.
	 */
	while (*used < len && !result && c->name.len <= REPLY_MAX_NAME)
		result = take_string(c, text[(*used)++], is_name ? &c->name : &decoded);
	if (!is_name && result >= 0)
		*ret_error = pass_on(c, sink, index, decoded.data, decoded.len);
	free(decoded.data);
	if (result < 0)
		*ret_error = result;
	if (c->name.len > REPLY_MAX_NAME)
		return CALL_WRONG;
	if (result > 0) {
		c->step = STEP_NEXT;
		if (is_name && !c->name.len)
			return CALL_WRONG;
		if (is_name && !*ret_error)
			*ret_error = take_name(c, sink, index);
	}
	return CALL_MORE;
}

enum call_state call_json_feed(struct call_json *c, const char *text, size_t len,
			       const struct reply_sink *sink, unsigned index, size_t *ret_used,
			       int *ret_error)
{
	enum call_state state = CALL_MORE;
	size_t used = 0, n;

	*ret_error = 0;
	while (used < len && state == CALL_MORE && !*ret_error) {
		char byte = text[used];

		if (c->step != STEP_KEY && c->step != STEP_NAME && c->step != STEP_QUOTED &&
		    c->step != STEP_ARGUMENTS && c->step != STEP_OTHER && is_space(byte)) {
			used++;
			continue;
		}
		switch (c->step) {
		case STEP_VALUE: begin_value(c, byte, &used); break;
		case STEP_NAME:
		case STEP_QUOTED:
			state = take_text(c, text, len, sink, index, &used, ret_error);
			break;
		case STEP_ARGUMENTS:
		case STEP_OTHER:
			n = json_value_feed(&c->value, text + used, len - used);
			if (c->step == STEP_ARGUMENTS)
				*ret_error = pass_on(c, sink, index, text + used, n);
			used += n;
			if (c->value.over)
				c->step = STEP_NEXT;
			break;
		default:
			state = take_sign(c, byte, ret_error);
			used++;
			break;
		}
	}
	*ret_used = used;
	return state;
}
