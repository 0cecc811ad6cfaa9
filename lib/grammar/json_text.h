/* SPDX-License-Identifier: MIT */
/* Pieces of JSON as grammars. */
#ifndef TXDA_GRAMMAR_JSON_TEXT_H
#define TXDA_GRAMMAR_JSON_TEXT_H

#include "grammar_build.h"

/* A character of the set inside a JSON string: escaped where required, in the shortest form. */
struct grammar_piece json_char(struct grammar_builder *b, const struct grammar_set *set);
/* The same for one character. */
struct grammar_piece json_character(struct grammar_builder *b, uint32_t c);
/* Any character inside a JSON string, in each of its possible spellings. */
struct grammar_piece json_any_char(struct grammar_builder *b);
/*
 * Encodes @len bytes of UTF-8 as a JSON string with quotes. The caller frees it; NULL: out of
 * memory.
 */
char *json_quote(const char *text, size_t len, size_t *ret_len);

#endif
