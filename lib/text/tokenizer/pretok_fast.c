// SPDX-License-Identifier: MIT
#include "pretok.h"

#define CL100K_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
	const char *pattern;
	struct pretok_fast fast;
} known[] = {
	{"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
	 {.on = true, .gpt2 = true}},
	{CL100K_HEAD CL100K_TAIL, {.on = true, .max_digits = 1}},
	{CL100K_HEAD "{1,3}" CL100K_TAIL, {.on = true, .max_digits = 3}},
};

/* The ASCII characters, as the expressions see them. */
enum { LETTER = 1, DIGIT = 2, SPACE = 4, LINE = 8, OTHER = 16, BEYOND = 32 };

static const uint8_t classes[256] = {
	[0 ... 0x08] = OTHER,	 ['\t'] = SPACE,	 ['\n'] = SPACE | LINE,
	[0x0B ... 0x0C] = SPACE, ['\r'] = SPACE | LINE,	 [0x0E ... 0x1F] = OTHER,
	[' '] = SPACE,		 ['!' ... '/'] = OTHER,	 ['0' ... '9'] = DIGIT,
	[':' ... '@'] = OTHER,	 ['A' ... 'Z'] = LETTER, ['[' ... '`'] = OTHER,
	['a' ... 'z'] = LETTER,	 ['{' ... 0x7F] = OTHER, [0x80 ... 0xFF] = BEYOND,
};

bool pretok_fast_known(const char *pattern, struct pretok_fast *fast)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(pattern, known[i].pattern)) {
			*fast = known[i].fast;
			return true;
		}
	}
	return false;
}

/* Class of the character at @at; 0 at the end of the text. */
static inline unsigned class_at(const uint8_t *s, size_t len, size_t at)
{
	return at < len ? classes[s[at]] : 0;
}

/* The end of the run of @class from @at; 0 when a character beyond ASCII ends it. */
static inline size_t run_end(const uint8_t *s, size_t len, size_t at, unsigned class)
{
	while (at < len && (classes[s[at]] & class))
		at++;
	return class_at(s, len, at) & BEYOND ? 0 : at;
}

/*
 * The contraction after the apostrophe at @at: its end, 0 when there is none. The caller has
 * checked that the two characters after the apostrophe are ASCII.
 */
static size_t contraction(const uint8_t *s, size_t len, size_t at, bool fold)
{
	uint8_t bit = fold ? 0x20 : 0;
	uint8_t a, b;

	if (at + 1 >= len)
		return 0;
	a = s[at + 1] | bit;
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return at + 2;
	if (at + 2 >= len)
		return 0;
	b = s[at + 2] | bit;
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return at + 3;
	return 0;
}

/* \s+(?!\S)|\s+ over the white space from @at, which ends at @end (not at @at). */
static size_t space_match(size_t len, size_t at, size_t end)
{
	return end == len || end == at + 1 ? end : end - 1;
}

static size_t gpt2_match(const uint8_t *s, size_t len, size_t at)
{
	unsigned class = class_at(s, len, at), next = class_at(s, len, at + 1);
	size_t end;

	if (s[at] == '\'') {
		if ((next | class_at(s, len, at + 2)) & BEYOND)
			return 0;
		end = contraction(s, len, at, false);
		if (end)
			return end;
	}
	if (s[at] == ' ') {
		if (next & BEYOND)
			return 0;
		if (next & (LETTER | DIGIT | OTHER))
			return run_end(s, len, at + 1, next);
	}
	if (class & BEYOND)
		return 0;
	end = run_end(s, len, at, class & SPACE ? SPACE : class);
	return end && (class & SPACE) ? space_match(len, at, end) : end;
}

static size_t cl100k_match(const struct pretok_fast *fast, const uint8_t *s, size_t len, size_t at)
{
	unsigned class = class_at(s, len, at), next = class_at(s, len, at + 1);
	size_t end;

	if (class & LETTER)
		return run_end(s, len, at, LETTER);
	if (class & BEYOND)
		return 0;
	if (class & DIGIT) {
		for (end = at + 1; end < at + fast->max_digits; end++) {
			if (class_at(s, len, end) & BEYOND)
				return 0;
			if (!(class_at(s, len, end) & DIGIT))
				break;
		}
		return end;
	}
	if (next & BEYOND)
		return 0;
	if (s[at] == '\'') {
		if (class_at(s, len, at + 2) & BEYOND)
			return 0;
		end = contraction(s, len, at, true);
		if (end)
			return end;
	}
	if ((next & LETTER) && !(class & LINE))
		return run_end(s, len, at + 1, LETTER);
	if ((class & OTHER) || (s[at] == ' ' && (next & OTHER))) {
		end = run_end(s, len, at + 1, OTHER);
		return end ? run_end(s, len, end, LINE) : 0;
	}
	end = run_end(s, len, at, SPACE);
	if (!end)
		return 0;
	/* \s*[\r\n]+ reaches to the last line end among the spaces. */
	for (size_t i = end; i > at; i--)
		if (classes[s[i - 1]] & LINE)
			return i;
	return space_match(len, at, end);
}

size_t pretok_fast_match(const struct pretok_fast *fast, const char *text, size_t len, size_t at)
{
	const uint8_t *s = (const uint8_t *)text;

	return fast->gpt2 ? gpt2_match(s, len, at) : cl100k_match(fast, s, len, at);
}
