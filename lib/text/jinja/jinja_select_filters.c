// SPDX-License-Identifier: MIT
/*
 * Filters that look into the items of a sequence: by a filter, a test or an attribute.
 */
#include <string.h>

#include "jinja_text.h"

/* The arguments behind the first @skip positional ones. */
static struct jinja_args rest_of(const struct jinja_args *args, size_t skip)
{
	struct jinja_args rest = *args;

	rest.positional += skip;
	rest.n -= skip;
	return rest;
}

static int map_attribute(struct jinja_render *r, struct jinja_seq *items,
			 const struct jinja_args *args, struct jinja_seq *mapped)
{
	struct jinja_value arg[2], v;
	size_t i;
	int rc = JINJA_BIND(r, args, "map", 1, arg, "attribute", "default");

	for (i = 0; !rc && i < items->n; i++) {
		rc = jinja_path(r, items->items[i], arg[0], &v);
		if (!rc && v.kind == JINJA_UNDEFINED && arg[1].kind != JINJA_ABSENT &&
		    arg[1].kind != JINJA_NONE)
			v = arg[1];
		if (!rc)
			rc = jinja_append(r, mapped, v);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc;
}

static int map_filter(struct jinja_render *r, struct jinja_seq *items,
		      const struct jinja_args *args, struct jinja_seq *mapped)
{
	struct jinja_args rest = rest_of(args, 1);
	const struct jinja_builtin *filter;
	struct jinja_str *name;
	struct jinja_value v;
	size_t i;
	int rc = jinja_arg_str(r, args->positional[0], "map", &name);

	if (rc)
		return rc;
	filter = jinja_find_filter(name->data, name->length);
	if (!filter)
		return jinja_fail(r, "map: no filter named '%.*s'",
				  (int)(name->length < 60 ? name->length : 60), name->data);
	rc = jinja_enter(r); /* map('map', 'map', …) */
	if (rc)
		return rc;
	for (i = 0; !rc && i < items->n; i++) {
		rc = jinja_charge(r, 1);
		if (!rc)
			rc = filter->call(r, items->items[i], &rest, &v);
		if (!rc)
			rc = jinja_append(r, mapped, v);
	}
	jinja_leave(r);
	return rc;
}

static int filter_map(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items, *mapped;
	int rc = jinja_iterate(r, self, &items);

	if (!rc)
		rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &mapped);
	if (!rc && !args->n && !args->n_keywords)
		rc = jinja_fail(r, "map: a filter or attribute=… is required");
	if (!rc)
		rc = args->n ? map_filter(r, items, args, mapped)
			     : map_attribute(r, items, args, mapped);
	if (!rc)
		*ret = jinja_seq_value(mapped);
	return rc;
}

/* select, reject, selectattr, rejectattr: [attribute,] [test, arguments…] */
static int select_items(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, const char *what, bool by_attribute,
			bool wanted, struct jinja_value *ret)
{
	const struct jinja_builtin *test = NULL;
	struct jinja_args rest = {0};
	struct jinja_seq *items, *kept;
	struct jinja_value v;
	size_t i;
	int rc;

	if (by_attribute && !args->n)
		return jinja_fail(r, "%s: the name of an attribute is required", what);
	if (args->n > by_attribute) {
		struct jinja_str *name;

		rc = jinja_arg_str(r, args->positional[by_attribute], what, &name);
		if (rc)
			return rc;
		test = jinja_find_test(name->data, name->length);
		if (!test)
			return jinja_fail(r, "%s: no test named '%.*s'", what,
					  (int)(name->length < 60 ? name->length : 60), name->data);
		rest = rest_of(args, 1u + by_attribute);
	}
	rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &kept);
	if (!rc && !jinja_truth(self)) /* none and the like count as empty */
		rc = jinja_new_seq(r, JINJA_LIST, 0, &items);
	else if (!rc)
		rc = jinja_iterate(r, self, &items);
	for (i = 0; !rc && i < items->n; i++) {
		v = items->items[i];
		if (by_attribute)
			rc = jinja_path(r, v, args->positional[0], &v);
		if (!rc && test)
			rc = test->call(r, v, &rest, &v);
		if (!rc && jinja_truth(v) == wanted)
			rc = jinja_append(r, kept, items->items[i]);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	if (!rc)
		*ret = jinja_seq_value(kept);
	return rc;
}

#define SELECT(name, by_attribute, wanted)                                                         \
	static int filter_##name(struct jinja_render *r, struct jinja_value self,                  \
				 const struct jinja_args *args, struct jinja_value *ret)           \
	{                                                                                          \
		return select_items(r, self, args, #name, by_attribute, wanted, ret);              \
	}

SELECT(select, false, true)
SELECT(reject, false, false)
SELECT(selectattr, true, true)
SELECT(rejectattr, true, false)

/* What an item is compared by: itself or an attribute, in lower case unless the case counts. */
static int key_of(struct jinja_render *r, struct jinja_value item, struct jinja_value attribute,
		  bool case_sensitive, struct jinja_value *ret)
{
	int rc = 0;

	if (attribute.kind != JINJA_ABSENT && attribute.kind != JINJA_NONE)
		rc = jinja_path(r, item, attribute, &item);
	if (!rc && !case_sensitive)
		rc = jinja_ignore_case(r, item, &item);
	if (!rc)
		*ret = item;
	return rc ? rc : jinja_charge(r, 1);
}

/*
 * "age,name" makes a list of two keys. One key is a list as well, as in jinja2: lists compare their
 * items for equality first, so that None and undefined may stand beside their like.
 */
static int sort_key(struct jinja_render *r, struct jinja_value item, struct jinja_value attribute,
		    bool case_sensitive, struct jinja_value *ret)
{
	const struct jinja_str *s = attribute.string;
	bool split = attribute.kind == JINJA_STRING;
	struct jinja_value part = attribute, key;
	struct jinja_seq *list;
	size_t at = 0, end = 0;
	int rc = jinja_new_seq(r, JINJA_LIST, 1, &list);

	do {
		if (!rc && split) {
			const char *comma = memchr(s->data + at, ',', s->length - at);

			end = comma ? (size_t)(comma - s->data) : s->length;
			rc = jinja_substring(r, s, at, end, &part);
		}
		if (!rc)
			rc = key_of(r, item, part, case_sensitive, &key);
		if (!rc)
			rc = jinja_append(r, list, key);
		at = end + 1;
	} while (!rc && split && at <= s->length);
	if (!rc)
		*ret = jinja_seq_value(list);
	return rc;
}

/* A copy of the items, sorted by their keys. */
static int sorted(struct jinja_render *r, struct jinja_value v, struct jinja_value attribute,
		  bool case_sensitive, bool reverse, struct jinja_seq **ret)
{
	struct jinja_seq *items, *list;
	struct jinja_value *keys;
	size_t i;
	int rc = jinja_iterate(r, v, &items);

	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, items->n, &list);
	if (!rc)
		rc = jinja_alloc(r, items->n * sizeof(*keys), &keys);
	for (i = 0; !rc && i < items->n; i++) {
		list->items[i] = items->items[i];
		rc = sort_key(r, items->items[i], attribute, case_sensitive, &keys[i]);
	}
	if (!rc)
		rc = jinja_sort(r, list->items, keys, items->n, reverse);
	if (rc)
		return rc;
	list->n = items->n;
	*ret = list;
	return 0;
}

static int filter_sort(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	bool reverse = false, case_sensitive = false;
	struct jinja_value arg[3];
	struct jinja_seq *list;
	int rc = JINJA_BIND(r, args, "sort", 0, arg, "reverse", "case_sensitive", "attribute");

	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &reverse);
	jinja_arg_bool(arg[1], &case_sensitive);
	rc = sorted(r, self, arg[2], case_sensitive, reverse, &list);
	if (!rc)
		*ret = jinja_seq_value(list);
	return rc;
}

static int filter_unique(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items, *kept;
	struct jinja_value arg[2], key, *known;
	bool case_sensitive = false;
	struct jinja_dict *seen;
	size_t i;
	int rc = JINJA_BIND(r, args, "unique", 0, arg, "case_sensitive", "attribute");

	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &case_sensitive);
	rc = jinja_iterate(r, self, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &kept);
	if (!rc)
		rc = jinja_new_dict(r, &seen);
	for (i = 0; !rc && i < items->n; i++) {
		rc = key_of(r, items->items[i], arg[1], case_sensitive, &key);
		if (!rc && key.kind == JINJA_UNDEFINED)
			rc = jinja_literal(r, "\xff undefined", &key); /* all are one key */
		if (!rc)
			rc = jinja_dict_get(r, seen, key, &known);
		if (rc || known)
			continue;
		rc = jinja_dict_set(r, seen, key, jinja_none());
		if (!rc)
			rc = jinja_append(r, kept, items->items[i]);
	}
	if (!rc)
		*ret = jinja_seq_value(kept);
	return rc;
}

static int add_group(struct jinja_render *r, struct jinja_seq *groups, struct jinja_value key,
		     struct jinja_seq *members)
{
	struct jinja_seq *group;
	int rc = jinja_new_seq(r, JINJA_GROUP, 2, &group);

	if (rc)
		return rc;
	group->items[0] = key;
	group->items[1] = jinja_seq_value(members);
	group->n = 2;
	return jinja_append(r, groups, jinja_seq_value(group));
}

/* The key of an item for groupby: what is undefined becomes the default. */
static int group_key(struct jinja_render *r, struct jinja_value item, const struct jinja_value *arg,
		     bool case_sensitive, struct jinja_value *ret)
{
	struct jinja_value key;
	int rc = key_of(r, item, arg[0], true, &key);

	if (!rc && key.kind == JINJA_UNDEFINED && arg[1].kind != JINJA_ABSENT &&
	    arg[1].kind != JINJA_NONE)
		key = arg[1];
	if (!rc && !case_sensitive)
		rc = jinja_ignore_case(r, key, &key);
	if (!rc)
		*ret = key;
	return rc;
}

static int filter_groupby(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items, *groups, *list, *members = NULL;
	struct jinja_value arg[3], *keys, last = {0}, key;
	bool case_sensitive = false, equal = false;
	size_t i;
	int rc = JINJA_BIND(r, args, "groupby", 1, arg, "attribute", "default", "case_sensitive");

	if (rc)
		return rc;
	jinja_arg_bool(arg[2], &case_sensitive);
	rc = jinja_iterate(r, self, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, 0, &groups);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, items->n, &list);
	if (!rc)
		rc = jinja_alloc(r, items->n * sizeof(*keys), &keys);
	for (i = 0; !rc && i < items->n; i++) {
		list->items[i] = items->items[i];
		rc = group_key(r, items->items[i], arg, case_sensitive, &keys[i]);
	}
	if (!rc)
		rc = jinja_sort(r, list->items, keys, items->n, false);
	for (i = 0; !rc && i < items->n; i++) {
		rc = group_key(r, list->items[i], arg, case_sensitive, &key);
		if (!rc && members)
			rc = jinja_equal(r, last, key, &equal);
		if (!rc && (!members || !equal)) {
			last = key;
			rc = jinja_new_seq(r, JINJA_LIST, 0, &members);
			if (!rc) /* the name of the group is the first one's own */
				rc = group_key(r, list->items[i], arg, true, &key);
			if (!rc)
				rc = add_group(r, groups, key, members);
		}
		if (!rc)
			rc = jinja_append(r, members, list->items[i]);
	}
	if (!rc)
		*ret = jinja_seq_value(groups);
	return rc;
}

static int extreme(struct jinja_render *r, struct jinja_value self, const struct jinja_args *args,
		   const char *what, enum jinja_compare_op op, struct jinja_value *ret)
{
	struct jinja_value arg[2], best_key, key;
	bool case_sensitive = false, better;
	struct jinja_seq *items;
	size_t i, best = 0;
	int rc = JINJA_BIND(r, args, what, 0, arg, "case_sensitive", "attribute");

	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &case_sensitive);
	rc = jinja_iterate(r, self, &items);
	if (!rc && !items->n)
		return jinja_undefined(r, ret, "%s: the sequence was empty", what);
	if (!rc)
		rc = key_of(r, items->items[0], arg[1], case_sensitive, &best_key);
	for (i = 1; !rc && i < items->n; i++) {
		rc = key_of(r, items->items[i], arg[1], case_sensitive, &key);
		if (!rc)
			rc = jinja_order(r, op, key, best_key, &better);
		if (rc || !better)
			continue;
		best = i;
		best_key = key;
	}
	if (!rc)
		*ret = items->items[best];
	return rc;
}

static int filter_min(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	return extreme(r, self, args, "min", COMPARE_LT, ret);
}

static int filter_max(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	return extreme(r, self, args, "max", COMPARE_GT, ret);
}

static int filter_sum(struct jinja_render *r, struct jinja_value self,
		      const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2], total = jinja_int(0), v;
	struct jinja_seq *items;
	size_t i;
	int rc = JINJA_BIND(r, args, "sum", 0, arg, "attribute", "start");

	if (!rc)
		rc = jinja_iterate(r, self, &items);
	if (!rc && arg[1].kind != JINJA_ABSENT)
		total = arg[1];
	if (!rc && total.kind == JINJA_STRING)
		return jinja_fail(r, "sum: strings cannot be summed, use join");
	for (i = 0; !rc && i < items->n; i++) {
		rc = key_of(r, items->items[i], arg[0], true, &v);
		if (!rc)
			rc = jinja_binary(r, TOKEN_ADD, total, v, &total);
	}
	if (!rc)
		*ret = total;
	return rc;
}

const struct jinja_builtin jinja_select_filters[] = {
	{"map", filter_map},
	{"select", filter_select},
	{"reject", filter_reject},
	{"selectattr", filter_selectattr},
	{"rejectattr", filter_rejectattr},
	{"sort", filter_sort},
	{"unique", filter_unique},
	{"groupby", filter_groupby},
	{"min", filter_min},
	{"max", filter_max},
	{"sum", filter_sum},
	{NULL, NULL},
};
