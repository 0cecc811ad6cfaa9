// SPDX-License-Identifier: MIT
#include "jinja_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A capital sigma at the end of a word becomes the final form: before it, over marks, is a letter
 * with case, behind it is none.
 */
static bool is_final_sigma(const struct jinja_str *s, size_t at, bool after_cased)
{
	at += 2;
	while (after_cased && at < s->length) {
		uint32_t c;

		at += jinja_utf8_decode(s->data + at, s->length - at, &c);
		if (jinja_is_cased(c))
			return false;
		if (c != '\'' && c != 0x2019 && jinja_classify(c) != JINJA_CHAR_MARK)
			break;
	}
	return after_cased;
}

static int write_lower(struct jinja_render *r, const struct jinja_str *s, size_t at, uint32_t c,
		       bool after_cased)
{
	int rc;

	if (c == 0x130) { /* dotted capital I: i and a combining dot */
		rc = jinja_write_char(r, 'i');
		return rc ? rc : jinja_write_char(r, 0x307);
	}
	if (c == 0x3a3 && is_final_sigma(s, at, after_cased))
		return jinja_write_char(r, 0x3c2);
	return jinja_write_char(r, jinja_to_lower(c));
}

static int write_upper(struct jinja_render *r, uint32_t c, bool title)
{
	uint32_t special[3];
	unsigned int n = jinja_upper_special(c, special), i;
	int rc = 0;

	/* Greek with iota subscript has a title form of one character */
	if (!n || (title && c >= 0x1f00 && jinja_to_title(c) != jinja_to_lower(c)))
		return jinja_write_char(r, title ? jinja_to_title(c) : jinja_to_upper(c));
	for (i = 0; !rc && i < n; i++)
		rc = jinja_write_char(r, title && i && c != 0x149 ? jinja_to_lower(special[i])
								  : special[i]);
	return rc;
}

static int write_changed(struct jinja_render *r, const struct jinja_str *s, enum jinja_case mode)
{
	bool after_cased = false, cased;
	size_t at = 0;
	int rc = 0;

	while (!rc && at < s->length) {
		uint32_t c;
		size_t n = jinja_utf8_decode(s->data + at, s->length - at, &c);

		if (n == 1 && c >= 0x80) { /* no UTF-8 */
			rc = jinja_write(r, s->data + at, 1);
			at++;
			continue;
		}
		cased = jinja_is_cased(c);
		if (mode == JINJA_CASE_UPPER || (mode == JINJA_CASE_SWAP && jinja_to_lower(c) == c))
			rc = write_upper(r, c, false);
		else if ((mode == JINJA_CASE_TITLE && !after_cased) ||
			 (mode == JINJA_CASE_CAPITALIZE && at == 0))
			rc = write_upper(r, c, true);
		else
			rc = write_lower(r, s, at, c, after_cased);
		if (cased || jinja_classify(c) != JINJA_CHAR_MARK || mode == JINJA_CASE_TITLE)
			after_cased = cased;
		at += n;
	}
	return rc;
}

int jinja_change_case(struct jinja_render *r, const struct jinja_str *s, enum jinja_case mode,
		      struct jinja_value *ret)
{
	size_t mark = r->out.length;
	int rc = jinja_charge_bytes(r, s->length * 8);

	if (!rc)
		rc = write_changed(r, s, mode);
	return rc ? rc : jinja_captured(r, mark, ret);
}

int jinja_ignore_case(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret)
{
	if (v.kind == JINJA_STRING)
		return jinja_change_case(r, v.string, JINJA_CASE_LOWER, ret);
	*ret = v;
	return 0;
}

static bool is_stripped(const struct jinja_str *chars, const char *c, size_t n, uint32_t code)
{
	size_t at = 0;

	if (!chars)
		return jinja_is_space(code);
	while (at < chars->length) {
		uint32_t other;
		size_t size = jinja_utf8_decode(chars->data + at, chars->length - at, &other);

		if (size == n && !memcmp(chars->data + at, c, n))
			return true;
		at += size;
	}
	return false;
}

/* Size of the character that ends at @end. */
static size_t last_char(const struct jinja_str *s, size_t start, size_t end, uint32_t *ret_char)
{
	size_t size;

	for (size = 1; size <= 4 && size <= end - start; size++)
		if (jinja_utf8_decode(s->data + end - size, size, ret_char) == size &&
		    (size > 1 || *ret_char < 0x80))
			return size;
	*ret_char = (unsigned char)s->data[end - 1];
	return 1;
}

int jinja_strip(struct jinja_render *r, const struct jinja_str *s, const struct jinja_str *chars,
		bool left, bool right, struct jinja_value *ret)
{
	size_t start = 0, end = s->length;
	uint32_t c;
	int rc;

	while (left && start < end) {
		size_t n = jinja_utf8_decode(s->data + start, end - start, &c);

		if (!is_stripped(chars, s->data + start, n, c))
			break;
		start += n;
	}
	while (right && end > start) {
		size_t n = last_char(s, start, end, &c);

		if (!is_stripped(chars, s->data + end - n, n, c))
			break;
		end -= n;
	}
	rc = jinja_charge_bytes(r, s->length - (end - start));
	if (!rc && chars)
		rc = jinja_charge(r, (s->length - (end - start)) * chars->length / 64);
	return rc ? rc : jinja_substring(r, s, start, end, ret);
}

int jinja_replace(struct jinja_render *r, const struct jinja_str *s, const struct jinja_str *from,
		  const struct jinja_str *to, int64_t count, struct jinja_value *ret)
{
	size_t mark = r->out.length, at = 0;
	int rc = jinja_charge_bytes(r, s->length);
	uint32_t c;

	while (!rc && count-- != 0) {
		const char *hit = s->data + at;

		if (from->length) {
			hit = memmem(s->data + at, s->length - at, from->data, from->length);
			if (!hit)
				break;
			rc = jinja_write(r, s->data + at, (size_t)(hit - s->data) - at);
			at = (size_t)(hit - s->data) + from->length;
			if (!rc)
				rc = jinja_write(r, to->data, to->length);
		} else { /* between all characters */
			size_t n = at < s->length ? jinja_utf8_decode(hit, s->length - at, &c) : 0;

			rc = jinja_write(r, to->data, to->length);
			if (!rc)
				rc = jinja_write(r, hit, n);
			at += n;
			if (!n)
				break;
		}
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	if (!rc)
		rc = jinja_write(r, s->data + at, s->length - at);
	return rc ? rc : jinja_captured(r, mark, ret);
}

int jinja_split_lines(struct jinja_render *r, const struct jinja_str *s, bool keep_ends,
		      struct jinja_seq **ret)
{
	struct jinja_seq *lines;
	struct jinja_value line;
	size_t start = 0, at = 0;
	int rc = jinja_new_seq(r, JINJA_LIST, 0, &lines);

	while (!rc && at < s->length) {
		uint32_t c;
		size_t n = jinja_utf8_decode(s->data + at, s->length - at, &c);

		if (!jinja_is_line_end(c) || (n == 1 && c >= 0x80)) {
			at += n;
			continue;
		}
		if (c == '\r' && at + 1 < s->length && s->data[at + 1] == '\n')
			n = 2;
		rc = jinja_substring(r, s, start, keep_ends ? at + n : at, &line);
		if (!rc)
			rc = jinja_append(r, lines, line);
		at += n;
		start = at;
	}
	if (!rc && start < s->length) {
		rc = jinja_substring(r, s, start, s->length, &line);
		if (!rc)
			rc = jinja_append(r, lines, line);
	}
	if (!rc)
		*ret = lines;
	return rc ? rc : jinja_charge_bytes(r, s->length * 4);
}

int jinja_pad(struct jinja_render *r, struct jinja_str *s, int64_t width, char align, uint32_t fill,
	      struct jinja_value *ret)
{
	int64_t chars = (int64_t)jinja_str_chars(s), missing, left;
	size_t mark = r->out.length;
	int rc = 0;

	missing = width > chars ? width - chars : 0;
	if ((uint64_t)missing > r->limits.output)
		return jinja_fail_limit(r, "bytes of output", r->limits.output);
	left = align == '>' ? missing : 0;
	if (align == '^') /* the odd one goes left when the width is odd, as in Python */
		left = missing / 2 + (missing & width & 1);
	missing -= left;
	while (!rc && left-- > 0)
		rc = jinja_write_char(r, fill);
	if (!rc)
		rc = jinja_write(r, s->data, s->length);
	while (!rc && missing-- > 0)
		rc = jinja_write_char(r, fill);
	return rc ? rc : jinja_captured(r, mark, ret);
}

/* The text without surrounding space and without underscores between digits, terminated. */
static int number_text(const struct jinja_str *s, char *out, size_t size)
{
	size_t at = 0, used = 0, end = s->length;

	while (at < end && jinja_is_space((unsigned char)s->data[at]))
		at++;
	while (end > at && jinja_is_space((unsigned char)s->data[end - 1]))
		end--;
	for (; at < end; at++) {
		char c = s->data[at];

		if (c == '_' && used && at + 1 < end && s->data[at + 1] != '_' &&
		    s->data[at - 1] != '_')
			continue;
		if ((c & 0x80) || c <= ' ' || c == '_' || used + 1 == size)
			return -EINVAL;
		out[used++] = c;
	}
	out[used] = '\0';
	return used ? 0 : -EINVAL;
}

int jinja_parse_int(const struct jinja_str *s, unsigned int base, int64_t *ret)
{
	char text[80], *digits = text, *end;
	long long value;

	if (base == 1 || base > 36 || number_text(s, text, sizeof(text)))
		return -EINVAL;
	if (*digits == '+' || *digits == '-')
		digits++;
	/* prefixes: 0x, 0o and 0b when the base is theirs or 0; strtoll knows only the first */
	if (digits[0] == '0' && digits[1]) {
		char prefix = (char)(digits[1] | 32);
		unsigned int own = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;

		if (own && (base == own || base == 0)) {
			base = own;
			memmove(digits, digits + 2, strlen(digits + 2) + 1);
		} else if (base == 0) {
			return -EINVAL;
		}
	}
	if ((digits[0] | 32) == 'x' || digits[0] == '+' || digits[0] == '-' || !digits[0] ||
	    (digits[0] == '0' && (digits[1] | 32) == 'x'))
		return -EINVAL;
	errno = 0;
	value = strtoll(text, &end, base ? (int)base : 10);
	if (errno || *end)
		return -EINVAL;
	*ret = value;
	return 0;
}

int jinja_parse_float(const struct jinja_str *s, double *ret)
{
	char text[400], *end;
	double value;

	/* strtod takes hexadecimal and nan(...) besides, Python does not */
	if (number_text(s, text, sizeof(text)) || strpbrk(text, "xXpP("))
		return -EINVAL;
	value = strtod(text, &end);
	if (*end)
		return -EINVAL;
	*ret = value;
	return 0;
}
