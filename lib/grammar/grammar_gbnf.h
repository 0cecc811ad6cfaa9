/* SPDX-License-Identifier: MIT */
/*
 * Grammars as text, in a dialect of BNF that other servers' users know as GBNF:
 *
 *	# a comment
 *	root   ::= "yes" | "no" ("," " "? reason)?
 *	reason ::= [a-z ]{1,80}
 *
 *	"text"  [a-z]  [^"\\]  .    characters; escapes \n \r \t \\ \" \[ \] \xHH \uHHHH
 *	                            \UHHHHHHHH
 *	name  ( ... )  |            rules, groups, alternatives
 *	* + ? {n} {n,} {n,m}        repetition of what stands before it
 *
 * A rule begins with its name and "::=" and extends to the next rule or the end; line breaks have
 * no meaning. Names have letters, digits, '-' and '_'. The text has to match `root` as a whole. A
 * rule must not begin with itself.
 */
#ifndef TXDA_GRAMMAR_GBNF_H
#define TXDA_GRAMMAR_GBNF_H

#include "grammar_build.h"

#define GRAMMAR_GBNF_MAX_DEPTH 200 /* groups within groups */

/* Defines all rules; *ret_root is `root`. Errors are recorded in the builder. */
void grammar_gbnf(struct grammar_builder *b, const char *text, size_t len, uint32_t *ret_root);

#endif
