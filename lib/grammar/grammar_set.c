// SPDX-License-Identifier: MIT
/* Sets of code points, and their characters as automata over UTF-8. */
#include "grammar_build.h"

#include <errno.h>
#include <string.h>

#include "utf8.h"

#define LAST_CODE_POINT 0x10FFFF

/* Inserts the range @first to @last, which touches no other one, at index @at. */
static void insert(struct grammar_set *set, unsigned at, uint32_t first, uint32_t last)
{
	if (set->n == GRAMMAR_MAX_RANGES) {
		set->full = true;
		return;
	}
	memmove(&set->ranges[at + 1], &set->ranges[at], (set->n - at) * sizeof(set->ranges[0]));
	set->ranges[at] = (struct grammar_range){first, last};
	set->n++;
}

void grammar_set_add(struct grammar_set *set, uint32_t first, uint32_t last)
{
	unsigned from = 0, to;

	while (from < set->n && set->ranges[from].last + 1 < first)
		from++;
	for (to = from; to < set->n && set->ranges[to].first <= last + 1; to++) {
		first = set->ranges[to].first < first ? set->ranges[to].first : first;
		last = set->ranges[to].last > last ? set->ranges[to].last : last;
	}
	if (to == from) {
		insert(set, from, first, last);
		return;
	}
	set->ranges[from] = (struct grammar_range){first, last};
	memmove(&set->ranges[from + 1], &set->ranges[to], (set->n - to) * sizeof(set->ranges[0]));
	set->n -= to - from - 1;
}

void grammar_set_remove(struct grammar_set *set, uint32_t first, uint32_t last)
{
	for (unsigned i = 0; i < set->n;) {
		struct grammar_range range = set->ranges[i];

		if (range.last < first || range.first > last) {
			i++;
			continue;
		}
		memmove(&set->ranges[i], &set->ranges[i + 1],
			(set->n - i - 1) * sizeof(set->ranges[0]));
		set->n--;
		if (range.first < first)
			insert(set, i++, range.first, first - 1);
		if (range.last > last)
			insert(set, i++, last + 1, range.last);
	}
}

void grammar_set_invert(struct grammar_set *set)
{
	struct grammar_set all;

	grammar_set_clear(&all);
	grammar_set_add(&all, 0, LAST_CODE_POINT);
	for (unsigned i = 0; i < set->n; i++)
		grammar_set_remove(&all, set->ranges[i].first, set->ranges[i].last);
	all.full = all.full || set->full;
	*set = all;
}

bool grammar_set_has(const struct grammar_set *set, uint32_t c)
{
	for (unsigned i = 0; i < set->n; i++) {
		if (c >= set->ranges[i].first && c <= set->ranges[i].last)
			return true;
	}
	return false;
}

/* Adds a path from piece->start to piece->end whose i-th byte is within first[i] to last[i]. */
static void add_way(struct grammar_builder *b, struct grammar_piece piece, const uint8_t *first,
		    const uint8_t *last, unsigned n)
{
	struct grammar_piece way = grammar_empty(b);

	for (unsigned i = 0; i < n; i++)
		way = grammar_seq(b, way, grammar_byte(b, first[i], last[i]));
	grammar_link(b, piece.start, way.start);
	grammar_link(b, way.end, piece.end);
}

/*
 * Adds a range of characters of equal encoded length, split until each part is a product of byte
 * ranges.
 */
static void add_range(struct grammar_builder *b, struct grammar_piece piece, uint32_t first,
		      uint32_t last)
{
	uint8_t low[4], high[4];
	unsigned n = utf8_encode(first, low);

	for (unsigned k = 1; k < n; k++) {
		uint32_t mask = (1u << (6 * k)) - 1;

		if ((first & ~mask) == (last & ~mask))
			break;
		if (first & mask) {
			add_range(b, piece, first, first | mask);
			add_range(b, piece, (first | mask) + 1, last);
			return;
		}
		if ((last & mask) != mask) {
			add_range(b, piece, first, (last & ~mask) - 1);
			add_range(b, piece, last & ~mask, last);
			return;
		}
	}
	utf8_encode(last, high);
	add_way(b, piece, low, high, n);
}

struct grammar_piece grammar_character(struct grammar_builder *b, uint32_t c)
{
	uint8_t bytes[4];

	return grammar_bytes(b, (const char *)bytes, utf8_encode(c, bytes));
}

struct grammar_piece grammar_char(struct grammar_builder *b, const struct grammar_set *set)
{
	static const uint32_t limits[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, LAST_CODE_POINT};
	struct grammar_piece piece = grammar_never(b);

	if (set->full)
		grammar_fail(b, -E2BIG, "a set of characters has more than %d ranges",
			     GRAMMAR_MAX_RANGES);
	for (unsigned i = 0; i < set->n && !grammar_failed(b); i++) {
		uint32_t first = set->ranges[i].first, last = set->ranges[i].last;

		for (unsigned k = 0; k < 6 && first <= last; k++) {
			uint32_t end = limits[k] < last ? limits[k] : last;

			if (first > limits[k])
				continue;
			/* Surrogates are not characters. */
			if (limits[k] != 0xDFFF)
				add_range(b, piece, first, end);
			first = end + 1;
		}
	}
	return piece;
}
