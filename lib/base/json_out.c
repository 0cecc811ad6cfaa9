// SPDX-License-Identifier: MIT
#include "json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "utf8.h"

void json_out_init(struct json_out *o)
{
	memset(o, 0, sizeof(*o));
}

void json_out_free(struct json_out *o)
{
	free(o->data);
	json_out_init(o);
}

void json_out_clear(struct json_out *o)
{
	o->len = 0;
	o->comma = false;
	o->failed = false;
}

static _Thread_local uint64_t written;

uint64_t json_out_written(void)
{
	return written;
}

void json_raw(struct json_out *o, const void *bytes, size_t len)
{
	if (o->failed || !len)
		return;
	if (o->spill && o->len >= JSON_SPILL)
		o->spill(o, o->spill_arg);
	if (len > o->cap - o->len &&
	    (len > SIZE_MAX - o->len || !array_grow(&o->data, &o->cap, o->len + len, 1))) {
		o->failed = true;
		return;
	}
	memcpy(o->data + o->len, bytes, len);
	o->len += len;
	written += len;
}

void json_raw_string(struct json_out *o, const char *text)
{
	json_raw(o, text, strlen(text));
}

static void element(struct json_out *o)
{
	if (o->comma)
		json_raw(o, ",", 1);
	o->comma = true;
}

void json_begin(struct json_out *o, char bracket)
{
	element(o);
	json_raw(o, &bracket, 1);
	o->comma = false;
}

void json_end(struct json_out *o, char bracket)
{
	json_raw(o, &bracket, 1);
	o->comma = true;
}

static void quoted(struct json_out *o, const char *text, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *s = (const uint8_t *)text;
	size_t plain = 0; /* start of the run that can be copied unchanged */

	json_raw(o, "\"", 1);
	for (size_t i = 0; i < len;) {
		char escape[7] = "\\u0000";
		const char *replacement = NULL;
		bool whole = true;
		unsigned n = s[i] < 0x80 ? 1 : utf8_scan(s + i, len - i, &whole);

		if (!whole) {
			replacement = UTF8_REPLACEMENT;
		} else if (s[i] == '"') {
			replacement = "\\\"";
		} else if (s[i] == '\\') {
			replacement = "\\\\";
		} else if (s[i] == '\n') {
			replacement = "\\n";
		} else if (s[i] < 0x20 || s[i] == 0x7F) {
			escape[4] = hex[s[i] >> 4];
			escape[5] = hex[s[i] & 15];
			replacement = escape;
		}
		if (replacement) {
			json_raw(o, text + plain, i - plain);
			json_raw_string(o, replacement);
			plain = i + n;
		}
		i += n;
	}
	json_raw(o, text + plain, len - plain);
	json_raw(o, "\"", 1);
}

void json_key(struct json_out *o, const char *key)
{
	element(o);
	quoted(o, key, strlen(key));
	json_raw(o, ":", 1);
	o->comma = false;
}

void json_string_len(struct json_out *o, const char *text, size_t len)
{
	element(o);
	quoted(o, text, len);
}

void json_string(struct json_out *o, const char *text)
{
	json_string_len(o, text, strlen(text));
}

static void word(struct json_out *o, const char *text)
{
	element(o);
	json_raw_string(o, text);
}

void json_int(struct json_out *o, int64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRId64, value);
	word(o, text);
}

void json_uint(struct json_out *o, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	word(o, text);
}

void json_number(struct json_out *o, double value)
{
	char text[40];

	if (!isfinite(value)) {
		word(o, "null");
		return;
	}
	snprintf(text, sizeof(text), "%.9g", value);
	word(o, text);
}

void json_bool(struct json_out *o, bool value)
{
	word(o, value ? "true" : "false");
}

void json_null(struct json_out *o)
{
	word(o, "null");
}
