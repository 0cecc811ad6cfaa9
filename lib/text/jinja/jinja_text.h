/* SPDX-License-Identifier: MIT */
/*
 * Work on strings that both filters and methods do. Results are new strings; conventions as in
 * jinja_render.h.
 */
#ifndef TXDA_TEXT_JINJA_TEXT_H
#define TXDA_TEXT_JINJA_TEXT_H

#include "jinja_render.h"

enum jinja_case {
	JINJA_CASE_LOWER,
	JINJA_CASE_UPPER,
	JINJA_CASE_SWAP,
	JINJA_CASE_TITLE,      /* each run of cased characters: Xxx */
	JINJA_CASE_CAPITALIZE, /* the first character alone */
};

int jinja_change_case(struct jinja_render *r, const struct jinja_str *s, enum jinja_case mode,
		      struct jinja_value *ret);
/* The value itself, or a string in lower case: what sorting without regard to case compares. */
int jinja_ignore_case(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret);
/* @chars: the characters to strip, NULL for whitespace */
int jinja_strip(struct jinja_render *r, const struct jinja_str *s, const struct jinja_str *chars,
		bool left, bool right, struct jinja_value *ret);
/* @count < 0: all of them */
int jinja_replace(struct jinja_render *r, const struct jinja_str *s, const struct jinja_str *from,
		  const struct jinja_str *to, int64_t count, struct jinja_value *ret);
int jinja_split_lines(struct jinja_render *r, const struct jinja_str *s, bool keep_ends,
		      struct jinja_seq **ret);
/* @align: '<', '>' or '^'; @fill: one character */
int jinja_pad(struct jinja_render *r, struct jinja_str *s, int64_t width, char align, uint32_t fill,
	      struct jinja_value *ret);
/*
 * Strings marked by the filter `safe` (Python's Markup): what is added to them is escaped for HTML,
 * and what is made from them stays marked. jinja_escape() gives a marked string; jinja_keep_safe()
 * marks *ret like @self unless rc.
 */
int jinja_escape(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret);
int jinja_keep_safe(struct jinja_value self, int rc, struct jinja_value *ret);
int jinja_call_safe_method(struct jinja_render *r, const struct jinja_bound *method,
			   const struct jinja_args *args, struct jinja_value *ret);
/* Python's int(text, base) and float(text): 0, or -EINVAL without an error message. */
int jinja_parse_int(const struct jinja_str *s, unsigned int base, int64_t *ret);
int jinja_parse_float(const struct jinja_str *s, double *ret);

#endif
