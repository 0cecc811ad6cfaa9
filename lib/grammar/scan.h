/* SPDX-License-Identifier: MIT */
/* Reads the text of a grammar or an expression character by character. */
#ifndef TXDA_GRAMMAR_SCAN_H
#define TXDA_GRAMMAR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "utf8.h"

struct scan {
	const char *text;
	size_t len, at;
};

static inline bool scan_end(const struct scan *s)
{
	return s->at >= s->len;
}

/* The current byte, or the one @ahead of it; 0 at the end. */
static inline char scan_peek(const struct scan *s, size_t ahead)
{
	return ahead < s->len - s->at ? s->text[s->at + ahead] : 0;
}

static inline bool scan_take(struct scan *s, char c)
{
	if (scan_end(s) || s->text[s->at] != c)
		return false;
	s->at++;
	return true;
}

/* The next character; false at the end and at invalid UTF-8. */
static inline bool scan_char(struct scan *s, uint32_t *ret)
{
	const uint8_t *bytes = (const uint8_t *)s->text + s->at;
	unsigned n;
	bool whole;

	if (scan_end(s))
		return false;
	utf8_scan(bytes, s->len - s->at, &whole);
	if (!whole)
		return false;
	*ret = utf8_decode(bytes, &n);
	s->at += n;
	return true;
}

static inline int scan_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Exactly @n hexadecimal digits. */
static inline bool scan_hex(struct scan *s, unsigned n, uint32_t *ret)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < n; i++) {
		int digit = scan_hex_digit(scan_peek(s, i));

		if (digit < 0)
			return false;
		value = value << 4 | (uint32_t)digit;
	}
	s->at += n;
	*ret = value;
	return value <= 0x10FFFF;
}

/* A decimal number; false: none, or above 10^9. */
static inline bool scan_number(struct scan *s, uint32_t *ret)
{
	size_t start = s->at;
	uint64_t value = 0;

	while (!scan_end(s) && s->text[s->at] >= '0' && s->text[s->at] <= '9') {
		value = value * 10 + (uint64_t)(s->text[s->at++] - '0');
		if (value > 1000000000)
			return false;
	}
	*ret = (uint32_t)value;
	return s->at > start;
}

#endif
