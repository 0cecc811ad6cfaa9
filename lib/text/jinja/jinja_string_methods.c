// SPDX-License-Identifier: MIT
/*
 * Methods of strings.
 */
#include <string.h>

#include "jinja_text.h"

static int method_strip_sides(struct jinja_render *r, struct jinja_value self,
			      const struct jinja_args *args, const char *what, bool left,
			      bool right, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_str *chars = NULL;
	int rc = JINJA_BIND(r, args, what, 0, arg, "chars");

	if (!rc && arg[0].kind != JINJA_NONE)
		rc = jinja_arg_str(r, arg[0], what, &chars);
	return rc ? rc : jinja_strip(r, self.string, chars, left, right, ret);
}

#define STRIP(name, left, right)                                                                   \
	static int method_##name(struct jinja_render *r, struct jinja_value self,                  \
				 const struct jinja_args *args, struct jinja_value *ret)           \
	{                                                                                          \
		return method_strip_sides(r, self, args, #name, left, right, ret);                 \
	}

STRIP(strip, true, true)
STRIP(lstrip, true, false)
STRIP(rstrip, false, true)

#define CASE(name, mode)                                                                           \
	static int method_##name(struct jinja_render *r, struct jinja_value self,                  \
				 const struct jinja_args *args, struct jinja_value *ret)           \
	{                                                                                          \
		int rc = jinja_no_args(r, args, #name);                                            \
                                                                                                   \
		return rc ? rc : jinja_change_case(r, self.string, mode, ret);                     \
	}

CASE(lower, JINJA_CASE_LOWER)
CASE(upper, JINJA_CASE_UPPER)
CASE(title, JINJA_CASE_TITLE)
CASE(capitalize, JINJA_CASE_CAPITALIZE)
CASE(swapcase, JINJA_CASE_SWAP)

/* start and end of find() and the like, as byte offsets */
static int text_range(struct jinja_render *r, struct jinja_str *s,
		      const struct jinja_value bounds[2], const char *what, size_t *ret_start,
		      size_t *ret_end, bool *ret_valid)
{
	int64_t chars = (int64_t)jinja_str_chars(s), start = 0, end = chars;
	int rc = 0;

	if (bounds[0].kind != JINJA_NONE)
		rc = jinja_arg_int(r, bounds[0], what, &start);
	if (!rc && bounds[1].kind != JINJA_NONE)
		rc = jinja_arg_int(r, bounds[1], what, &end);
	if (rc)
		return rc;
	if (start < 0)
		start = start + chars < 0 ? 0 : start + chars;
	if (end < 0)
		end = end + chars < 0 ? 0 : end + chars;
	if (end > chars)
		end = chars;
	*ret_valid = start <= end;
	if (*ret_valid) {
		*ret_start = jinja_str_offset(s, (size_t)start);
		*ret_end = jinja_str_offset(s, (size_t)end);
	}
	return jinja_charge_bytes(r, s->length);
}

static bool affix_fits(const char *data, size_t length, const struct jinja_str *affix, bool end)
{
	if (affix->length > length)
		return false;
	return !memcmp(end ? data + length - affix->length : data, affix->data, affix->length);
}

static int has_affix(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     const char *what, bool end, struct jinja_value *ret)
{
	struct jinja_value arg[3], *affixes = &arg[0];
	size_t start = 0, stop = 0, n = 1, i;
	bool valid = false, fits = false;
	int rc = JINJA_BIND(r, args, what, 1, arg, "prefix", "start", "end");

	if (!rc)
		rc = text_range(r, self.string, &arg[1], what, &start, &stop, &valid);
	if (rc)
		return rc;
	if (jinja_is_tuple(arg[0])) {
		affixes = arg[0].seq->items;
		n = arg[0].seq->n;
	}
	for (i = 0; i < n && !fits; i++) {
		struct jinja_str *affix;

		rc = jinja_arg_str(r, affixes[i], what, &affix);
		if (rc)
			return rc;
		fits = valid && affix_fits(self.string->data + start, stop - start, affix, end);
	}
	*ret = jinja_bool(fits);
	return jinja_charge(r, n / 4);
}

static int method_startswith(struct jinja_render *r, struct jinja_value self,
			     const struct jinja_args *args, struct jinja_value *ret)
{
	return has_affix(r, self, args, "startswith", false, ret);
}

static int method_endswith(struct jinja_render *r, struct jinja_value self,
			   const struct jinja_args *args, struct jinja_value *ret)
{
	return has_affix(r, self, args, "endswith", true, ret);
}

static int remove_affix(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, const char *what, bool end,
			struct jinja_value *ret)
{
	const struct jinja_str *s = self.string;
	struct jinja_value arg[1];
	struct jinja_str *affix;
	int rc = JINJA_BIND(r, args, what, 1, arg, "prefix");

	if (!rc)
		rc = jinja_arg_str(r, arg[0], what, &affix);
	if (rc)
		return rc;
	if (!affix_fits(s->data, s->length, affix, end))
		*ret = self;
	else if (end)
		return jinja_substring(r, s, 0, s->length - affix->length, ret);
	else
		return jinja_substring(r, s, affix->length, s->length, ret);
	return 0;
}

static int method_removeprefix(struct jinja_render *r, struct jinja_value self,
			       const struct jinja_args *args, struct jinja_value *ret)
{
	return remove_affix(r, self, args, "removeprefix", false, ret);
}

static int method_removesuffix(struct jinja_render *r, struct jinja_value self,
			       const struct jinja_args *args, struct jinja_value *ret)
{
	return remove_affix(r, self, args, "removesuffix", true, ret);
}

static const char *last_match(const char *data, size_t length, const struct jinja_str *part)
{
	size_t at;

	if (part->length > length)
		return NULL;
	for (at = length - part->length + 1; at-- > 0;)
		if (!part->length ||
		    (data[at] == part->data[0] && !memcmp(data + at, part->data, part->length)))
			return data + at;
	return NULL;
}

static const char *first_match(const char *data, size_t length, const struct jinja_str *part)
{
	return part->length ? memmem(data, length, part->data, part->length) : data;
}

static int find(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		const char *what, bool last, bool required, struct jinja_value *ret)
{
	struct jinja_str *s = self.string, *part;
	struct jinja_value arg[3];
	size_t start = 0, end = 0;
	const char *hit = NULL;
	bool valid = false;
	int rc = JINJA_BIND(r, args, what, 1, arg, "sub", "start", "end");

	if (!rc)
		rc = jinja_arg_str(r, arg[0], what, &part);
	if (!rc)
		rc = text_range(r, s, &arg[1], what, &start, &end, &valid);
	if (!rc && last && valid) /* memcmp at each position */
		rc = jinja_charge_bytes(r, (end - start) * (1 + part->length / 16));
	if (rc)
		return rc;
	if (valid)
		hit = last ? last_match(s->data + start, end - start, part)
			   : first_match(s->data + start, end - start, part);
	if (!hit && required)
		return jinja_fail(r, "%s: substring not found", what);
	*ret = jinja_int(hit ? (int64_t)jinja_utf8_count(s->data, (size_t)(hit - s->data)) : -1);
	return 0;
}

#define FIND(name, last, required)                                                                 \
	static int method_##name(struct jinja_render *r, struct jinja_value self,                  \
				 const struct jinja_args *args, struct jinja_value *ret)           \
	{                                                                                          \
		return find(r, self, args, #name, last, required, ret);                            \
	}

FIND(find, false, false)
FIND(rfind, true, false)
FIND(index, false, true)
FIND(rindex, true, true)

static int method_count(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_str *s = self.string, *part;
	struct jinja_value arg[3];
	size_t start = 0, end = 0;
	int64_t count = 0;
	bool valid = false;
	int rc = JINJA_BIND(r, args, "count", 1, arg, "sub", "start", "end");

	if (!rc)
		rc = jinja_arg_str(r, arg[0], "count", &part);
	if (!rc)
		rc = text_range(r, s, &arg[1], "count", &start, &end, &valid);
	if (rc)
		return rc;
	if (valid && !part->length)
		count = (int64_t)jinja_utf8_count(s->data + start, end - start) + 1;
	while (valid && part->length) {
		const char *hit = memmem(s->data + start, end - start, part->data, part->length);

		if (!hit)
			break;
		start = (size_t)(hit - s->data) + part->length;
		count++;
	}
	*ret = jinja_int(count);
	return 0;
}

static int method_replace(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[3];
	struct jinja_str *from, *to;
	int64_t count = -1;
	int rc = JINJA_BIND(r, args, "replace", 2, arg, "old", "new", "count");

	if (!rc)
		rc = jinja_arg_str(r, arg[0], "replace", &from);
	if (!rc)
		rc = jinja_arg_str(r, arg[1], "replace", &to);
	if (!rc)
		rc = jinja_arg_int(r, arg[2], "replace", &count);
	return rc ? rc : jinja_replace(r, self.string, from, to, count, ret);
}

static int add_part(struct jinja_render *r, struct jinja_seq *parts, const struct jinja_str *s,
		    size_t start, size_t end)
{
	struct jinja_value part;
	int rc = jinja_substring(r, s, start, end, &part);

	return rc ? rc : jinja_append(r, parts, part);
}

/* Runs of whitespace separate; none at the ends count. */
static int split_space(struct jinja_render *r, const struct jinja_str *s, int64_t limit,
		       struct jinja_seq *parts)
{
	size_t at = 0, start;
	int rc = 0;

	while (!rc) {
		uint32_t c;
		size_t n = 0;

		for (; at < s->length; at += n) {
			n = jinja_utf8_decode(s->data + at, s->length - at, &c);
			if (!jinja_is_space(c))
				break;
		}
		if (at >= s->length)
			break;
		if (limit >= 0 && (int64_t)parts->n == limit)
			return add_part(r, parts, s, at, s->length);
		for (start = at; at < s->length; at += n) {
			n = jinja_utf8_decode(s->data + at, s->length - at, &c);
			if (jinja_is_space(c))
				break;
		}
		rc = add_part(r, parts, s, start, at);
	}
	return rc;
}

static int split_forward(struct jinja_render *r, const struct jinja_str *s,
			 const struct jinja_str *separator, int64_t limit, struct jinja_seq *parts)
{
	size_t at = 0;
	int rc = 0;

	while (!rc && limit-- != 0) {
		const char *hit =
			memmem(s->data + at, s->length - at, separator->data, separator->length);

		if (!hit)
			break;
		rc = add_part(r, parts, s, at, (size_t)(hit - s->data));
		at = (size_t)(hit - s->data) + separator->length;
	}
	return rc ? rc : add_part(r, parts, s, at, s->length);
}

static void reverse_parts(struct jinja_seq *parts)
{
	size_t i;

	for (i = 0; i < parts->n / 2; i++) {
		struct jinja_value swap = parts->items[i];

		parts->items[i] = parts->items[parts->n - 1 - i];
		parts->items[parts->n - 1 - i] = swap;
	}
}

static int split_backward(struct jinja_render *r, const struct jinja_str *s,
			  const struct jinja_str *separator, int64_t limit, struct jinja_seq *parts)
{
	size_t end = s->length;
	int rc = 0;

	while (!rc && limit-- != 0) {
		const char *hit = last_match(s->data, end, separator);
		size_t at;

		if (!hit)
			break;
		at = (size_t)(hit - s->data) + separator->length;
		rc = add_part(r, parts, s, at, end);
		end = (size_t)(hit - s->data);
	}
	if (!rc)
		rc = add_part(r, parts, s, 0, end);
	if (!rc)
		reverse_parts(parts);
	return rc;
}

/* rsplit() at whitespace with a limit: words from the end, the rest in front. */
static int split_space_backward(struct jinja_render *r, const struct jinja_str *s, int64_t limit,
				struct jinja_seq *parts)
{
	struct jinja_value rest;
	struct jinja_seq *words;
	size_t first, i;
	int rc = jinja_new_seq(r, JINJA_LIST, 0, &words);

	if (!rc)
		rc = split_space(r, s, -1, words);
	if (rc)
		return rc;
	first = limit >= 0 && words->n > (uint64_t)limit ? words->n - (size_t)limit : 0;
	if (first) {
		const struct jinja_str *last = words->items[first - 1].string;

		rc = jinja_substring(r, s, 0, (size_t)(last->data - s->data) + last->length, &rest);
		if (!rc)
			rc = jinja_append(r, parts, rest);
	}
	for (i = first; !rc && i < words->n; i++)
		rc = jinja_append(r, parts, words->items[i]);
	return rc;
}

static int split(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		 const char *what, bool backward, struct jinja_value *ret)
{
	struct jinja_str *s = self.string, *separator = NULL;
	struct jinja_value arg[2];
	struct jinja_seq *parts;
	int64_t limit = -1;
	int rc = JINJA_BIND(r, args, what, 0, arg, "sep", "maxsplit");

	if (!rc && arg[0].kind != JINJA_NONE)
		rc = jinja_arg_str(r, arg[0], what, &separator);
	if (!rc)
		rc = jinja_arg_int(r, arg[1], what, &limit);
	if (!rc && separator && !separator->length)
		rc = jinja_fail(r, "%s: empty separator", what);
	if (!rc)
		rc = jinja_charge_bytes(r, s->length * 2);
	if (!rc && backward && separator)
		rc = jinja_charge_bytes(r, s->length * (separator->length / 16));
	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, 0, &parts);
	if (rc)
		return rc;
	if (!separator)
		rc = backward ? split_space_backward(r, s, limit, parts)
			      : split_space(r, s, limit, parts);
	else if (backward)
		rc = split_backward(r, s, separator, limit, parts);
	else
		rc = split_forward(r, s, separator, limit, parts);
	if (!rc)
		*ret = jinja_seq_value(parts);
	return rc ? rc : jinja_charge(r, parts->n / 4);
}

static int method_split(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	return split(r, self, args, "split", false, ret);
}

static int method_rsplit(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	return split(r, self, args, "rsplit", true, ret);
}

static int partition(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		     const char *what, bool last, struct jinja_value *ret)
{
	const struct jinja_str *s = self.string;
	struct jinja_value arg[1];
	struct jinja_str *separator;
	struct jinja_seq *parts;
	size_t start, end;
	const char *hit;
	int rc = JINJA_BIND(r, args, what, 1, arg, "sep");

	if (!rc)
		rc = jinja_arg_str(r, arg[0], what, &separator);
	if (!rc && !separator->length)
		rc = jinja_fail(r, "%s: empty separator", what);
	if (!rc)
		rc = jinja_charge_bytes(r, s->length * (1 + separator->length / 16));
	if (!rc)
		rc = jinja_new_seq(r, JINJA_TUPLE, 3, &parts);
	if (rc)
		return rc;
	hit = last ? last_match(s->data, s->length, separator)
		   : first_match(s->data, s->length, separator);
	start = hit ? (size_t)(hit - s->data) : last ? 0 : s->length;
	end = hit ? start + separator->length : start;
	rc = add_part(r, parts, s, 0, start);
	if (!rc)
		rc = add_part(r, parts, s, start, end);
	if (!rc)
		rc = add_part(r, parts, s, end, s->length);
	if (!rc)
		*ret = jinja_seq_value(parts);
	return rc;
}

static int method_partition(struct jinja_render *r, struct jinja_value self,
			    const struct jinja_args *args, struct jinja_value *ret)
{
	return partition(r, self, args, "partition", false, ret);
}

static int method_rpartition(struct jinja_render *r, struct jinja_value self,
			     const struct jinja_args *args, struct jinja_value *ret)
{
	return partition(r, self, args, "rpartition", true, ret);
}

static int method_splitlines(struct jinja_render *r, struct jinja_value self,
			     const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_seq *lines;
	bool keep_ends = false;
	int rc = JINJA_BIND(r, args, "splitlines", 0, arg, "keepends");

	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &keep_ends);
	rc = jinja_split_lines(r, self.string, keep_ends, &lines);
	if (!rc)
		*ret = jinja_seq_value(lines);
	return rc;
}

static int method_join(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	size_t mark = r->out.length, i;
	struct jinja_value arg[1];
	struct jinja_seq *items;
	int rc = JINJA_BIND(r, args, "join", 1, arg, "iterable");

	if (!rc)
		rc = jinja_iterate(r, arg[0], &items);
	for (i = 0; !rc && i < items->n; i++) {
		if (items->items[i].kind != JINJA_STRING)
			return jinja_fail(r, "join: item %zu is '%s', a string is required", i,
					  jinja_type_name(items->items[i]));
		if (i)
			rc = jinja_write_str(r, self);
		if (!rc)
			rc = jinja_write_str(r, items->items[i]);
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}

static int justify(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		   const char *what, char align, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	struct jinja_str *fill = NULL;
	uint32_t c = ' ';
	int64_t width;
	int rc = JINJA_BIND(r, args, what, 1, arg, "width", "fillchar");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], what, &width);
	if (!rc)
		rc = jinja_arg_str(r, arg[1], what, &fill);
	if (rc)
		return rc;
	if (fill &&
	    (!fill->length || jinja_utf8_decode(fill->data, fill->length, &c) != fill->length))
		return jinja_fail(r, "%s: the fill character must be one character", what);
	return jinja_pad(r, self.string, width, align, c, ret);
}

#define JUSTIFY(name, align)                                                                       \
	static int method_##name(struct jinja_render *r, struct jinja_value self,                  \
				 const struct jinja_args *args, struct jinja_value *ret)           \
	{                                                                                          \
		return justify(r, self, args, #name, align, ret);                                  \
	}

JUSTIFY(center, '^')
JUSTIFY(ljust, '<')
JUSTIFY(rjust, '>')

static int method_zfill(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	const struct jinja_str *s = self.string;
	size_t mark = r->out.length, sign;
	struct jinja_value arg[1], rest;
	int64_t width;
	int rc = JINJA_BIND(r, args, "zfill", 1, arg, "width");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], "zfill", &width);
	if (rc)
		return rc;
	sign = s->length && (s->data[0] == '+' || s->data[0] == '-');
	rc = jinja_substring(r, s, sign, s->length, &rest);
	if (!rc)
		rc = jinja_pad(r, rest.string, width > 0 ? width - (int64_t)sign : 0, '>', '0',
			       &rest);
	if (!rc)
		rc = jinja_write(r, s->data, sign);
	if (!rc)
		rc = jinja_write_str(r, rest);
	return rc ? rc : jinja_captured(r, mark, ret);
}

const struct jinja_builtin jinja_string_methods[] = {
	{"strip", method_strip},
	{"lstrip", method_lstrip},
	{"rstrip", method_rstrip},
	{"split", method_split},
	{"rsplit", method_rsplit},
	{"splitlines", method_splitlines},
	{"partition", method_partition},
	{"rpartition", method_rpartition},
	{"startswith", method_startswith},
	{"endswith", method_endswith},
	{"removeprefix", method_removeprefix},
	{"removesuffix", method_removesuffix},
	{"replace", method_replace},
	{"find", method_find},
	{"rfind", method_rfind},
	{"index", method_index},
	{"rindex", method_rindex},
	{"count", method_count},
	{"join", method_join},
	{"format", jinja_method_format},
	{"lower", method_lower},
	{"casefold", method_lower},
	{"upper", method_upper},
	{"title", method_title},
	{"capitalize", method_capitalize},
	{"swapcase", method_swapcase},
	{"center", method_center},
	{"ljust", method_ljust},
	{"rjust", method_rjust},
	{"zfill", method_zfill},
	{NULL, NULL},
};
