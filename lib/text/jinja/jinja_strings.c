// SPDX-License-Identifier: MIT
/*
 * Filters and methods of strings. Most filters take any value and work on its str(); filters that
 * are also methods share the function.
 *
 * Strings marked by the filter `safe` print like others, since escaping is off, but text added to
 * one is escaped for HTML, as Python's Markup does; existing templates depend on it.
 */
#include <inttypes.h>
#include <string.h>

#include "jinja_render.h"

static struct jinja_value change_case(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	size_t mark = c->r->out.len, at, n;
	unsigned int state = 0, count, i;
	uint32_t out[3], original;

	jinja_charge_bytes(c->r, s->length * 8);
	for (at = 0; at < s->length; at += n) {
		n = jinja_decode(s, at, &original);
		if (n == 1 && original >= 0x80) { /* not UTF-8 */
			jinja_write(c->r, s->data + at, 1);
			continue;
		}
		count = jinja_change_char(s, at, (enum jinja_case)c->builtin->mode, &state, out);
		for (i = 0; i < count; i++)
			jinja_write_char(c->r, out[i]);
	}
	return jinja_captured(c->r, mark);
}

static bool is_stripped(const struct jinja_str *chars, const char *at, size_t n, uint32_t c)
{
	/* in UTF-8 equal bytes of a whole character can only be that character */
	return chars ? memmem(chars->data, chars->length, at, n) != NULL : jinja_is_space(c);
}

/* Size of the character that ends at @end. */
static size_t last_char(const struct jinja_str *s, size_t start, size_t end, uint32_t *ret_char)
{
	const struct jinja_str cut = {s->data, end, 0};
	size_t n;

	for (n = 2; n <= 4 && n <= end - start; n++)
		if (jinja_decode(&cut, end - n, ret_char) == n)
			return n;
	*ret_char = (unsigned char)s->data[end - 1];
	return 1;
}

enum { LEFT = 1, RIGHT = 2 };

static struct jinja_value strip(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *chars = jinja_str_arg(c, 0);
	size_t start = 0, end = s->length, n;
	uint32_t code;

	while (c->builtin->mode & LEFT && start < end) {
		n = jinja_decode(s, start, &code);
		if (!is_stripped(chars, s->data + start, n, code))
			break;
		start += n;
	}
	while (c->builtin->mode & RIGHT && end > start) {
		n = last_char(s, start, end, &code);
		if (!is_stripped(chars, s->data + end - n, n, code))
			break;
		end -= n;
	}
	n = s->length - (end - start);
	jinja_charge_bytes(c->r, n * (1 + (chars ? chars->length : 0)));
	return jinja_substring(c->r, s, start, end);
}

static struct jinja_value replace(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *from = c->arg[0].string,
			       *to = c->arg[1].string;
	int64_t count = jinja_int_arg(c, 2, -1);
	size_t mark = c->r->out.len, at = 0, n;
	uint32_t code;

	jinja_charge_bytes(c->r, s->length);
	while (count-- != 0) {
		const char *hit = s->data + at;

		jinja_charge(c->r, 1);
		if (from->length) {
			hit = memmem(hit, s->length - at, from->data, from->length);
			if (!hit)
				break;
			jinja_write(c->r, s->data + at, (size_t)(hit - s->data) - at);
			jinja_write(c->r, to->data, to->length);
			at = (size_t)(hit - s->data) + from->length;
			continue;
		}
		/* between all characters */
		jinja_write(c->r, to->data, to->length);
		if (at == s->length)
			break;
		n = jinja_decode(s, at, &code);
		jinja_write(c->r, hit, n);
		at += n;
	}
	jinja_write(c->r, s->data + at, s->length - at);
	return jinja_captured(c->r, mark);
}

static struct jinja_seq *split_lines(struct jinja_render *r, const struct jinja_str *s,
				     bool keep_ends)
{
	struct jinja_seq *lines = jinja_new_seq(r, JINJA_LIST, 0);
	size_t start = 0, at = 0, n;
	uint32_t c;

	jinja_charge_bytes(r, s->length * 4);
	while (at < s->length) {
		n = jinja_decode(s, at, &c);
		if (!jinja_is_line_end(c) || (n == 1 && c >= 0x80)) {
			at += n;
			continue;
		}
		if (c == '\r' && at + 1 < s->length && s->data[at + 1] == '\n')
			n = 2;
		jinja_append(r, lines, jinja_substring(r, s, start, keep_ends ? at + n : at));
		start = at += n;
	}
	if (start < s->length)
		jinja_append(r, lines, jinja_substring(r, s, start, s->length));
	return lines;
}

static struct jinja_value splitlines(struct jinja_call *c)
{
	return jinja_seq_value(split_lines(c->r, c->self.string, jinja_flag(c, 0)));
}

static void write_fill(struct jinja_render *r, uint32_t fill, int64_t n)
{
	if (n > 0 && (uint64_t)n > r->limits.output)
		jinja_fail_limit(r, "bytes of output", r->limits.output);
	while (n-- > 0)
		jinja_write_char(r, fill);
}

/* center, ljust, rjust; the first also as a filter */
static struct jinja_value justify(struct jinja_call *c)
{
	const struct jinja_str *fill = jinja_str_arg(c, 1);
	int64_t width = jinja_int_arg(c, 0, 80), missing, left;
	size_t mark = c->r->out.len;
	uint32_t code = ' ';

	if (fill && (!fill->length || jinja_decode(fill, 0, &code) != fill->length))
		jinja_fail(c->r, "%s: the fill character must be one character", c->builtin->name);
	missing = width - (int64_t)jinja_str_chars(c->self.string);
	if (width < 0 || missing < 0)
		missing = 0;
	left = c->builtin->mode & LEFT ? missing : 0;
	if (c->builtin->mode == (LEFT | RIGHT)) /* an odd space goes left if the width is odd */
		left = missing / 2 + (missing & width & 1);
	write_fill(c->r, code, left);
	jinja_write(c->r, c->self.string->data, c->self.string->length);
	write_fill(c->r, code, missing - left);
	return jinja_captured(c->r, mark);
}

static struct jinja_value zfill(struct jinja_call *c)
{
	struct jinja_str *s = c->self.string;
	size_t mark = c->r->out.len, sign = s->length && (s->data[0] == '+' || s->data[0] == '-');
	int64_t width = c->arg[0].integer;

	jinja_write(c->r, s->data, sign);
	if (width > 0)
		write_fill(c->r, '0', width - (int64_t)jinja_str_chars(s));
	jinja_write(c->r, s->data + sign, s->length - sign);
	return jinja_captured(c->r, mark);
}

/* Arguments 1 and 2, the start and end of find() and the like, as bytes; false: an empty range */
static bool text_range(struct jinja_call *c, size_t *ret_start, size_t *ret_end)
{
	struct jinja_str *s = c->self.string;
	int64_t chars = (int64_t)jinja_str_chars(s),
		bound[2] = {jinja_int_arg(c, 1, 0), jinja_int_arg(c, 2, chars)};
	int i;

	jinja_charge_bytes(c->r, s->length);
	for (i = 0; i < 2; i++) {
		if (bound[i] < 0)
			bound[i] = bound[i] + chars < 0 ? 0 : bound[i] + chars;
		if (i && bound[i] > chars)
			bound[i] = chars;
	}
	*ret_start = *ret_end = 0;
	if (bound[0] > bound[1])
		return false;
	*ret_start = jinja_str_offset(s, (size_t)bound[0]);
	*ret_end = jinja_str_offset(s, (size_t)bound[1]);
	return true;
}

static bool affix_fits(const char *data, size_t length, const struct jinja_str *affix, bool right)
{
	if (affix->length > length)
		return false;
	return !memcmp(right ? data + length - affix->length : data, affix->data, affix->length);
}

/* startswith and endswith, with one string or a tuple of them */
static struct jinja_value has_affix(struct jinja_call *c)
{
	struct jinja_value *affixes = jinja_is_tuple(c->arg[0]) ? c->arg[0].seq->items : c->arg;
	size_t n = jinja_is_tuple(c->arg[0]) ? c->arg[0].seq->n : 1, start, end, i;
	bool valid = text_range(c, &start, &end), fits = false;

	jinja_charge(c->r, n / 4);
	for (i = 0; i < n && !fits; i++) {
		jinja_need_defined(c->r, affixes[i]);
		if (affixes[i].kind != JINJA_STRING)
			jinja_fail(c->r, "%s: a string is required, not '%s'", c->builtin->name,
				   jinja_type_name(affixes[i]));
		jinja_charge_bytes(c->r, affixes[i].string->length);
		fits = valid && affix_fits(c->self.string->data + start, end - start,
					   affixes[i].string, c->builtin->mode == RIGHT);
	}
	return jinja_bool(fits);
}

/* removeprefix and removesuffix */
static struct jinja_value remove_affix(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *affix = c->arg[0].string;
	bool right = c->builtin->mode == RIGHT;

	jinja_charge_bytes(c->r, affix->length);
	if (!affix_fits(s->data, s->length, affix, right))
		return c->self;
	return jinja_substring(c->r, s, right ? 0 : affix->length,
			       right ? s->length - affix->length : s->length);
}

static const char *first_match(const char *data, size_t length, const struct jinja_str *part)
{
	return part->length ? memmem(data, length, part->data, part->length) : data;
}

static const char *last_match(const char *data, size_t length, const struct jinja_str *part)
{
	size_t at;

	for (at = part->length > length ? 0 : length - part->length + 1; at-- > 0;)
		if (!part->length || !memcmp(data + at, part->data, part->length))
			return data + at;
	return NULL;
}

/* The cost of last_match() and its memcmp() at each position. */
static void charge_backward(struct jinja_render *r, size_t length, const struct jinja_str *part)
{
	jinja_charge_bytes(r, length * (1 + part->length / 16));
}

enum { LAST = 1, REQUIRED = 2 };

/* find, rfind, index, rindex */
static struct jinja_value find(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *part = c->arg[0].string;
	bool last = c->builtin->mode & LAST;
	const char *hit = NULL;
	size_t start, end;

	if (text_range(c, &start, &end)) {
		if (last)
			charge_backward(c->r, end - start, part);
		hit = last ? last_match(s->data + start, end - start, part)
			   : first_match(s->data + start, end - start, part);
	}
	if (!hit && c->builtin->mode & REQUIRED)
		jinja_fail(c->r, "%s: substring not found", c->builtin->name);
	return jinja_int(hit ? (int64_t)jinja_count_chars(s, (size_t)(hit - s->data)) : -1);
}

static struct jinja_value count(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *part = c->arg[0].string;
	size_t start, end;
	bool valid = text_range(c, &start, &end);
	const struct jinja_str range = {s->data + start, end - start, 0};
	const char *hit;
	int64_t n;

	if (valid && !part->length)
		return jinja_int((int64_t)jinja_count_chars(&range, range.length) + 1);
	for (n = 0; valid; n++) {
		hit = first_match(s->data + start, end - start, part);
		if (!hit)
			break;
		start = (size_t)(hit - s->data) + part->length;
	}
	return jinja_int(n);
}

/* The words of @s, at most @limit of them (-1: all) and then the rest. */
static void split_space(struct jinja_render *r, const struct jinja_str *s, int64_t limit,
			struct jinja_seq *parts)
{
	size_t at = 0, start = 0, n;
	bool in_word = false;
	uint32_t c;

	for (; at < s->length; at += n) {
		n = jinja_decode(s, at, &c);
		if (jinja_is_space(c) != in_word)
			continue; /* still within a word or between two */
		if (in_word) {
			jinja_append(r, parts, jinja_substring(r, s, start, at));
		} else {
			start = at;
			if (limit >= 0 && (int64_t)parts->n == limit)
				at = s->length - n; /* the rest is one word */
		}
		in_word = !in_word;
	}
	if (in_word)
		jinja_append(r, parts, jinja_substring(r, s, start, s->length));
}

static void split_at(struct jinja_render *r, const struct jinja_str *s,
		     const struct jinja_str *separator, int64_t limit, struct jinja_seq *parts)
{
	size_t at = 0;

	while (limit-- != 0) {
		const char *hit = first_match(s->data + at, s->length - at, separator);

		if (!hit)
			break;
		jinja_append(r, parts, jinja_substring(r, s, at, (size_t)(hit - s->data)));
		at = (size_t)(hit - s->data) + separator->length;
	}
	jinja_append(r, parts, jinja_substring(r, s, at, s->length));
}

static void split_at_backward(struct jinja_render *r, const struct jinja_str *s,
			      const struct jinja_str *separator, int64_t limit,
			      struct jinja_seq *parts)
{
	size_t end = s->length, at, i;

	charge_backward(r, s->length, separator);
	while (limit-- != 0) {
		const char *hit = last_match(s->data, end, separator);

		if (!hit)
			break;
		at = (size_t)(hit - s->data);
		jinja_append(r, parts, jinja_substring(r, s, at + separator->length, end));
		end = at;
	}
	jinja_append(r, parts, jinja_substring(r, s, 0, end));
	for (i = 0; i < parts->n / 2; i++) {
		struct jinja_value swap = parts->items[i];

		parts->items[i] = parts->items[parts->n - 1 - i];
		parts->items[parts->n - 1 - i] = swap;
	}
}

/* Words from the end, the rest first. */
static void split_space_backward(struct jinja_render *r, const struct jinja_str *s, int64_t limit,
				 struct jinja_seq *parts)
{
	struct jinja_seq *words = jinja_new_seq(r, JINJA_LIST, 0);
	size_t first;

	split_space(r, s, -1, words);
	first = limit >= 0 && words->n > (uint64_t)limit ? words->n - (size_t)limit : 0;
	if (first) {
		const struct jinja_str *last = words->items[first - 1].string;

		jinja_append(
			r, parts,
			jinja_substring(r, s, 0, (size_t)(last->data - s->data) + last->length));
	}
	if (first < words->n)
		jinja_append_all(r, parts, words->items + first, words->n - first);
}

/* split and rsplit */
static struct jinja_value split(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *separator = jinja_str_arg(c, 0);
	struct jinja_seq *parts = jinja_new_seq(c->r, JINJA_LIST, 0);
	int64_t limit = jinja_int_arg(c, 1, -1);
	bool backward = c->builtin->mode;

	if (separator && !separator->length)
		jinja_fail(c->r, "%s: empty separator", c->builtin->name);
	jinja_charge_bytes(c->r, s->length * 2);
	if (!separator && backward)
		split_space_backward(c->r, s, limit, parts);
	else if (!separator)
		split_space(c->r, s, limit, parts);
	else if (backward)
		split_at_backward(c->r, s, separator, limit, parts);
	else
		split_at(c->r, s, separator, limit, parts);
	jinja_charge(c->r, parts->n / 4);
	return jinja_seq_value(parts);
}

/* partition and rpartition */
static struct jinja_value partition(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string, *separator = c->arg[0].string;
	struct jinja_seq *parts = jinja_new_seq(c->r, JINJA_TUPLE, 3);
	bool last = c->builtin->mode;
	size_t start, end;
	const char *hit;

	if (!separator->length)
		jinja_fail(c->r, "%s: empty separator", c->builtin->name);
	charge_backward(c->r, s->length, separator);
	hit = last ? last_match(s->data, s->length, separator)
		   : first_match(s->data, s->length, separator);
	start = hit ? (size_t)(hit - s->data) : last ? 0 : s->length;
	end = hit ? start + separator->length : start;
	jinja_append(c->r, parts, jinja_substring(c->r, s, 0, start));
	jinja_append(c->r, parts, jinja_substring(c->r, s, start, end));
	jinja_append(c->r, parts, jinja_substring(c->r, s, end, s->length));
	return jinja_seq_value(parts);
}

static struct jinja_value method_join(struct jinja_call *c)
{
	struct jinja_seq *items = jinja_iterate(c->r, c->arg[0]);
	size_t mark = c->r->out.len, i;

	for (i = 0; i < items->n; i++) {
		if (items->items[i].kind != JINJA_STRING && !c->self.safe)
			jinja_fail(c->r, "join: item %zu is '%s', a string is required", i,
				   jinja_type_name(items->items[i]));
		if (i)
			jinja_write_str(c->r, c->self);
		jinja_write_str(c->r, c->self.safe ? jinja_escape(c->r, items->items[i])
						   : items->items[i]);
	}
	return jinja_captured(c->r, mark);
}

static struct jinja_value filter_join(struct jinja_call *c)
{
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	size_t mark = c->r->out.len, i;

	for (i = 0; i < items->n; i++) {
		struct jinja_value item = items->items[i];

		if (jinja_given(c, 1))
			item = jinja_path(c->r, item, c->arg[1]);
		if (i && jinja_given(c, 0))
			jinja_write_str(c->r, c->arg[0]);
		jinja_write_str(c->r, item);
	}
	return jinja_captured(c->r, mark);
}

/* Kinds of characters for the is…() methods. */

static bool is_alpha(uint32_t c)
{
	return jinja_classify(c) <= JINJA_CHAR_LETTER;
}

static bool is_alnum(uint32_t c)
{
	return jinja_classify(c) <= JINJA_CHAR_NUMERIC;
}

static bool is_decimal(uint32_t c)
{
	return jinja_classify(c) == JINJA_CHAR_DIGIT;
}

/* Decimal digits, superscripts, subscripts and circled digits. */
static bool is_digit(uint32_t c)
{
	return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
	       (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
	       (c >= 0x2460 && c <= 0x2468);
}

static bool is_numeric(uint32_t c)
{
	return is_decimal(c) || jinja_classify(c) == JINJA_CHAR_NUMERIC;
}

static bool is_ascii(uint32_t c)
{
	return c < 0x80;
}

static bool is_upper(uint32_t c)
{
	return jinja_is_cased(c) && !jinja_changes(c, JINJA_CASE_UPPER);
}

static bool is_lower(uint32_t c)
{
	return jinja_is_cased(c) && !jinja_changes(c, JINJA_CASE_LOWER);
}

static const struct {
	bool (*fits)(uint32_t c);
	bool empty;	/* result for the empty string */
	bool skip_rest; /* ignore characters without case */
} char_kinds[] = {
	{is_alpha, false, false}, {is_alnum, false, false},	     {is_decimal, false, false},
	{is_digit, false, false}, {is_numeric, false, false},	     {jinja_is_space, false, false},
	{is_ascii, true, false},  {jinja_is_printable, true, false}, {is_upper, false, true},
	{is_lower, false, true},
};

enum { ALPHA, ALNUM, DECIMAL, DIGIT, NUMERIC, SPACE, ASCII, PRINTABLE, UPPER, LOWER };

static struct jinja_value all_chars(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	bool all = true, some = char_kinds[c->builtin->mode].empty;
	size_t at = 0;
	uint32_t code;

	while (all && at < s->length) {
		at += jinja_decode(s, at, &code);
		if (char_kinds[c->builtin->mode].skip_rest && !jinja_is_cased(code))
			continue;
		some = true;
		all = char_kinds[c->builtin->mode].fits(code);
	}
	jinja_charge_bytes(c->r, at * 4);
	return jinja_bool(all && some);
}

/* Cased characters are upper case after an uncased one and lower case after a cased one. */
static struct jinja_value is_title(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	bool after_cased = false, some = false;
	size_t at = 0;
	uint32_t code;

	jinja_charge_bytes(c->r, s->length * 4);
	while (at < s->length) {
		at += jinja_decode(s, at, &code);
		if (jinja_is_cased(code) && after_cased != is_lower(code))
			return jinja_bool(false);
		after_cased = jinja_is_cased(code);
		some |= after_cased;
	}
	return jinja_bool(some);
}

static struct jinja_value is_identifier(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	size_t at = 0, n;
	uint32_t code;

	jinja_charge_bytes(c->r, s->length * 4);
	for (; at < s->length; at += n) {
		n = jinja_decode(s, at, &code);
		if (code != '_' && !is_alpha(code) && (!at || !is_decimal(code)))
			return jinja_bool(false);
	}
	return jinja_bool(at > 0);
}

static struct jinja_value expand_tabs(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	const int64_t size = jinja_int_arg(c, 0, 8);
	size_t mark = c->r->out.len, at, n;
	int64_t column = 0;
	uint32_t code;

	jinja_charge_bytes(c->r, s->length * 2);
	for (at = 0; at < s->length; at += n) {
		n = jinja_decode(s, at, &code);
		if (code == '\t') {
			if (size > 0)
				write_fill(c->r, ' ', size - column % size);
			column = 0;
			continue;
		}
		jinja_write(c->r, s->data + at, n);
		column = code == '\n' || code == '\r' ? 0 : column + 1;
	}
	return jinja_captured(c->r, mark);
}

struct jinja_value jinja_escape(struct jinja_render *r, struct jinja_value v)
{
	static const char chars[] = "&<>'\"";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
	const struct jinja_str *s = jinja_to_str(r, v);
	size_t mark = r->out.len, i, plain = 0;

	if (v.kind == JINJA_STRING && v.safe)
		return v;
	for (i = 0; i < s->length; i++) {
		const char *known = s->data[i] ? strchr(chars, s->data[i]) : NULL;

		if (!known)
			continue;
		jinja_write(r, s->data + plain, i - plain);
		jinja_write_text(r, names[known - chars]);
		plain = i + 1;
	}
	jinja_write(r, s->data + plain, s->length - plain);
	v = jinja_captured(r, mark);
	v.safe = true;
	return v;
}

static struct jinja_value filter_string(struct jinja_call *c)
{
	return c->self;
}

static struct jinja_value filter_safe(struct jinja_call *c)
{
	c->self.safe = true;
	return c->self;
}

/* escape, and forceescape, which does it twice */
static struct jinja_value filter_escape(struct jinja_call *c)
{
	if (c->builtin->mode)
		c->self.safe = false;
	return jinja_escape(c->r, c->self);
}

/* In a query, a space becomes a plus and slashes are escaped. */
static void write_quoted(struct jinja_call *c, struct jinja_value v, bool query)
{
	const struct jinja_str *s = jinja_to_str(c->r, v);
	size_t i;

	for (i = 0; i < s->length; i++) {
		unsigned char byte = (unsigned char)s->data[i];

		if (query && byte == ' ')
			jinja_write(c->r, "+", 1);
		else if (byte < 0x80 && byte &&
			 (is_alnum(byte) || strchr(query ? "_.-~" : "/_.-~", byte)))
			jinja_write(c->r, s->data + i, 1);
		else
			jinja_writef(c->r, "%%%02X", byte);
	}
}

static struct jinja_value filter_urlencode(struct jinja_call *c)
{
	size_t mark = c->r->out.len, i;
	struct jinja_seq *pairs;

	if (c->self.kind != JINJA_DICT && c->self.kind != JINJA_SEQ) {
		write_quoted(c, c->self, false);
		return jinja_captured(c->r, mark);
	}
	pairs = c->self.kind == JINJA_DICT ? jinja_dict_items(c->r, c->self.dict, JINJA_ITEMS)
					   : c->self.seq;
	for (i = 0; i < pairs->n; i++) {
		struct jinja_seq *pair = jinja_iterate(c->r, pairs->items[i]);

		if (pair->n != 2)
			jinja_fail(c->r, "urlencode: %zu values, not a pair", pair->n);
		if (i)
			jinja_write(c->r, "&", 1);
		write_quoted(c, pair->items[0], true);
		jinja_write(c->r, "=", 1);
		write_quoted(c, pair->items[1], true);
	}
	return jinja_captured(c->r, mark);
}

static struct jinja_value need_string(struct jinja_call *c)
{
	jinja_need_defined(c->r, c->self);
	if (c->self.kind != JINJA_STRING)
		jinja_fail(c->r, "%s: a string is required, not '%s'", c->builtin->name,
			   jinja_type_name(c->self));
	return c->self;
}

static struct jinja_value filter_indent(struct jinja_call *c)
{
	const struct jinja_str *s = need_string(c).string, *last = NULL;
	struct jinja_seq *lines = split_lines(c->r, s, false);
	struct jinja_value width = c->arg[0], v;
	size_t mark = c->r->out.len, i;
	int64_t spaces = 4;

	if (jinja_given(c, 0) && width.kind != JINJA_STRING && !jinja_as_int(width, &spaces))
		jinja_fail(c->r, "indent: an integer or a string is required, not '%s'",
			   jinja_type_name(width));
	/*
	 * A final line end is followed by an empty line. jinja2 appends "\n" to the text first,
	 * which together with a final "\r" is one line end.
	 */
	if (lines->n)
		last = lines->items[lines->n - 1].string;
	if ((!last || last->data + last->length != s->data + s->length) &&
	    !(s->length && s->data[s->length - 1] == '\r'))
		jinja_append(c->r, lines, jinja_literal(c->r, ""));
	for (i = 0; i < lines->n; i++) {
		const struct jinja_str *line = lines->items[i].string;

		if (i)
			jinja_write(c->r, "\n", 1);
		if (i ? jinja_flag(c, 2) || line->length : jinja_flag(c, 1)) {
			if (width.kind == JINJA_STRING)
				jinja_write_str(c->r, width);
			else
				write_fill(c->r, ' ', spaces);
		}
		jinja_write(c->r, line->data, line->length);
	}
	v = jinja_captured(c->r, mark);
	v.safe = c->self.safe;
	return v;
}

static struct jinja_value filter_truncate(struct jinja_call *c)
{
	static const struct jinja_str dots = {"...", 3, 3};
	int64_t length = jinja_int_arg(c, 0, 255), leeway = jinja_int_arg(c, 3, 5), kept;
	struct jinja_str end = jinja_str_arg(c, 2) ? *jinja_str_arg(c, 2) : dots, *s;
	size_t mark = c->r->out.len, cut, at;

	if (c->self.kind == JINJA_UNDEFINED)
		return c->self; /* short enough */
	s = need_string(c).string;
	kept = length - (int64_t)jinja_str_chars(&end);
	if (length < 0 || kept < 0 || leeway < 0)
		jinja_fail(c->r, "truncate: the length %" PRId64 " is too small", length);
	if ((int64_t)jinja_str_chars(s) - length <= leeway)
		return c->self;
	cut = jinja_str_offset(s, (size_t)kept);
	for (at = jinja_flag(c, 1) ? 0 : cut; at > 0; at--) /* back to the last whole word */
		if (s->data[at - 1] == ' ')
			break;
	jinja_write(c->r, s->data, at ? at - 1 : cut);
	jinja_write(c->r, end.data, end.length);
	return jinja_captured(c->r, mark);
}

static struct jinja_value filter_wordcount(struct jinja_call *c)
{
	const struct jinja_str *s = c->self.string;
	bool in_word = false, word;
	int64_t words = 0;
	size_t at = 0;
	uint32_t code;

	jinja_charge_bytes(c->r, s->length * 4);
	while (at < s->length) {
		at += jinja_decode(s, at, &code);
		word = is_alnum(code) || code == '_';
		words += word && !in_word;
		in_word = word;
	}
	return jinja_int(words);
}

const struct jinja_builtin jinja_string_filters[] = {
	{"tojson", jinja_filter_tojson, "ensure_ascii:b? indent:v? separators:v? sort_keys:b?", 0},
	{"trim", strip, "#chars:s?", LEFT | RIGHT},
	{"join", filter_join, "d:t? attribute:v?", 0},
	{"replace", replace, "$old:t new:t count:i?", 0},
	{"string", filter_string, "#", 0},
	{"upper", change_case, "#", JINJA_CASE_UPPER},
	{"lower", change_case, "#", JINJA_CASE_LOWER},
	{"capitalize", change_case, "#", JINJA_CASE_CAPITALIZE},
	{"title", change_case, "$", JINJA_CASE_WORDS},
	{"indent", filter_indent, "width:v? first:b? blank:b?", 0},
	{"safe", filter_safe, "$", 0},
	{"escape", filter_escape, "", false},
	{"e", filter_escape, "", false},
	{"forceescape", filter_escape, "", true},
	{"urlencode", filter_urlencode, "", 0},
	{"center", justify, "#width:i?", LEFT | RIGHT},
	{"truncate", filter_truncate, "length:i? killwords:b? end:s? leeway:i?", 0},
	{"wordcount", filter_wordcount, "$", 0},
	{"format", jinja_filter_format, "*", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_string_methods[] = {
	{"strip", strip, "#chars:e?", LEFT | RIGHT},
	{"lstrip", strip, "#chars:e?", LEFT},
	{"rstrip", strip, "#chars:e?", RIGHT},
	{"split", split, "#sep:s? maxsplit:i?", false},
	{"rsplit", split, "#sep:s? maxsplit:i?", true},
	{"splitlines", splitlines, "#keepends:b?", 0},
	{"partition", partition, "#sep:e", false},
	{"rpartition", partition, "#sep:e", true},
	{"startswith", has_affix, "prefix:v start:i? end:i?", LEFT},
	{"endswith", has_affix, "suffix:v start:i? end:i?", RIGHT},
	{"removeprefix", remove_affix, "#prefix:e", LEFT},
	{"removesuffix", remove_affix, "#suffix:e", RIGHT},
	{"replace", replace, "#old:e new:e count:i?", 0},
	{"find", find, "sub:s start:i? end:i?", 0},
	{"rfind", find, "sub:s start:i? end:i?", LAST},
	{"index", find, "sub:s start:i? end:i?", REQUIRED},
	{"rindex", find, "sub:s start:i? end:i?", REQUIRED | LAST},
	{"count", count, "sub:s start:i? end:i?", 0},
	{"join", method_join, "#iterable:v", 0},
	{"format", jinja_method_format, "*", 0},
	{"lower", change_case, "#", JINJA_CASE_LOWER},
	{"casefold", change_case, "#", JINJA_CASE_FOLD},
	{"upper", change_case, "#", JINJA_CASE_UPPER},
	{"title", change_case, "#", JINJA_CASE_TITLE},
	{"capitalize", change_case, "#", JINJA_CASE_CAPITALIZE},
	{"swapcase", change_case, "#", JINJA_CASE_SWAP},
	{"center", justify, "#width:i fillchar:e?", LEFT | RIGHT},
	{"ljust", justify, "#width:i fillchar:e?", RIGHT},
	{"rjust", justify, "#width:i fillchar:e?", LEFT},
	{"zfill", zfill, "#width:i", 0},
	{"isalpha", all_chars, "", ALPHA},
	{"isalnum", all_chars, "", ALNUM},
	{"isdecimal", all_chars, "", DECIMAL},
	{"isdigit", all_chars, "", DIGIT},
	{"isnumeric", all_chars, "", NUMERIC},
	{"isspace", all_chars, "", SPACE},
	{"isascii", all_chars, "", ASCII},
	{"isprintable", all_chars, "", PRINTABLE},
	{"istitle", is_title, "", 0},
	{"isidentifier", is_identifier, "", 0},
	{"expandtabs", expand_tabs, "#tabsize:i?", 0},
	{"isupper", all_chars, "", UPPER},
	{"islower", all_chars, "", LOWER},
	{NULL, NULL, NULL, 0},
};
