// SPDX-License-Identifier: MIT
/*
 * Errors, limits, making of values, binding of arguments.
 */
#include "jinja_render.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int jinja_fail(struct jinja_render *r, const char *format, ...)
{
	char message[sizeof(r->error->message)];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return jinja_set_error(r->error, TXDA_TEMPLATE_RUNTIME, r->line, "%s", message);
}

int jinja_fail_limit(struct jinja_render *r, const char *what, uint64_t limit)
{
	return jinja_set_error(r->error, TXDA_TEMPLATE_LIMIT, r->line,
			       "the template exceeds the limit of %llu %s",
			       (unsigned long long)limit, what);
}

int jinja_charge(struct jinja_render *r, uint64_t steps)
{
	if (steps > r->limits.steps - r->steps) {
		r->steps = r->limits.steps;
		return jinja_fail_limit(r, "steps", r->limits.steps);
	}
	r->steps += steps;
	return 0;
}

int jinja_charge_bytes(struct jinja_render *r, size_t bytes)
{
	return jinja_charge(r, bytes / 64);
}

int jinja_enter(struct jinja_render *r)
{
	if (r->depth >= r->limits.depth)
		return jinja_fail_limit(r, "nested evaluations", r->limits.depth);
	r->depth++;
	return 0;
}

void jinja_leave(struct jinja_render *r)
{
	r->depth--;
}

int jinja_fail_undefined(struct jinja_render *r, struct jinja_value v)
{
	return jinja_fail(r, "%s", v.undefined ? v.undefined->message : "a value is undefined");
}

int jinja_alloc(struct jinja_render *r, size_t size, void *ret_pointer)
{
	void *memory = jinja_arena_alloc(&r->arena, size);

	if (!memory && r->arena.exhausted) {
		jinja_fail_limit(r, "bytes of memory", r->limits.memory);
		return -E2BIG;
	}
	if (!memory) {
		jinja_set_error(r->error, TXDA_TEMPLATE_MEMORY, r->line, "out of memory");
		return -ENOMEM;
	}
	memcpy(ret_pointer, &memory, sizeof(memory)); /* whatever the pointer's type is */
	return 0;
}

int jinja_string(struct jinja_render *r, const char *data, size_t length, struct jinja_value *ret)
{
	struct jinja_str *s;
	int rc = jinja_alloc(r, sizeof(*s), &s);

	if (rc)
		return rc;
	*s = (struct jinja_str){data, length, JINJA_UNCOUNTED};
	*ret = (struct jinja_value){.kind = JINJA_STRING, .string = s};
	return 0;
}

int jinja_literal(struct jinja_render *r, const char *text, struct jinja_value *ret)
{
	return jinja_string(r, text, strlen(text), ret);
}

int jinja_substring(struct jinja_render *r, const struct jinja_str *s, size_t start, size_t end,
		    struct jinja_value *ret)
{
	return jinja_string(r, s->data + start, end - start, ret);
}

int jinja_new_seq(struct jinja_render *r, enum jinja_flavor flavor, size_t capacity,
		  struct jinja_seq **ret)
{
	struct jinja_seq *seq;
	int rc;

	if (capacity > SIZE_MAX / sizeof(struct jinja_value) / 2)
		return jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	rc = jinja_alloc(r, sizeof(*seq), &seq);
	if (rc)
		return rc;
	*seq = (struct jinja_seq){.flavor = flavor, .capacity = capacity};
	if (capacity) {
		rc = jinja_alloc(r, capacity * sizeof(*seq->items), &seq->items);
		if (rc)
			return rc;
	}
	*ret = seq;
	return 0;
}

int jinja_append(struct jinja_render *r, struct jinja_seq *seq, struct jinja_value v)
{
	if (seq->n == seq->capacity) {
		size_t capacity = seq->capacity ? seq->capacity * 2 : 4;
		struct jinja_value *items;
		int rc = jinja_alloc(r, capacity * sizeof(*items), &items);

		if (rc)
			return rc;
		if (seq->n)
			memcpy(items, seq->items, seq->n * sizeof(*items));
		seq->items = items;
		seq->capacity = capacity;
	}
	seq->items[seq->n++] = v;
	return 0;
}

int jinja_pair(struct jinja_render *r, struct jinja_value a, struct jinja_value b,
	       struct jinja_value *ret)
{
	struct jinja_seq *seq;
	int rc = jinja_new_seq(r, JINJA_TUPLE, 2, &seq);

	if (rc)
		return rc;
	seq->items[0] = a;
	seq->items[1] = b;
	seq->n = 2;
	*ret = jinja_seq_value(seq);
	return 0;
}

int jinja_new_dict(struct jinja_render *r, struct jinja_dict **ret)
{
	struct jinja_dict *dict;
	int rc = jinja_alloc(r, sizeof(*dict), &dict);

	if (rc)
		return rc;
	*dict = (struct jinja_dict){0};
	*ret = dict;
	return 0;
}

int jinja_dict_set(struct jinja_render *r, struct jinja_dict *dict, struct jinja_value key,
		   struct jinja_value value)
{
	uint64_t hash;

	if (!jinja_hash(&r->arena, key, 0, &hash))
		return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
	if (!jinja_dict_insert(&r->arena, dict, hash, key, value))
		return 0;
	if (r->arena.exhausted)
		return jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	return jinja_set_error(r->error, TXDA_TEMPLATE_MEMORY, r->line, "out of memory");
}

int jinja_dict_get(struct jinja_render *r, const struct jinja_dict *dict, struct jinja_value key,
		   struct jinja_value **ret)
{
	struct jinja_entry *entry;
	uint64_t hash;

	*ret = NULL;
	if (key.kind == JINJA_UNDEFINED)
		return 0; /* hashable, and equal to no key */
	if (!jinja_hash(&r->arena, key, 0, &hash))
		return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
	entry = jinja_dict_find_hash(dict, hash, key);
	if (entry)
		*ret = &entry->value;
	return 0;
}

static int add_mapping(struct jinja_render *r, struct jinja_dict *dict, struct jinja_value from)
{
	struct jinja_seq *pairs, *pair;
	size_t i;
	int rc = 0;

	if (from.kind == JINJA_DICT) {
		for (i = 0; !rc && i < from.dict->n; i++)
			rc = jinja_dict_set(r, dict, from.dict->entries[i].key,
					    from.dict->entries[i].value);
		return rc;
	}
	rc = jinja_iterate(r, from, &pairs);
	for (i = 0; !rc && i < pairs->n; i++) {
		rc = jinja_iterate(r, pairs->items[i], &pair);
		if (!rc && pair->n != 2)
			return jinja_fail(r, "element %zu has %zu items, a pair is required", i,
					  pair->n);
		if (!rc)
			rc = jinja_dict_set(r, dict, pair->items[0], pair->items[1]);
	}
	return rc;
}

int jinja_dict_from_args(struct jinja_render *r, const char *what, const struct jinja_args *args,
			 struct jinja_dict **ret)
{
	struct jinja_dict *dict;
	size_t i;
	int rc = jinja_new_dict(r, &dict);

	if (!rc && args->n > 1)
		return jinja_fail(r, "%s() takes at most one positional argument, %zu given", what,
				  args->n);
	if (!rc && args->n)
		rc = add_mapping(r, dict, args->positional[0]);
	for (i = 0; !rc && i < args->n_keywords; i++) {
		struct jinja_value key = {.kind = JINJA_STRING};

		key.string = (struct jinja_str *)args->keywords[i].name;
		rc = jinja_dict_set(r, dict, key, args->keywords[i].value);
	}
	if (!rc)
		*ret = dict;
	return rc;
}

int jinja_undefined(struct jinja_render *r, struct jinja_value *ret, const char *format, ...)
{
	struct jinja_undefined *undefined;
	char message[160], *copy;
	va_list args;
	int length, rc;

	va_start(args, format);
	length = vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (length < 0)
		length = 0;
	if ((size_t)length >= sizeof(message))
		length = sizeof(message) - 1;
	rc = jinja_alloc(r, sizeof(*undefined) + (size_t)length + 1, &undefined);
	if (rc)
		return rc;
	copy = (char *)(undefined + 1);
	memcpy(copy, message, (size_t)length);
	copy[length] = '\0';
	*undefined = (struct jinja_undefined){.message = copy};
	*ret = (struct jinja_value){.kind = JINJA_UNDEFINED, .undefined = undefined};
	return 0;
}

int jinja_write(struct jinja_render *r, const char *data, size_t length)
{
	int rc = jinja_charge_bytes(r, length);

	if (rc)
		return rc;
	rc = jinja_buffer_append(&r->out, data, length);
	if (rc == -E2BIG)
		return jinja_fail_limit(r, "bytes of output", r->limits.output);
	if (rc)
		return jinja_set_error(r->error, TXDA_TEMPLATE_MEMORY, r->line, "out of memory");
	return 0;
}

int jinja_write_text(struct jinja_render *r, const char *text)
{
	return jinja_write(r, text, strlen(text));
}

int jinja_write_char(struct jinja_render *r, uint32_t c)
{
	char bytes[4];

	return jinja_write(r, bytes, jinja_utf8_encode(c, bytes));
}

int jinja_captured(struct jinja_render *r, size_t mark, struct jinja_value *ret)
{
	size_t length = r->out.length - mark;
	char *copy;
	int rc = jinja_alloc(r, length, &copy);

	if (rc)
		return rc;
	if (length)
		memcpy(copy, r->out.data + mark, length);
	r->out.length = mark;
	return jinja_string(r, copy, length, ret);
}

int jinja_to_str(struct jinja_render *r, struct jinja_value v, struct jinja_str **ret)
{
	size_t mark = r->out.length;
	struct jinja_value text;
	int rc;

	if (v.kind == JINJA_STRING || v.kind == JINJA_BIGINT) {
		*ret = v.string;
		return 0;
	}
	rc = jinja_write_str(r, v);
	if (!rc)
		rc = jinja_captured(r, mark, &text);
	if (!rc)
		*ret = text.string;
	return rc;
}

int jinja_bind(struct jinja_render *r, const struct jinja_args *args, const char *what,
	       size_t required, const char *const *names, size_t n, struct jinja_value *out)
{
	size_t i, k;

	if (args->n > n)
		return jinja_fail(r, "%s takes at most %zu arguments, %zu given", what, n, args->n);
	for (i = 0; i < n; i++)
		out[i] = i < args->n ? args->positional[i] : (struct jinja_value){0};
	for (k = 0; k < args->n_keywords; k++) {
		const struct jinja_str *name = args->keywords[k].name;

		for (i = 0; i < n && !jinja_str_is(name, names[i]); i++)
			;
		if (i == n)
			return jinja_fail(r, "%s has no argument '%.*s'", what,
					  (int)(name->length < 60 ? name->length : 60), name->data);
		if (out[i].kind != JINJA_ABSENT)
			return jinja_fail(r, "%s got two values for argument '%s'", what, names[i]);
		out[i] = args->keywords[k].value;
	}
	for (i = 0; i < required; i++)
		if (out[i].kind == JINJA_ABSENT)
			return jinja_fail(r, "%s needs argument '%s'", what, names[i]);
	return 0;
}

int jinja_no_args(struct jinja_render *r, const struct jinja_args *args, const char *what)
{
	if (args->n || args->n_keywords)
		return jinja_fail(r, "%s takes no arguments", what);
	return 0;
}

int jinja_arg_int(struct jinja_render *r, struct jinja_value v, const char *what, int64_t *ret)
{
	if (v.kind == JINJA_ABSENT || jinja_as_int(v, ret))
		return 0;
	if (v.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, v);
	return jinja_fail(r, "%s: an integer is required, not '%s'", what, jinja_type_name(v));
}

int jinja_arg_str(struct jinja_render *r, struct jinja_value v, const char *what,
		  struct jinja_str **ret)
{
	if (v.kind == JINJA_ABSENT)
		return 0;
	if (v.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, v);
	if (v.kind != JINJA_STRING)
		return jinja_fail(r, "%s: a string is required, not '%s'", what,
				  jinja_type_name(v));
	*ret = v.string;
	return 0;
}

void jinja_arg_bool(struct jinja_value v, bool *ret)
{
	if (v.kind != JINJA_ABSENT)
		*ret = jinja_truth(v);
}
