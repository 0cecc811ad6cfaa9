// SPDX-License-Identifier: MIT
/*
 * Filters of numbers, sequences and mappings. `map`, `select` and similar filters apply a filter,
 * test or attribute to the items.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_render.h"

static struct jinja_value filter_int(struct jinja_call *c)
{
	struct jinja_value self = c->self;
	int64_t base = jinja_int_arg(c, 1, 10), i;
	char text[1024];
	double f;

	jinja_need_defined(c->r, self);
	if (self.kind == JINJA_BIGINT)
		return self;
	if (jinja_as_int(self, &i))
		return jinja_int(i);
	if (self.kind == JINJA_FLOAT)
		return jinja_whole(c->r, self.real);
	if (self.kind == JINJA_STRING) {
		if (jinja_parse_int(self.string, base >= 0 && base <= 36 ? (unsigned int)base : 1,
				    &i))
			return jinja_int(i);
		if (base == 10 && jinja_parse_decimal(self.string, text, sizeof(text))) {
			errno = 0;
			i = strtoll(text, NULL, 10); /* many zeros may have gone */
			return errno ? jinja_bigint(c->r, text, strlen(text)) : jinja_int(i);
		}
		if (jinja_parse_float(self.string, &f) && isfinite(f))
			return jinja_whole(c->r, f);
	}
	return c->arg[0].kind == JINJA_ABSENT ? jinja_int(0) : c->arg[0];
}

static struct jinja_value filter_float(struct jinja_call *c)
{
	double f;

	jinja_need_defined(c->r, c->self);
	if (jinja_as_double(c->self, &f) ||
	    (c->self.kind == JINJA_STRING && jinja_parse_float(c->self.string, &f)))
		return jinja_float(f);
	return c->arg[0].kind == JINJA_ABSENT ? jinja_float(0) : c->arg[0];
}

static double need_number(struct jinja_call *c)
{
	double f = 0;

	jinja_need_defined(c->r, c->self);
	if (!jinja_as_double(c->self, &f))
		jinja_fail(c->r, "%s: a number is required, not '%s'", c->builtin->name,
			   jinja_type_name(c->self));
	return f;
}

static struct jinja_value filter_abs(struct jinja_call *c)
{
	double f = need_number(c);
	int64_t i;

	if (c->self.kind == JINJA_BIGINT)
		return f < 0 ? jinja_negate(c->r, c->self) : c->self;
	if (!jinja_as_int(c->self, &i))
		return jinja_float(fabs(f));
	return i < 0 ? jinja_negate(c->r, jinja_int(i)) : jinja_int(i);
}

/* Python's round(): half to even, decided on the exact value, as printf does. */
static double round_common(double f, int64_t precision)
{
	char text[640];

	if (precision > 300 || isnan(f) || isinf(f))
		return f;
	if (precision >= 0) {
		snprintf(text, sizeof(text), "%.*f", (int)precision, f);
		return strtod(text, NULL);
	}
	if (precision < -308)
		return copysign(0.0, f);
	return rint(f / pow(10, (double)-precision)) * pow(10, (double)-precision);
}

static struct jinja_value filter_round(struct jinja_call *c)
{
	const struct jinja_str *method = jinja_str_arg(c, 1);
	int64_t precision = jinja_int_arg(c, 0, 0);
	double f = need_number(c), scale;

	if (!method || jinja_str_is(method, "common")) {
		/* an integer stays one, as in Python */
		if (c->self.kind == JINJA_FLOAT)
			return jinja_float(round_common(f, precision));
		if (precision < 0)
			return jinja_whole(c->r, round_common(f, precision));
		return c->self.kind == JINJA_BOOL ? jinja_int(c->self.boolean) : c->self;
	}
	if (!jinja_str_is(method, "ceil") && !jinja_str_is(method, "floor"))
		jinja_fail(c->r, "round: method must be common, ceil or floor");
	scale = pow(10, (double)precision);
	return jinja_float((method->data[0] == 'c' ? ceil(f * scale) : floor(f * scale)) / scale);
}

static struct jinja_value filter_default(struct jinja_call *c)
{
	if (c->self.kind != JINJA_UNDEFINED && (!jinja_flag(c, 1) || jinja_truth(c->self)))
		return c->self;
	return c->arg[0].kind == JINJA_ABSENT ? jinja_literal(c->r, "") : c->arg[0];
}

static struct jinja_value filter_length(struct jinja_call *c)
{
	return jinja_int(jinja_length(c->r, c->self));
}

static struct jinja_value filter_filesizeformat(struct jinja_call *c)
{
	static const char *const names[2] = {"kMGTPEZY", "KMGTPEZY"};
	const bool binary = jinja_flag(c, 0);
	const double base = binary ? 1024 : 1000;
	size_t mark = c->r->out.len, i;
	struct jinja_value v = c->self;
	double bytes, unit = base * base;

	if (v.kind == JINJA_STRING && !jinja_parse_float(v.string, &bytes))
		jinja_fail(c->r, "filesizeformat: not a number");
	if (v.kind != JINJA_STRING && !jinja_as_double(v, &bytes))
		jinja_fail(c->r, "filesizeformat: a number is required, not '%s'",
			   jinja_type_name(v));
	if (bytes == 1) {
		jinja_write_text(c->r, "1 Byte");
	} else if (bytes < base) {
		jinja_writef(c->r, "%.0f Bytes", trunc(bytes));
	} else {
		for (i = 0; i < 7 && bytes >= unit; i++)
			unit *= base;
		jinja_writef(c->r, "%.1f %c%sB", base * bytes / unit, names[binary][i],
			     binary ? "i" : "");
	}
	return jinja_captured(c->r, mark);
}

static struct jinja_value filter_first(struct jinja_call *c)
{
	struct jinja_seq *items = c->self.seq;

	if (c->self.kind == JINJA_STRING && c->self.string->length)
		return jinja_item(c->r, c->self, jinja_int(0));
	if (jinja_is_generator(c->self)) { /* consumes one item only */
		if (items->position < items->n)
			return items->items[items->position++];
	} else {
		items = jinja_iterate(c->r, c->self);
		if (items->n)
			return items->items[0];
	}
	return jinja_undefined(c->r, "no first item, sequence was empty");
}

static struct jinja_value filter_last(struct jinja_call *c)
{
	struct jinja_seq *items;

	if (jinja_is_generator(c->self))
		jinja_fail(c->r, "'%s' object is not reversible", jinja_type_name(c->self));
	if (c->self.kind == JINJA_STRING && c->self.string->length)
		return jinja_item(c->r, c->self, jinja_int(-1));
	items = jinja_iterate(c->r, c->self);
	return items->n ? items->items[items->n - 1]
			: jinja_undefined(c->r, "no last item, sequence was empty");
}

/* A list of the same items, which are not copied. */
static struct jinja_value filter_list(struct jinja_call *c)
{
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	struct jinja_seq *list = jinja_new_seq(c->r, JINJA_LIST, 0);

	list->items = items->items;
	list->n = list->capacity = items->n;
	return jinja_seq_value(list);
}

static struct jinja_value filter_reverse(struct jinja_call *c)
{
	const struct jinja_value backwards[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
	struct jinja_seq *items, *reversed;

	if (c->self.kind == JINJA_STRING)
		return jinja_slice(c->r, c->self, backwards);
	items = jinja_iterate(c->r, c->self);
	jinja_charge(c->r, items->n / 4);
	reversed = jinja_new_seq(c->r, JINJA_REVERSED, items->n);
	for (; reversed->n < items->n; reversed->n++)
		reversed->items[reversed->n] = items->items[items->n - 1 - reversed->n];
	return jinja_seq_value(reversed);
}

static void need_mapping(struct jinja_call *c)
{
	if (c->self.kind != JINJA_DICT)
		jinja_fail(c->r, "%s: a mapping is required, not '%s'", c->builtin->name,
			   jinja_type_name(c->self));
}

static struct jinja_value filter_items(struct jinja_call *c)
{
	if (c->self.kind == JINJA_UNDEFINED)
		return jinja_seq_value(jinja_new_seq(c->r, JINJA_GENERATOR, 0));
	need_mapping(c);
	return jinja_seq_value(jinja_dict_items(c->r, c->self.dict, JINJA_GENERATOR));
}

/* The value to compare: strings in lower case, unless case-sensitive. */
static struct jinja_value fold_case(struct jinja_call *c, struct jinja_value v, bool case_sensitive)
{
	static const struct jinja_str lower = {"lower", 5, 5};

	jinja_charge(c->r, 1);
	if (case_sensitive || v.kind != JINJA_STRING)
		return v;
	return jinja_call_builtin(c->r, jinja_find_filter(&lower), v, &(struct jinja_args){0});
}

static struct jinja_value filter_dictsort(struct jinja_call *c)
{
	const struct jinja_str *by = jinja_str_arg(c, 1);
	bool by_value = by && jinja_str_is(by, "value");
	struct jinja_seq *pairs, *keys;
	size_t i;

	if (by && !by_value && !jinja_str_is(by, "key"))
		jinja_fail(c->r, "dictsort: sort by either \"key\" or \"value\"");
	jinja_need_defined(c->r, c->self);
	need_mapping(c);
	pairs = jinja_dict_items(c->r, c->self.dict, JINJA_LIST);
	keys = jinja_dict_items(c->r, c->self.dict, by_value ? JINJA_VALUES : JINJA_KEYS);
	for (i = 0; i < keys->n; i++)
		keys->items[i] = fold_case(c, keys->items[i], jinja_flag(c, 0));
	jinja_sort(c->r, pairs->items, keys->items, keys->n, jinja_flag(c, 2));
	return jinja_seq_value(pairs);
}

/* batch(linecount): lists of so many items; slice(slices): so many lists, the first ones longer */
static struct jinja_value filter_chunks(struct jinja_call *c)
{
	bool is_batch = c->builtin->mode;
	struct jinja_seq *items, *chunks, *chunk;
	uint64_t count = (uint64_t)c->arg[0].integer, at = 0, n, i, longest;

	if (c->arg[0].integer < 1)
		jinja_fail(c->r, "%s: the number must be positive, not %" PRId64, c->builtin->name,
			   c->arg[0].integer);
	items = jinja_iterate(c->r, c->self);
	chunks = jinja_new_seq(c->r, JINJA_GENERATOR, 0);
	longest = is_batch ? count : items->n / count + (items->n % count != 0);
	for (i = 0; is_batch ? at < items->n : i < count; i++) {
		if (is_batch)
			n = items->n - at < count ? items->n - at : count;
		else
			n = items->n / count + (i < items->n % count);
		jinja_charge(c->r, 1);
		chunk = jinja_new_seq(c->r, JINJA_LIST, n);
		if (n)
			jinja_append_all(c->r, chunk, items->items + at, n);
		at += n;
		/* as in jinja2, each slice but the longer ones gets one, even if none is longer */
		n = is_batch ? longest : n + (i >= items->n % count);
		while (jinja_given(c, 1) && chunk->n < n) {
			jinja_charge(c->r, 1);
			jinja_append(c->r, chunk, c->arg[1]);
		}
		jinja_append(c->r, chunks, jinja_seq_value(chunk));
	}
	return jinja_seq_value(chunks);
}

/* An attribute, never an item. */
static struct jinja_value filter_attr(struct jinja_call *c)
{
	const struct jinja_str *name = c->arg[0].string;

	if (c->self.kind == JINJA_DICT && !jinja_find_method(c->self, name))
		return jinja_undefined(c->r, "'dict object' has no attribute '%.*s'",
				       JINJA_SHOW(name));
	return jinja_attribute(c->r, c->self, name);
}

/* The arguments after the first @skip positional ones. */
static struct jinja_args rest_of(const struct jinja_args *args, size_t skip)
{
	struct jinja_args rest = *args;

	rest.positional += skip;
	rest.n -= skip;
	return rest;
}

/* The filter or test that argument @i names. */
static const struct jinja_builtin *
named(struct jinja_call *c, size_t i, const char *kind,
      const struct jinja_builtin *(*find)(const struct jinja_str *name))
{
	struct jinja_value name = c->args->positional[i];
	const struct jinja_builtin *found;

	if (name.kind != JINJA_STRING)
		jinja_fail(c->r, "%s: the name of a %s is required, not '%s'", c->builtin->name,
			   kind, jinja_type_name(name));
	found = find(name.string);
	if (!found)
		jinja_fail(c->r, "%s: no %s named '%.*s'", c->builtin->name, kind,
			   JINJA_SHOW(name.string));
	return found;
}

/* map('filter', arguments...) or map(attribute=..., default=...) */
static struct jinja_value filter_map(struct jinja_call *c)
{
	const struct jinja_builtin *filter = NULL;
	struct jinja_args rest = {0};
	struct jinja_value attribute = {0}, standard = {0};
	struct jinja_seq *mapped = jinja_new_seq(c->r, JINJA_GENERATOR, 0), *items;
	size_t i;

	if (!jinja_truth(c->self)) /* None and the like count as empty */
		return jinja_seq_value(mapped);
	items = jinja_iterate(c->r, c->self);
	if (c->args->n) {
		filter = named(c, 0, "filter", jinja_find_filter);
		rest = rest_of(c->args, 1);
	}
	for (i = 0; !filter && i < c->args->n_keywords; i++) {
		const struct jinja_kwarg *keyword = &c->args->keywords[i];

		if (jinja_str_is(keyword->name, "attribute"))
			attribute = keyword->value;
		else if (jinja_str_is(keyword->name, "default"))
			standard = keyword->value;
		else
			jinja_fail(c->r, "map has no argument '%.*s'", JINJA_SHOW(keyword->name));
	}
	if (!filter && attribute.kind == JINJA_ABSENT)
		jinja_fail(c->r, "map: a filter or attribute=… is required");
	jinja_enter(c->r); /* map('map', 'map', …) */
	for (i = 0; i < items->n; i++) {
		struct jinja_value v = items->items[i];

		jinja_charge(c->r, 1);
		v = filter ? jinja_call_builtin(c->r, filter, v, &rest)
			   : jinja_path(c->r, v, attribute);
		if (v.kind == JINJA_UNDEFINED && standard.kind > JINJA_NONE)
			v = standard;
		jinja_append(c->r, mapped, v);
	}
	jinja_leave(c->r);
	return jinja_seq_value(mapped);
}

enum { BY_ATTRIBUTE = 1, WANTED = 2 };

/* select, reject, selectattr, rejectattr: [attribute,] [test, arguments…] */
static struct jinja_value filter_select(struct jinja_call *c)
{
	size_t by_attribute = c->builtin->mode & BY_ATTRIBUTE, i;
	bool wanted = c->builtin->mode & WANTED;
	const struct jinja_builtin *test = NULL;
	struct jinja_args rest = {0};
	struct jinja_seq *items, *kept;

	if (c->args->n < by_attribute)
		jinja_fail(c->r, "%s: the name of an attribute is required", c->builtin->name);
	if (c->args->n > by_attribute) {
		test = named(c, by_attribute, "test", jinja_find_test);
		rest = rest_of(c->args, 1 + by_attribute);
	}
	kept = jinja_new_seq(c->r, JINJA_GENERATOR, 0);
	if (!jinja_truth(c->self)) /* None and the like count as empty */
		return jinja_seq_value(kept);
	items = jinja_iterate(c->r, c->self);
	for (i = 0; i < items->n; i++) {
		struct jinja_value v = items->items[i];

		jinja_charge(c->r, 1);
		if (by_attribute)
			v = jinja_path(c->r, v, c->args->positional[0]);
		if (test)
			v = jinja_call_builtin(c->r, test, v, &rest);
		if (jinja_truth(v) == wanted)
			jinja_append(c->r, kept, items->items[i]);
	}
	return jinja_seq_value(kept);
}

/* The sort key of an item: itself or an attribute. */
static struct jinja_value key_of(struct jinja_call *c, struct jinja_value item,
				 struct jinja_value attribute, bool case_sensitive)
{
	if (attribute.kind != JINJA_ABSENT && attribute.kind != JINJA_NONE)
		item = jinja_path(c->r, item, attribute);
	return fold_case(c, item, case_sensitive);
}

/*
 * "age,name" makes a list of two keys. One key is a list as well, as in jinja2: lists compare their
 * items for equality first, so that None and undefined may occur more than once.
 */
static struct jinja_value sort_key(struct jinja_call *c, struct jinja_value item)
{
	struct jinja_seq *list = jinja_new_seq(c->r, JINJA_LIST, 1);
	struct jinja_value attribute = c->arg[2];
	bool case_sensitive = jinja_flag(c, 1);
	const struct jinja_str *s = attribute.string;
	size_t at = 0, end;

	if (attribute.kind != JINJA_STRING)
		jinja_append(c->r, list, key_of(c, item, attribute, case_sensitive));
	for (; attribute.kind == JINJA_STRING && at <= s->length; at = end + 1) {
		const char *comma = memchr(s->data + at, ',', s->length - at);

		end = comma ? (size_t)(comma - s->data) : s->length;
		jinja_append(c->r, list,
			     key_of(c, item, jinja_substring(c->r, s, at, end), case_sensitive));
	}
	return jinja_seq_value(list);
}

static struct jinja_seq *copy_items(struct jinja_call *c)
{
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	struct jinja_seq *list = jinja_new_seq(c->r, JINJA_LIST, items->n);

	jinja_append_all(c->r, list, items->items, items->n);
	return list;
}

static struct jinja_value filter_sort(struct jinja_call *c)
{
	struct jinja_seq *list = copy_items(c);
	struct jinja_value *keys = jinja_alloc(c->r, list->n, sizeof(*keys));
	size_t i;

	for (i = 0; i < list->n; i++)
		keys[i] = sort_key(c, list->items[i]);
	jinja_sort(c->r, list->items, keys, list->n, jinja_flag(c, 0));
	return jinja_seq_value(list);
}

static struct jinja_value filter_unique(struct jinja_call *c)
{
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	struct jinja_seq *kept = jinja_new_seq(c->r, JINJA_GENERATOR, 0);
	struct jinja_dict *seen = jinja_new_dict(c->r);
	size_t i;

	for (i = 0; i < items->n; i++) {
		struct jinja_value key = key_of(c, items->items[i], c->arg[1], jinja_flag(c, 0));

		if (key.kind == JINJA_UNDEFINED) /* all undefined values are equal */
			key = jinja_literal(c->r, "\xff undefined");
		if (jinja_dict_get(c->r, seen, key))
			continue;
		jinja_dict_set(c->r, seen, key, jinja_none());
		jinja_append(c->r, kept, items->items[i]);
	}
	return jinja_seq_value(kept);
}

/* The attribute to group by, or the default if it is undefined. */
static struct jinja_value group_key(struct jinja_call *c, struct jinja_value item, bool exact)
{
	struct jinja_value key = key_of(c, item, c->arg[0], true);

	if (key.kind == JINJA_UNDEFINED && jinja_given(c, 1))
		key = c->arg[1];
	return fold_case(c, key, exact);
}

static struct jinja_value filter_groupby(struct jinja_call *c)
{
	struct jinja_seq *groups = jinja_new_seq(c->r, JINJA_LIST, 0), *list = copy_items(c);
	struct jinja_value *keys = jinja_alloc(c->r, list->n, sizeof(*keys)), last = {0};
	struct jinja_seq *members = NULL, *group;
	bool case_sensitive = jinja_flag(c, 2);
	size_t i;

	for (i = 0; i < list->n; i++)
		keys[i] = group_key(c, list->items[i], case_sensitive);
	jinja_sort(c->r, list->items, keys, list->n, false);
	for (i = 0; i < list->n; i++) {
		struct jinja_value key = group_key(c, list->items[i], case_sensitive);

		if (!members || !jinja_equal(c->r, last, key)) {
			last = key;
			members = jinja_new_seq(c->r, JINJA_LIST, 0);
			group = jinja_new_seq(c->r, JINJA_GROUP, 2);
			/* the group is named after its first item, in that item's case */
			jinja_append(c->r, group, group_key(c, list->items[i], true));
			jinja_append(c->r, group, jinja_seq_value(members));
			jinja_append(c->r, groups, jinja_seq_value(group));
		}
		jinja_append(c->r, members, list->items[i]);
	}
	return jinja_seq_value(groups);
}

/* min and max */
static struct jinja_value filter_extreme(struct jinja_call *c)
{
	enum jinja_compare_op op = (enum jinja_compare_op)c->builtin->mode;
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	struct jinja_value best = {0}, key;
	size_t at = 0, i;

	if (!items->n)
		return jinja_undefined(c->r, "%s: the sequence was empty", c->builtin->name);
	for (i = 0; i < items->n; i++) {
		key = key_of(c, items->items[i], c->arg[1], jinja_flag(c, 0));
		if (i && !jinja_compare(c->r, op, key, best))
			continue;
		at = i;
		best = key;
	}
	return items->items[at];
}

static struct jinja_value filter_sum(struct jinja_call *c)
{
	struct jinja_value total = c->arg[1].kind == JINJA_ABSENT ? jinja_int(0) : c->arg[1];
	struct jinja_seq *items = jinja_iterate(c->r, c->self);
	size_t i;

	if (total.kind == JINJA_STRING)
		jinja_fail(c->r, "sum: strings cannot be summed, use join");
	for (i = 0; i < items->n; i++)
		total = jinja_binary(c->r, TOKEN_ADD, total,
				     key_of(c, items->items[i], c->arg[0], true));
	return total;
}

const struct jinja_builtin jinja_sequence_filters[] = {
	{"length", filter_length, "", 0},
	{"count", filter_length, "", 0},
	{"default", filter_default, "default_value:v? boolean:b?", 0},
	{"d", filter_default, "default_value:v? boolean:b?", 0},
	{"int", filter_int, "default:v? base:i?", 0},
	{"float", filter_float, "default:v?", 0},
	{"abs", filter_abs, "", 0},
	{"filesizeformat", filter_filesizeformat, "binary:b?", 0},
	{"round", filter_round, "precision:i? method:s?", 0},
	{"first", filter_first, "", 0},
	{"last", filter_last, "", 0},
	{"list", filter_list, "", 0},
	{"reverse", filter_reverse, "", 0},
	{"items", filter_items, "", 0},
	{"dictsort", filter_dictsort, "case_sensitive:b? by:s? reverse:b?", 0},
	{"batch", filter_chunks, "linecount:i fill_with:v?", true},
	{"slice", filter_chunks, "slices:i fill_with:v?", false},
	{"attr", filter_attr, "name:t", 0},
	{"map", filter_map, "*", 0},
	{"select", filter_select, "*", WANTED},
	{"reject", filter_select, "*", 0},
	{"selectattr", filter_select, "*", WANTED | BY_ATTRIBUTE},
	{"rejectattr", filter_select, "*", BY_ATTRIBUTE},
	{"sort", filter_sort, "reverse:b? case_sensitive:b? attribute:v?", 0},
	{"unique", filter_unique, "case_sensitive:b? attribute:v?", 0},
	{"groupby", filter_groupby, "attribute:v default:v? case_sensitive:b?", 0},
	{"min", filter_extreme, "case_sensitive:b? attribute:v?", COMPARE_LT},
	{"max", filter_extreme, "case_sensitive:b? attribute:v?", COMPARE_GT},
	{"sum", filter_sum, "attribute:v? start:v?", 0},
	{NULL, NULL, NULL, 0},
};
