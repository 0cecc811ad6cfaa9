// SPDX-License-Identifier: MIT
/*
 * Equality, ordering, membership and sorting with Python's rules.
 */
#include "jinja_render.h"

#include <string.h>

static bool is_indexed(struct jinja_value v)
{
	return v.kind == JINJA_SEQ && !jinja_is_generator(v);
}

/*
 * -1, 0, 1, or 2 when one is not a number. long double holds every 64-bit integer and every double.
 */
static int number_order(struct jinja_value a, struct jinja_value b)
{
	int64_t x, y;
	double f = 0, g = 0;
	long double p, q;

	if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
		return (x > y) - (x < y);
	jinja_as_double(a, &f);
	jinja_as_double(b, &g);
	p = jinja_as_int(a, &x) ? (long double)x : (long double)f;
	q = jinja_as_int(b, &y) ? (long double)y : (long double)g;
	if (p != p || q != q)
		return 2;
	return (p > q) - (p < q);
}

static int string_order(const struct jinja_str *a, const struct jinja_str *b)
{
	size_t n = a->length < b->length ? a->length : b->length;
	int order = n ? memcmp(a->data, b->data, n) : 0;

	if (order)
		return order < 0 ? -1 : 1;
	return (a->length > b->length) - (a->length < b->length);
}

static int dict_equal(struct jinja_render *r, const struct jinja_dict *a,
		      const struct jinja_dict *b, bool *ret)
{
	size_t i;
	int rc;

	*ret = a->n == b->n;
	for (i = 0; *ret && i < a->n; i++) {
		struct jinja_value *other;

		rc = jinja_dict_get(r, b, a->entries[i].key, &other);
		if (rc)
			return rc;
		if (!other) {
			*ret = false;
			return 0;
		}
		rc = jinja_equal(r, a->entries[i].value, *other, ret);
		if (rc)
			return rc;
	}
	return 0;
}

static int seq_equal(struct jinja_render *r, const struct jinja_seq *a, const struct jinja_seq *b,
		     bool *ret)
{
	size_t i;
	int rc = 0;

	*ret = a->n == b->n;
	for (i = 0; !rc && *ret && i < a->n; i++)
		rc = jinja_equal(r, a->items[i], b->items[i], ret);
	return rc;
}

static int compound_equal(struct jinja_render *r, struct jinja_value a, struct jinja_value b,
			  bool *ret)
{
	int rc = jinja_enter(r);

	if (rc)
		return rc;
	rc = jinja_charge(r, 1);
	if (!rc && a.kind == JINJA_DICT)
		rc = dict_equal(r, a.dict, b.dict, ret);
	else if (!rc)
		rc = seq_equal(r, a.seq, b.seq, ret);
	jinja_leave(r);
	return rc;
}

int jinja_equal(struct jinja_render *r, struct jinja_value a, struct jinja_value b, bool *ret)
{
	if (a.kind == JINJA_BIGINT && b.kind == JINJA_BIGINT) {
		*ret = string_order(a.string, b.string) == 0;
		return 0;
	}
	if (jinja_is_number(a) && jinja_is_number(b)) {
		*ret = number_order(a, b) == 0;
		return 0;
	}
	*ret = false;
	if (a.kind != b.kind)
		return 0;
	switch (a.kind) {
	case JINJA_UNDEFINED:
	case JINJA_NONE: *ret = true; return 0;
	case JINJA_STRING:
		*ret = a.string->length == b.string->length &&
		       !memcmp(a.string->data, b.string->data, a.string->length);
		return jinja_charge_bytes(r, *ret ? a.string->length : 0);
	case JINJA_SEQ:
		if (a.seq == b.seq) {
			*ret = true;
			return 0;
		}
		if (!is_indexed(a) ||
		    (a.seq->flavor != b.seq->flavor && !(jinja_is_tuple(a) && jinja_is_tuple(b))))
			return 0;
		return compound_equal(r, a, b, ret);
	case JINJA_DICT: return compound_equal(r, a, b, ret);
	default:
		*ret = a.dict == b.dict; /* any pointer of the union: the same object */
		return 0;
	}
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

/* The first difference decides. */
static int seq_order(struct jinja_render *r, enum jinja_compare_op op, const struct jinja_seq *a,
		     const struct jinja_seq *b, bool *ret)
{
	size_t i;
	bool equal;
	int rc = jinja_enter(r);

	if (rc)
		return rc;
	for (i = 0; !rc && i < a->n && i < b->n; i++) {
		rc = jinja_equal(r, a->items[i], b->items[i], &equal);
		if (rc || equal)
			continue;
		rc = jinja_order(r, op, a->items[i], b->items[i], ret);
		jinja_leave(r);
		return rc;
	}
	if (!rc)
		*ret = order_fits(op, (a->n > b->n) - (a->n < b->n));
	jinja_leave(r);
	return rc;
}

int jinja_order(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		struct jinja_value b, bool *ret)
{
	static const char *const symbols[] = {
		[COMPARE_LT] = "<", [COMPARE_LE] = "<=", [COMPARE_GT] = ">", [COMPARE_GE] = ">="};
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	if (jinja_is_number(a) && jinja_is_number(b)) {
		int order = number_order(a, b);

		*ret = order != 2 && order_fits(op, order);
		return 0;
	}
	if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
		*ret = order_fits(op, string_order(a.string, b.string));
		return 0;
	}
	if ((jinja_is_list(a) && jinja_is_list(b)) || (jinja_is_tuple(a) && jinja_is_tuple(b)))
		return seq_order(r, op, a.seq, b.seq, ret);
	if (a.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, a);
	if (b.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, b);
	return jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", symbols[op],
			  jinja_type_name(a), jinja_type_name(b));
}

int jinja_contains(struct jinja_render *r, struct jinja_value container, struct jinja_value v,
		   bool *ret)
{
	struct jinja_seq *seq;
	struct jinja_value *found;
	size_t i;
	int rc;

	if (container.kind == JINJA_STRING) {
		if (v.kind != JINJA_STRING)
			return jinja_fail(r,
					  "'in <string>' requires string as left operand, not %s",
					  jinja_type_name(v));
		*ret = v.string->length == 0 ||
		       memmem(container.string->data, container.string->length, v.string->data,
			      v.string->length);
		return jinja_charge_bytes(r, container.string->length);
	}
	if (container.kind == JINJA_DICT) {
		rc = jinja_dict_get(r, container.dict, v, &found);
		if (!rc)
			*ret = found != NULL;
		return rc;
	}
	rc = jinja_iterate(r, container, &seq);
	if (rc)
		return rc;
	*ret = false;
	for (i = 0; !rc && !*ret && i < seq->n; i++)
		rc = jinja_equal(r, seq->items[i], v, ret);
	if (jinja_is_generator(container)) /* what lies behind the hit was not consumed */
		container.seq->position -= seq->n - i;
	return rc ? rc : jinja_charge(r, i / 4);
}

int jinja_compare(struct jinja_render *r, enum jinja_compare_op op, struct jinja_value a,
		  struct jinja_value b, bool *ret)
{
	bool result;
	int rc;

	switch (op) {
	case COMPARE_EQ: return jinja_equal(r, a, b, ret);
	case COMPARE_NE: rc = jinja_equal(r, a, b, &result); break;
	case COMPARE_IN: return jinja_contains(r, b, a, ret);
	case COMPARE_NOT_IN: rc = jinja_contains(r, b, a, &result); break;
	default: return jinja_order(r, op, a, b, ret);
	}
	if (!rc)
		*ret = !result;
	return rc;
}

struct sorter {
	struct jinja_render *r;
	struct jinja_value *keys;
	bool descending;
};

/* Must the item @b of the right half go before @a of the left half? */
static int goes_before(const struct sorter *s, size_t a, size_t b, bool *ret)
{
	if (s->descending)
		return jinja_order(s->r, COMPARE_LT, s->keys[a], s->keys[b], ret);
	return jinja_order(s->r, COMPARE_LT, s->keys[b], s->keys[a], ret);
}

static int merge(const struct sorter *s, const size_t *from, size_t *to, size_t low, size_t mid,
		 size_t high)
{
	size_t left = low, right = mid, k;

	for (k = low; k < high; k++) {
		bool take_right = left >= mid;

		if (!take_right && right < high) {
			int rc = goes_before(s, from[left], from[right], &take_right);

			if (rc)
				return rc;
		}
		to[k] = take_right ? from[right++] : from[left++];
	}
	return 0;
}

int jinja_sort(struct jinja_render *r, struct jinja_value *items, struct jinja_value *keys,
	       size_t n, bool descending)
{
	struct sorter s = {r, keys, descending};
	struct jinja_value *sorted;
	size_t *order, *other, i, width;
	int rc = jinja_alloc(r, n * 2 * sizeof(*order), &order);

	if (!rc)
		rc = jinja_alloc(r, n * sizeof(*sorted), &sorted);
	if (rc)
		return rc;
	other = order + n;
	for (i = 0; i < n; i++)
		order[i] = i;
	for (width = 1; width < n; width *= 2) {
		size_t *swap = order;

		for (i = 0; i < n; i += 2 * width) {
			size_t mid = i + width < n ? i + width : n;
			size_t high = i + 2 * width < n ? i + 2 * width : n;

			rc = merge(&s, order, other, i, mid, high);
			if (rc)
				return rc;
		}
		order = other;
		other = swap;
	}
	for (i = 0; i < n; i++)
		sorted[i] = items[order[i]];
	if (n)
		memcpy(items, sorted, n * sizeof(*sorted));
	return 0;
}
