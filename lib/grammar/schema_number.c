// SPDX-License-Identifier: MIT
/* Numbers with a schema: bounds and multiples. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number_range.h"
#include "schema_internal.h"

#define MAX_MULTIPLE 1000 /* of integers, implemented by remainders */
#define MAX_LISTED   4096 /* multiples within bounds that are enumerated */

struct bounds {
	struct number_bound least, most;
	bool has_least, has_most;
	int64_t first, last; /* the same for integers */
	double multiple;     /* 0: none */
};

struct grammar_piece schema_any_number(struct grammar_builder *b, bool integer)
{
	struct grammar_piece piece, part;
	struct grammar_set set = {0};

	piece = grammar_byte(b, '1', '9');
	piece = grammar_seq(b, piece,
			    grammar_repeat(b, grammar_byte(b, '0', '9'), 0, NUMBER_DIGITS - 1));
	if (integer) {
		piece = grammar_seq(b, grammar_optional(b, grammar_text(b, "-")), piece);
		return grammar_either(b, grammar_text(b, "0"), piece);
	}
	piece = grammar_either(b, grammar_text(b, "0"), piece);
	piece = grammar_seq(b, grammar_optional(b, grammar_text(b, "-")), piece);
	part = grammar_seq(b, grammar_text(b, "."),
			   grammar_repeat(b, grammar_byte(b, '0', '9'), 1, NUMBER_FRACTION));
	piece = grammar_seq(b, piece, grammar_optional(b, part));
	grammar_set_add(&set, 'e', 'e');
	grammar_set_add(&set, 'E', 'E');
	part = grammar_char(b, &set);
	set = (struct grammar_set){0};
	grammar_set_add(&set, '+', '+');
	grammar_set_add(&set, '-', '-');
	part = grammar_seq(b, part, grammar_optional(b, grammar_char(b, &set)));
	/* Exponents of two digits are within the range of a double. */
	part = grammar_seq(b, part, grammar_repeat(b, grammar_byte(b, '0', '9'), 1, 2));
	return grammar_seq(b, piece, grammar_optional(b, part));
}

/* The integers that a bound allows; exact if the literal is an integer. */
static int64_t first_within(const cJSON *value, bool open, bool upwards)
{
	double d = value->valuedouble, whole = upwards ? ceil(d) : floor(d);
	int64_t n;

	if (value->valuestring && !strpbrk(value->valuestring, ".eE")) {
		n = strtoll(value->valuestring, NULL, 10);
	} else if (fabs(d) >= (double)NUMBER_LIMIT) {
		n = d < 0 ? -NUMBER_LIMIT : NUMBER_LIMIT;
	} else {
		n = (int64_t)whole;
		open = open && whole == d;
	}
	if (open && n > -NUMBER_LIMIT && n < NUMBER_LIMIT)
		n += upwards ? 1 : -1;
	return n;
}

static void take_least(struct bounds *b, const cJSON *value, bool open)
{
	struct number_bound bound = {value->valuedouble, open};
	int64_t first = first_within(value, open, true);

	b->first = first > b->first ? first : b->first;
	if (!b->has_least || bound.value > b->least.value ||
	    (bound.value == b->least.value && open))
		b->least = bound;
	b->has_least = true;
}

static void take_most(struct bounds *b, const cJSON *value, bool open)
{
	struct number_bound bound = {value->valuedouble, open};
	int64_t last = first_within(value, open, false);

	b->last = last < b->last ? last : b->last;
	if (!b->has_most || bound.value < b->most.value || (bound.value == b->most.value && open))
		b->most = bound;
	b->has_most = true;
}

static bool is_bound(struct grammar_json *j, const cJSON *schema, const char *name,
		     const cJSON **ret)
{
	const cJSON *value = schema_member(schema, name);

	*ret = value;
	/* In draft 4, the exclusive forms are booleans beside the others. */
	if (!value || (cJSON_IsBool(value) && !strncmp(name, "exclusive", 9)))
		return false;
	if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble)) {
		schema_wrong(j, name, "a number");
		return false;
	}
	return true;
}

static void read_bounds(struct grammar_json *j, const struct view *v, struct bounds *ret)
{
	*ret = (struct bounds){.first = -NUMBER_LIMIT + 1, .last = NUMBER_LIMIT - 1};
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema, *value, *open_least, *open_most;

		if (is_bound(j, schema, "exclusiveMinimum", &open_least))
			take_least(ret, open_least, true);
		if (is_bound(j, schema, "exclusiveMaximum", &open_most))
			take_most(ret, open_most, true);
		if (is_bound(j, schema, "minimum", &value))
			take_least(ret, value, cJSON_IsTrue(open_least));
		if (is_bound(j, schema, "maximum", &value))
			take_most(ret, value, cJSON_IsTrue(open_most));
		if (!is_bound(j, schema, "multipleOf", &value))
			continue;
		if (!(value->valuedouble > 0))
			schema_wrong(j, "multipleOf", "above 0");
		else if (ret->multiple > 0 && ret->multiple != value->valuedouble)
			schema_refuse(j, "multipleOf together with another one");
		else
			ret->multiple = value->valuedouble;
	}
	if (ret->first < -NUMBER_LIMIT + 1)
		ret->first = -NUMBER_LIMIT + 1;
	if (ret->last > NUMBER_LIMIT - 1)
		ret->last = NUMBER_LIMIT - 1;
}

/* ---- multiples ------------------------------------------------------------------------------- */

/* Multiples of @n without bounds: an automaton of remainders. */
static struct grammar_piece multiples(struct grammar_builder *b, unsigned n)
{
	struct grammar_piece piece = {grammar_node(b), grammar_node(b)};
	uint32_t states[MAX_MULTIPLE], first = grammar_node(b);

	for (unsigned i = 0; i < n; i++)
		states[i] = grammar_node(b);
	for (unsigned i = 0; i <= n; i++) {
		for (unsigned digit = i == n; digit < 10 && !grammar_failed(b); digit++) {
			uint32_t from = i == n ? first : states[i];
			unsigned to = ((i == n ? 0 : i * 10) + digit) % n;
			struct grammar_piece step = grammar_byte(b, '0' + digit, '0' + digit);

			grammar_link(b, from, step.start);
			grammar_link(b, step.end, states[to]);
		}
	}
	grammar_link(b, states[0], piece.end);
	piece.start = first;
	piece = grammar_seq(b, grammar_optional(b, grammar_text(b, "-")), piece);
	return grammar_either(b, grammar_text(b, "0"), piece);
}

static struct grammar_piece listed_multiples(struct grammar_builder *b, int64_t first, int64_t last,
					     int64_t step)
{
	struct grammar_bytes strings[MAX_LISTED];
	struct grammar_piece piece;
	char(*text)[24];
	size_t n = 0;
	int64_t at = first / step * step;

	if (at < first)
		at += step;
	text = malloc(MAX_LISTED * sizeof(*text));
	if (!text) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return grammar_never(b);
	}
	for (; at <= last && n < MAX_LISTED; at += step, n++) {
		strings[n].bytes = text[n];
		strings[n].len = (size_t)snprintf(text[n], sizeof(*text), "%lld", (long long)at);
	}
	piece = grammar_one_of(b, strings, n);
	free(text);
	return piece;
}

static struct grammar_piece integers(struct grammar_json *j, const struct bounds *n)
{
	bool bounded = n->has_least || n->has_most;
	double step = n->multiple;

	if (step > 0 && floor(step) != step) {
		/* Every integer is a multiple of 0.5 and the like. */
		if (fmod(1, step) != 0)
			schema_refuse(j, "multipleOf of that value");
		step = 0;
	}
	if (step > 1 && n->last >= n->first && step < 1e15 &&
	    (double)(n->last - n->first) / step < MAX_LISTED - 1)
		return listed_multiples(j->b, n->first, n->last, (int64_t)step);
	if (step > 1 && !bounded && step <= MAX_MULTIPLE)
		return multiples(j->b, (unsigned)step);
	if (step > 1)
		schema_refuse(j, "multipleOf of that value within these bounds");
	if (!bounded)
		return grammar_call(j->b, j->integer);
	return integers_between(j->b, n->first, n->last);
}

struct grammar_piece schema_number(struct grammar_json *j, const struct view *v, bool integer)
{
	struct bounds n;
	double limit = (double)NUMBER_LIMIT;

	read_bounds(j, v, &n);
	if (grammar_failed(j->b))
		return grammar_never(j->b);
	/* Multiples of an integer are integers; the spelling 1.0 is excluded with them. */
	if (integer || (n.multiple > 0 && floor(n.multiple) == n.multiple))
		return integers(j, &n);
	if (n.multiple > 0)
		schema_refuse(j, "multipleOf of a fraction");
	if (!n.has_least && !n.has_most)
		return grammar_call(j->b, j->number);
	if (!n.has_least || n.least.value < -limit)
		n.least = (struct number_bound){-limit, true};
	if (!n.has_most || n.most.value > limit)
		n.most = (struct number_bound){limit, true};
	if (n.least.value > n.most.value ||
	    (n.least.value == n.most.value && (n.least.open || n.most.open)))
		return grammar_never(j->b);
	return numbers_between(j->b, n.least, n.most);
}
