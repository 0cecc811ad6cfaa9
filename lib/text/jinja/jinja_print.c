// SPDX-License-Identifier: MIT
/*
 * Values as text: Python's str() and repr(), and its json.dumps() for the filter `tojson`.
 */
#include "jinja_render.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that read back as the same double, then fixed notation for exponents -4..15. */
void jinja_write_float(struct jinja_render *r, double f)
{
	char text[40], digits[24];
	int precision, exponent, n = 0, i;

	if (isnan(f) || isinf(f)) {
		jinja_write_text(r, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	for (precision = 0; precision < 17; precision++) {
		snprintf(text, sizeof(text), "%.*e", precision, f);
		if (strtod(text, NULL) == f)
			break;
	}
	exponent = atoi(strchr(text, 'e') + 1);
	for (i = 0; text[i] != 'e'; i++)
		if (text[i] >= '0' && text[i] <= '9')
			digits[n++] = text[i];
	if (signbit(f))
		jinja_write_text(r, "-");
	if (exponent < -4 || exponent >= 16)
		jinja_writef(r, "%.1s%s%.*se%c%02d", digits, n > 1 ? "." : "", n - 1, digits + 1,
			     exponent < 0 ? '-' : '+', abs(exponent));
	else if (exponent < 0)
		jinja_writef(r, "0.%.*s%.*s", -1 - exponent, "000", n, digits);
	else if (n <= exponent + 1)
		jinja_writef(r, "%.*s%.*s.0", n, digits, exponent + 1 - n, "0000000000000000");
	else
		jinja_writef(r, "%.*s.%.*s", exponent + 1, digits, n - exponent - 1,
			     digits + exponent + 1);
}

static void write_escaped(struct jinja_render *r, uint32_t c)
{
	static const char chars[] = "\n\r\t";
	const char *known = c && c < 0x80 ? strchr(chars, (int)c) : NULL;

	if (known)
		jinja_writef(r, "\\%c", "nrt"[known - chars]);
	else if (c < 0x100)
		jinja_writef(r, "\\x%02" PRIx32, c);
	else
		jinja_writef(r, c < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, c);
}

static void write_quoted(struct jinja_render *r, const struct jinja_str *s)
{
	bool single = memchr(s->data, '\'', s->length) && !memchr(s->data, '"', s->length);
	uint32_t quote = single ? '"' : '\'', c;
	size_t at = 0, plain = 0;

	jinja_write_char(r, quote);
	while (at < s->length) {
		size_t n = jinja_decode(s, at, &c);
		bool stray = n == 1 && c >= 0x80; /* not UTF-8: left unchanged */
		bool marked = c == quote || c == '\\';

		if (marked || (!stray && !jinja_is_printable(c))) {
			jinja_write(r, s->data + plain, at - plain);
			if (marked)
				jinja_write_text(r, "\\");
			else
				write_escaped(r, c);
			plain = marked ? at : at + n;
		}
		at += n;
	}
	jinja_write(r, s->data + plain, s->length - plain);
	jinja_write_char(r, quote);
}

static void write_items(struct jinja_render *r, const struct jinja_seq *seq, const char *open,
			const char *close)
{
	size_t i;

	jinja_write_text(r, open);
	for (i = 0; i < seq->n; i++) {
		if (i)
			jinja_write(r, ", ", 2);
		jinja_write_repr(r, seq->items[i]);
	}
	jinja_write_text(r, close);
}

static void write_seq(struct jinja_render *r, const struct jinja_seq *seq)
{
	switch (seq->flavor) {
	case JINJA_LIST: write_items(r, seq, "[", "]"); break;
	case JINJA_TUPLE:
	case JINJA_GROUP: write_items(r, seq, "(", seq->n == 1 ? ",)" : ")"); break;
	case JINJA_KEYS: write_items(r, seq, "dict_keys([", "])"); break;
	case JINJA_VALUES: write_items(r, seq, "dict_values([", "])"); break;
	case JINJA_ITEMS: write_items(r, seq, "dict_items([", "])"); break;
	case JINJA_RANGE:
		jinja_writef(r, "range(%" PRId64 ", %" PRId64, seq->range[0], seq->range[1]);
		if (seq->range[2] != 1)
			jinja_writef(r, ", %" PRId64, seq->range[2]);
		jinja_write_text(r, ")");
		break;
	default: jinja_writef(r, "<%s object>", jinja_type_name(jinja_seq_value((void *)seq)));
	}
}

static void write_dict(struct jinja_render *r, const struct jinja_dict *dict)
{
	size_t i;

	jinja_write(r, "{", 1);
	for (i = 0; i < dict->n; i++) {
		if (i)
			jinja_write(r, ", ", 2);
		jinja_write_repr(r, dict->entries[i].key);
		jinja_write(r, ": ", 2);
		jinja_write_repr(r, dict->entries[i].value);
	}
	jinja_write(r, "}", 1);
}

static void write_compound(struct jinja_render *r, struct jinja_value v)
{
	jinja_enter(r);
	jinja_charge(r, 1);
	if (v.kind == JINJA_NAMESPACE)
		jinja_write_text(r, "<Namespace ");
	if (v.kind == JINJA_SEQ)
		write_seq(r, v.seq);
	else
		write_dict(r, v.dict);
	if (v.kind == JINJA_NAMESPACE)
		jinja_write_text(r, ">");
	jinja_leave(r);
}

void jinja_write_repr(struct jinja_render *r, struct jinja_value v)
{
	if (v.kind == JINJA_UNDEFINED) {
		jinja_write_text(r, "Undefined");
	} else if (v.kind != JINJA_STRING) {
		jinja_write_str(r, v);
	} else {
		if (v.safe)
			jinja_write_text(r, "Markup(");
		write_quoted(r, v.string);
		if (v.safe)
			jinja_write_text(r, ")");
	}
}

void jinja_write_str(struct jinja_render *r, struct jinja_value v)
{
	switch (v.kind) {
	case JINJA_UNDEFINED: break;
	case JINJA_NONE: jinja_write_text(r, "None"); break;
	case JINJA_BOOL: jinja_write_text(r, v.boolean ? "True" : "False"); break;
	case JINJA_INT: jinja_writef(r, "%" PRId64, v.integer); break;
	case JINJA_FLOAT: jinja_write_float(r, v.real); break;
	case JINJA_BIGINT:
	case JINJA_STRING: jinja_write(r, v.string->data, v.string->length); break;
	case JINJA_SEQ:
	case JINJA_DICT:
	case JINJA_NAMESPACE: write_compound(r, v); break;
	case JINJA_MACRO: jinja_writef(r, "<Macro '%.*s'>", JINJA_SHOW(v.macro->node->name)); break;
	default: jinja_writef(r, "<%s object>", jinja_type_name(v));
	}
}

struct json_style {
	const struct jinja_str *indent; /* NULL: all on one line */
	const struct jinja_str *item_separator;
	const struct jinja_str *key_separator;
	bool ensure_ascii;
	bool sort_keys;
};

static void json_escape(struct jinja_render *r, uint32_t c)
{
	static const char chars[] = "\"\\\n\r\t\b\f";
	const char *known = c && c < 0x80 ? strchr(chars, (int)c) : NULL;

	if (known)
		jinja_writef(r, "\\%c", "\"\\nrtbf"[known - chars]);
	else if (c >= 0x10000)
		jinja_writef(r, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((c - 0x10000) >> 10),
			     0xdc00 + ((c - 0x10000) & 0x3ff));
	else
		jinja_writef(r, "\\u%04" PRIx32, c);
}

static void json_string(struct jinja_render *r, const struct jinja_str *s, bool ensure_ascii)
{
	size_t at = 0, plain = 0, n;
	uint32_t c;

	jinja_write(r, "\"", 1);
	for (; at < s->length; at += n) {
		c = (unsigned char)s->data[at];
		n = ensure_ascii ? jinja_decode(s, at, &c) : 1;
		if (c >= 0x20 && c != '"' && c != '\\' && !(ensure_ascii && c >= 0x7f))
			continue;
		jinja_write(r, s->data + plain, at - plain);
		json_escape(r, n == 1 && c >= 0x80 ? 0xfffd : c);
		plain = at + n;
	}
	jinja_write(r, s->data + plain, s->length - plain);
	jinja_write(r, "\"", 1);
}

static void json_value(struct jinja_render *r, struct jinja_value v, const struct json_style *style,
		       unsigned int level);

/* Keys that are not strings are converted to strings. */
static void json_key(struct jinja_render *r, struct jinja_value key, const struct json_style *style)
{
	const char *quote = key.kind == JINJA_STRING ? "" : "\"";

	if (key.kind == JINJA_SEQ)
		jinja_fail(r, "tojson: keys must be str, int, float, bool or None, not %s",
			   jinja_type_name(key));
	jinja_write_text(r, quote);
	json_value(r, key, style, 0);
	jinja_write_text(r, quote);
	jinja_write(r, style->key_separator->data, style->key_separator->length);
}

static void json_new_line(struct jinja_render *r, const struct json_style *style,
			  unsigned int level)
{
	if (!style->indent)
		return;
	jinja_write(r, "\n", 1);
	while (level--)
		jinja_write(r, style->indent->data, style->indent->length);
}

/* The values of a list, or of a dict with their keys. */
static void json_compound(struct jinja_render *r, struct jinja_value v,
			  const struct json_style *style, unsigned int level)
{
	bool is_dict = v.kind == JINJA_DICT;
	struct jinja_seq *values = is_dict ? jinja_dict_items(r, v.dict, JINJA_VALUES) : v.seq;
	struct jinja_seq *keys = is_dict ? jinja_dict_items(r, v.dict, JINJA_KEYS) : NULL;
	size_t i;

	if (is_dict && style->sort_keys) {
		struct jinja_seq *order = jinja_dict_items(r, v.dict, JINJA_KEYS);

		jinja_sort(r, values->items, order->items, values->n, false);
		jinja_sort(r, keys->items, order->items, keys->n, false);
	}
	jinja_write(r, is_dict ? "{" : "[", 1);
	for (i = 0; i < values->n; i++) {
		if (i)
			jinja_write(r, style->item_separator->data, style->item_separator->length);
		json_new_line(r, style, level + 1);
		if (is_dict)
			json_key(r, keys->items[i], style);
		json_value(r, values->items[i], style, level + 1);
	}
	if (values->n)
		json_new_line(r, style, level);
	jinja_write(r, is_dict ? "}" : "]", 1);
}

static void json_value(struct jinja_render *r, struct jinja_value v, const struct json_style *style,
		       unsigned int level)
{
	switch (v.kind) {
	case JINJA_NONE: jinja_write_text(r, "null"); return;
	case JINJA_BOOL: jinja_write_text(r, v.boolean ? "true" : "false"); return;
	case JINJA_INT:
	case JINJA_BIGINT: jinja_write_str(r, v); return;
	case JINJA_FLOAT:
		if (isnan(v.real) || isinf(v.real))
			jinja_write_text(r, isnan(v.real) ? "NaN"
					    : v.real < 0  ? "-Infinity"
							  : "Infinity");
		else
			jinja_write_float(r, v.real);
		return;
	case JINJA_STRING: json_string(r, v.string, style->ensure_ascii); return;
	default: break;
	}
	if (v.kind != JINJA_DICT && !jinja_is_list(v) && !jinja_is_tuple(v))
		jinja_fail(r, "tojson: object of type %s is not JSON serializable",
			   jinja_type_name(v));
	jinja_enter(r);
	jinja_charge(r, 1);
	json_compound(r, v, style, level);
	jinja_leave(r);
}

/* indent is a number of spaces or the text itself */
static const struct jinja_str *json_indent(struct jinja_call *c, struct jinja_value v)
{
	int64_t width;
	char *spaces;

	if (v.kind == JINJA_STRING || v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
		return v.kind == JINJA_STRING ? v.string : NULL;
	if (!jinja_as_int(v, &width))
		jinja_fail(c->r, "tojson: indent must be an integer or a string, not '%s'",
			   jinja_type_name(v));
	if (width > 1000)
		jinja_fail(c->r, "tojson: an indent of %" PRId64 " is too wide", width);
	if (width < 0)
		width = 0;
	spaces = memset(jinja_alloc(c->r, 1, (size_t)width), ' ', (size_t)width);
	return jinja_string(c->r, spaces, (size_t)width).string;
}

struct jinja_value jinja_filter_tojson(struct jinja_call *c)
{
	static const struct jinja_str comma = {",", 1, 1}, comma_space = {", ", 2, 2},
				      colon_space = {": ", 2, 2};
	struct json_style style = {
		.indent = json_indent(c, c->arg[1]),
		.key_separator = &colon_space,
		.ensure_ascii = jinja_flag(c, 0),
		.sort_keys = jinja_flag(c, 3),
	};
	size_t mark = c->r->out.len;

	style.item_separator = style.indent ? &comma : &comma_space;
	if (jinja_given(c, 2)) {
		const struct jinja_seq *pair = c->arg[2].seq;

		if (c->arg[2].kind != JINJA_SEQ || pair->n != 2 ||
		    pair->items[0].kind != JINJA_STRING || pair->items[1].kind != JINJA_STRING)
			jinja_fail(c->r, "tojson: separators must be two strings");
		style.item_separator = pair->items[0].string;
		style.key_separator = pair->items[1].string;
	}
	json_value(c->r, c->self, &style, 0);
	return jinja_captured(c->r, mark);
}
