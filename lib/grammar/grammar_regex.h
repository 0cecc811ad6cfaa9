/* SPDX-License-Identifier: MIT */
/*
 * Regular expressions as grammars: the regular subset of ECMAScript's dialect, over characters.
 *
 *	.  [a-z]  [^a-z]  \d \D \w \W \s \S  \t \n \r \f \v \0 \xHH \uHHHH \u{H...}  \ before a sign
 *	(...)  (?:...)  (?<name>...)  |
 *	* + ? {n} {n,} {n,m}, each with a lazy ? that changes nothing
 *	^ at the beginning and $ at the end of the whole or of one of its alternatives
 *
 * \d, \w and \s are those of ASCII. Look-around, back references, \b, \p and flags are refused.
 */
#ifndef TXDA_GRAMMAR_REGEX_H
#define TXDA_GRAMMAR_REGEX_H

#include "grammar_build.h"

#define GRAMMAR_REGEX_MAX_DEPTH 200 /* groups within groups */

struct grammar_regex_options {
	/*
	 * Without ^ or $ any text may precede or follow, as for JSON Schema's `pattern`; otherwise
	 * the whole text must match.
	 */
	bool search;
	bool json; /* the text is inside a JSON string: escaped as JSON requires */
};

/* Errors are recorded in the builder. */
struct grammar_piece grammar_regex(struct grammar_builder *b, const char *text, size_t len,
				   const struct grammar_regex_options *options);

#endif
