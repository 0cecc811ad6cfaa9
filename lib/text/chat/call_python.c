// SPDX-License-Identifier: MIT
#include "call_python.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum step {
	STEP_LIST,     /* [ */
	STEP_FUNCTION, /* a name, or ] */
	STEP_ARGUMENT, /* a keyword, or ) */
	STEP_VALUE,    /* the first byte of a value */
	STEP_STRING,
	STEP_WORD,   /* a number, True, ... */
	STEP_BEHIND, /* after a value: , : or a closing bracket */
	STEP_NEXT,   /* , or ] */
};

void call_python_init(struct call_python *c)
{
	*c = (struct call_python){0};
}

void call_python_free(struct call_python *c)
{
	free(c->name.data);
	free(c->word.data);
	free(c->out.data);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '-';
}

static bool put(struct call_python *c, const char *text)
{
	return text_buf_add_string(&c->out, text);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Appends a byte of a string in JSON encoding. */
static bool take_string(struct call_python *c, char byte)
{
	char text[8];

	if (c->escaped) {
		c->escaped = false;
		if (byte == '\'')
			return put(c, "'");
		if (byte == '\n')
			return true;
		/* \a and others are not JSON escapes. */
		snprintf(text, sizeof(text),
			 strchr("\"\\/bfnrtu", byte) && byte ? "\\%c" : "\\\\%c", byte);
		return put(c, text);
	}
	if (byte == '\\') {
		c->escaped = true;
		return true;
	}
	if (byte == c->quote) {
		c->step = STEP_BEHIND;
		return put(c, "\"");
	}
	if (byte == '"')
		return put(c, "\\\"");
	if ((unsigned char)byte < 0x20) {
		snprintf(text, sizeof(text), "\\u%04x", (unsigned)byte);
		return put(c, text);
	}
	return text_buf_add(&c->out, &byte, 1);
}

/* Converts the current word to JSON; false: it is not a value. */
static bool end_word(struct call_python *c, int *ret_error)
{
	static const char *const words[][2] = {
		{"True", "true"}, {"False", "false"}, {"None", "null"},
		{"true", "true"}, {"false", "false"}, {"null", "null"},
	};
	bool number = c->word.len;

	for (size_t i = 0; i < c->word.len; i++)
		number = number && strchr("0123456789+-.eE", c->word.data[i]);
	if (number && c->word.data[0] != '.' && c->word.data[0] != '+') {
		if (!text_buf_add(&c->out, c->word.data, c->word.len))
			*ret_error = -ENOMEM;
		return true;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (c->word.len != strlen(words[i][0]) ||
		    memcmp(c->word.data, words[i][0], c->word.len))
			continue;
		if (!put(c, words[i][1]))
			*ret_error = -ENOMEM;
		return true;
	}
	return false;
}

static bool open_bracket(struct call_python *c, char byte)
{
	bool dict = byte == '{';

	if (c->depth == PYTHON_DEPTH)
		return false;
	c->brackets[c->depth++] = dict ? '}' : ']';
	return put(c, dict ? "{" : "[");
}

static enum call_state take_value(struct call_python *c, char byte, int *ret_error)
{
	bool ends = byte == ']' || byte == '}' || byte == ')';

	if (c->comma && !ends && !put(c, ","))
		*ret_error = -ENOMEM;
	c->comma = false;
	if (byte == '\'' || byte == '"') {
		c->quote = byte;
		c->step = STEP_STRING;
		if (!put(c, "\""))
			*ret_error = -ENOMEM;
	} else if (byte == '[' || byte == '{' || byte == '(') {
		if (!open_bracket(c, byte))
			return CALL_BROKEN;
	} else if (ends && c->depth) {
		/* Empty, or after a trailing comma. */
		if (!text_buf_add(&c->out, &c->brackets[--c->depth], 1))
			*ret_error = -ENOMEM;
		c->step = STEP_BEHIND;
	} else if (is_name_char(byte) || byte == '+') {
		c->word.len = 0;
		if (!text_buf_add(&c->word, &byte, 1))
			*ret_error = -ENOMEM;
		c->step = STEP_WORD;
	} else {
		return CALL_BROKEN;
	}
	return CALL_MORE;
}

/* After a value; the call itself counts as the outermost bracket. */
static enum call_state take_behind(struct call_python *c, char byte, int *ret_error)
{
	bool ok = true;

	if (byte == ',' && c->depth) {
		c->comma = true;
		c->step = STEP_VALUE;
	} else if (byte == ',') {
		c->step = STEP_ARGUMENT;
	} else if (byte == ':' && c->depth) {
		ok = put(c, ":");
		c->step = STEP_VALUE;
	} else if ((byte == ']' || byte == '}' || byte == ')') && c->depth) {
		ok = text_buf_add(&c->out, &c->brackets[--c->depth], 1);
	} else if (byte == ')') {
		ok = put(c, "}");
		c->step = STEP_NEXT;
	} else {
		return CALL_BROKEN;
	}
	if (!ok)
		*ret_error = -ENOMEM;
	return CALL_MORE;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum call_state take_function(struct call_python *c, char byte,
				     const struct reply_sink *sink, unsigned index, int *ret_error)
{
	if (is_name_char(byte)) {
		if (c->name.len == REPLY_MAX_NAME)
			return CALL_WRONG;
		if (!text_buf_add(&c->name, &byte, 1))
			*ret_error = -ENOMEM;
		return CALL_MORE;
	}
	if (byte != '(' || !c->name.len || (c->name.data[0] >= '0' && c->name.data[0] <= '9'))
		return CALL_WRONG;
	*ret_error = sink->call(sink->arg, &(struct reply_call){.index = index,
								.name = c->name.data,
								.name_len = c->name.len});
	c->n_arguments = 0;
	c->word.len = 0;
	c->step = STEP_ARGUMENT;
	if (!*ret_error && !put(c, "{"))
		*ret_error = -ENOMEM;
	return CALL_MORE;
}

static enum call_state take_argument(struct call_python *c, char byte, int *ret_error)
{
	bool ok = true;

	if (is_space(byte))
		return CALL_MORE;
	if (is_name_char(byte)) {
		ok = text_buf_add(&c->word, &byte, 1);
	} else if (byte == '=' && c->word.len) {
		ok = put(c, c->n_arguments++ ? ", \"" : "\"") &&
		     text_buf_add(&c->out, c->word.data, c->word.len) && put(c, "\": ");
		c->step = STEP_VALUE;
	} else if (byte == ')' && !c->word.len) {
		ok = put(c, "}");
		c->step = STEP_NEXT;
	} else {
		return CALL_BROKEN;
	}
	if (!ok)
		*ret_error = -ENOMEM;
	return CALL_MORE;
}

/* Consumes one byte; *ret_again: it was not consumed. */
static enum call_state take(struct call_python *c, char byte, const struct reply_sink *sink,
			    unsigned *index, bool *ret_again, int *ret_error)
{
	bool no_value = c->step != STEP_STRING && c->step != STEP_WORD && c->step != STEP_FUNCTION;

	if (no_value && is_space(byte))
		return CALL_MORE;
	switch (c->step) {
	case STEP_LIST: c->step = STEP_FUNCTION; return byte == '[' ? CALL_MORE : CALL_WRONG;
	case STEP_FUNCTION:
		if (!c->name.len && is_space(byte))
			return CALL_MORE;
		return take_function(c, byte, sink, *index, ret_error);
	case STEP_ARGUMENT: return take_argument(c, byte, ret_error);
	case STEP_VALUE: return take_value(c, byte, ret_error);
	case STEP_STRING:
		if (!take_string(c, byte))
			*ret_error = -ENOMEM;
		return CALL_MORE;
	case STEP_WORD:
		if (is_name_char(byte) || byte == '+') {
			if (!text_buf_add(&c->word, &byte, 1))
				*ret_error = -ENOMEM;
			return CALL_MORE;
		}
		c->step = STEP_BEHIND;
		*ret_again = true;
		if (!end_word(c, ret_error))
			return CALL_BROKEN;
		c->word.len = 0;
		return CALL_MORE;
	case STEP_BEHIND: c->word.len = 0; return take_behind(c, byte, ret_error);
	default:
		(*index)++;
		c->name.len = 0;
		c->step = STEP_FUNCTION;
		return byte == ']' ? CALL_DONE : byte == ',' ? CALL_MORE : CALL_BROKEN;
	}
}

enum call_state call_python_feed(struct call_python *c, const char *text, size_t len,
				 const struct reply_sink *sink, unsigned *index, size_t *ret_used,
				 int *ret_error)
{
	enum call_state state = CALL_MORE;
	size_t used = 0;

	*ret_error = 0;
	while (used < len && state == CALL_MORE && !*ret_error) {
		unsigned before = *index;
		bool again = false;

		state = take(c, text[used], sink, index, &again, ret_error);
		used += !again;
		/* A call's arguments end before the next call begins. */
		if (c->out.len &&
		    (*index != before || c->step == STEP_NEXT || used == len || c->out.len > 256)) {
			if (!*ret_error)
				*ret_error =
					sink->arguments(sink->arg, before, c->out.data, c->out.len);
			c->out.len = 0;
		}
	}
	if (c->out.len && !*ret_error)
		*ret_error = sink->arguments(sink->arg, *index, c->out.data, c->out.len);
	c->out.len = 0;
	*ret_used = used;
	return state;
}
