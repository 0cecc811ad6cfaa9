// SPDX-License-Identifier: MIT
/*
 * The filter `tojson`: Python's json.dumps() with the arguments that templates pass.
 */
#include "jinja_render.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int write_value(struct jinja_render *r, struct jinja_value v,
		       const struct jinja_json_style *style, unsigned int level);

static int write_unicode_escape(struct jinja_render *r, uint32_t c)
{
	char text[16];

	if (c >= 0x10000)
		snprintf(text, sizeof(text), "\\u%04" PRIx32 "\\u%04" PRIx32,
			 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
	else
		snprintf(text, sizeof(text), "\\u%04" PRIx32, c);
	return jinja_write_text(r, text);
}

static int write_escape(struct jinja_render *r, uint32_t c, bool stray)
{
	static const char chars[] = "\"\\\n\r\t\b\f";
	static const char letters[] = "\"\\nrtbf";
	const char *known = c && c < 0x80 ? strchr(chars, (int)c) : NULL;
	char text[2] = {'\\'};

	if (!known)
		return write_unicode_escape(r, stray ? 0xfffd : c);
	text[1] = letters[known - chars];
	return jinja_write(r, text, 2);
}

static int write_string(struct jinja_render *r, const struct jinja_str *s, bool ensure_ascii)
{
	size_t at = 0, plain = 0;
	int rc = jinja_write(r, "\"", 1);

	while (!rc && at < s->length) {
		uint32_t c = (unsigned char)s->data[at];
		size_t n = 1;

		if (ensure_ascii && c >= 0x80)
			n = jinja_utf8_decode(s->data + at, s->length - at, &c);
		if (c < 0x20 || c == '"' || c == '\\' || (ensure_ascii && c >= 0x7f)) {
			rc = jinja_write(r, s->data + plain, at - plain);
			if (!rc)
				rc = write_escape(r, c, n == 1 && c >= 0x80);
			plain = at + n;
		}
		at += n;
	}
	if (!rc)
		rc = jinja_write(r, s->data + plain, s->length - plain);
	return rc ? rc : jinja_write(r, "\"", 1);
}

static int write_float(struct jinja_render *r, double f)
{
	if (isnan(f))
		return jinja_write_text(r, "NaN");
	if (isinf(f))
		return jinja_write_text(r, f < 0 ? "-Infinity" : "Infinity");
	return jinja_write_float(r, f);
}

/* Keys that are no strings are written as one. */
static int write_key(struct jinja_render *r, struct jinja_value key,
		     const struct jinja_json_style *style)
{
	int rc;

	switch (key.kind) {
	case JINJA_STRING: return write_string(r, key.string, style->ensure_ascii);
	case JINJA_NONE:
	case JINJA_BOOL:
	case JINJA_INT:
	case JINJA_FLOAT:
	case JINJA_BIGINT:
		rc = jinja_write(r, "\"", 1);
		if (!rc)
			rc = write_value(r, key, style, 0);
		return rc ? rc : jinja_write(r, "\"", 1);
	default:
		return jinja_fail(r, "tojson: keys must be str, int, float, bool or None, not %s",
				  jinja_type_name(key));
	}
}

static int new_line(struct jinja_render *r, const struct jinja_json_style *style,
		    unsigned int level)
{
	int rc;

	if (!style->indent)
		return 0;
	rc = jinja_write(r, "\n", 1);
	while (!rc && level--)
		rc = jinja_write(r, style->indent->data, style->indent->length);
	return rc;
}

static int separate(struct jinja_render *r, const struct jinja_json_style *style, size_t i,
		    unsigned int level)
{
	int rc = 0;

	if (i)
		rc = jinja_write(r, style->item_separator->data, style->item_separator->length);
	return rc ? rc : new_line(r, style, level);
}

static int write_list(struct jinja_render *r, const struct jinja_seq *seq,
		      const struct jinja_json_style *style, unsigned int level)
{
	size_t i;
	int rc;

	if (!seq->n)
		return jinja_write(r, "[]", 2);
	rc = jinja_write(r, "[", 1);
	for (i = 0; !rc && i < seq->n; i++) {
		rc = separate(r, style, i, level + 1);
		if (!rc)
			rc = write_value(r, seq->items[i], style, level + 1);
	}
	if (!rc)
		rc = new_line(r, style, level);
	return rc ? rc : jinja_write(r, "]", 1);
}

static int sorted_entries(struct jinja_render *r, const struct jinja_dict *dict,
			  struct jinja_value **ret_values, struct jinja_value **ret_keys)
{
	struct jinja_value *values, *keys, *key_copy;
	size_t i;
	int rc = jinja_alloc(r, dict->n * sizeof(*values), &values);

	if (!rc)
		rc = jinja_alloc(r, dict->n * 2 * sizeof(*keys), &keys);
	if (rc)
		return rc;
	key_copy = keys + dict->n;
	for (i = 0; i < dict->n; i++) {
		values[i] = dict->entries[i].value;
		keys[i] = key_copy[i] = dict->entries[i].key;
	}
	*ret_values = values;
	*ret_keys = keys;
	return 0;
}

static int write_dict(struct jinja_render *r, const struct jinja_dict *dict,
		      const struct jinja_json_style *style, unsigned int level)
{
	struct jinja_value *values = NULL, *keys = NULL;
	size_t i;
	int rc = 0;

	if (!dict->n)
		return jinja_write(r, "{}", 2);
	if (style->sort_keys) {
		rc = sorted_entries(r, dict, &values, &keys);
		if (!rc)
			rc = jinja_sort(r, values, keys, dict->n, false);
		if (!rc)
			rc = jinja_sort(r, keys + dict->n, keys, dict->n, false);
		if (!rc)
			keys += dict->n;
	}
	if (!rc)
		rc = jinja_write(r, "{", 1);
	for (i = 0; !rc && i < dict->n; i++) {
		rc = separate(r, style, i, level + 1);
		if (!rc)
			rc = write_key(r, keys ? keys[i] : dict->entries[i].key, style);
		if (!rc)
			rc = jinja_write(r, style->key_separator->data,
					 style->key_separator->length);
		if (!rc)
			rc = write_value(r, values ? values[i] : dict->entries[i].value, style,
					 level + 1);
	}
	if (!rc)
		rc = new_line(r, style, level);
	return rc ? rc : jinja_write(r, "}", 1);
}

static int write_value(struct jinja_render *r, struct jinja_value v,
		       const struct jinja_json_style *style, unsigned int level)
{
	int rc;

	switch (v.kind) {
	case JINJA_NONE: return jinja_write_text(r, "null");
	case JINJA_BOOL: return jinja_write_text(r, v.boolean ? "true" : "false");
	case JINJA_INT:
	case JINJA_BIGINT: return jinja_write_str(r, v);
	case JINJA_FLOAT: return write_float(r, v.real);
	case JINJA_STRING: return write_string(r, v.string, style->ensure_ascii);
	default: break;
	}
	if (v.kind != JINJA_DICT && !jinja_is_list(v) && !jinja_is_tuple(v))
		return jinja_fail(r, "tojson: object of type %s is not JSON serializable",
				  jinja_type_name(v));
	rc = jinja_enter(r);
	if (rc)
		return rc;
	rc = jinja_charge(r, 1);
	if (!rc && v.kind == JINJA_DICT)
		rc = write_dict(r, v.dict, style, level);
	else if (!rc)
		rc = write_list(r, v.seq, style, level);
	jinja_leave(r);
	return rc;
}

int jinja_write_json(struct jinja_render *r, struct jinja_value v,
		     const struct jinja_json_style *style)
{
	return write_value(r, v, style, 0);
}

/* indent is a number of spaces or the text itself; None: all on one line */
static int parse_indent(struct jinja_render *r, struct jinja_value v,
			const struct jinja_str **ret_indent)
{
	struct jinja_value text;
	int64_t width;
	char *spaces;
	int rc;

	*ret_indent = NULL;
	if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
		return 0;
	if (v.kind == JINJA_STRING) {
		*ret_indent = v.string;
		return 0;
	}
	rc = jinja_arg_int(r, v, "tojson: indent", &width);
	if (rc)
		return rc;
	if (width < 0)
		width = 0;
	if (width > 1000)
		return jinja_fail(r, "tojson: an indent of %" PRId64 " is too wide", width);
	rc = jinja_alloc(r, (size_t)width, &spaces);
	if (rc)
		return rc;
	memset(spaces, ' ', (size_t)width);
	rc = jinja_string(r, spaces, (size_t)width, &text);
	if (!rc)
		*ret_indent = text.string;
	return rc;
}

static int parse_separators(struct jinja_render *r, struct jinja_value v,
			    struct jinja_json_style *style)
{
	if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
		return 0;
	if (v.kind != JINJA_SEQ || v.seq->n != 2 || v.seq->items[0].kind != JINJA_STRING ||
	    v.seq->items[1].kind != JINJA_STRING)
		return jinja_fail(r, "tojson: separators must be two strings");
	style->item_separator = v.seq->items[0].string;
	style->key_separator = v.seq->items[1].string;
	return 0;
}

int jinja_filter_tojson(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	static const struct jinja_str comma = {",", 1, 1}, comma_space = {", ", 2, 2},
				      colon_space = {": ", 2, 2};
	struct jinja_json_style style = {.item_separator = &comma_space,
					 .key_separator = &colon_space};
	struct jinja_value arg[4];
	size_t mark = r->out.length;
	int rc = JINJA_BIND(r, args, "tojson", 0, arg, "ensure_ascii", "indent", "separators",
			    "sort_keys");

	if (!rc)
		rc = parse_indent(r, arg[1], &style.indent);
	if (rc)
		return rc;
	if (style.indent)
		style.item_separator = &comma;
	rc = parse_separators(r, arg[2], &style);
	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &style.ensure_ascii);
	jinja_arg_bool(arg[3], &style.sort_keys);
	rc = jinja_write_json(r, self, &style);
	return rc ? rc : jinja_captured(r, mark, ret);
}
