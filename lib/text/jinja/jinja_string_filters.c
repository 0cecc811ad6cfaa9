// SPDX-License-Identifier: MIT
/*
 * Filters that make strings. Most take any value and work on its str().
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jinja_text.h"

static int change_case(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, const char *what, enum jinja_case mode,
		       struct jinja_value *ret)
{
	struct jinja_str *s;
	int rc = jinja_no_args(r, args, what);

	if (!rc)
		rc = jinja_to_str(r, self, &s);
	return jinja_keep_safe(self, rc ? rc : jinja_change_case(r, s, mode, ret), ret);
}

static int filter_upper(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	return change_case(r, self, args, "upper", JINJA_CASE_UPPER, ret);
}

static int filter_lower(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	return change_case(r, self, args, "lower", JINJA_CASE_LOWER, ret);
}

static int filter_capitalize(struct jinja_render *r, struct jinja_value self,
			     const struct jinja_args *args, struct jinja_value *ret)
{
	return change_case(r, self, args, "capitalize", JINJA_CASE_CAPITALIZE, ret);
}

static bool begins_word(uint32_t c)
{
	return jinja_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

/* Words begin behind blanks, hyphens and opening brackets, unlike those of the method title(). */
static int filter_title(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	size_t mark = r->out.length, at = 0, end;
	struct jinja_value part;
	struct jinja_str *s;
	int rc = jinja_no_args(r, args, "title");

	if (!rc)
		rc = jinja_to_str(r, self, &s);
	while (!rc && at < s->length) {
		uint32_t c, first;
		size_t n = jinja_utf8_decode(s->data + at, s->length - at, &first);

		for (end = at + n; end < s->length; end += n) {
			n = jinja_utf8_decode(s->data + end, s->length - end, &c);
			if (begins_word(c) != begins_word(first))
				break;
		}
		n = jinja_utf8_decode(s->data + at, s->length - at, &first);
		rc = jinja_substring(r, s, at, at + n, &part);
		if (!rc)
			rc = jinja_change_case(r, part.string, JINJA_CASE_UPPER, &part);
		if (!rc)
			rc = jinja_write_str(r, part);
		if (!rc)
			rc = jinja_substring(r, s, at + n, end, &part);
		if (!rc)
			rc = jinja_change_case(r, part.string, JINJA_CASE_LOWER, &part);
		if (!rc)
			rc = jinja_write_str(r, part);
		at = end;
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int filter_trim(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_str *s, *chars = NULL;
	int rc = JINJA_BIND(r, args, "trim", 0, arg, "chars");

	if (!rc && arg[0].kind != JINJA_NONE)
		rc = jinja_arg_str(r, arg[0], "trim", &chars);
	if (!rc)
		rc = jinja_to_str(r, self, &s);
	return jinja_keep_safe(self, rc ? rc : jinja_strip(r, s, chars, true, true, ret), ret);
}

static int filter_replace(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[3];
	struct jinja_str *s, *from, *to;
	int64_t count = -1;
	int rc = JINJA_BIND(r, args, "replace", 2, arg, "old", "new", "count");

	if (!rc && arg[2].kind != JINJA_NONE)
		rc = jinja_arg_int(r, arg[2], "replace", &count);
	if (!rc)
		rc = jinja_to_str(r, self, &s);
	if (!rc)
		rc = jinja_to_str(r, arg[0], &from);
	if (!rc)
		rc = jinja_to_str(r, arg[1], &to);
	return rc ? rc : jinja_replace(r, s, from, to, count, ret);
}

static int filter_string(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_str *s;
	int rc = jinja_no_args(r, args, "string");

	if (!rc)
		rc = jinja_to_str(r, self, &s);
	if (!rc)
		*ret = (struct jinja_value){.kind = JINJA_STRING, .safe = self.safe, .string = s};
	return rc;
}

static int filter_safe(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	int rc = filter_string(r, self, args, ret);

	if (!rc)
		ret->safe = true;
	return rc;
}

static int filter_escape(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	int rc = jinja_no_args(r, args, "escape");

	return rc ? rc : jinja_escape(r, self, ret);
}

static int filter_forceescape(struct jinja_render *r, struct jinja_value self,
			      const struct jinja_args *args, struct jinja_value *ret)
{
	self.safe = false;
	return filter_escape(r, self, args, ret);
}

static int filter_urlencode(struct jinja_render *r, struct jinja_value self,
			    const struct jinja_args *args, struct jinja_value *ret)
{
	size_t mark = r->out.length, i;
	struct jinja_str *s;
	int rc = jinja_no_args(r, args, "urlencode");

	if (!rc && (self.kind == JINJA_DICT || self.kind == JINJA_SEQ))
		rc = jinja_fail(r, "urlencode: only strings are supported");
	if (!rc)
		rc = jinja_to_str(r, self, &s);
	for (i = 0; !rc && i < s->length; i++) {
		unsigned char c = (unsigned char)s->data[i];
		char text[4];

		if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
		    (c && strchr("/_.-~", c)))
			snprintf(text, sizeof(text), "%c", c);
		else
			snprintf(text, sizeof(text), "%%%02X", c);
		rc = jinja_write_text(r, text);
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int indent_width(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret)
{
	struct jinja_str empty = {"", 0, 0};
	int64_t width = 4;
	int rc;

	if (v.kind == JINJA_STRING) {
		*ret = v;
		return 0;
	}
	rc = jinja_arg_int(r, v, "indent", &width);
	return rc ? rc : jinja_pad(r, &empty, width, '<', ' ', ret);
}

static int filter_indent(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	size_t mark = r->out.length, i;
	struct jinja_value arg[3], indent;
	bool first = false, blank = false;
	const struct jinja_str *last = NULL;
	struct jinja_seq *lines;
	struct jinja_str *s;
	int rc = JINJA_BIND(r, args, "indent", 0, arg, "width", "first", "blank");

	if (!rc)
		rc = jinja_arg_str(r, self, "indent", &s);
	if (!rc)
		rc = indent_width(r, arg[0], &indent);
	if (!rc)
		rc = jinja_split_lines(r, s, false, &lines);
	if (rc)
		return rc;
	jinja_arg_bool(arg[1], &first);
	jinja_arg_bool(arg[2], &blank);
	/* behind a last line end is an empty line; jinja2 adds "\n" first, which joins a "\r" */
	if (lines->n)
		last = lines->items[lines->n - 1].string;
	if ((!last || last->data + last->length != s->data + s->length) &&
	    !(s->length && s->data[s->length - 1] == '\r')) {
		struct jinja_value empty;

		rc = jinja_literal(r, "", &empty);
		if (!rc)
			rc = jinja_append(r, lines, empty);
	}
	for (i = 0; !rc && i < lines->n; i++) {
		if (i)
			rc = jinja_write(r, "\n", 1);
		if (!rc && (i ? blank || lines->items[i].string->length : first))
			rc = jinja_write_str(r, indent);
		if (!rc)
			rc = jinja_write_str(r, lines->items[i]);
	}
	return jinja_keep_safe(self, rc ? rc : jinja_captured(r, mark, ret), ret);
}

static int filter_center(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_str *s;
	int64_t width = 80;
	int rc = JINJA_BIND(r, args, "center", 0, arg, "width");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], "center", &width);
	if (!rc)
		rc = jinja_to_str(r, self, &s);
	return jinja_keep_safe(self, rc ? rc : jinja_pad(r, s, width, '^', ' ', ret), ret);
}

static int filter_truncate(struct jinja_render *r, struct jinja_value self,
			   const struct jinja_args *args, struct jinja_value *ret)
{
	static struct jinja_str dots = {"...", 3, 3};
	struct jinja_value arg[4];
	struct jinja_str *s, *end = &dots;
	int64_t length = 255, leeway = 5, kept;
	size_t mark = r->out.length, cut;
	bool kill_words = false;
	int rc = JINJA_BIND(r, args, "truncate", 0, arg, "length", "killwords", "end", "leeway");

	if (!rc && self.kind == JINJA_UNDEFINED) {
		*ret = self; /* short enough */
		return 0;
	}
	if (!rc)
		rc = jinja_arg_str(r, self, "truncate", &s);
	if (!rc)
		rc = jinja_arg_int(r, arg[0], "truncate", &length);
	if (!rc)
		rc = jinja_arg_str(r, arg[2], "truncate", &end);
	if (!rc && arg[3].kind != JINJA_NONE)
		rc = jinja_arg_int(r, arg[3], "truncate", &leeway);
	if (rc)
		return rc;
	jinja_arg_bool(arg[1], &kill_words);
	kept = length - (int64_t)(end == &dots ? 3 : jinja_str_chars(end));
	if (length < 0 || kept < 0 || leeway < 0)
		return jinja_fail(r, "truncate: the length %" PRId64 " is too small", length);
	if ((int64_t)jinja_str_chars(s) - length <= leeway) {
		*ret = self;
		return 0;
	}
	cut = jinja_str_offset(s, (size_t)kept);
	if (!kill_words) {
		size_t at = cut;

		while (at > 0 && s->data[at - 1] != ' ')
			at--;
		if (at)
			cut = at - 1;
	}
	rc = jinja_write(r, s->data, cut);
	if (!rc)
		rc = jinja_write(r, end->data, end->length);
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int filter_wordcount(struct jinja_render *r, struct jinja_value self,
			    const struct jinja_args *args, struct jinja_value *ret)
{
	bool in_word = false;
	struct jinja_str *s;
	int64_t count = 0;
	size_t at = 0;
	int rc = jinja_no_args(r, args, "wordcount");

	if (!rc)
		rc = jinja_to_str(r, self, &s);
	while (!rc && at < s->length) {
		enum jinja_char_class class;
		uint32_t c;
		bool word;

		at += jinja_utf8_decode(s->data + at, s->length - at, &c);
		class = jinja_classify(c);
		word = class <= JINJA_CHAR_NUMERIC || c == '_';
		count += word && !in_word;
		in_word = word;
	}
	if (!rc)
		*ret = jinja_int(count);
	return rc ? rc : jinja_charge_bytes(r, s->length * 4);
}

/* "%s, %s"|format(a, b): with keywords they are the mapping */
static int filter_format(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_args keywords = {.keywords = args->keywords, .n_keywords = args->n_keywords};
	struct jinja_value arguments;
	struct jinja_seq *tuple;
	struct jinja_dict *dict;
	struct jinja_str *s;
	size_t i;
	int rc;

	if (args->n && args->n_keywords)
		return jinja_fail(r, "format: positional and keyword arguments together");
	if (args->n_keywords) {
		rc = jinja_dict_from_args(r, "format", &keywords, &dict);
		arguments = jinja_dict_value(rc ? NULL : dict);
	} else {
		rc = jinja_new_seq(r, JINJA_TUPLE, args->n, &tuple);
		for (i = 0; !rc && i < args->n; i++)
			rc = jinja_append(r, tuple, args->positional[i]);
		arguments = jinja_seq_value(rc ? NULL : tuple);
	}
	if (!rc)
		rc = jinja_to_str(r, self, &s);
	return rc ? rc : jinja_percent_format(r, s, self.safe, arguments, ret);
}

static int filter_join(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	size_t mark, i;
	struct jinja_value arg[2], item;
	struct jinja_str *separator = NULL;
	struct jinja_seq *items;
	int rc = JINJA_BIND(r, args, "join", 0, arg, "d", "attribute");

	if (!rc && arg[0].kind != JINJA_ABSENT)
		rc = jinja_to_str(r, arg[0], &separator);
	if (!rc)
		rc = jinja_iterate(r, self, &items);
	mark = r->out.length;
	for (i = 0; !rc && i < items->n; i++) {
		item = items->items[i];
		if (arg[1].kind != JINJA_ABSENT && arg[1].kind != JINJA_NONE)
			rc = jinja_path(r, item, arg[1], &item);
		if (!rc && i && separator)
			rc = jinja_write(r, separator->data, separator->length);
		if (!rc)
			rc = jinja_write_str(r, item);
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

const struct jinja_builtin jinja_string_filters[] = {
	{"upper", filter_upper},
	{"lower", filter_lower},
	{"capitalize", filter_capitalize},
	{"title", filter_title},
	{"trim", filter_trim},
	{"replace", filter_replace},
	{"string", filter_string},
	{"safe", filter_safe},
	{"escape", filter_escape},
	{"e", filter_escape},
	{"forceescape", filter_forceescape},
	{"urlencode", filter_urlencode},
	{"indent", filter_indent},
	{"center", filter_center},
	{"truncate", filter_truncate},
	{"wordcount", filter_wordcount},
	{"format", filter_format},
	{"join", filter_join},
	{"tojson", jinja_filter_tojson},
	{NULL, NULL},
};
