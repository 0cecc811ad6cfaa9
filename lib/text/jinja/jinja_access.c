// SPDX-License-Identifier: MIT
/*
 * Looking into values: iteration, length, attributes, items, slices. Attributes and items follow
 * jinja2's sandbox: `a.b` tries the object's methods, then its items; `a['b']` the other way
 * around. What is missing is undefined, and so is what the sandbox hides.
 */
#include "jinja_text.h"

#include <string.h>

static int chars_of(struct jinja_render *r, const struct jinja_str *s, struct jinja_seq **ret)
{
	struct jinja_seq *seq;
	size_t at = 0;
	int rc = jinja_charge(r, s->length);

	if (!rc)
		rc = jinja_new_seq(r, JINJA_LIST, 0, &seq);
	while (!rc && at < s->length) {
		struct jinja_value v;
		uint32_t c;
		size_t n = jinja_utf8_decode(s->data + at, s->length - at, &c);

		rc = jinja_substring(r, s, at, at + n, &v);
		if (!rc)
			rc = jinja_append(r, seq, v);
		at += n;
	}
	if (!rc)
		*ret = seq;
	return rc;
}

static int keys_of(struct jinja_render *r, const struct jinja_dict *dict, struct jinja_seq **ret)
{
	struct jinja_seq *seq;
	size_t i;
	int rc = jinja_new_seq(r, JINJA_KEYS, dict->n, &seq);

	if (rc)
		return rc;
	for (i = 0; i < dict->n; i++)
		seq->items[i] = dict->entries[i].key;
	seq->n = dict->n;
	*ret = seq;
	return jinja_charge(r, dict->n / 4);
}

int jinja_iterate(struct jinja_render *r, struct jinja_value v, struct jinja_seq **ret)
{
	struct jinja_seq *rest;
	int rc;

	switch (v.kind) {
	case JINJA_SEQ:
		if (!jinja_is_generator(v)) {
			*ret = v.seq;
			return 0;
		}
		rc = jinja_new_seq(r, JINJA_LIST, 0, &rest);
		if (rc)
			return rc;
		rest->n = rest->capacity = v.seq->n - v.seq->position;
		if (rest->n)
			rest->items = v.seq->items + v.seq->position;
		v.seq->position = v.seq->n;
		*ret = rest;
		return 0;
	case JINJA_DICT: return keys_of(r, v.dict, ret);
	case JINJA_STRING: return chars_of(r, v.string, ret);
	case JINJA_UNDEFINED: return jinja_new_seq(r, JINJA_LIST, 0, ret);
	default: return jinja_fail(r, "'%s' object is not iterable", jinja_type_name(v));
	}
}

int jinja_length(struct jinja_render *r, struct jinja_value v, int64_t *ret)
{
	switch (v.kind) {
	case JINJA_STRING:
		*ret = (int64_t)jinja_str_chars(v.string);
		return jinja_charge_bytes(r, v.string->length);
	case JINJA_DICT: *ret = (int64_t)v.dict->n; return 0;
	case JINJA_UNDEFINED: *ret = 0; return 0;
	case JINJA_SEQ:
		if (!jinja_is_generator(v)) {
			*ret = (int64_t)v.seq->n;
			return 0;
		}
		/* fall through */
	default: return jinja_fail(r, "object of type '%s' has no len()", jinja_type_name(v));
	}
}

/* Names that exist in Python and that the immutable sandbox keeps away. */
static bool is_forbidden(struct jinja_value object, const struct jinja_str *name)
{
	static const char *const list_names[] = {"append", "clear",  "pop",    "reverse", "insert",
						 "sort",   "extend", "remove", NULL};
	static const char *const dict_names[] = {"clear",      "pop",	 "popitem",
						 "setdefault", "update", NULL};
	static const char *const none[] = {NULL};
	const char *const *names = jinja_is_list(object)       ? list_names
				   : object.kind == JINJA_DICT ? dict_names
							       : none;

	for (; *names; names++)
		if (jinja_str_is(name, *names))
			return true;
	return name->length > 4 && !memcmp(name->data, "__", 2) &&
	       !memcmp(name->data + name->length - 2, "__", 2);
}

static const struct jinja_builtin *find_method(struct jinja_value object,
					       const struct jinja_str *name)
{
	const struct jinja_builtin *found = NULL;

	switch (object.kind) {
	case JINJA_STRING:
		found = jinja_find_builtin(jinja_string_methods, name->data, name->length);
		if (!found)
			found = jinja_find_builtin(jinja_string_tests, name->data, name->length);
		return found;
	case JINJA_DICT: return jinja_find_builtin(jinja_dict_methods, name->data, name->length);
	case JINJA_SEQ:
		if (object.seq->flavor > JINJA_RANGE && object.seq->flavor != JINJA_GROUP)
			return NULL;
		return jinja_find_builtin(jinja_list_methods, name->data, name->length);
	case JINJA_LOOP: return jinja_find_builtin(jinja_loop_methods, name->data, name->length);
	case JINJA_CYCLER:
		return jinja_find_builtin(jinja_cycler_methods, name->data, name->length);
	default: return NULL;
	}
}

/* Python's getattr(): *ret_found tells whether there is one. */
static int own_attribute(struct jinja_render *r, struct jinja_value object,
			 const struct jinja_str *name, bool *ret_found, struct jinja_value *ret)
{
	const struct jinja_builtin *method;
	struct jinja_bound *bound;
	struct jinja_value *member;
	int rc;

	*ret_found = true;
	if (object.kind == JINJA_NAMESPACE) {
		member = jinja_dict_find(&r->arena, object.dict, name->data, name->length);
		*ret_found = member != NULL;
		if (member)
			*ret = *member;
		return 0;
	}
	if (object.kind == JINJA_SEQ && object.seq->flavor == JINJA_GROUP &&
	    (jinja_str_is(name, "grouper") || jinja_str_is(name, "list"))) {
		*ret = object.seq->items[jinja_str_is(name, "list")];
		return 0;
	}
	method = find_method(object, name);
	if (method) {
		rc = jinja_alloc(r, sizeof(*bound), &bound);
		if (rc)
			return rc;
		*bound = (struct jinja_bound){method, object};
		*ret = (struct jinja_value){.kind = JINJA_CALLABLE, .callable = bound};
		return 0;
	}
	if (object.kind == JINJA_LOOP)
		return jinja_loop_attribute(r, object.loop, name, ret);
	if (object.kind == JINJA_CYCLER && jinja_str_is(name, "current")) {
		*ret = object.cycle->items[object.cycle->position];
		return 0;
	}
	if (is_forbidden(object, name))
		return jinja_undefined(r, ret, "attribute '%.*s' of '%s' object is unsafe",
				       (int)(name->length < 60 ? name->length : 60), name->data,
				       jinja_type_name(object));
	if (object.kind == JINJA_MACRO && jinja_str_is(name, "name")) {
		struct jinja_value own = {.kind = JINJA_STRING};

		own.string = object.macro->signature->name;
		*ret = own;
		return 0;
	}
	*ret_found = false;
	return 0;
}

static int missing(struct jinja_render *r, struct jinja_value object, struct jinja_value key,
		   struct jinja_value *ret)
{
	const char *type = object.kind == JINJA_NONE ? "None" : jinja_type_name(object);

	if (key.kind == JINJA_STRING)
		return jinja_undefined(r, ret, "'%s%s' has no attribute '%.*s'", type,
				       object.kind == JINJA_NONE ? "" : " object",
				       (int)(key.string->length < 80 ? key.string->length : 80),
				       key.string->data);
	if (key.kind == JINJA_INT)
		return jinja_undefined(r, ret, "%s object has no element %lld", type,
				       (long long)key.integer);
	return jinja_undefined(r, ret, "%s object has no such element", type);
}

/*
 * object[key] without falling back to attributes; a miss of whatever cause is *ret_found = false.
 */
static int own_item(struct jinja_render *r, struct jinja_value object, struct jinja_value key,
		    bool *ret_found, struct jinja_value *ret)
{
	int64_t index, count;
	uint64_t hash;
	int rc;

	*ret_found = false;
	if (object.kind == JINJA_DICT) {
		struct jinja_entry *entry;

		if (!jinja_hash(&r->arena, key, 0, &hash))
			return 0;
		entry = jinja_dict_find_hash(object.dict, hash, key);
		*ret_found = entry != NULL;
		if (entry)
			*ret = entry->value;
		return 0;
	}
	if (!jinja_as_int(key, &index))
		return 0;
	if (object.kind == JINJA_SEQ &&
	    (object.seq->flavor <= JINJA_RANGE || object.seq->flavor == JINJA_GROUP)) {
		count = (int64_t)object.seq->n;
		if (index < 0)
			index += count;
		*ret_found = index >= 0 && index < count;
		if (*ret_found)
			*ret = object.seq->items[index];
		return 0;
	}
	if (object.kind == JINJA_STRING) {
		size_t at;
		uint32_t c;

		count = (int64_t)jinja_str_chars(object.string);
		if (index < 0)
			index += count;
		if (index < 0 || index >= count)
			return 0;
		*ret_found = true;
		at = jinja_str_offset(object.string, (size_t)index);
		rc = jinja_charge_bytes(r, at);
		if (rc)
			return rc;
		count = (int64_t)jinja_utf8_decode(object.string->data + at,
						   object.string->length - at, &c);
		return jinja_keep_safe(
			object, jinja_substring(r, object.string, at, at + (size_t)count, ret),
			ret);
	}
	return 0;
}

int jinja_attribute(struct jinja_render *r, struct jinja_value object, const struct jinja_str *name,
		    struct jinja_value *ret)
{
	struct jinja_value key = {.kind = JINJA_STRING}, found_value;
	bool found;
	int rc;

	if (object.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, object);
	key.string = (struct jinja_str *)name;
	rc = own_attribute(r, object, name, &found, &found_value);
	if (!rc && !found)
		rc = own_item(r, object, key, &found, &found_value);
	if (rc)
		return rc;
	if (!found)
		return missing(r, object, key, ret);
	*ret = found_value;
	return 0;
}

int jinja_item(struct jinja_render *r, struct jinja_value object, struct jinja_value key,
	       struct jinja_value *ret)
{
	struct jinja_value found_value;
	bool found;
	int rc;

	if (object.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, object);
	rc = own_item(r, object, key, &found, &found_value);
	if (!rc && !found && key.kind == JINJA_STRING)
		rc = own_attribute(r, object, key.string, &found, &found_value);
	if (rc)
		return rc;
	if (!found)
		return missing(r, object, key, ret);
	*ret = found_value;
	return 0;
}

static int slice_part(struct jinja_render *r, struct jinja_value v, int64_t *ret)
{
	if (v.kind == JINJA_NONE || jinja_as_int(v, ret))
		return 0;
	return jinja_fail(r, "slice indices must be integers or None, not '%s'",
			  jinja_type_name(v));
}

/* Clamp like Python's slice.indices(). */
static int64_t clamp(int64_t index, int64_t count, int64_t low, int64_t high)
{
	if (index < 0)
		index = index < -count ? low : index + count;
	if (index < low)
		return low;
	return index > high ? high : index;
}

static int take_chars(struct jinja_render *r, struct jinja_str *s, int64_t start, int64_t step,
		      int64_t n, struct jinja_value *ret)
{
	size_t *offsets, at = 0, i = 0, used = 0;
	size_t chars = jinja_str_chars(s);
	char *data;
	uint32_t c;
	int rc = jinja_charge_bytes(r, s->length);

	if (rc)
		return rc;
	if (step == 1)
		return jinja_substring(r, s, jinja_str_offset(s, (size_t)start),
				       jinja_str_offset(s, (size_t)(start + n)), ret);
	rc = jinja_alloc(r, (chars + 1) * sizeof(*offsets), &offsets);
	if (!rc)
		rc = jinja_alloc(r, s->length, &data);
	if (rc)
		return rc;
	for (; i < chars; i++, at += jinja_utf8_decode(s->data + at, s->length - at, &c))
		offsets[i] = at;
	offsets[chars] = s->length;
	for (; n > 0; n--, start += step) {
		size_t size = offsets[start + 1] - offsets[start];

		memcpy(data + used, s->data + offsets[start], size);
		used += size;
	}
	return jinja_string(r, data, used, ret);
}

int jinja_slice(struct jinja_render *r, struct jinja_value object, const struct jinja_value part[3],
		struct jinja_value *ret)
{
	int64_t start = 0, stop = 0, step = 1, count, n = 0, i;
	struct jinja_seq *seq;
	int rc;

	if (object.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, object);
	if (object.kind != JINJA_STRING &&
	    (object.kind != JINJA_SEQ ||
	     (object.seq->flavor > JINJA_RANGE && object.seq->flavor != JINJA_GROUP)))
		return jinja_fail(r, "'%s' object cannot be sliced", jinja_type_name(object));
	rc = slice_part(r, part[0], &start);
	if (!rc)
		rc = slice_part(r, part[1], &stop);
	if (!rc)
		rc = slice_part(r, part[2], &step);
	if (!rc)
		rc = jinja_length(r, object, &count);
	if (rc)
		return rc;
	if (!step)
		return jinja_fail(r, "slice step cannot be zero");
	if (step < -count - 1)
		step = -count - 1; /* one item in either case, and no overflow */
	if (step > count + 1)
		step = count + 1;
	if (step > 0) {
		start = clamp(start, count, 0, count);
		stop = part[1].kind == JINJA_NONE ? count : clamp(stop, count, 0, count);
		if (stop > start)
			n = (stop - start - 1) / step + 1;
	} else {
		start = part[0].kind == JINJA_NONE ? count - 1 : clamp(start, count, -1, count - 1);
		stop = part[1].kind == JINJA_NONE ? -1 : clamp(stop, count, -1, count - 1);
		if (start > stop)
			n = (start - stop - 1) / -step + 1;
	}
	if (object.kind == JINJA_STRING)
		return jinja_keep_safe(object, take_chars(r, object.string, start, step, n, ret),
				       ret);
	rc = jinja_new_seq(r, object.seq->flavor == JINJA_LIST ? JINJA_LIST : JINJA_TUPLE,
			   (size_t)n, &seq);
	if (rc)
		return rc;
	for (i = 0; i < n; i++)
		seq->items[i] = object.seq->items[start + i * step];
	seq->n = (size_t)n;
	if (object.seq->flavor == JINJA_RANGE) {
		/* unsigned: a bound that nothing reaches may lie beyond 64 bits */
		uint64_t first = (uint64_t)object.seq->range[0];
		uint64_t every = (uint64_t)object.seq->range[2];

		seq->flavor = JINJA_RANGE;
		seq->range[0] = (int64_t)(first + (uint64_t)start * every);
		seq->range[1] = (int64_t)(first + (uint64_t)stop * every);
		seq->range[2] = (int64_t)(every * (uint64_t)step);
	}
	*ret = jinja_seq_value(seq);
	return jinja_charge(r, (uint64_t)n / 4);
}

int jinja_path(struct jinja_render *r, struct jinja_value object, struct jinja_value path,
	       struct jinja_value *ret)
{
	const struct jinja_str *s;
	size_t at = 0;
	int rc = 0;

	if (path.kind != JINJA_STRING)
		return jinja_item(r, object, path, ret);
	s = path.string;
	while (!rc && at <= s->length) {
		struct jinja_value part;
		size_t end = at, i;
		int64_t index = 0;

		while (end < s->length && s->data[end] != '.')
			end++;
		for (i = at; i < end && i - at < 18 && s->data[i] >= '0' && s->data[i] <= '9'; i++)
			index = index * 10 + (s->data[i] - '0');
		if (i == end && end > at)
			part = jinja_int(index);
		else
			rc = jinja_substring(r, s, at, end, &part);
		if (!rc)
			rc = jinja_item(r, object, part, &object);
		at = end + 1;
	}
	if (!rc)
		*ret = object;
	return rc;
}
