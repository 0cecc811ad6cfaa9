// SPDX-License-Identifier: MIT
#include "number_range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct grammar_piece digit_range(struct grammar_builder *b, int first, int last)
{
	if (first > last)
		return grammar_never(b);
	return grammar_byte(b, (unsigned)('0' + first), (unsigned)('0' + last));
}

/* Exactly @n digits. */
static struct grammar_piece digits(struct grammar_builder *b, size_t n)
{
	struct grammar_piece piece = grammar_empty(b);

	for (; n; n--)
		piece = grammar_seq(b, piece, digit_range(b, 0, 9));
	return piece;
}

static struct grammar_piece one_digit(struct grammar_builder *b, char digit)
{
	return digit_range(b, digit - '0', digit - '0');
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Digit strings of the length of @low that are not below it. */
static struct grammar_piece at_least(struct grammar_builder *b, const char *low)
{
	struct grammar_piece same, more;

	if (strspn(low, "0") == strlen(low))
		return digits(b, strlen(low));
	same = grammar_seq(b, one_digit(b, *low), at_least(b, low + 1));
	more = grammar_seq(b, digit_range(b, *low - '0' + 1, 9), digits(b, strlen(low) - 1));
	return grammar_either(b, same, more);
}

static struct grammar_piece at_most(struct grammar_builder *b, const char *high)
{
	struct grammar_piece same, less;

	if (strspn(high, "9") == strlen(high))
		return digits(b, strlen(high));
	same = grammar_seq(b, one_digit(b, *high), at_most(b, high + 1));
	less = grammar_seq(b, digit_range(b, 0, *high - '0' - 1), digits(b, strlen(high) - 1));
	return grammar_either(b, same, less);
}

/* Digit strings of one length, from @low to @high. */
static struct grammar_piece same_length(struct grammar_builder *b, const char *low,
					const char *high)
{
	struct grammar_piece piece;

	if (!*low)
		return grammar_empty(b);
	if (*low == *high)
		return grammar_seq(b, one_digit(b, *low), same_length(b, low + 1, high + 1));
	piece = grammar_seq(b, digit_range(b, *low - '0' + 1, *high - '0' - 1),
			    digits(b, strlen(low) - 1));
	piece = grammar_either(b, piece, grammar_seq(b, one_digit(b, *low), at_least(b, low + 1)));
	return grammar_either(b, piece, grammar_seq(b, one_digit(b, *high), at_most(b, high + 1)));
}

/* 0 <= least <= most */
static struct grammar_piece naturals(struct grammar_builder *b, uint64_t least, uint64_t most)
{
	struct grammar_piece piece = grammar_never(b);
	uint64_t first = least;

	while (first <= most) {
		uint64_t last = 9;
		char low[24], high[24];

		while (last < first)
			last = last * 10 + 9;
		last = last < most ? last : most;
		snprintf(low, sizeof(low), "%" PRIu64, first);
		snprintf(high, sizeof(high), "%" PRIu64, last);
		piece = grammar_either(b, piece, same_length(b, low, high));
		first = last + 1;
	}
	return piece;
}

struct grammar_piece integers_between(struct grammar_builder *b, int64_t least, int64_t most)
{
	struct grammar_piece piece = grammar_never(b);

	if (least > most)
		return piece;
	if (least < 0) {
		uint64_t from = most < 0 ? (uint64_t)-most : 1;

		piece = grammar_seq(b, grammar_text(b, "-"), naturals(b, from, (uint64_t)-least));
	}
	if (most >= 0)
		piece = grammar_either(
			b, piece, naturals(b, least > 0 ? (uint64_t)least : 0, (uint64_t)most));
	return piece;
}

/* ---- fractions ------------------------------------------------------------------------------- */

/* A non-negative number: its integer part and its fractional digits, without trailing zeros. */
struct decimal {
	int64_t whole;
	char fraction[32];
	bool open;
};

static bool to_decimal(struct grammar_builder *b, struct number_bound bound, struct decimal *ret)
{
	char text[64];
	size_t n;

	*ret = (struct decimal){.open = bound.open};
	for (int precision = 0; precision < 26; precision++) {
		snprintf(text, sizeof(text), "%.*f", precision, bound.value);
		if (strtod(text, NULL) != bound.value)
			continue;
		ret->whole = strtoll(text, NULL, 10);
		if (strchr(text, '.'))
			snprintf(ret->fraction, sizeof(ret->fraction), "%s", strchr(text, '.') + 1);
		for (n = strlen(ret->fraction); n && ret->fraction[n - 1] == '0'; n--)
			ret->fraction[n - 1] = 0;
		return true;
	}
	grammar_fail(b, -EINVAL,
		     "the bound %g of the schema has more than 25 digits behind the point",
		     bound.value);
	return false;
}

/* Digits, at least one if they are the first after the point. */
static struct grammar_piece some_digits(struct grammar_builder *b, bool first)
{
	return grammar_repeat(b, digit_range(b, 0, 9), first, NUMBER_FRACTION);
}

static struct grammar_piece some_zeros(struct grammar_builder *b, bool first)
{
	return grammar_repeat(b, one_digit(b, '0'), first, NUMBER_FRACTION);
}

static struct grammar_piece never_or_empty(struct grammar_builder *b, bool empty)
{
	return empty ? grammar_empty(b) : grammar_never(b);
}

/* Digits that, after a common prefix, give a fraction above @low (or equal unless open). */
static struct grammar_piece fraction_from(struct grammar_builder *b, const char *low, bool open,
					  bool first)
{
	struct grammar_piece piece;

	if (!*low && !open)
		return some_digits(b, first);
	if (!*low) {
		piece = grammar_seq(b, digit_range(b, 1, 9), some_digits(b, false));
		return grammar_seq(b, some_zeros(b, false), piece);
	}
	piece = grammar_seq(b, one_digit(b, *low), fraction_from(b, low + 1, open, false));
	return grammar_either(
		b, piece, grammar_seq(b, digit_range(b, *low - '0' + 1, 9), some_digits(b, false)));
}

static struct grammar_piece fraction_to(struct grammar_builder *b, const char *high, bool open,
					bool first)
{
	struct grammar_piece piece;

	if (!*high)
		return open ? grammar_never(b) : some_zeros(b, first);
	piece = grammar_seq(b, one_digit(b, *high), fraction_to(b, high + 1, open, false));
	piece = grammar_either(
		b, piece,
		grammar_seq(b, digit_range(b, 0, *high - '0' - 1), some_digits(b, false)));
	return grammar_either(b, piece, never_or_empty(b, !first));
}

/* Between @low and @high, the remaining digits after a common prefix of both bounds. */
static struct grammar_piece fraction_within(struct grammar_builder *b, const char *low,
					    bool low_open, const char *high, bool high_open,
					    bool first)
{
	const char *low_rest = *low ? low + 1 : low;
	int l = *low ? *low - '0' : 0, h = *high ? *high - '0' : 0;
	struct grammar_piece piece;

	/* Nothing but zeros is below @high. */
	if (!*high)
		return *low || low_open || high_open ? grammar_never(b) : some_zeros(b, first);
	piece = never_or_empty(b, !*low && !low_open && !first);
	if (l == h)
		return grammar_either(b, piece,
				      grammar_seq(b, digit_range(b, l, l),
						  fraction_within(b, low_rest, low_open, high + 1,
								  high_open, false)));
	piece = grammar_either(b, piece,
			       grammar_seq(b, digit_range(b, l + 1, h - 1), some_digits(b, false)));
	piece = grammar_either(
		b, piece,
		grammar_seq(b, digit_range(b, l, l), fraction_from(b, low_rest, low_open, false)));
	return grammar_either(
		b, piece,
		grammar_seq(b, digit_range(b, h, h), fraction_to(b, high + 1, high_open, false)));
}

/* "." before the digits; nothing if they may be absent. */
static struct grammar_piece point(struct grammar_builder *b, struct grammar_piece fraction,
				  bool may_be_none)
{
	struct grammar_piece piece = grammar_seq(b, grammar_text(b, "."), fraction);

	return may_be_none ? grammar_optional(b, piece) : piece;
}

static struct grammar_piece any_fraction(struct grammar_builder *b)
{
	return point(b, some_digits(b, true), true);
}

static struct grammar_piece with_fraction(struct grammar_builder *b, int64_t whole,
					  struct grammar_piece fraction)
{
	return grammar_seq(b, naturals(b, (uint64_t)whole, (uint64_t)whole), fraction);
}

/* 0 <= least, most */
static struct grammar_piece positive_between(struct grammar_builder *b, const struct decimal *least,
					     const struct decimal *most)
{
	bool zero_low = !least->fraction[0] && !least->open;
	struct grammar_piece piece, low, high;

	if (least->whole > most->whole)
		return grammar_never(b);
	if (least->whole == most->whole) {
		int order = strcmp(least->fraction, most->fraction);

		if (order > 0 || (!order && (least->open || most->open)))
			return grammar_never(b);
		low = fraction_within(b, least->fraction, least->open, most->fraction, most->open,
				      true);
		return with_fraction(b, least->whole,
				     point(b, low, zero_low && (most->fraction[0] || !most->open)));
	}
	low = point(b, fraction_from(b, least->fraction, least->open, true), zero_low);
	high = point(b, fraction_to(b, most->fraction, most->open, true),
		     most->fraction[0] || !most->open);
	piece = with_fraction(b, least->whole, low);
	/* Without a fraction, @most itself is excluded if it is open. */
	piece = grammar_either(b, piece, with_fraction(b, most->whole, high));
	if (least->whole + 1 > most->whole - 1)
		return piece;
	return grammar_either(
		b, piece,
		grammar_seq(b, naturals(b, (uint64_t)least->whole + 1, (uint64_t)most->whole - 1),
			    any_fraction(b)));
}

struct grammar_piece numbers_between(struct grammar_builder *b, struct number_bound least,
				     struct number_bound most)
{
	const struct number_bound zero = {0, false}, above_zero = {0, true};
	struct grammar_piece piece = grammar_never(b), part;
	struct decimal low, high;

	if (least.value < 0) {
		struct number_bound from =
			most.value < 0 ? (struct number_bound){-most.value, most.open} : above_zero;

		if (!to_decimal(b, from, &low) ||
		    !to_decimal(b, (struct number_bound){-least.value, least.open}, &high))
			return piece;
		part = grammar_seq(b, grammar_text(b, "-"), positive_between(b, &low, &high));
		piece = grammar_either(b, piece, part);
	}
	if (most.value >= 0) {
		if (!to_decimal(b,
				least.value > 0 || (least.value == 0 && least.open) ? least : zero,
				&low) ||
		    !to_decimal(b, most, &high))
			return piece;
		piece = grammar_either(b, piece, positive_between(b, &low, &high));
	}
	return piece;
}
