// SPDX-License-Identifier: MIT
/*
 * Arithmetic with Python's rules: floor division, the sign of the remainder, repetition, joining of
 * sequences.
 */
#include "jinja_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *symbol(uint8_t op)
{
	switch (op) {
	case TOKEN_ADD: return "+";
	case TOKEN_SUB: return "-";
	case TOKEN_MUL: return "*";
	case TOKEN_DIV: return "/";
	case TOKEN_FLOORDIV: return "//";
	case TOKEN_MOD: return "%";
	default: return "**";
	}
}

static int fail_types(struct jinja_render *r, uint8_t op, struct jinja_value a,
		      struct jinja_value b)
{
	if (a.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, a);
	if (b.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, b);
	if (op == TOKEN_ADD && a.kind == JINJA_STRING)
		return jinja_fail(r, "can only concatenate str (not \"%s\") to str",
				  jinja_type_name(b));
	return jinja_fail(r, "unsupported operand types for %s: '%s' and '%s'", symbol(op),
			  jinja_type_name(a), jinja_type_name(b));
}

static int fail_overflow(struct jinja_render *r, uint8_t op)
{
	return jinja_fail(r, "the integer result of %s does not fit 64 bits", symbol(op));
}

static int int_power(struct jinja_render *r, int64_t base, int64_t exponent,
		     struct jinja_value *ret)
{
	int64_t result = 1;

	if (exponent < 0) {
		if (!base)
			return jinja_fail(r, "0 cannot be raised to a negative power");
		*ret = jinja_float(pow((double)base, (double)exponent));
		return 0;
	}
	while (exponent) {
		if (exponent & 1 && __builtin_mul_overflow(result, base, &result))
			return fail_overflow(r, TOKEN_POW);
		exponent >>= 1;
		if (exponent && __builtin_mul_overflow(base, base, &base))
			return fail_overflow(r, TOKEN_POW);
	}
	*ret = jinja_int(result);
	return 0;
}

static int int_binary(struct jinja_render *r, uint8_t op, int64_t a, int64_t b,
		      struct jinja_value *ret)
{
	int64_t result = 0;
	bool overflow = false;

	switch (op) {
	case TOKEN_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
	case TOKEN_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
	case TOKEN_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
	case TOKEN_POW: return int_power(r, a, b, ret);
	default:
		if (!b)
			return jinja_fail(r, "division by zero");
		if (op == TOKEN_DIV) {
			*ret = jinja_float((double)a / (double)b);
			return 0;
		}
		if (b == -1) { /* the one quotient that can overflow */
			overflow = op == TOKEN_FLOORDIV && __builtin_sub_overflow(0, a, &result);
			break;
		}
		result = op == TOKEN_FLOORDIV ? a / b : a % b;
		if (a % b && (a < 0) != (b < 0))
			result += op == TOKEN_FLOORDIV ? -1 : b;
	}
	if (overflow)
		return fail_overflow(r, op);
	*ret = jinja_int(result);
	return 0;
}

static int float_binary(struct jinja_render *r, uint8_t op, double a, double b,
			struct jinja_value *ret)
{
	double result;

	switch (op) {
	case TOKEN_ADD: result = a + b; break;
	case TOKEN_SUB: result = a - b; break;
	case TOKEN_MUL: result = a * b; break;
	case TOKEN_POW:
		if (a == 0 && b < 0)
			return jinja_fail(r, "0.0 cannot be raised to a negative power");
		if (a < 0 && floor(b) != b && isfinite(b))
			return jinja_fail(r, "complex numbers are not supported");
		result = pow(a, b);
		if (isinf(result) && isfinite(a) && isfinite(b))
			return jinja_fail(r, "the result of ** is out of range");
		break;
	default:
		if (b == 0)
			return jinja_fail(r, "float division by zero");
		if (op == TOKEN_DIV) {
			result = a / b;
			break;
		}
		result = fmod(a, b);
		if (result != 0 && (result < 0) != (b < 0))
			result += b;
		if (op == TOKEN_FLOORDIV)
			result = round((a - result) / b);
		else if (result == 0)
			result = copysign(0.0, b);
	}
	*ret = jinja_float(result);
	return 0;
}

static int repeat_string(struct jinja_render *r, const struct jinja_str *s, size_t count,
			 struct jinja_value *ret)
{
	size_t total, i;
	char *data;
	int rc;

	if (__builtin_mul_overflow(s->length, count, &total))
		return jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	rc = jinja_charge_bytes(r, total);
	if (!rc)
		rc = jinja_alloc(r, total, &data);
	if (rc)
		return rc;
	for (i = 0; total && i < count; i++)
		memcpy(data + i * s->length, s->data, s->length);
	return jinja_string(r, data, total, ret);
}

static int repeat_seq(struct jinja_render *r, const struct jinja_seq *s, size_t count,
		      struct jinja_value *ret)
{
	struct jinja_seq *seq;
	size_t total, i;
	int rc;

	if (__builtin_mul_overflow(s->n, count, &total))
		return jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	rc = jinja_charge(r, total / 4);
	if (!rc)
		rc = jinja_new_seq(r, s->flavor, total, &seq);
	if (rc)
		return rc;
	for (i = 0; total && i < count; i++)
		memcpy(seq->items + i * s->n, s->items, s->n * sizeof(*s->items));
	seq->n = total;
	*ret = jinja_seq_value(seq);
	return 0;
}

static bool is_joinable(struct jinja_value v)
{
	return jinja_is_list(v) || (v.kind == JINJA_SEQ && v.seq->flavor == JINJA_TUPLE);
}

static int multiply(struct jinja_render *r, struct jinja_value a, struct jinja_value b,
		    struct jinja_value *ret)
{
	int64_t count;
	size_t times;

	if (jinja_as_int(a, &count)) {
		struct jinja_value swap = a;

		a = b;
		b = swap;
	}
	if (!jinja_as_int(b, &count) || (!is_joinable(a) && a.kind != JINJA_STRING))
		return fail_types(r, TOKEN_MUL, a, b);
	times = count > 0 ? (size_t)count : 0;
	if (a.kind == JINJA_STRING)
		return jinja_keep_safe(a, repeat_string(r, a.string, times, ret), ret);
	return repeat_seq(r, a.seq, times, ret);
}

static int concatenate(struct jinja_render *r, const struct jinja_str *a, const struct jinja_str *b,
		       struct jinja_value *ret)
{
	char *data;
	int rc = jinja_charge_bytes(r, a->length + b->length);

	if (!rc)
		rc = jinja_alloc(r, a->length + b->length, &data);
	if (rc)
		return rc;
	if (a->length)
		memcpy(data, a->data, a->length);
	if (b->length)
		memcpy(data + a->length, b->data, b->length);
	return jinja_string(r, data, a->length + b->length, ret);
}

static int join_seqs(struct jinja_render *r, const struct jinja_seq *a, const struct jinja_seq *b,
		     struct jinja_value *ret)
{
	struct jinja_seq *seq;
	int rc = jinja_charge(r, (a->n + b->n) / 4);

	if (!rc)
		rc = jinja_new_seq(r, a->flavor, a->n + b->n, &seq);
	if (rc)
		return rc;
	if (a->n)
		memcpy(seq->items, a->items, a->n * sizeof(*a->items));
	if (b->n)
		memcpy(seq->items + a->n, b->items, b->n * sizeof(*b->items));
	seq->n = a->n + b->n;
	*ret = jinja_seq_value(seq);
	return 0;
}

/* A marked string stays so, and the other one is escaped. */
static int add_strings(struct jinja_render *r, struct jinja_value a, struct jinja_value b,
		       struct jinja_value *ret)
{
	bool safe = a.safe || b.safe;
	int rc = safe ? jinja_escape(r, a, &a) : 0;

	if (!rc && safe)
		rc = jinja_escape(r, b, &b);
	if (!rc)
		rc = concatenate(r, a.string, b.string, ret);
	if (!rc)
		ret->safe = safe;
	return rc;
}

int jinja_binary(struct jinja_render *r, uint8_t op, struct jinja_value a, struct jinja_value b,
		 struct jinja_value *ret)
{
	int64_t x, y;
	double f, g;

	if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
		return int_binary(r, op, x, y, ret);
	if (jinja_as_double(a, &f) && jinja_as_double(b, &g))
		return float_binary(r, op, f, g, ret);
	if (op == TOKEN_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING)
		return add_strings(r, a, b, ret);
	if (op == TOKEN_ADD && is_joinable(a) && is_joinable(b) && a.seq->flavor == b.seq->flavor)
		return join_seqs(r, a.seq, b.seq, ret);
	if (op == TOKEN_MUL)
		return multiply(r, a, b, ret);
	if (op == TOKEN_MOD && a.kind == JINJA_STRING)
		return jinja_percent_format(r, a.string, a.safe, b, ret);
	return fail_types(r, op, a, b);
}

int jinja_negate(struct jinja_render *r, struct jinja_value v, struct jinja_value *ret)
{
	double f;
	int64_t i;

	if (jinja_as_int(v, &i)) {
		if (__builtin_sub_overflow(0, i, &i))
			return fail_overflow(r, TOKEN_SUB);
		*ret = jinja_int(i);
		return 0;
	}
	if (jinja_as_double(v, &f)) {
		*ret = jinja_float(-f);
		return 0;
	}
	if (v.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, v);
	return jinja_fail(r, "bad operand type for unary -: '%s'", jinja_type_name(v));
}
