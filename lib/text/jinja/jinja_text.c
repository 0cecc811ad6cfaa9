// SPDX-License-Identifier: MIT
#include "jinja_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
	DOTTED_CAPITAL_I = 0x130,
	COMBINING_DOT = 0x307,
	CAPITAL_SIGMA = 0x3a3,
	FINAL_SIGMA = 0x3c2,
};

/* Bits of the state of jinja_change_char() */
enum { AFTER_CASED = 1, INSIDE_WORD = 2 };

enum jinja_char_class jinja_classify(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU: return JINJA_CHAR_UPPER;
	case UTF8PROC_CATEGORY_LL: return JINJA_CHAR_LOWER;
	case UTF8PROC_CATEGORY_LT: return JINJA_CHAR_TITLE;
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO: return JINJA_CHAR_LETTER;
	case UTF8PROC_CATEGORY_ND: return JINJA_CHAR_DIGIT;
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO: return JINJA_CHAR_NUMERIC;
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_SK: return JINJA_CHAR_MARK;
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
	case UTF8PROC_CATEGORY_ZS: return JINJA_CHAR_UNPRINTABLE;
	default: return JINJA_CHAR_OTHER;
	}
}

static uint32_t to_lower(uint32_t c)
{
	return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static uint32_t to_upper(uint32_t c)
{
	return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

static uint32_t to_title(uint32_t c)
{
	return (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
}

static unsigned int fold(uint32_t c, uint32_t out[3])
{
	utf8proc_int32_t folded[4];
	int boundary;
	utf8proc_ssize_t n =
		utf8proc_decompose_char((int32_t)c, folded, 4, UTF8PROC_CASEFOLD, &boundary);

	if (n < 1 || n > 3) {
		out[0] = to_lower(c);
		return 1;
	}
	for (utf8proc_ssize_t i = 0; i < n; i++)
		out[i] = (uint32_t)folded[i];
	return (unsigned int)n;
}

bool jinja_changes(uint32_t c, enum jinja_case mode)
{
	return (mode == JINJA_CASE_UPPER ? to_upper(c) : to_lower(c)) != c;
}

bool jinja_is_cased(uint32_t c)
{
	return jinja_classify(c) <= JINJA_CHAR_TITLE || to_lower(c) != c || to_upper(c) != c;
}

bool jinja_is_printable(uint32_t c)
{
	if (c < 0x7f)
		return c >= 0x20;
	return jinja_classify(c) != JINJA_CHAR_UNPRINTABLE;
}

bool jinja_is_space(uint32_t c)
{
	if (c < 0x80)
		return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
	return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	       c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_is_line_end(uint32_t c)
{
	return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
	       c == 0x2029;
}

/*
 * A capital sigma at the end of a word becomes the final form: ignoring marks, it is preceded by a
 * cased letter and not followed by one.
 */
static bool is_final_sigma(const struct jinja_str *s, size_t at)
{
	uint32_t c;

	for (at += 2; at < s->length;) {
		at += jinja_decode(s, at, &c);
		if (jinja_is_cased(c))
			return false;
		if (c != '\'' && c != 0x2019 && jinja_classify(c) != JINJA_CHAR_MARK)
			break;
	}
	return true;
}

static unsigned int change_to_lower(const struct jinja_str *s, size_t at, uint32_t c,
				    bool after_cased, uint32_t out[3])
{
	out[0] = to_lower(c);
	if (c == CAPITAL_SIGMA && after_cased && is_final_sigma(s, at))
		out[0] = FINAL_SIGMA;
	if (c != DOTTED_CAPITAL_I)
		return 1;
	out[0] = 'i';
	out[1] = COMBINING_DOT;
	return 2;
}

/*
 * Characters with several characters in upper case (ß, ligatures) also have several when
 * case-folded.
 */
static unsigned int change_to_upper(uint32_t c, bool title, uint32_t out[3])
{
	utf8proc_int32_t folded[4];
	utf8proc_ssize_t n = 1, i;
	int boundary;

	if (jinja_classify(c) != JINJA_CHAR_UPPER)
		n = utf8proc_decompose_char((int32_t)c, folded, 4, UTF8PROC_CASEFOLD, &boundary);
	/* Greek with iota subscript has a title form of one character */
	if (n < 2 || n > 3 || (title && c >= 0x1f00 && to_title(c) != to_lower(c))) {
		out[0] = title ? to_title(c) : to_upper(c);
		return 1;
	}
	for (i = 0; i < n; i++)
		out[i] = title && i ? (uint32_t)folded[i] : to_upper((uint32_t)folded[i]);
	return (unsigned int)n;
}

static bool begins_word(uint32_t c)
{
	return jinja_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

unsigned int jinja_change_char(const struct jinja_str *s, size_t at, enum jinja_case mode,
			       unsigned int *state, uint32_t out[3])
{
	bool after_cased = *state & AFTER_CASED, upper, title = false;
	unsigned int n;
	uint32_t c;

	jinja_decode(s, at, &c);
	if (mode == JINJA_CASE_FOLD)
		return fold(c, out);
	switch (mode) {
	case JINJA_CASE_UPPER: upper = true; break;
	case JINJA_CASE_SWAP: upper = !jinja_changes(c, JINJA_CASE_LOWER); break;
	case JINJA_CASE_TITLE: upper = title = !after_cased; break;
	case JINJA_CASE_CAPITALIZE: upper = title = at == 0; break;
	case JINJA_CASE_WORDS: upper = !(*state & INSIDE_WORD); break;
	default: upper = false;
	}
	n = upper ? change_to_upper(c, title, out) : change_to_lower(s, at, c, after_cased, out);
	if (jinja_is_cased(c))
		*state |= AFTER_CASED;
	else if (jinja_classify(c) != JINJA_CHAR_MARK || mode == JINJA_CASE_TITLE)
		*state &= ~(unsigned int)AFTER_CASED;
	*state = begins_word(c) ? *state & ~(unsigned int)INSIDE_WORD : *state | INSIDE_WORD;
	return n;
}

/* The text without surrounding space and without underscores between digits, terminated. */
static bool number_text(const struct jinja_str *s, char *out, size_t size)
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
			return false;
		out[used++] = c;
	}
	out[used] = '\0';
	return used;
}

bool jinja_parse_int(const struct jinja_str *s, unsigned int base, int64_t *ret)
{
	char text[80], *digits = text, *end;
	long long value;

	if (base == 1 || base > 36 || !number_text(s, text, sizeof(text)))
		return false;
	if (*digits == '+' || *digits == '-')
		digits++;
	/* prefixes 0x, 0o and 0b, if the base is theirs or 0; strtoll() knows only the first */
	if (digits[0] == '0' && digits[1]) {
		char prefix = (char)(digits[1] | 32);
		unsigned int own = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;

		if (own && (base == own || base == 0)) {
			base = own;
			memmove(digits, digits + 2, strlen(digits + 2) + 1);
		} else if (base == 0) {
			return false;
		}
	}
	if ((digits[0] | 32) == 'x' || digits[0] == '+' || digits[0] == '-' || !digits[0] ||
	    (digits[0] == '0' && (digits[1] | 32) == 'x'))
		return false;
	errno = 0;
	value = strtoll(text, &end, base ? (int)base : 10);
	if (errno || *end)
		return false;
	*ret = value;
	return true;
}

bool jinja_parse_decimal(const struct jinja_str *s, char *text, size_t size)
{
	char *digits = text, *first;

	if (!number_text(s, text, size))
		return false;
	if (*text == '+')
		memmove(text, text + 1, strlen(text));
	digits += *text == '-';
	if (!*digits || digits[strspn(digits, "0123456789")])
		return false;
	first = digits + strspn(digits, "0");
	memmove(digits, first, strlen(first) + 1);
	return true;
}

bool jinja_parse_float(const struct jinja_str *s, double *ret)
{
	char text[400], *end;
	double value;

	/* strtod() also accepts hexadecimal numbers and nan(...), Python does not */
	if (!number_text(s, text, sizeof(text)) || strpbrk(text, "xXpP("))
		return false;
	value = strtod(text, &end);
	if (*end)
		return false;
	*ret = value;
	return true;
}
