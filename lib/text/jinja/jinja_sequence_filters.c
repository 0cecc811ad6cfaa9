// SPDX-License-Identifier: MIT
/*
 * Filters of sequences and mappings that look at no item's inside.
 */
#include <inttypes.h>
#include <string.h>

#include "jinja_text.h"

static int filter_length(struct jinja_render *r, struct jinja_value self,
			 const struct jinja_args *args, struct jinja_value *ret)
{
	int64_t length;
	int rc = jinja_no_args(r, args, "length");

	if (!rc)
		rc = jinja_length(r, self, &length);
	if (!rc)
		*ret = jinja_int(length);
	return rc;
}

static int filter_first(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items;
	int rc = jinja_no_args(r, args, "first");

	if (rc)
		return rc;
	if (jinja_is_generator(self)) { /* takes one, the rest stays */
		items = self.seq;
		if (items->position < items->n) {
			*ret = items->items[items->position++];
			return 0;
		}
	} else if (self.kind == JINJA_STRING && self.string->length) {
		return jinja_item(r, self, jinja_int(0), ret);
	} else {
		rc = jinja_iterate(r, self, &items);
		if (rc)
			return rc;
		if (items->n) {
			*ret = items->items[0];
			return 0;
		}
	}
	return jinja_undefined(r, ret, "no first item, sequence was empty");
}

static int filter_last(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items;
	int rc = jinja_no_args(r, args, "last");

	if (rc)
		return rc;
	if (jinja_is_generator(self))
		return jinja_fail(r, "'%s' object is not reversible", jinja_type_name(self));
	if (self.kind == JINJA_STRING && self.string->length)
		return jinja_item(r, self, jinja_int(-1), ret);
	rc = jinja_iterate(r, self, &items);
	if (rc)
		return rc;
	if (!items->n)
		return jinja_undefined(r, ret, "no last item, sequence was empty");
	*ret = items->items[items->n - 1];
	return 0;
}

/* A list of the same items, which are not copied. */
static int as_list(struct jinja_render *r, struct jinja_value v, enum jinja_flavor flavor,
		   struct jinja_seq **ret)
{
	struct jinja_seq *items, *list;
	int rc = jinja_iterate(r, v, &items);

	if (!rc)
		rc = jinja_new_seq(r, flavor, 0, &list);
	if (rc)
		return rc;
	list->items = items->items;
	list->n = list->capacity = items->n;
	*ret = list;
	return 0;
}

static int filter_list(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *list;
	int rc = jinja_no_args(r, args, "list");

	if (!rc)
		rc = as_list(r, self, JINJA_LIST, &list);
	if (!rc)
		*ret = jinja_seq_value(list);
	return rc;
}

static int reverse_string(struct jinja_render *r, struct jinja_value self, struct jinja_value *ret)
{
	const struct jinja_value part[3] = {jinja_none(), jinja_none(), jinja_int(-1)};

	return jinja_slice(r, self, part, ret);
}

static int filter_reverse(struct jinja_render *r, struct jinja_value self,
			  const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *items, *reversed;
	size_t i;
	int rc = jinja_no_args(r, args, "reverse");

	if (rc)
		return rc;
	if (self.kind == JINJA_STRING)
		return reverse_string(r, self, ret);
	rc = jinja_iterate(r, self, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_REVERSED, items->n, &reversed);
	if (rc)
		return rc;
	for (i = 0; i < items->n; i++)
		reversed->items[i] = items->items[items->n - 1 - i];
	reversed->n = items->n;
	*ret = jinja_seq_value(reversed);
	return jinja_charge(r, items->n / 4);
}

static int filter_items(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_seq *pairs;
	size_t i;
	int rc = jinja_no_args(r, args, "items");

	if (!rc)
		rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &pairs);
	if (!rc && self.kind != JINJA_DICT && self.kind != JINJA_UNDEFINED)
		return jinja_fail(r, "items: a mapping is required, not '%s'",
				  jinja_type_name(self));
	for (i = 0; !rc && self.kind == JINJA_DICT && i < self.dict->n; i++) {
		struct jinja_value pair;

		rc = jinja_pair(r, self.dict->entries[i].key, self.dict->entries[i].value, &pair);
		if (!rc)
			rc = jinja_append(r, pairs, pair);
	}
	if (!rc)
		*ret = jinja_seq_value(pairs);
	return rc;
}

static int dictsort_column(struct jinja_render *r, struct jinja_value by, size_t *ret)
{
	struct jinja_str *name = NULL;
	int rc = jinja_arg_str(r, by, "dictsort", &name);

	*ret = 0;
	if (rc || !name || jinja_str_is(name, "key"))
		return rc;
	if (!jinja_str_is(name, "value"))
		return jinja_fail(r, "dictsort: sort by either \"key\" or \"value\"");
	*ret = 1;
	return 0;
}

static int filter_dictsort(struct jinja_render *r, struct jinja_value self,
			   const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[3], *keys;
	struct jinja_seq *pairs;
	bool case_sensitive = false, reverse = false;
	size_t column, i;
	int rc = JINJA_BIND(r, args, "dictsort", 0, arg, "case_sensitive", "by", "reverse");

	if (!rc)
		rc = dictsort_column(r, arg[1], &column);
	if (!rc && self.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, self);
	if (!rc && self.kind != JINJA_DICT)
		return jinja_fail(r, "dictsort: a mapping is required, not '%s'",
				  jinja_type_name(self));
	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, self.dict->n, &pairs);
	if (!rc)
		rc = jinja_alloc(r, self.dict->n * sizeof(*keys), &keys);
	if (rc)
		return rc;
	jinja_arg_bool(arg[0], &case_sensitive);
	jinja_arg_bool(arg[2], &reverse);
	for (i = 0; !rc && i < self.dict->n; i++) {
		const struct jinja_entry *entry = &self.dict->entries[i];

		keys[i] = column ? entry->value : entry->key;
		if (!case_sensitive)
			rc = jinja_ignore_case(r, keys[i], &keys[i]);
		if (!rc)
			rc = jinja_pair(r, entry->key, entry->value, &pairs->items[i]);
	}
	if (!rc)
		rc = jinja_sort(r, pairs->items, keys, self.dict->n, reverse);
	if (rc)
		return rc;
	pairs->n = self.dict->n;
	*ret = jinja_seq_value(pairs);
	return 0;
}

static int filter_batch(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	struct jinja_seq *items, *batches, *batch = NULL;
	int64_t size;
	size_t i;
	int rc = JINJA_BIND(r, args, "batch", 1, arg, "linecount", "fill_with");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], "batch", &size);
	if (!rc && size < 1)
		rc = jinja_fail(r, "batch: the size must be positive, not %" PRId64, size);
	if (!rc)
		rc = jinja_iterate(r, self, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &batches);
	for (i = 0; !rc && i < items->n; i++) {
		if (!batch || batch->n == (uint64_t)size) {
			rc = jinja_new_seq(r, JINJA_LIST, 0, &batch);
			if (!rc)
				rc = jinja_append(r, batches, jinja_seq_value(batch));
		}
		if (!rc)
			rc = jinja_append(r, batch, items->items[i]);
	}
	if (!rc && batch && arg[1].kind != JINJA_ABSENT && arg[1].kind != JINJA_NONE)
		while (!rc && batch->n < (uint64_t)size) {
			rc = jinja_append(r, batch, arg[1]);
			if (!rc)
				rc = jinja_charge(r, 1);
		}
	if (!rc)
		*ret = jinja_seq_value(batches);
	return rc;
}

static int filter_slice(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[2];
	struct jinja_seq *items, *slices, *slice;
	size_t start = 0, n, i;
	int64_t count;
	int rc = JINJA_BIND(r, args, "slice", 1, arg, "slices", "fill_with");

	if (!rc)
		rc = jinja_arg_int(r, arg[0], "slice", &count);
	if (!rc && count < 1)
		rc = jinja_fail(r, "slice: the count must be positive, not %" PRId64, count);
	if (!rc)
		rc = jinja_iterate(r, self, &items);
	if (!rc)
		rc = jinja_new_seq(r, JINJA_GENERATOR, 0, &slices);
	for (i = 0; !rc && i < (uint64_t)count; i++) {
		bool extra = i < items->n % (uint64_t)count;

		n = items->n / (uint64_t)count + extra;
		rc = jinja_charge(r, 1);
		if (!rc)
			rc = jinja_new_seq(r, JINJA_LIST, n + 1, &slice);
		if (rc)
			return rc;
		if (n)
			memcpy(slice->items, items->items + start, n * sizeof(*slice->items));
		slice->n = n;
		start += n;
		if (!extra && arg[1].kind != JINJA_ABSENT && arg[1].kind != JINJA_NONE)
			rc = jinja_append(r, slice, arg[1]);
		if (!rc)
			rc = jinja_append(r, slices, jinja_seq_value(slice));
	}
	if (!rc)
		*ret = jinja_seq_value(slices);
	return rc;
}

/* A member, never an item. */
static int filter_attr(struct jinja_render *r, struct jinja_value self,
		       const struct jinja_args *args, struct jinja_value *ret)
{
	struct jinja_value arg[1];
	struct jinja_str *name;
	int rc = JINJA_BIND(r, args, "attr", 1, arg, "name");

	if (!rc)
		rc = jinja_to_str(r, arg[0], &name);
	if (rc)
		return rc;
	if (self.kind == JINJA_DICT &&
	    !jinja_find_builtin(jinja_dict_methods, name->data, name->length))
		return jinja_undefined(r, ret, "'dict object' has no attribute '%.*s'",
				       (int)(name->length < 60 ? name->length : 60), name->data);
	return jinja_attribute(r, self, name, ret);
}

const struct jinja_builtin jinja_sequence_filters[] = {
	{"length", filter_length}, {"count", filter_length},	  {"first", filter_first},
	{"last", filter_last},	   {"list", filter_list},	  {"reverse", filter_reverse},
	{"items", filter_items},   {"dictsort", filter_dictsort}, {"batch", filter_batch},
	{"slice", filter_slice},   {"attr", filter_attr},	  {NULL, NULL},
};
