/* SPDX-License-Identifier: MIT */
/*
 * Strict UTF-8 decoding (Unicode 15, table 3-7) of untrusted text. All functions are pure and read
 * no byte beyond the given length.
 */
#ifndef TXDA_BASE_UTF8_H
#define TXDA_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* U+FFFD, replaces bytes that form no character. */
#define UTF8_REPLACEMENT     "\xEF\xBF\xBD"
#define UTF8_REPLACEMENT_LEN 3

/* The size of the byte order mark that @text begins with, as some editors write it; or 0. */
static inline size_t utf8_mark(const char *text, size_t len)
{
	return len >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

/*
 * The size of the control character (C0 or C1) at @s, which a terminal may interpret; 0: it is
 * none.
 */
static inline size_t utf8_control(const char *s)
{
	const unsigned char *u = (const unsigned char *)s;

	if (*u < 0x20 || *u == 0x7f)
		return 1;
	return u[0] == 0xc2 && u[1] >= 0x80 && u[1] < 0xa0 ? 2 : 0;
}

/* The length that a lead byte announces: 1 to 4, or 0 if no character starts with it. */
static inline unsigned utf8_lead_len(uint8_t lead)
{
	if (lead < 0x80)
		return 1;
	if (lead < 0xC2)
		return 0;
	if (lead < 0xE0)
		return 2;
	if (lead < 0xF0)
		return 3;
	return lead < 0xF5 ? 4 : 0;
}

/*
 * Whether @next is a valid second byte after @lead (not in overlong forms, surrogates and above
 * U+10FFFF).
 */
static inline bool utf8_second_ok(uint8_t lead, uint8_t next)
{
	switch (lead) {
	case 0xE0: return next >= 0xA0 && next <= 0xBF;
	case 0xED: return next >= 0x80 && next <= 0x9F;
	case 0xF0: return next >= 0x90 && next <= 0xBF;
	case 0xF4: return next >= 0x80 && next <= 0x8F;
	default: return (next & 0xC0) == 0x80;
	}
}

/*
 * Examines the @left > 0 bytes at @s. Returns the number of bytes (1 to 4) of the character there,
 * with *ret_whole = true; or, if they form none, the length of the longest prefix of one (at least
 * 1), with *ret_whole = false. The latter is what one U+FFFD replaces, unless more bytes may
 * follow.
 */
static inline unsigned utf8_scan(const uint8_t *s, size_t left, bool *ret_whole)
{
	unsigned want = utf8_lead_len(s[0]);
	unsigned have = 1;

	*ret_whole = false;
	if (!want)
		return 1;
	while (have < want && have < left) {
		if (have == 1 ? !utf8_second_ok(s[0], s[1]) : (s[have] & 0xC0) != 0x80)
			return have;
		have++;
	}
	*ret_whole = have == want;
	return have;
}

/*
 * Replaces each byte of control characters, and each that is part of no character, by @c, so that
 * untrusted text can be part of a line.
 */
static inline void utf8_tame(char *s, char c)
{
	size_t left = strlen(s);

	while (left) {
		size_t n = utf8_control(s);
		bool whole = false;

		if (!n)
			n = utf8_scan((const uint8_t *)s, left, &whole);
		if (!whole)
			memset(s, c, n);
		s += n;
		left -= n;
	}
}

/* Decodes the character at @s, which must be whole and valid; *ret_len is its length. */
static inline uint32_t utf8_decode(const uint8_t *s, unsigned *ret_len)
{
	if (s[0] < 0x80) {
		*ret_len = 1;
		return s[0];
	}
	if (s[0] < 0xE0) {
		*ret_len = 2;
		return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
	}
	if (s[0] < 0xF0) {
		*ret_len = 3;
		return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
	}
	*ret_len = 4;
	return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* Writes @cp (a Unicode scalar value) to @out[4]; returns the number of bytes. */
static inline unsigned utf8_encode(uint32_t cp, uint8_t *out)
{
	if (cp < 0x80) {
		out[0] = (uint8_t)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (uint8_t)(0xC0 | cp >> 6);
		out[1] = (uint8_t)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (uint8_t)(0xE0 | cp >> 12);
		out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
		out[2] = (uint8_t)(0x80 | (cp & 0x3F));
		return 3;
	}
	out[0] = (uint8_t)(0xF0 | cp >> 18);
	out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
	out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
	out[3] = (uint8_t)(0x80 | (cp & 0x3F));
	return 4;
}

/* Returns the offset of the first byte that is not part of a valid character, or @len. */
static inline size_t utf8_valid_prefix(const uint8_t *s, size_t len)
{
	size_t at = 0;

	while (at < len) {
		uint64_t word;
		bool whole;
		unsigned n;

		if (len - at >= 8) {
			memcpy(&word, s + at, 8);
			if (!(word & 0x8080808080808080ull)) {
				at += 8;
				continue;
			}
		}
		n = utf8_scan(s + at, len - at, &whole);
		if (!whole)
			return at;
		at += n;
	}
	return len;
}

#endif
