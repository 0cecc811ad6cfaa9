// SPDX-License-Identifier: MIT
/*
 * Arithmetic, equality, ordering, membership and sorting with Python's rules: floor division, the
 * sign of the remainder, repetition, joining of sequences.
 */
#include "jinja_render.h"

#include <math.h>
#include <string.h>

static const char *symbol(uint8_t op)
{
	static const char *const symbols[] = {
		[TOKEN_ADD] = "+",	 [TOKEN_SUB] = "-", [TOKEN_MUL] = "*", [TOKEN_DIV] = "/",
		[TOKEN_FLOORDIV] = "//", [TOKEN_MOD] = "%", [TOKEN_POW] = "**"};

	return symbols[op];
}

static _Noreturn void fail_types(struct jinja_render *r, uint8_t op, struct jinja_value a,
				 struct jinja_value b)
{
	jinja_need_defined(r, a);
	jinja_need_defined(r, b);
	if (op == TOKEN_ADD && a.kind == JINJA_STRING)
		jinja_fail(r, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
	jinja_fail(r, "unsupported operand types for %s: '%s' and '%s'", symbol(op),
		   jinja_type_name(a), jinja_type_name(b));
}

/* False: the result does not fit into 64 bits. */
static bool int_power(int64_t base, int64_t exponent, int64_t *ret)
{
	*ret = 1;
	while (exponent) {
		if (exponent & 1 && __builtin_mul_overflow(*ret, base, ret))
			return false;
		exponent >>= 1;
		if (exponent && __builtin_mul_overflow(base, base, &base))
			return false;
	}
	return true;
}

static struct jinja_value int_binary(struct jinja_render *r, uint8_t op, int64_t a, int64_t b)
{
	bool overflow = false;
	int64_t result = 0;

	switch (op) {
	case TOKEN_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
	case TOKEN_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
	case TOKEN_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
	case TOKEN_POW: overflow = b < 0 || !int_power(a, b, &result); break;
	default:
		if (!b)
			jinja_fail(r, "division by zero");
		if (op == TOKEN_DIV)
			return jinja_float((double)a / (double)b);
		if (b == -1) { /* the only divisor whose quotient can overflow */
			overflow = op == TOKEN_FLOORDIV && __builtin_sub_overflow(0, a, &result);
			break;
		}
		result = op == TOKEN_FLOORDIV ? a / b : a % b;
		if (a % b && (a < 0) != (b < 0))
			result += op == TOKEN_FLOORDIV ? -1 : b;
	}
	return overflow ? jinja_big_binary(r, op, jinja_int(a), jinja_int(b)) : jinja_int(result);
}

static struct jinja_value float_binary(struct jinja_render *r, uint8_t op, double a, double b)
{
	double result, quotient;

	switch (op) {
	case TOKEN_ADD: return jinja_float(a + b);
	case TOKEN_SUB: return jinja_float(a - b);
	case TOKEN_MUL: return jinja_float(a * b);
	case TOKEN_POW:
		if (a == 0 && b < 0)
			jinja_fail(r, "0.0 cannot be raised to a negative power");
		if (a < 0 && floor(b) != b && isfinite(b))
			jinja_fail(r, "complex numbers are not supported");
		result = pow(a, b);
		if (isinf(result) && isfinite(a) && isfinite(b))
			jinja_fail(r, "the result of ** is out of range");
		return jinja_float(result);
	default: break;
	}
	if (b == 0)
		jinja_fail(r, "float division by zero");
	if (op == TOKEN_DIV)
		return jinja_float(a / b);
	/* the steps of Python, which give its last digit and sign of zero */
	result = fmod(a, b);
	quotient = (a - result) / b;
	if (result != 0 && (result < 0) != (b < 0)) {
		result += b;
		quotient -= 1;
	}
	if (op == TOKEN_MOD)
		return jinja_float(result == 0 ? copysign(0.0, b) : result);
	if (quotient == 0)
		return jinja_float(copysign(0.0, a / b));
	result = floor(quotient);
	return jinja_float(quotient - result > 0.5 ? result + 1 : result);
}

static bool is_integer(struct jinja_value v)
{
	return jinja_is_number(v) && v.kind != JINJA_FLOAT;
}

static bool is_joinable(struct jinja_value v)
{
	return v.kind == JINJA_SEQ && v.seq->flavor <= JINJA_TUPLE;
}

static struct jinja_value repeat(struct jinja_render *r, struct jinja_value v, int64_t times)
{
	size_t count = times > 0 ? (size_t)times : 0, i, n, total;
	struct jinja_value copy;
	struct jinja_seq *seq;
	char *data;

	n = v.kind == JINJA_STRING ? v.string->length : v.seq->n;
	if (__builtin_mul_overflow(n, count, &total))
		jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	jinja_charge(r, v.kind == JINJA_STRING ? total / 64 : total / 4);
	if (v.kind == JINJA_STRING) {
		data = jinja_alloc(r, 1, total);
		for (i = 0; total && i < count; i++)
			memcpy(data + i * n, v.string->data, n);
		copy = jinja_string(r, data, total);
		copy.safe = v.safe;
		return copy;
	}
	seq = jinja_new_seq(r, v.seq->flavor, total);
	for (i = 0; total && i < count; i++)
		jinja_append_all(r, seq, v.seq->items, n);
	return jinja_seq_value(seq);
}

static struct jinja_value multiply(struct jinja_render *r, struct jinja_value a,
				   struct jinja_value b)
{
	int64_t times;

	if (jinja_as_int(a, &times))
		return multiply(r, b, a);
	if (!jinja_as_int(b, &times) || (!is_joinable(a) && a.kind != JINJA_STRING))
		fail_types(r, TOKEN_MUL, a, b);
	return repeat(r, a, times);
}

/* A safe string stays safe, and the other one is escaped. */
static struct jinja_value add_strings(struct jinja_render *r, struct jinja_value a,
				      struct jinja_value b)
{
	bool safe = a.safe || b.safe;
	size_t mark;

	if (safe) {
		a = jinja_escape(r, a);
		b = jinja_escape(r, b);
	}
	mark = r->out.len;
	jinja_write_str(r, a);
	jinja_write_str(r, b);
	a = jinja_captured(r, mark);
	a.safe = safe;
	return a;
}

static struct jinja_value add_seqs(struct jinja_render *r, const struct jinja_seq *a,
				   const struct jinja_seq *b)
{
	struct jinja_seq *seq = jinja_new_seq(r, a->flavor, a->n + b->n);

	jinja_charge(r, (a->n + b->n) / 4);
	jinja_append_all(r, seq, a->items, a->n);
	jinja_append_all(r, seq, b->items, b->n);
	return jinja_seq_value(seq);
}

struct jinja_value jinja_binary(struct jinja_render *r, uint8_t op, struct jinja_value a,
				struct jinja_value b)
{
	int64_t x, y;
	double f, g;

	if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
		return int_binary(r, op, x, y);
	if (is_integer(a) && is_integer(b))
		return jinja_big_binary(r, op, a, b);
	if (jinja_as_double(a, &f) && jinja_as_double(b, &g))
		return float_binary(r, op, f, g);
	if (op == TOKEN_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING)
		return add_strings(r, a, b);
	if (op == TOKEN_ADD && is_joinable(a) && is_joinable(b) && a.seq->flavor == b.seq->flavor)
		return add_seqs(r, a.seq, b.seq);
	if (op == TOKEN_MUL)
		return multiply(r, a, b);
	if (op == TOKEN_MOD && a.kind == JINJA_STRING)
		return jinja_percent_format(r, a, b);
	fail_types(r, op, a, b);
}

struct jinja_value jinja_negate(struct jinja_render *r, struct jinja_value v)
{
	int64_t i;
	double f;

	if (jinja_as_int(v, &i))
		return int_binary(r, TOKEN_SUB, 0, i);
	if (v.kind == JINJA_BIGINT)
		return jinja_big_binary(r, TOKEN_SUB, jinja_int(0), v);
	if (jinja_as_double(v, &f))
		return jinja_float(-f);
	jinja_need_defined(r, v);
	jinja_fail(r, "bad operand type for unary -: '%s'", jinja_type_name(v));
}

/* -1, 0, 1, or 2 when one is not a number. long double holds every int64_t and every double. */
static int number_order(struct jinja_render *r, struct jinja_value a, struct jinja_value b)
{
	double f = 0, g = 0;
	long double p, q;
	int64_t x, y;

	if ((a.kind == JINJA_BIGINT && is_integer(b)) || (b.kind == JINJA_BIGINT && is_integer(a)))
		return jinja_big_order(r, a, b);
	jinja_as_double(a, &f);
	jinja_as_double(b, &g);
	p = jinja_as_int(a, &x) ? (long double)x : (long double)f;
	q = jinja_as_int(b, &y) ? (long double)y : (long double)g;
	if (p != p || q != q)
		return 2;
	return (p > q) - (p < q);
}

static int string_order(struct jinja_render *r, const struct jinja_str *a,
			const struct jinja_str *b)
{
	size_t n = a->length < b->length ? a->length : b->length;
	int order = n ? memcmp(a->data, b->data, n) : 0;

	jinja_charge_bytes(r, n);
	if (order)
		return order < 0 ? -1 : 1;
	return (a->length > b->length) - (a->length < b->length);
}

static bool dict_equal(struct jinja_render *r, const struct jinja_dict *a,
		       const struct jinja_dict *b)
{
	size_t i;

	for (i = 0; a->n == b->n && i < a->n; i++) {
		const struct jinja_value *other = jinja_dict_get(r, b, a->entries[i].key);

		if (!other || !jinja_equal(r, a->entries[i].value, *other))
			return false;
	}
	return a->n == b->n;
}

static bool seq_equal(struct jinja_render *r, const struct jinja_seq *a, const struct jinja_seq *b)
{
	size_t i;

	for (i = 0; a->n == b->n && i < a->n; i++)
		if (!jinja_equal(r, a->items[i], b->items[i]))
			return false;
	return a->n == b->n;
}

bool jinja_equal(struct jinja_render *r, struct jinja_value a, struct jinja_value b)
{
	bool equal;

	if (jinja_is_number(a) && jinja_is_number(b))
		return number_order(r, a, b) == 0;
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case JINJA_UNDEFINED:
	case JINJA_NONE: return true;
	case JINJA_STRING:
		jinja_charge_bytes(r, a.string->length);
		return jinja_str_equal(a.string, b.string);
	case JINJA_SEQ:
		if (a.seq == b.seq)
			return true;
		if (jinja_is_generator(a) ||
		    (a.seq->flavor != b.seq->flavor && !(jinja_is_tuple(a) && jinja_is_tuple(b))))
			return false;
		break;
	case JINJA_DICT: break;
	default: return a.dict == b.dict; /* any pointer of the union: the same object */
	}
	jinja_enter(r);
	jinja_charge(r, 1);
	equal = a.kind == JINJA_DICT ? dict_equal(r, a.dict, b.dict) : seq_equal(r, a.seq, b.seq);
	jinja_leave(r);
	return equal;
}

static bool order_fits(enum jinja_compare_op op, int order)
{
	switch (op) {
	case COMPARE_LT: return order < 0;
	case COMPARE_LE: return order <= 0;
	case COMPARE_GT: return order == 1;
	default: return order == 0 || order == 1;
	}
}

/* <, <=, >, >= */
static bool in_order(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		     struct jinja_value b)
{
	static const char *const symbols[] = {
		[COMPARE_LT] = "<", [COMPARE_LE] = "<=", [COMPARE_GT] = ">", [COMPARE_GE] = ">="};
	size_t i = 0;
	bool result;

	jinja_charge(r, 1);
	if (jinja_is_number(a) && jinja_is_number(b)) {
		int order = number_order(r, a, b);

		return order != 2 && order_fits(op, order);
	}
	if (a.kind == JINJA_STRING && b.kind == JINJA_STRING)
		return order_fits(op, string_order(r, a.string, b.string));
	if (!(jinja_is_list(a) && jinja_is_list(b)) && !(jinja_is_tuple(a) && jinja_is_tuple(b))) {
		jinja_need_defined(r, a);
		jinja_need_defined(r, b);
		jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", symbols[op],
			   jinja_type_name(a), jinja_type_name(b));
	}
	/* the first difference decides */
	jinja_enter(r);
	while (i < a.seq->n && i < b.seq->n && jinja_equal(r, a.seq->items[i], b.seq->items[i]))
		i++;
	if (i < a.seq->n && i < b.seq->n)
		result = in_order(r, op, a.seq->items[i], b.seq->items[i]);
	else
		result = order_fits(op, (a.seq->n > b.seq->n) - (a.seq->n < b.seq->n));
	jinja_leave(r);
	return result;
}

static bool contains(struct jinja_render *r, struct jinja_value container, struct jinja_value v)
{
	struct jinja_seq *seq;
	bool found = false;
	size_t i;

	if (container.kind == JINJA_STRING) {
		if (v.kind != JINJA_STRING)
			jinja_fail(r, "'in <string>' requires string as left operand, not %s",
				   jinja_type_name(v));
		jinja_charge_bytes(r, container.string->length);
		return v.string->length == 0 ||
		       memmem(container.string->data, container.string->length, v.string->data,
			      v.string->length);
	}
	if (container.kind == JINJA_DICT)
		return jinja_dict_get(r, container.dict, v) != NULL;
	seq = jinja_iterate(r, container);
	for (i = 0; !found && i < seq->n; i++)
		found = jinja_equal(r, seq->items[i], v);
	if (jinja_is_generator(container)) /* items after the match were not consumed */
		container.seq->position -= seq->n - i;
	jinja_charge(r, i / 4);
	return found;
}

bool jinja_compare(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		   struct jinja_value b)
{
	switch (op) {
	case COMPARE_EQ: return jinja_equal(r, a, b);
	case COMPARE_NE: return !jinja_equal(r, a, b);
	case COMPARE_IN: return contains(r, b, a);
	case COMPARE_NOT_IN: return !contains(r, b, a);
	default: return in_order(r, op, a, b);
	}
}

void jinja_sort(struct jinja_render *r, struct jinja_value *items, struct jinja_value *keys,
		size_t n, bool descending)
{
	size_t *from = jinja_alloc(r, n, sizeof(*from)), *to = jinja_alloc(r, n, sizeof(*to));
	struct jinja_value *sorted = jinja_alloc(r, n, sizeof(*sorted));
	size_t i, k, width;

	for (i = 0; i < n; i++)
		from[i] = i;
	for (width = 1; width < n; width *= 2) {
		size_t *swap = from;

		for (i = 0; i < n; i += 2 * width) {
			size_t mid = i + width < n ? i + width : n, left = i, right = mid;
			size_t high = i + 2 * width < n ? i + 2 * width : n;

			for (k = i; k < high; k++) {
				bool take_right = left >= mid;

				if (!take_right && right < high)
					take_right = in_order(
						r, COMPARE_LT,
						keys[descending ? from[left] : from[right]],
						keys[descending ? from[right] : from[left]]);
				to[k] = take_right ? from[right++] : from[left++];
			}
		}
		from = to;
		to = swap;
	}
	for (i = 0; i < n; i++)
		sorted[i] = items[from[i]];
	if (n)
		memcpy(items, sorted, n * sizeof(*sorted));
}
