// SPDX-License-Identifier: MIT
/*
 * Integers beyond 64 bits. Values keep them as decimal text; here they are digits of base 10^9, the
 * lowest first. A result of more than 4300 decimal digits is an error; in Python it is one only
 * when it is printed.
 */
#include "jinja_render.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BASE	  1000000000u
#define MAX_CHARS 4300
#define MAX_BIG	  ((MAX_CHARS + 8) / 9)
/* Room for a product before its length is checked. */
#define ROOM (2 * MAX_BIG + 1)

struct big {
	bool negative;
	uint32_t n; /* without leading zeros; 0: zero */
	uint32_t digit[ROOM];
};

static void trim(struct big *a)
{
	while (a->n && !a->digit[a->n - 1])
		a->n--;
	if (!a->n)
		a->negative = false;
}

/* Compares the magnitudes: -1, 0, 1. */
static int order(const struct big *a, const struct big *b)
{
	if (a->n != b->n)
		return a->n < b->n ? -1 : 1;
	for (uint32_t i = a->n; i-- > 0;)
		if (a->digit[i] != b->digit[i])
			return a->digit[i] < b->digit[i] ? -1 : 1;
	return 0;
}

/* *a += b, for magnitudes. */
static void add_to(struct big *a, const struct big *b)
{
	uint32_t carry = 0;

	for (uint32_t i = 0; i < b->n || carry; i++) {
		uint32_t sum = carry + (i < b->n ? b->digit[i] : 0);

		if (i == a->n)
			a->digit[a->n++] = 0;
		sum += a->digit[i];
		carry = sum >= BASE;
		a->digit[i] = sum - carry * BASE;
	}
}

/* *a -= b, for magnitudes; that of *a must not be smaller. */
static void take_from(struct big *a, const struct big *b)
{
	uint32_t borrow = 0;

	for (uint32_t i = 0; i < b->n || borrow; i++) {
		uint32_t less = borrow + (i < b->n ? b->digit[i] : 0);

		borrow = a->digit[i] < less;
		a->digit[i] += borrow * BASE - less;
	}
	trim(a);
}

static void add_signed(struct big *a, const struct big *b, bool negative)
{
	struct big swap;

	if (a->negative == negative) {
		add_to(a, b);
	} else if (order(a, b) >= 0) {
		take_from(a, b);
	} else {
		swap = *a;
		*a = *b;
		a->negative = negative;
		take_from(a, &swap);
	}
	trim(a);
}

/* *ret must be neither of the factors. */
static void multiply(const struct big *a, const struct big *b, struct big *ret)
{
	ret->negative = a->negative != b->negative;
	ret->n = a->n + b->n;
	memset(ret->digit, 0, ret->n * sizeof(*ret->digit));
	for (uint32_t i = 0; i < a->n; i++) {
		uint64_t carry = 0;

		for (uint32_t k = 0; k < b->n || carry; k++) {
			carry += ret->digit[i + k];
			if (k < b->n)
				carry += (uint64_t)a->digit[i] * b->digit[k];
			ret->digit[i + k] = (uint32_t)(carry % BASE);
			carry /= BASE;
		}
	}
	trim(ret);
}

/* Divides *a by @b: returns the quotient, one digit, and leaves the remainder in *a. */
static uint32_t take_times(struct big *a, const struct big *b)
{
	uint32_t low = 0, high = BASE - 1;
	struct big factor = {.n = 1}, product;

	while (low < high) {
		factor.digit[0] = low + (high - low + 1) / 2;
		multiply(b, &factor, &product);
		if (order(&product, a) <= 0)
			low = factor.digit[0];
		else
			high = factor.digit[0] - 1;
	}
	factor.digit[0] = low;
	multiply(b, &factor, &product);
	take_from(a, &product);
	return low;
}

/* As in Python: rounded down; the remainder has the divisor's sign. */
static void divide(const struct big *a, const struct big *b, struct big *ret_quotient,
		   struct big *ret_rest)
{
	struct big size = *b, one = {.n = 1, .digit = {1}};

	size.negative = false;
	*ret_quotient = (struct big){.n = a->n, .negative = a->negative != b->negative};
	*ret_rest = (struct big){.n = 0};
	for (uint32_t i = a->n; i-- > 0;) {
		memmove(ret_rest->digit + 1, ret_rest->digit,
			ret_rest->n * sizeof(*ret_rest->digit));
		ret_rest->digit[0] = a->digit[i];
		ret_rest->n++;
		trim(ret_rest);
		ret_quotient->digit[i] =
			order(ret_rest, &size) < 0 ? 0 : take_times(ret_rest, &size);
	}
	ret_rest->negative = a->negative && ret_rest->n;
	if (ret_rest->n && a->negative != b->negative) {
		add_signed(ret_rest, b, b->negative);
		ret_quotient->negative = true;
		add_to(ret_quotient, &one);
	}
	trim(ret_quotient);
}

/* ---- values ---------------------------------------------------------------------------------- */

static _Noreturn void fail_size(struct jinja_render *r)
{
	jinja_fail(r, "an integer of more than %d digits", MAX_CHARS);
}

static void check_size(struct jinja_render *r, const struct big *a)
{
	uint32_t top = a->n == MAX_BIG ? a->digit[a->n - 1] : 0;

	/* 4300 digits are 477 of base 10^9 and seven. */
	if (a->n > MAX_BIG || top >= 10000000)
		fail_size(r);
}

static void read_big(struct jinja_render *r, struct jinja_value v, struct big *ret)
{
	const struct jinja_str *s;
	size_t sign, len;
	int64_t small;

	s = jinja_to_str(r, jinja_as_int(v, &small) ? jinja_int(small) : v);
	sign = s->length && s->data[0] == '-';
	len = s->length - sign;
	if (len > MAX_CHARS)
		fail_size(r);
	jinja_charge(r, 1 + len / 16);
	*ret = (struct big){.negative = sign, .n = (uint32_t)((len + 8) / 9)};
	for (size_t i = 0; i < len; i++) {
		uint32_t *digit = &ret->digit[(len - 1 - i) / 9];

		*digit = *digit * 10 + (uint32_t)(s->data[sign + i] - '0');
	}
	trim(ret);
}

struct jinja_value jinja_bigint(struct jinja_render *r, const char *text, size_t len)
{
	char *copy = jinja_alloc(r, 1, len);
	struct jinja_value v;

	memcpy(copy, text, len);
	v = jinja_string(r, copy, len);
	v.kind = JINJA_BIGINT;
	return v;
}

struct jinja_value jinja_whole(struct jinja_render *r, double f)
{
	char text[320]; /* the largest has 309 digits */

	if (isnan(f) || isinf(f))
		jinja_fail(r, "cannot convert float %s to integer", isnan(f) ? "NaN" : "infinity");
	f = trunc(f);
	if (f >= -9223372036854775808.0 && f < 9223372036854775808.0)
		return jinja_int((int64_t)f);
	return jinja_bigint(r, text, (size_t)snprintf(text, sizeof(text), "%.0f", f));
}

static struct jinja_value write_big(struct jinja_render *r, const struct big *a)
{
	char text[9 * MAX_BIG + 2];
	size_t len;

	check_size(r, a);
	if (a->n <= 3) {
		__int128 small = 0;

		for (uint32_t i = a->n; i-- > 0;)
			small = small * BASE + a->digit[i];
		small = a->negative ? -small : small;
		if (small >= INT64_MIN && small <= INT64_MAX)
			return jinja_int((int64_t)small);
	}
	len = (size_t)snprintf(text, sizeof(text), "%s%u", a->negative ? "-" : "",
			       a->n ? a->digit[a->n - 1] : 0);
	for (uint32_t i = a->n; i-- > 1;)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%09u", a->digit[i - 1]);
	return jinja_bigint(r, text, len);
}

static struct jinja_value power(struct jinja_render *r, struct big *base, int64_t exponent)
{
	struct big result = {.n = 1, .digit = {1}}, product;

	/* Powers of 0, 1 and -1 never reach the limit of digits, which ends the loop for others. */
	if (!base->n || (base->n == 1 && base->digit[0] == 1))
		exponent = exponent ? 2 - (exponent & 1) : 0;
	for (; exponent; exponent >>= 1) {
		if (exponent & 1) {
			multiply(&result, base, &product);
			check_size(r, &product);
			result = product;
		}
		if (exponent > 1) {
			multiply(base, base, &product);
			check_size(r, &product);
			*base = product;
		}
	}
	return write_big(r, &result);
}

struct jinja_value jinja_big_binary(struct jinja_render *r, uint8_t op, struct jinja_value a,
				    struct jinja_value b)
{
	struct big x, y, quotient, rest;
	int64_t exponent;
	double f, g;

	read_big(r, a, &x);
	read_big(r, b, &y);
	/* A division finds each digit of the quotient by bisection, with some 30 products. */
	jinja_charge(r, 16 + (op == TOKEN_FLOORDIV || op == TOKEN_MOD ? 30ull : 1ull) * x.n * y.n);
	switch (op) {
	case TOKEN_ADD: add_signed(&x, &y, y.negative); return write_big(r, &x);
	case TOKEN_SUB: add_signed(&x, &y, y.n && !y.negative); return write_big(r, &x);
	case TOKEN_MUL: multiply(&x, &y, &rest); return write_big(r, &rest);
	case TOKEN_POW:
		if (y.negative && !x.n)
			jinja_fail(r, "0 cannot be raised to a negative power");
		if (y.negative)
			break;
		/* Of a larger exponent only the parity matters, if anything. */
		if (!jinja_as_int(b, &exponent))
			exponent = INT64_MAX - !(y.digit[0] & 1);
		jinja_charge(r, 100000);
		return power(r, &x, exponent);
	default:
		if (!y.n)
			jinja_fail(r, "division by zero");
	}
	if (op == TOKEN_FLOORDIV || op == TOKEN_MOD) {
		divide(&x, &y, &quotient, &rest);
		return write_big(r, op == TOKEN_MOD ? &rest : &quotient);
	}
	jinja_as_double(a, &f);
	jinja_as_double(b, &g);
	f = op == TOKEN_POW ? pow(f, g) : f / g;
	if (!isfinite(f))
		jinja_fail(r, "an integer too large for a float");
	return jinja_float(f);
}

int jinja_big_order(struct jinja_render *r, struct jinja_value a, struct jinja_value b)
{
	struct big x, y;

	read_big(r, a, &x);
	read_big(r, b, &y);
	if (x.negative != y.negative)
		return x.negative ? -1 : 1;
	return x.negative ? -order(&x, &y) : order(&x, &y);
}
