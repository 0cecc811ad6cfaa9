// SPDX-License-Identifier: MIT
/*
 * One render: limits, creation of values, conversion of variables from cJSON, and the resulting
 * text.
 */
#include "jinja_render.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY_DEPTH = 16 }; /* of tuples as keys */

const struct txda_template_limits txda_template_default_limits = {
	.steps = 20u * 1000 * 1000,
	.memory = (size_t)256 << 20,
	.output = (size_t)64 << 20,
	.depth = 600,
};

void jinja_fail_limit(struct jinja_render *r, const char *what, uint64_t limit)
{
	jinja_throw(&r->run, TXDA_TEMPLATE_LIMIT, "the template exceeds the limit of %llu %s",
		    (unsigned long long)limit, what);
}

void jinja_need_defined(struct jinja_render *r, struct jinja_value v)
{
	if (v.kind == JINJA_UNDEFINED)
		jinja_fail(r, "%s", v.undefined ? v.undefined : "a value is undefined");
}

void jinja_charge(struct jinja_render *r, uint64_t steps)
{
	if (steps > r->limits.steps - r->steps)
		jinja_fail_limit(r, "steps", r->limits.steps);
	r->steps += steps;
}

void jinja_charge_bytes(struct jinja_render *r, size_t bytes)
{
	jinja_charge(r, bytes / 64);
}

void jinja_enter(struct jinja_render *r)
{
	if (r->depth >= r->limits.depth)
		jinja_fail_limit(r, "nested evaluations", r->limits.depth);
	r->depth++;
}

void jinja_leave(struct jinja_render *r)
{
	r->depth--;
}

void *jinja_alloc(struct jinja_render *r, size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		jinja_fail_limit(r, "bytes of memory", r->limits.memory);
	return jinja_arena_alloc(&r->run, total);
}

struct jinja_value jinja_string(struct jinja_render *r, const char *data, size_t length)
{
	struct jinja_str *s = jinja_alloc(r, 1, sizeof(*s));

	*s = (struct jinja_str){data, length, JINJA_UNCOUNTED};
	return jinja_str_value(s);
}

struct jinja_value jinja_literal(struct jinja_render *r, const char *text)
{
	return jinja_string(r, text, strlen(text));
}

struct jinja_value jinja_substring(struct jinja_render *r, const struct jinja_str *s, size_t start,
				   size_t end)
{
	return jinja_string(r, s->data + start, end - start);
}

struct jinja_seq *jinja_new_seq(struct jinja_render *r, enum jinja_flavor flavor, size_t capacity)
{
	struct jinja_seq *seq = jinja_alloc(r, 1, sizeof(*seq));

	*seq = (struct jinja_seq){.flavor = flavor, .capacity = capacity};
	if (capacity)
		seq->items = jinja_alloc(r, capacity, sizeof(*seq->items));
	return seq;
}

void jinja_append_all(struct jinja_render *r, struct jinja_seq *seq,
		      const struct jinja_value *values, size_t n)
{
	if (n > seq->capacity - seq->n) {
		size_t capacity = seq->capacity * 2 > seq->n + n ? seq->capacity * 2 : seq->n + n;
		struct jinja_value *items;

		if (capacity < 4)
			capacity = 4;
		items = jinja_alloc(r, capacity, sizeof(*items));
		if (seq->n)
			memcpy(items, seq->items, seq->n * sizeof(*items));
		seq->items = items;
		seq->capacity = capacity;
	}
	if (n)
		memcpy(seq->items + seq->n, values, n * sizeof(*values));
	seq->n += n;
}

void jinja_append(struct jinja_render *r, struct jinja_seq *seq, struct jinja_value v)
{
	jinja_append_all(r, seq, &v, 1);
}

struct jinja_value jinja_pair(struct jinja_render *r, struct jinja_value a, struct jinja_value b)
{
	struct jinja_seq *seq = jinja_new_seq(r, JINJA_TUPLE, 2);

	seq->items[0] = a;
	seq->items[1] = b;
	seq->n = 2;
	return jinja_seq_value(seq);
}

struct jinja_dict *jinja_new_dict(struct jinja_render *r)
{
	struct jinja_dict *dict = jinja_alloc(r, 1, sizeof(*dict));

	*dict = (struct jinja_dict){0};
	return dict;
}

bool jinja_hash(struct jinja_render *r, struct jinja_value key, unsigned int depth, uint64_t *ret)
{
	const struct jinja_arena *arena = &r->arena;
	uint64_t item;
	int64_t i = 0;

	switch (key.kind) {
	case JINJA_NONE: *ret = jinja_hash_bytes(arena, "None", 4); return true;
	case JINJA_FLOAT:
		/* 1.0 and 1 are one key */
		if (key.real >= -9e18 && key.real <= 9e18 && (double)(int64_t)key.real == key.real)
			i = (int64_t)key.real;
		else
			memcpy(&i, &key.real, sizeof(i));
		*ret = jinja_hash_bytes(arena, (const char *)&i, sizeof(i));
		return true;
	case JINJA_BOOL:
	case JINJA_INT:
		jinja_as_int(key, &i);
		*ret = jinja_hash_bytes(arena, (const char *)&i, sizeof(i));
		return true;
	case JINJA_BIGINT:
	case JINJA_STRING:
		jinja_charge_bytes(r, key.string->length);
		*ret = jinja_hash_bytes(arena, key.string->data, key.string->length);
		return true;
	case JINJA_SEQ:
		if (!jinja_is_tuple(key) || depth > MAX_KEY_DEPTH)
			return false;
		*ret = key.seq->n;
		for (i = 0; i < (int64_t)key.seq->n; i++) {
			jinja_charge(r, 1); /* tuples that share items may have any number */
			if (!jinja_hash(r, key.seq->items[i], depth + 1, &item))
				return false;
			*ret = (*ret ^ item) * 0x9e3779b97f4a7c15ull;
		}
		return true;
	default: return false;
	}
}

static uint64_t hash_key(struct jinja_render *r, struct jinja_value key)
{
	uint64_t hash;

	if (!jinja_hash(r, key, 0, &hash))
		jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
	return hash;
}

void jinja_dict_set(struct jinja_render *r, struct jinja_dict *dict, struct jinja_value key,
		    struct jinja_value value)
{
	jinja_dict_insert(&r->run, dict, hash_key(r, key), key, value);
}

struct jinja_value *jinja_dict_get(struct jinja_render *r, const struct jinja_dict *dict,
				   struct jinja_value key)
{
	struct jinja_entry *entry;

	if (key.kind == JINJA_UNDEFINED)
		return NULL; /* hashable, and equal to no key */
	entry = jinja_dict_find_hash(dict, hash_key(r, key), key);
	return entry ? &entry->value : NULL;
}

struct jinja_seq *jinja_dict_items(struct jinja_render *r, const struct jinja_dict *dict,
				   enum jinja_flavor flavor)
{
	struct jinja_seq *seq = jinja_new_seq(r, flavor, dict->n);
	size_t i;

	jinja_charge(r, dict->n / 4);
	for (i = 0; i < dict->n; i++) {
		const struct jinja_entry *entry = &dict->entries[i];

		seq->items[i] = flavor == JINJA_KEYS	 ? entry->key
				: flavor == JINJA_VALUES ? entry->value
							 : jinja_pair(r, entry->key, entry->value);
	}
	seq->n = dict->n;
	return seq;
}

struct jinja_dict *jinja_dict_from_args(struct jinja_render *r, const char *what,
					const struct jinja_args *args)
{
	struct jinja_dict *dict = jinja_new_dict(r);
	struct jinja_seq *pairs, *pair;
	size_t i;

	if (args->n > 1)
		jinja_fail(r, "%s() takes at most one positional argument, %zu given", what,
			   args->n);
	if (args->n && args->positional[0].kind == JINJA_DICT)
		pairs = jinja_dict_items(r, args->positional[0].dict, JINJA_ITEMS);
	else
		pairs = args->n ? jinja_iterate(r, args->positional[0])
				: jinja_new_seq(r, JINJA_LIST, 0);
	for (i = 0; i < pairs->n; i++) {
		pair = jinja_iterate(r, pairs->items[i]);
		if (pair->n != 2)
			jinja_fail(r, "element %zu has %zu items, a pair is required", i, pair->n);
		jinja_dict_set(r, dict, pair->items[0], pair->items[1]);
	}
	for (i = 0; i < args->n_keywords; i++)
		jinja_dict_set(r, dict, jinja_str_value(args->keywords[i].name),
			       args->keywords[i].value);
	return dict;
}

struct jinja_value jinja_undefined(struct jinja_render *r, const char *format, ...)
{
	char message[160], *copy;
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	copy = jinja_alloc(r, 1, strlen(message) + 1);
	strcpy(copy, message);
	return (struct jinja_value){.kind = JINJA_UNDEFINED, .undefined = copy};
}

void jinja_write(struct jinja_render *r, const char *data, size_t length)
{
	jinja_charge_bytes(r, length);
	if (length > r->limits.output - r->out.len)
		jinja_fail_limit(r, "bytes of output", r->limits.output);
	if (!text_buf_add(&r->out, data, length))
		jinja_throw(&r->run, TXDA_TEMPLATE_MEMORY, "out of memory");
}

void jinja_write_text(struct jinja_render *r, const char *text)
{
	jinja_write(r, text, strlen(text));
}

void jinja_writef(struct jinja_render *r, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	jinja_write_text(r, text);
}

void jinja_write_char(struct jinja_render *r, uint32_t c)
{
	uint8_t bytes[4];
	unsigned int n = utf8_encode(c, bytes);

	jinja_write(r, (char *)bytes, n);
}

struct jinja_value jinja_captured(struct jinja_render *r, size_t mark)
{
	size_t length = r->out.len - mark;
	char *copy = jinja_alloc(r, 1, length);

	if (length)
		memcpy(copy, r->out.data + mark, length);
	r->out.len = mark;
	return jinja_string(r, copy, length);
}

struct jinja_str *jinja_to_str(struct jinja_render *r, struct jinja_value v)
{
	size_t mark = r->out.len;

	if (v.kind == JINJA_STRING || v.kind == JINJA_BIGINT)
		return v.string;
	jinja_write_str(r, v);
	return jinja_captured(r, mark).string;
}

static struct jinja_value from_number(struct jinja_render *r, const cJSON *json)
{
	const char *literal = json->valuestring; /* txda_template_mark_numbers() */
	double f = json->valuedouble;
	struct jinja_value v;
	long long i;

	if (!literal && f >= -9e18 && f <= 9e18 && f == floor(f))
		return jinja_int((int64_t)f);
	if (!literal || strpbrk(literal, ".eE"))
		return jinja_float(literal ? strtod(literal, NULL) : f);
	errno = 0;
	i = strtoll(literal, NULL, 10);
	if (!errno)
		return jinja_int(i);
	v = jinja_literal(r, literal);
	v.kind = JINJA_BIGINT;
	return v;
}

static struct jinja_value from_cjson(struct jinja_render *r, const cJSON *json);

static struct jinja_value from_children(struct jinja_render *r, const cJSON *json)
{
	struct jinja_seq *seq = cJSON_IsArray(json) ? jinja_new_seq(r, JINJA_LIST, 0) : NULL;
	struct jinja_dict *dict = seq ? NULL : jinja_new_dict(r);
	const cJSON *item;

	jinja_enter(r);
	for (item = json->child; item; item = item->next) {
		struct jinja_value v = from_cjson(r, item);

		if (seq)
			jinja_append(r, seq, v);
		else
			jinja_dict_set(r, dict, jinja_literal(r, item->string ? item->string : ""),
				       v);
	}
	jinja_leave(r);
	return seq ? jinja_seq_value(seq) : jinja_dict_value(dict);
}

static struct jinja_value from_cjson(struct jinja_render *r, const cJSON *json)
{
	jinja_charge(r, 1);
	switch (json->type & 0xff) {
	case cJSON_False: return jinja_bool(false);
	case cJSON_True: return jinja_bool(true);
	case cJSON_NULL: return jinja_none();
	case cJSON_Number: return from_number(r, json);
	case cJSON_String: return jinja_literal(r, json->valuestring ? json->valuestring : "");
	case cJSON_Array:
	case cJSON_Object: return from_children(r, json);
	default: jinja_fail(r, "a variable holds JSON of an unknown type, %d", json->type);
	}
}

/* Errors return here by longjmp(). */
static int render(struct jinja_render *r, const cJSON *context)
{
	if (setjmp(r->run.escape))
		return jinja_error_code(r->run.error->kind);
	if (!cJSON_IsObject(context))
		jinja_fail(r, "the variables of a template must be an object");
	r->context = from_cjson(r, context).dict;
	jinja_push_scope(r, NULL);
	jinja_exec(r, &r->template->body);
	if (!text_buf_end(&r->out))
		jinja_throw(&r->run, TXDA_TEMPLATE_MEMORY, "out of memory");
	return 0;
}

int txda_template_render(const struct txda_template *template, const cJSON *context,
			 const struct txda_template_options *options,
			 struct txda_template_error *error, char **ret_text, size_t *ret_length)
{
	struct txda_template_error own_error;
	struct jinja_render r = {
		.template = template,
		.limits = txda_template_default_limits,
		.now = options ? options->now : NULL,
	};
	int rc;

	r.run.error = error ? error : &own_error;
	*r.run.error = (struct txda_template_error){0};
	if (options && options->limits)
		r.limits = *options->limits;
	jinja_arena_init(&r.arena, r.limits.memory);
	r.run.arena = &r.arena;
	rc = render(&r, context);
	jinja_arena_free(&r.arena);
	if (rc) {
		free(r.out.data);
		return rc;
	}
	*ret_text = r.out.data;
	if (ret_length)
		*ret_length = r.out.len;
	return 0;
}

/* Finds the next number of JSON text from *at on, outside strings; returns its length or 0. */
static size_t next_number(const char *text, size_t length, size_t *at)
{
	size_t i = *at, n;

	for (; i < length; i++) {
		if (text[i] == '"') {
			for (i++; i < length && text[i] != '"'; i++)
				if (text[i] == '\\')
					i++;
		} else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
			for (n = 1; i + n < length && strchr("+-.eE0123456789", text[i + n]) &&
				    text[i + n];)
				n++;
			*at = i;
			return n;
		}
	}
	return 0;
}

static int mark_number(cJSON *item, const char *literal, size_t n)
{
	bool plain =
		!memchr(literal, '.', n) && !memchr(literal, 'e', n) && !memchr(literal, 'E', n);

	/* 2^53 itself may be the double of 2^53 + 1. */
	if (plain && fabs(item->valuedouble) < 9007199254740992.0)
		return 0;
	if (item->valuestring)
		return 0; /* marked before */
	/* cJSON frees it, so its allocator must have made it */
	item->valuestring = cJSON_malloc(n + 1);
	if (!item->valuestring)
		return -ENOMEM;
	memcpy(item->valuestring, literal, n);
	item->valuestring[n] = '\0';
	return 0;
}

struct walk {
	const char *text;
	size_t length;
	size_t at;
};

static int mark_tree(cJSON *item, struct walk *walk, unsigned int depth)
{
	cJSON *child;
	size_t n;
	int rc = 0;

	if (cJSON_IsNumber(item)) {
		n = next_number(walk->text, walk->length, &walk->at);
		if (!n)
			return -EINVAL;
		rc = mark_number(item, walk->text + walk->at, n);
		walk->at += n;
		return rc;
	}
	if (depth > 1000) /* cJSON's own limit */
		return -EINVAL;
	if (cJSON_IsArray(item) || cJSON_IsObject(item))
		for (child = item->child; !rc && child; child = child->next)
			rc = mark_tree(child, walk, depth + 1);
	return rc;
}

int txda_template_mark_numbers(cJSON *root, const char *text, size_t length)
{
	struct walk walk = {text, length, 0};
	int rc = mark_tree(root, &walk, 0);

	if (!rc && next_number(text, length, &walk.at))
		return -EINVAL;
	return rc;
}
