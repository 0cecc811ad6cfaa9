// SPDX-License-Identifier: MIT
/*
 * Looking into values: iteration, length, attributes, items, slices. Attributes and items follow
 * jinja2's sandbox: `a.b` tries the object's methods, then its items; `a['b']` the other way
 * around. What is missing is undefined, and so is what the sandbox hides.
 */
#include "jinja_render.h"

#include <string.h>

static struct jinja_seq *chars_of(struct jinja_render *r, const struct jinja_str *s)
{
	struct jinja_seq *seq = jinja_new_seq(r, JINJA_LIST, 0);
	size_t at = 0, n;
	uint32_t c;

	jinja_charge(r, s->length);
	for (; at < s->length; at += n) {
		n = jinja_decode(s, at, &c);
		jinja_append(r, seq, jinja_substring(r, s, at, at + n));
	}
	return seq;
}

struct jinja_seq *jinja_iterate(struct jinja_render *r, struct jinja_value v)
{
	struct jinja_seq *rest;

	switch (v.kind) {
	case JINJA_SEQ:
		if (!jinja_is_generator(v))
			return v.seq;
		rest = jinja_new_seq(r, JINJA_LIST, 0);
		rest->n = rest->capacity = v.seq->n - v.seq->position;
		if (rest->n)
			rest->items = v.seq->items + v.seq->position;
		v.seq->position = v.seq->n;
		return rest;
	case JINJA_DICT: return jinja_dict_items(r, v.dict, JINJA_KEYS);
	case JINJA_STRING: return chars_of(r, v.string);
	case JINJA_UNDEFINED: return jinja_new_seq(r, JINJA_LIST, 0);
	default: jinja_fail(r, "'%s' object is not iterable", jinja_type_name(v));
	}
}

int64_t jinja_length(struct jinja_render *r, struct jinja_value v)
{
	switch (v.kind) {
	case JINJA_STRING:
		jinja_charge_bytes(r, v.string->length);
		return (int64_t)jinja_str_chars(v.string);
	case JINJA_DICT: return (int64_t)v.dict->n;
	case JINJA_UNDEFINED: return 0;
	case JINJA_SEQ:
		if (!jinja_is_generator(v))
			return (int64_t)v.seq->n;
		/* fall through */
	default: jinja_fail(r, "object of type '%s' has no len()", jinja_type_name(v));
	}
}

/* Names that exist in Python and that the immutable sandbox keeps away. */
static bool is_forbidden(struct jinja_value object, const struct jinja_str *name)
{
	static const char *const of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
					       "sort",	 "extend", "remove", NULL};
	static const char *const of_dicts[] = {"clear",	     "pop",    "popitem",
					       "setdefault", "update", NULL};
	static const char *const none[] = {NULL};
	const char *const *names = jinja_is_list(object)       ? of_lists
				   : object.kind == JINJA_DICT ? of_dicts
							       : none;

	for (; *names; names++)
		if (jinja_str_is(name, *names))
			return true;
	return name->length > 4 && !memcmp(name->data, "__", 2) &&
	       !memcmp(name->data + name->length - 2, "__", 2);
}

/* Python's getattr(); absent: there is no such attribute. */
static struct jinja_value own_attribute(struct jinja_render *r, struct jinja_value object,
					const struct jinja_str *name)
{
	const struct jinja_builtin *method = jinja_find_method(object, name);
	struct jinja_bound *bound;
	struct jinja_value *member;

	if (method) {
		bound = jinja_alloc(r, 1, sizeof(*bound));
		*bound = (struct jinja_bound){method, object};
		return (struct jinja_value){.kind = JINJA_CALLABLE, .callable = bound};
	}
	if (object.kind == JINJA_NAMESPACE) {
		member = jinja_dict_find(&r->arena, object.dict, name);
		if (member)
			return *member;
	} else if (object.kind == JINJA_LOOP) {
		return jinja_loop_attribute(r, object.loop, name);
	} else if (object.kind == JINJA_CYCLER && jinja_str_is(name, "current")) {
		return object.cycle->items[object.cycle->position];
	} else if (object.kind == JINJA_MACRO && jinja_str_is(name, "name")) {
		return jinja_str_value(object.macro->node->name);
	} else if (object.kind == JINJA_SEQ && object.seq->flavor == JINJA_GROUP) {
		if (jinja_str_is(name, "grouper") || jinja_str_is(name, "list"))
			return object.seq->items[jinja_str_is(name, "list")];
	}
	if (object.kind != JINJA_NAMESPACE && is_forbidden(object, name))
		return jinja_undefined(r, "attribute '%.*s' of '%s' object is unsafe",
				       JINJA_SHOW(name), jinja_type_name(object));
	return (struct jinja_value){.kind = JINJA_ABSENT};
}

static struct jinja_value missing(struct jinja_render *r, struct jinja_value object,
				  struct jinja_value key)
{
	const char *type = object.kind == JINJA_NONE ? "None" : jinja_type_name(object);

	if (key.kind == JINJA_STRING)
		return jinja_undefined(r, "'%s%s' has no attribute '%.*s'", type,
				       object.kind == JINJA_NONE ? "" : " object",
				       JINJA_SHOW(key.string));
	if (key.kind == JINJA_INT)
		return jinja_undefined(r, "%s object has no element %lld", type,
				       (long long)key.integer);
	return jinja_undefined(r, "%s object has no such element", type);
}

static struct jinja_value char_at(struct jinja_render *r, struct jinja_value s, int64_t index)
{
	size_t at = jinja_str_offset(s.string, (size_t)index);
	struct jinja_value v;
	uint32_t c;

	jinja_charge_bytes(r, at);
	v = jinja_substring(r, s.string, at, at + jinja_decode(s.string, at, &c));
	v.safe = s.safe;
	return v;
}

/* object[key] without falling back to attributes; absent: a miss of whatever cause */
static struct jinja_value own_item(struct jinja_render *r, struct jinja_value object,
				   struct jinja_value key)
{
	const struct jinja_value none = {.kind = JINJA_ABSENT};
	int64_t index, count;
	uint64_t hash;

	if (object.kind == JINJA_DICT) {
		struct jinja_entry *entry = NULL;

		if (jinja_hash(&r->arena, key, 0, &hash))
			entry = jinja_dict_find_hash(object.dict, hash, key);
		return entry ? entry->value : none;
	}
	if (!jinja_as_int(key, &index) ||
	    (!jinja_is_indexed(object) && object.kind != JINJA_STRING))
		return none;
	count = object.kind == JINJA_STRING ? (int64_t)jinja_str_chars(object.string)
					    : (int64_t)object.seq->n;
	if (index < 0)
		index += count;
	if (index < 0 || index >= count)
		return none;
	return object.kind == JINJA_STRING ? char_at(r, object, index) : object.seq->items[index];
}

struct jinja_value jinja_attribute(struct jinja_render *r, struct jinja_value object,
				   const struct jinja_str *name)
{
	struct jinja_value v;

	jinja_need_defined(r, object);
	v = own_attribute(r, object, name);
	if (v.kind == JINJA_ABSENT)
		v = own_item(r, object, jinja_str_value(name));
	return v.kind == JINJA_ABSENT ? missing(r, object, jinja_str_value(name)) : v;
}

struct jinja_value jinja_item(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value key)
{
	struct jinja_value v;

	jinja_need_defined(r, object);
	v = own_item(r, object, key);
	if (v.kind == JINJA_ABSENT && key.kind == JINJA_STRING)
		v = own_attribute(r, object, key.string);
	return v.kind == JINJA_ABSENT ? missing(r, object, key) : v;
}

/* A part of a slice, @standard where it is None. */
static int64_t slice_part(struct jinja_render *r, struct jinja_value v, int64_t standard)
{
	int64_t index = standard;

	if (v.kind != JINJA_NONE && !jinja_as_int(v, &index))
		jinja_fail(r, "slice indices must be integers or None, not '%s'",
			   jinja_type_name(v));
	return index;
}

/* Like Python's slice.indices(): a bound between @low and @high, @standard where it is None. */
static int64_t bound(struct jinja_render *r, struct jinja_value v, int64_t count, int64_t low,
		     int64_t high, int64_t standard)
{
	int64_t index = slice_part(r, v, standard);

	if (v.kind == JINJA_NONE)
		return standard;
	if (index < 0)
		index = index < -count ? low : index + count;
	if (index < low)
		return low;
	return index > high ? high : index;
}

static struct jinja_value take_chars(struct jinja_render *r, struct jinja_str *s, int64_t start,
				     int64_t step, int64_t n)
{
	size_t *offsets, at = 0, used = 0, chars = jinja_str_chars(s), i;
	char *data;
	uint32_t c;

	jinja_charge_bytes(r, s->length);
	if (step == 1)
		return jinja_substring(r, s, jinja_str_offset(s, (size_t)start),
				       jinja_str_offset(s, (size_t)(start + n)));
	offsets = jinja_alloc(r, chars + 1, sizeof(*offsets));
	data = jinja_alloc(r, 1, s->length);
	for (i = 0; i < chars; i++, at += jinja_decode(s, at, &c))
		offsets[i] = at;
	offsets[chars] = s->length;
	for (; n > 0; n--, start += step) {
		size_t size = offsets[start + 1] - offsets[start];

		memcpy(data + used, s->data + offsets[start], size);
		used += size;
	}
	return jinja_string(r, data, used);
}

static struct jinja_seq *take_items(struct jinja_render *r, const struct jinja_seq *from,
				    int64_t start, int64_t step, int64_t n)
{
	enum jinja_flavor flavor = from->flavor == JINJA_GROUP ? JINJA_TUPLE : from->flavor;
	struct jinja_seq *seq = jinja_new_seq(r, flavor, (size_t)n);
	int64_t i;

	jinja_charge(r, (uint64_t)n / 4);
	for (i = 0; i < n; i++)
		seq->items[i] = from->items[start + i * step];
	seq->n = (size_t)n;
	return seq;
}

struct jinja_value jinja_slice(struct jinja_render *r, struct jinja_value object,
			       const struct jinja_value part[3])
{
	int64_t start, stop, step, count, n = 0;
	struct jinja_value v;
	struct jinja_seq *seq;

	jinja_need_defined(r, object);
	if (object.kind != JINJA_STRING && !jinja_is_indexed(object))
		jinja_fail(r, "'%s' object cannot be sliced", jinja_type_name(object));
	count = jinja_length(r, object);
	step = slice_part(r, part[2], 1);
	if (!step)
		jinja_fail(r, "slice step cannot be zero");
	if (step < -count - 1)
		step = -count - 1; /* one item in either case, and no overflow */
	if (step > count + 1)
		step = count + 1;
	if (step > 0) {
		start = bound(r, part[0], count, 0, count, 0);
		stop = bound(r, part[1], count, 0, count, count);
		if (stop > start)
			n = (stop - start - 1) / step + 1;
	} else {
		start = bound(r, part[0], count, -1, count - 1, count - 1);
		stop = bound(r, part[1], count, -1, count - 1, -1);
		if (start > stop)
			n = (start - stop - 1) / -step + 1;
	}
	if (object.kind == JINJA_STRING) {
		v = take_chars(r, object.string, start, step, n);
		v.safe = object.safe;
		return v;
	}
	seq = take_items(r, object.seq, start, step, n);
	if (seq->flavor == JINJA_RANGE) {
		/* unsigned: a bound that nothing reaches may lie beyond 64 bits */
		uint64_t first = (uint64_t)object.seq->range[0];
		uint64_t every = (uint64_t)object.seq->range[2];

		seq->range[0] = (int64_t)(first + (uint64_t)start * every);
		seq->range[1] = (int64_t)(first + (uint64_t)stop * every);
		seq->range[2] = (int64_t)(every * (uint64_t)step);
	}
	return jinja_seq_value(seq);
}

struct jinja_value jinja_path(struct jinja_render *r, struct jinja_value object,
			      struct jinja_value path)
{
	const struct jinja_str *s = path.string;
	size_t at = 0, end, i;

	if (path.kind != JINJA_STRING)
		return jinja_item(r, object, path);
	for (; at <= s->length; at = end + 1) {
		int64_t index = 0;

		for (end = at; end < s->length && s->data[end] != '.';)
			end++;
		for (i = at; i < end && i - at < 18 && s->data[i] >= '0' && s->data[i] <= '9'; i++)
			index = index * 10 + (s->data[i] - '0');
		object = jinja_item(r, object,
				    i == end && end > at ? jinja_int(index)
							 : jinja_substring(r, s, at, end));
	}
	return object;
}
