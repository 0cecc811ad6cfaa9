/* SPDX-License-Identifier: MIT */
/* Properties and cases of characters as Python has them, on top of utf8proc. Pure. */
#ifndef TXDA_TEXT_JINJA_TEXT_H
#define TXDA_TEXT_JINJA_TEXT_H

#include "jinja_value.h"

enum jinja_char_class {
	JINJA_CHAR_UPPER,
	JINJA_CHAR_LOWER,
	JINJA_CHAR_TITLE,
	JINJA_CHAR_LETTER,  /* without case */
	JINJA_CHAR_DIGIT,   /* decimal */
	JINJA_CHAR_NUMERIC, /* other numbers */
	JINJA_CHAR_MARK,
	JINJA_CHAR_UNPRINTABLE, /* for repr(): controls, separators, unassigned */
	JINJA_CHAR_OTHER,
};

enum jinja_char_class jinja_classify(uint32_t c);
bool jinja_is_space(uint32_t c);
bool jinja_is_line_end(uint32_t c);
bool jinja_is_printable(uint32_t c);
bool jinja_is_cased(uint32_t c);

enum jinja_case {
	JINJA_CASE_LOWER,
	JINJA_CASE_UPPER,
	JINJA_CASE_SWAP,
	JINJA_CASE_TITLE,      /* each run of cased characters: Xxx */
	JINJA_CASE_CAPITALIZE, /* the first character alone */
	JINJA_CASE_WORDS,      /* the filter `title`: words begin behind blanks and brackets */
};

/* Is the simple mapping of @c to upper or lower case another character? */
bool jinja_changes(uint32_t c, enum jinja_case mode);
/* What the character at @at of @s becomes; *@state is 0 at the start. Returns how many. */
unsigned int jinja_change_char(const struct jinja_str *s, size_t at, enum jinja_case mode,
			       unsigned int *state, uint32_t out[3]);

/* Python's int(text, base) and float(text): false when the text is no number. */
bool jinja_parse_int(const struct jinja_str *s, unsigned int base, int64_t *ret);
bool jinja_parse_float(const struct jinja_str *s, double *ret);

#endif
