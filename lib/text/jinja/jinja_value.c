// SPDX-License-Identifier: MIT
#include "jinja_value.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct jinja_chunk {
	struct jinja_chunk *next;
	size_t size;
	size_t used;
	_Alignas(16) unsigned char data[];
};

enum {
	FIRST_CHUNK = 16 << 10,
	LARGEST_CHUNK = 1 << 20,
	SMALL_DICT = 8, /* searched from front to back instead of through an index */
};

int jinja_error_code(enum txda_template_error_kind kind)
{
	switch (kind) {
	case TXDA_TEMPLATE_OK: return 0;
	case TXDA_TEMPLATE_RAISED: return -EPROTO;
	case TXDA_TEMPLATE_LIMIT: return -E2BIG;
	case TXDA_TEMPLATE_MEMORY: return -ENOMEM;
	default: return -EINVAL;
	}
}

void jinja_throw(struct jinja_run *run, enum txda_template_error_kind kind, const char *format, ...)
{
	struct txda_template_error *error = run->error;
	va_list args;

	error->kind = kind;
	error->line = run->line;
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	longjmp(run->escape, 1);
}

void jinja_arena_init(struct jinja_arena *arena, size_t limit)
{
	*arena = (struct jinja_arena){.limit = limit};
	if (getrandom(&arena->seed, sizeof(arena->seed), GRND_NONBLOCK) != sizeof(arena->seed))
		arena->seed = (uintptr_t)arena;
}

void jinja_arena_free(struct jinja_arena *arena)
{
	while (arena->chunks) {
		struct jinja_chunk *next = arena->chunks->next;

		free(arena->chunks);
		arena->chunks = next;
	}
	arena->used = 0;
}

static struct jinja_chunk *add_chunk(struct jinja_run *run, size_t size)
{
	struct jinja_arena *arena = run->arena;
	size_t wanted = arena->chunks ? arena->chunks->size * 2 : FIRST_CHUNK;
	struct jinja_chunk *chunk;

	if (wanted > LARGEST_CHUNK)
		wanted = LARGEST_CHUNK;
	if (wanted < size)
		wanted = size;
	if (wanted > arena->limit - arena->used)
		wanted = size; /* the last bytes under the limit */
	if (wanted > arena->limit - arena->used)
		jinja_throw(run, TXDA_TEMPLATE_LIMIT,
			    "the template exceeds the limit of %zu bytes of memory", arena->limit);
	chunk = malloc(sizeof(*chunk) + wanted);
	if (!chunk)
		jinja_throw(run, TXDA_TEMPLATE_MEMORY, "out of memory");
	chunk->size = wanted;
	chunk->used = 0;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->used += wanted;
	return chunk;
}

void *jinja_arena_alloc(struct jinja_run *run, size_t size)
{
	struct jinja_arena *arena = run->arena;
	struct jinja_chunk *chunk = arena->chunks;
	void *memory;

	if (size <= arena->limit) /* a larger one fails below */
		size = (size + 15) & ~(size_t)15;
	if (!chunk || chunk->size - chunk->used < size) {
		struct jinja_chunk *fresh = add_chunk(run, size);

		/* A large block should not make the room left in the current chunk unusable. */
		if (chunk && fresh->size == size && chunk->size - chunk->used > 1024) {
			arena->chunks = chunk;
			fresh->next = chunk->next;
			chunk->next = fresh;
		}
		chunk = fresh;
	}
	memory = chunk->data + chunk->used;
	chunk->used += size;
	return memory;
}

size_t jinja_count_chars(const struct jinja_str *s, size_t length)
{
	struct jinja_str start = {s->data, length, 0};
	size_t at = 0, count = 0;
	uint32_t c;

	for (; at < length; count++)
		at += jinja_decode(&start, at, &c);
	return count;
}

size_t jinja_str_chars(struct jinja_str *s)
{
	if (s->chars == JINJA_UNCOUNTED)
		s->chars = jinja_count_chars(s, s->length);
	return s->chars;
}

size_t jinja_str_offset(struct jinja_str *s, size_t index)
{
	size_t at = 0;
	uint32_t c;

	if (jinja_str_chars(s) == s->length)
		return index < s->length ? index : s->length;
	while (index-- && at < s->length)
		at += jinja_decode(s, at, &c);
	return at;
}

bool jinja_str_is(const struct jinja_str *s, const char *literal)
{
	return s->length == strlen(literal) && !memcmp(s->data, literal, s->length);
}

bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b)
{
	return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

bool jinja_as_double(struct jinja_value v, double *ret)
{
	int64_t i;

	if (v.kind == JINJA_FLOAT) {
		*ret = v.real;
	} else if (v.kind == JINJA_BIGINT) {
		char digits[400];
		int n = snprintf(digits, sizeof(digits), "%.*s", (int)v.string->length,
				 v.string->data);

		*ret = (size_t)n < sizeof(digits) ? strtod(digits, NULL)
		       : digits[0] == '-'	  ? -HUGE_VAL
						  : HUGE_VAL;
	} else if (jinja_as_int(v, &i)) {
		*ret = (double)i;
	} else {
		return false;
	}
	return true;
}

uint64_t jinja_hash_bytes(const struct jinja_arena *arena, const char *data, size_t length)
{
	uint64_t h = arena->seed ^ 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < length; i++)
		h = (h ^ (unsigned char)data[i]) * 0x100000001b3ull;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ull;
	return h ^ h >> 32;
}

/* Both are known to be hashable, so they are nested no deeper than jinja_hash() allows. */
static bool key_equal(struct jinja_value a, struct jinja_value b)
{
	int64_t x, y;
	double f, g;
	size_t i;

	if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
		return x == y;
	if (a.kind != JINJA_BIGINT && b.kind != JINJA_BIGINT && jinja_as_double(a, &f) &&
	    jinja_as_double(b, &g))
		return f == g;
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case JINJA_NONE: return true;
	case JINJA_BIGINT:
	case JINJA_STRING: return jinja_str_equal(a.string, b.string);
	case JINJA_SEQ:
		for (i = 0; a.seq->n == b.seq->n && i < a.seq->n; i++)
			if (!key_equal(a.seq->items[i], b.seq->items[i]))
				return false;
		return a.seq->n == b.seq->n;
	default: return false;
	}
}

struct jinja_entry *jinja_dict_find_hash(const struct jinja_dict *dict, uint64_t hash,
					 struct jinja_value key)
{
	size_t i, mask = dict->index_size - 1;

	if (!dict->index) {
		for (i = 0; i < dict->n; i++)
			if (dict->entries[i].hash == hash && key_equal(dict->entries[i].key, key))
				return &dict->entries[i];
		return NULL;
	}
	for (i = hash & mask; dict->index[i]; i = (i + 1) & mask) {
		struct jinja_entry *entry = &dict->entries[dict->index[i] - 1];

		if (entry->hash == hash && key_equal(entry->key, key))
			return entry;
	}
	return NULL;
}

struct jinja_value *jinja_dict_find(const struct jinja_arena *arena, const struct jinja_dict *dict,
				    const struct jinja_str *key)
{
	uint64_t hash = jinja_hash_bytes(arena, key->data, key->length);
	struct jinja_entry *entry = jinja_dict_find_hash(dict, hash, jinja_str_value(key));

	return entry ? &entry->value : NULL;
}

static void index_entry(struct jinja_dict *dict, size_t number)
{
	size_t i = dict->entries[number].hash & (dict->index_size - 1);

	while (dict->index[i])
		i = (i + 1) & (dict->index_size - 1);
	dict->index[i] = (uint32_t)(number + 1);
}

static void grow_dict(struct jinja_run *run, struct jinja_dict *dict)
{
	size_t capacity = dict->capacity ? dict->capacity * 2 : 4, i;
	struct jinja_entry *entries;

	if (capacity > UINT32_MAX / 4)
		jinja_throw(run, TXDA_TEMPLATE_LIMIT, "a dictionary of more than %zu entries",
			    dict->n);
	entries = jinja_arena_alloc(run, capacity * sizeof(*entries));
	if (dict->n)
		memcpy(entries, dict->entries, dict->n * sizeof(*entries));
	if (capacity > SMALL_DICT) {
		dict->index = jinja_arena_alloc(run, capacity * 2 * sizeof(*dict->index));
		dict->index_size = capacity * 2;
		memset(dict->index, 0, dict->index_size * sizeof(*dict->index));
	}
	dict->entries = entries;
	dict->capacity = capacity;
	for (i = 0; dict->index && i < dict->n; i++)
		index_entry(dict, i);
}

void jinja_dict_insert(struct jinja_run *run, struct jinja_dict *dict, uint64_t hash,
		       struct jinja_value key, struct jinja_value value)
{
	struct jinja_entry *entry = jinja_dict_find_hash(dict, hash, key);

	if (entry) {
		entry->value = value;
		return;
	}
	if (dict->n == dict->capacity)
		grow_dict(run, dict);
	dict->entries[dict->n] = (struct jinja_entry){key, value, hash};
	dict->n++;
	if (dict->index)
		index_entry(dict, dict->n - 1);
}

bool jinja_truth(struct jinja_value v)
{
	switch (v.kind) {
	case JINJA_ABSENT:
	case JINJA_UNDEFINED:
	case JINJA_NONE: return false;
	case JINJA_BOOL: return v.boolean;
	case JINJA_INT: return v.integer != 0;
	case JINJA_FLOAT: return v.real != 0;
	case JINJA_STRING: return v.string->length != 0;
	case JINJA_SEQ: return jinja_is_generator(v) || v.seq->n != 0;
	case JINJA_DICT: return v.dict->n != 0;
	default: return true;
	}
}

const char *jinja_type_name(struct jinja_value v)
{
	static const char *const kinds[] = {
		[JINJA_ABSENT] = "nothing",
		[JINJA_UNDEFINED] = "Undefined",
		[JINJA_NONE] = "NoneType",
		[JINJA_BOOL] = "bool",
		[JINJA_INT] = "int",
		[JINJA_FLOAT] = "float",
		[JINJA_BIGINT] = "int",
		[JINJA_STRING] = "str",
		[JINJA_DICT] = "dict",
		[JINJA_NAMESPACE] = "Namespace",
		[JINJA_CALLABLE] = "builtin_function_or_method",
		[JINJA_MACRO] = "Macro",
		[JINJA_LOOP] = "LoopContext",
		[JINJA_CYCLER] = "Cycler",
		[JINJA_JOINER] = "Joiner",
	};
	static const char *const flavors[] = {
		[JINJA_LIST] = "list",
		[JINJA_TUPLE] = "tuple",
		[JINJA_RANGE] = "range",
		[JINJA_KEYS] = "dict_keys",
		[JINJA_VALUES] = "dict_values",
		[JINJA_ITEMS] = "dict_items",
		[JINJA_GROUP] = "_GroupTuple",
		[JINJA_GENERATOR] = "generator",
		[JINJA_REVERSED] = "list_reverseiterator",
	};

	return v.kind == JINJA_SEQ ? flavors[v.seq->flavor] : kinds[v.kind];
}
