/* SPDX-License-Identifier: MIT */
/*
 * Grammars of numbers within bounds, in plain decimal: an integer part without leading zeros, an
 * optional fraction, no exponent.
 */
#ifndef TXDA_GRAMMAR_NUMBER_RANGE_H
#define TXDA_GRAMMAR_NUMBER_RANGE_H

#include "grammar_build.h"

#define NUMBER_DIGITS	18		      /* maximum before the point */
#define NUMBER_LIMIT	1000000000000000000ll /* 10 to that power */
#define NUMBER_FRACTION 17		      /* maximum after the point */

/* Integers from @least to @most; both lie within -NUMBER_LIMIT + 1 and NUMBER_LIMIT - 1. */
struct grammar_piece integers_between(struct grammar_builder *b, int64_t least, int64_t most);

struct number_bound {
	double value; /* absolute value below NUMBER_LIMIT */
	bool open;    /* the value itself is excluded */
};

/* Any number from @least to @most; -0 is excluded. */
struct grammar_piece numbers_between(struct grammar_builder *b, struct number_bound least,
				     struct number_bound most);

#endif
