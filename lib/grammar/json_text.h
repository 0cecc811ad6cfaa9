/* SPDX-License-Identifier: MIT */
/* Pieces of JSON as grammars. */
#ifndef TXDA_GRAMMAR_JSON_TEXT_H
#define TXDA_GRAMMAR_JSON_TEXT_H

#include "grammar_build.h"

/* A character of the set as it stands inside of a JSON string: escaped where it has to be, in the
 * shortest way. */
struct grammar_piece json_char(struct grammar_builder *b, const struct grammar_set *set);
/* The same of one character. */
struct grammar_piece json_character(struct grammar_builder *b, uint32_t c);
/* Any character inside of a JSON string, in every way that it can be written. */
struct grammar_piece json_any_char(struct grammar_builder *b);
/* The JSON string that says @len bytes of UTF-8, with its quotes. To be freed; NULL: out of memory.
 */
char *json_quote(const char *text, size_t len, size_t *ret_len);

#endif
