// SPDX-License-Identifier: MIT
#include "jinja_value.h"

#include <errno.h>
#include <math.h>
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

void jinja_arena_init(struct jinja_arena *arena, size_t limit)
{
	*arena = (struct jinja_arena){.limit = limit};
	if (getrandom(&arena->seed, sizeof(arena->seed), GRND_NONBLOCK) != sizeof(arena->seed))
		arena->seed = (uintptr_t)arena;
}

void jinja_arena_free(struct jinja_arena *arena)
{
	struct jinja_chunk *chunk = arena->chunks;

	while (chunk) {
		struct jinja_chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
	arena->chunks = NULL;
	arena->used = 0;
}

static struct jinja_chunk *add_chunk(struct jinja_arena *arena, size_t size)
{
	struct jinja_chunk *chunk;
	size_t wanted = arena->chunks ? arena->chunks->size * 2 : FIRST_CHUNK;

	if (wanted > LARGEST_CHUNK)
		wanted = LARGEST_CHUNK;
	if (wanted < size)
		wanted = size;
	if (wanted > arena->limit - arena->used)
		wanted = size; /* the last bytes under the limit */
	if (wanted > arena->limit - arena->used) {
		arena->exhausted = true;
		return NULL;
	}
	chunk = malloc(sizeof(*chunk) + wanted);
	if (!chunk)
		return NULL;
	chunk->size = wanted;
	chunk->used = 0;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->used += wanted;
	return chunk;
}

void *jinja_arena_alloc(struct jinja_arena *arena, size_t size)
{
	struct jinja_chunk *chunk = arena->chunks;
	void *memory;

	arena->exhausted = false;
	if (size > arena->limit) {
		arena->exhausted = true;
		return NULL;
	}
	size = (size + 15) & ~(size_t)15;
	if (!chunk || chunk->size - chunk->used < size) {
		struct jinja_chunk *fresh = add_chunk(arena, size);

		if (!fresh)
			return NULL;
		/* A large block should not hide the room left in the current chunk. */
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

int jinja_buffer_append(struct jinja_buffer *buffer, const char *data, size_t length)
{
	if (length > buffer->limit - buffer->length)
		return -E2BIG;
	if (length >= buffer->capacity - buffer->length) {
		size_t capacity = buffer->capacity ? buffer->capacity : 1024;
		char *grown;

		while (capacity - buffer->length <= length)
			capacity *= 2;
		grown = realloc(buffer->data, capacity);
		if (!grown)
			return -ENOMEM;
		buffer->data = grown;
		buffer->capacity = capacity;
	}
	if (length)
		memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
	return 0;
}

size_t jinja_utf8_decode(const char *data, size_t length, uint32_t *ret_char)
{
	const unsigned char *s = (const unsigned char *)data;
	uint32_t c = s[0];
	size_t size, i;

	*ret_char = c;
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c < 0xe0)
		size = 2;
	else if (c >= 0xe0 && c < 0xf0)
		size = 3;
	else if (c >= 0xf0 && c < 0xf5)
		size = 4;
	else
		return 1;
	if (size > length)
		return 1;
	c &= 0x7f >> size;
	for (i = 1; i < size; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 1;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((size == 3 && c < 0x800) || (size == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 1;
	*ret_char = c;
	return size;
}

size_t jinja_utf8_encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

size_t jinja_utf8_count(const char *data, size_t length)
{
	size_t at = 0, count = 0;
	uint32_t c;

	while (at < length) {
		at += jinja_utf8_decode(data + at, length - at, &c);
		count++;
	}
	return count;
}

size_t jinja_str_chars(struct jinja_str *s)
{
	if (s->chars == JINJA_UNCOUNTED)
		s->chars = jinja_utf8_count(s->data, s->length);
	return s->chars;
}

size_t jinja_str_offset(struct jinja_str *s, size_t index)
{
	size_t at = 0;
	uint32_t c;

	if (jinja_str_chars(s) == s->length)
		return index < s->length ? index : s->length;
	while (index-- && at < s->length)
		at += jinja_utf8_decode(s->data + at, s->length - at, &c);
	return at;
}

bool jinja_str_is(const struct jinja_str *s, const char *literal)
{
	size_t length = strlen(literal);

	return s->length == length && !memcmp(s->data, literal, length);
}

struct jinja_str *jinja_arena_str(struct jinja_arena *arena, const char *data, size_t length)
{
	struct jinja_str *s = jinja_arena_alloc(arena, sizeof(*s));

	if (s)
		*s = (struct jinja_str){.data = data, .length = length, .chars = JINJA_UNCOUNTED};
	return s;
}

bool jinja_as_double(struct jinja_value v, double *ret)
{
	int64_t i;

	if (v.kind == JINJA_FLOAT) {
		*ret = v.real;
	} else if (v.kind == JINJA_BIGINT) {
		char digits[400];
		size_t n = v.string->length;

		if (n >= sizeof(digits))
			n = sizeof(digits) - 1;

		memcpy(digits, v.string->data, n);
		digits[n] = '\0';
		*ret = n < v.string->length ? HUGE_VAL : strtod(digits, NULL);
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

bool jinja_hash(const struct jinja_arena *arena, struct jinja_value v, unsigned int depth,
		uint64_t *ret)
{
	int64_t i = 0;

	switch (v.kind) {
	case JINJA_NONE: *ret = jinja_hash_bytes(arena, "None", 4); return true;
	case JINJA_FLOAT:
		/* 1.0 and 1 are one key */
		if (v.real >= -9e18 && v.real <= 9e18 && (double)(int64_t)v.real == v.real)
			i = (int64_t)v.real;
		else
			memcpy(&i, &v.real, sizeof(i));
		*ret = jinja_hash_bytes(arena, (const char *)&i, sizeof(i));
		return true;
	case JINJA_BOOL:
	case JINJA_INT:
		jinja_as_int(v, &i);
		*ret = jinja_hash_bytes(arena, (const char *)&i, sizeof(i));
		return true;
	case JINJA_BIGINT:
	case JINJA_STRING:
		*ret = jinja_hash_bytes(arena, v.string->data, v.string->length);
		return true;
	case JINJA_SEQ:
		if (!jinja_is_tuple(v) || depth > 16)
			return false;
		*ret = v.seq->n;
		for (i = 0; i < (int64_t)v.seq->n; i++) {
			uint64_t item;

			if (!jinja_hash(arena, v.seq->items[i], depth + 1, &item))
				return false;
			*ret = (*ret ^ item) * 0x9e3779b97f4a7c15ull;
		}
		return true;
	default: return false;
	}
}

/* Both are known to be hashable, so they nest no deeper than jinja_hash() allows. */
static bool key_equal(struct jinja_value a, struct jinja_value b)
{
	size_t i;

	if (jinja_is_number(a) && jinja_is_number(b) && a.kind != JINJA_BIGINT &&
	    b.kind != JINJA_BIGINT) {
		int64_t x, y;
		double f, g;

		if (jinja_as_int(a, &x) && jinja_as_int(b, &y))
			return x == y;
		return jinja_as_double(a, &f) && jinja_as_double(b, &g) && f == g;
	}
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case JINJA_NONE: return true;
	case JINJA_BIGINT:
	case JINJA_STRING:
		return a.string->length == b.string->length &&
		       !memcmp(a.string->data, b.string->data, a.string->length);
	case JINJA_SEQ:
		if (a.seq->n != b.seq->n)
			return false;
		for (i = 0; i < a.seq->n; i++)
			if (!key_equal(a.seq->items[i], b.seq->items[i]))
				return false;
		return true;
	default: return false;
	}
}

struct jinja_entry *jinja_dict_find_hash(const struct jinja_dict *dict, uint64_t hash,
					 struct jinja_value key)
{
	size_t i;

	if (!dict->index) {
		for (i = 0; i < dict->n; i++)
			if (dict->entries[i].hash == hash && key_equal(dict->entries[i].key, key))
				return &dict->entries[i];
		return NULL;
	}
	for (i = hash & (dict->index_size - 1); dict->index[i];
	     i = (i + 1) & (dict->index_size - 1)) {
		struct jinja_entry *entry = &dict->entries[dict->index[i] - 1];

		if (entry->hash == hash && key_equal(entry->key, key))
			return entry;
	}
	return NULL;
}

struct jinja_value *jinja_dict_find(const struct jinja_arena *arena, const struct jinja_dict *dict,
				    const char *key, size_t length)
{
	struct jinja_str s = {.data = key, .length = length, .chars = JINJA_UNCOUNTED};
	struct jinja_value v = {.kind = JINJA_STRING, .string = &s};
	struct jinja_entry *entry;

	entry = jinja_dict_find_hash(dict, jinja_hash_bytes(arena, key, length), v);
	return entry ? &entry->value : NULL;
}

static void index_entry(struct jinja_dict *dict, size_t number)
{
	size_t i = dict->entries[number].hash & (dict->index_size - 1);

	while (dict->index[i])
		i = (i + 1) & (dict->index_size - 1);
	dict->index[i] = (uint32_t)(number + 1);
}

static int grow_dict(struct jinja_arena *arena, struct jinja_dict *dict)
{
	size_t capacity = dict->capacity ? dict->capacity * 2 : 4, i;
	struct jinja_entry *entries;

	if (capacity > UINT32_MAX / 4)
		return -ENOMEM;
	entries = jinja_arena_alloc(arena, capacity * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	if (dict->n)
		memcpy(entries, dict->entries, dict->n * sizeof(*entries));
	if (capacity > SMALL_DICT) {
		uint32_t *index = jinja_arena_alloc(arena, capacity * 2 * sizeof(*index));

		if (!index)
			return -ENOMEM;
		memset(index, 0, capacity * 2 * sizeof(*index));
		dict->index = index;
		dict->index_size = capacity * 2;
	}
	dict->entries = entries;
	dict->capacity = capacity;
	if (dict->index)
		for (i = 0; i < dict->n; i++)
			index_entry(dict, i);
	return 0;
}

int jinja_dict_insert(struct jinja_arena *arena, struct jinja_dict *dict, uint64_t hash,
		      struct jinja_value key, struct jinja_value value)
{
	struct jinja_entry *entry = jinja_dict_find_hash(dict, hash, key);

	if (entry) {
		entry->value = value; /* the first key stays, as in Python */
		return 0;
	}
	if (dict->n == dict->capacity && grow_dict(arena, dict))
		return -ENOMEM;
	dict->entries[dict->n] = (struct jinja_entry){key, value, hash};
	dict->n++;
	if (dict->index)
		index_entry(dict, dict->n - 1);
	return 0;
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

	switch (v.kind) {
	case JINJA_UNDEFINED: return "Undefined";
	case JINJA_NONE: return "NoneType";
	case JINJA_BOOL: return "bool";
	case JINJA_INT:
	case JINJA_BIGINT: return "int";
	case JINJA_FLOAT: return "float";
	case JINJA_STRING: return "str";
	case JINJA_SEQ: return flavors[v.seq->flavor];
	case JINJA_DICT: return "dict";
	case JINJA_NAMESPACE: return "Namespace";
	case JINJA_CALLABLE: return "builtin_function_or_method";
	case JINJA_MACRO: return "Macro";
	case JINJA_LOOP: return "LoopContext";
	case JINJA_CYCLER: return "Cycler";
	case JINJA_JOINER: return "Joiner";
	default: return "nothing";
	}
}
