// SPDX-License-Identifier: MIT
#include "json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The escape of a character that cannot stand for itself; "" for others. */
static void escape_of(uint32_t c, char escape[8])
{
	static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	const char *found = c && c < 0x80 ? shorts : NULL;

	escape[0] = 0;
	for (; found && *found; found += 2) {
		if ((unsigned char)*found == c) {
			snprintf(escape, 8, "\\%c", found[1]);
			return;
		}
	}
	if (c < 0x20)
		snprintf(escape, 8, "\\u%04x", (unsigned)c);
}

struct grammar_piece json_character(struct grammar_builder *b, uint32_t c)
{
	char escape[8];

	escape_of(c, escape);
	return escape[0] ? grammar_text(b, escape) : grammar_character(b, c);
}

struct grammar_piece json_char(struct grammar_builder *b, const struct grammar_set *set)
{
	struct grammar_set plain = *set;
	struct grammar_piece piece;
	char escape[8];

	grammar_set_remove(&plain, 0, 0x1F);
	grammar_set_remove(&plain, '"', '"');
	grammar_set_remove(&plain, '\\', '\\');
	piece = grammar_char(b, &plain);
	for (uint32_t c = 0; c <= '\\'; c++) {
		escape_of(c, escape);
		if (escape[0] && grammar_set_has(set, c))
			piece = grammar_either(b, piece, grammar_text(b, escape));
	}
	return piece;
}

static struct grammar_piece digits(struct grammar_builder *b, const char *firsts, unsigned more)
{
	struct grammar_set hex = {0}, first = {0};
	struct grammar_piece piece;

	grammar_set_add(&hex, '0', '9');
	grammar_set_add(&hex, 'a', 'f');
	grammar_set_add(&hex, 'A', 'F');
	for (; *firsts; firsts++)
		grammar_set_add(&first, (unsigned char)*firsts, (unsigned char)*firsts);
	piece = grammar_char(b, &first);
	for (; more; more--)
		piece = grammar_seq(b, piece, grammar_char(b, &hex));
	return piece;
}

/* \uHHHH that is not a surrogate, or a pair of them. */
static struct grammar_piece unicode_escape(struct grammar_builder *b)
{
	struct grammar_piece high, low, plain;

	plain = grammar_either(b, digits(b, "0123456789abcefABCEF", 3),
			       grammar_seq(b, digits(b, "dD", 0), digits(b, "01234567", 2)));
	high = grammar_seq(b, digits(b, "dD", 0), digits(b, "89abAB", 2));
	low = grammar_seq(b, digits(b, "dD", 0), digits(b, "cdefCDEF", 2));
	high = grammar_seq(b, high, grammar_seq(b, grammar_text(b, "\\u"), low));
	return grammar_seq(b, grammar_text(b, "\\u"), grammar_either(b, plain, high));
}

struct grammar_piece json_any_char(struct grammar_builder *b)
{
	static const char shorts[] = "\"\\/bfnrt";
	struct grammar_set plain = {0}, set = {0};
	struct grammar_piece piece, escape;

	grammar_set_invert(&plain);
	grammar_set_remove(&plain, 0, 0x1F);
	grammar_set_remove(&plain, '"', '"');
	grammar_set_remove(&plain, '\\', '\\');
	for (const char *c = shorts; *c; c++)
		grammar_set_add(&set, (unsigned char)*c, (unsigned char)*c);
	escape = grammar_seq(b, grammar_text(b, "\\"), grammar_char(b, &set));
	piece = grammar_either(b, grammar_char(b, &plain), escape);
	return grammar_either(b, piece, unicode_escape(b));
}

char *json_quote(const char *text, size_t len, size_t *ret_len)
{
	char *quoted = malloc(6 * len + 3), escape[8];
	size_t at = 0;

	if (!quoted)
		return NULL;
	quoted[at++] = '"';
	for (size_t i = 0; i < len; i++) {
		escape_of((unsigned char)text[i], escape);
		if (!escape[0]) {
			quoted[at++] = text[i];
			continue;
		}
		memcpy(quoted + at, escape, strlen(escape));
		at += strlen(escape);
	}
	quoted[at++] = '"';
	quoted[at] = 0;
	*ret_len = at;
	return quoted;
}
