/* SPDX-License-Identifier: MIT */
/*
 * Values of the template interpreter and the memory they live in.
 *
 * Values are 16 bytes and copied freely; what they point to lives in an arena and is immutable once
 * built (namespaces, loops, cyclers and the position of a generator excepted, which are private to
 * one render). Strings may point into other strings, into the template or into the caller's cJSON
 * tree, so slicing and stripping copy nothing.
 */
#ifndef TXDA_TEXT_JINJA_VALUE_H
#define TXDA_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_render;
struct jinja_macro;
struct jinja_loop;

/*
 * Memory that is freed as a whole. jinja_arena_alloc() returns NULL past the limit or when malloc
 * fails.
 */
struct jinja_chunk;
struct jinja_arena {
	struct jinja_chunk *chunks;
	size_t used; /* bytes taken from the system */
	size_t limit;
	uint64_t seed;	/* of the hash tables, so that keys cannot be made to collide */
	bool exhausted; /* the last NULL was the limit, not malloc */
};

void jinja_arena_init(struct jinja_arena *arena, size_t limit);
void *jinja_arena_alloc(struct jinja_arena *arena, size_t size);
void jinja_arena_free(struct jinja_arena *arena);

/* Growing byte buffer, malloc'd. append returns 0, -E2BIG or -ENOMEM. */
struct jinja_buffer {
	char *data;
	size_t length;
	size_t capacity;
	size_t limit;
};

int jinja_buffer_append(struct jinja_buffer *buffer, const char *data, size_t length);

enum jinja_kind {
	JINJA_ABSENT, /* no value: an argument that was not given */
	JINJA_UNDEFINED,
	JINJA_NONE,
	JINJA_BOOL,
	JINJA_INT,
	JINJA_FLOAT,
	JINJA_BIGINT, /* integer literal of the context beyond 64 bits, kept as text */
	JINJA_STRING,
	JINJA_SEQ,
	JINJA_DICT,
	JINJA_NAMESPACE,
	JINJA_CALLABLE, /* global function or method bound to its object */
	JINJA_MACRO,
	JINJA_LOOP,
	JINJA_CYCLER,
	JINJA_JOINER,
};

struct jinja_str {
	const char *data; /* not terminated */
	size_t length;	  /* bytes */
	size_t chars;	  /* code points; JINJA_UNCOUNTED until someone asks */
};

#define JINJA_UNCOUNTED SIZE_MAX

struct jinja_undefined {
	const char *message; /* what using it says, terminated */
};

struct jinja_value {
	uint8_t kind; /* enum jinja_kind */
	bool safe;    /* string marked by the filter `safe` */
	union {
		bool boolean;
		int64_t integer;
		double real;
		struct jinja_str *string; /* STRING, BIGINT */
		struct jinja_seq *seq;
		struct jinja_dict *dict;		 /* DICT, NAMESPACE */
		const struct jinja_undefined *undefined; /* may be NULL */
		const struct jinja_bound *callable;
		struct jinja_macro *macro;
		struct jinja_loop *loop;
		struct jinja_cycle *cycle; /* CYCLER, JOINER */
	};
};

/* Python's several sequence and iterator types; their items are always materialised. */
enum jinja_flavor {
	JINJA_LIST,
	JINJA_TUPLE,
	JINJA_RANGE,
	JINJA_KEYS,
	JINJA_VALUES,
	JINJA_ITEMS,
	JINJA_GROUP,	 /* tuple (grouper, list) with these attributes */
	JINJA_GENERATOR, /* consumed by iteration: no length, no index */
	JINJA_REVERSED,	 /* the same, made by `reverse` */
};

struct jinja_seq {
	enum jinja_flavor flavor;
	struct jinja_value *items;
	size_t n;
	size_t capacity;
	size_t position;  /* generators: items given out so far */
	int64_t range[3]; /* range: start, stop, step */
};

struct jinja_entry {
	struct jinja_value key;
	struct jinja_value value;
	uint64_t hash;
};

/* Insertion-ordered map. Keys: strings, numbers, booleans, None, tuples of these. */
struct jinja_dict {
	struct jinja_entry *entries;
	size_t n;
	size_t capacity;
	uint32_t *index;   /* open addressing, entry number + 1; NULL while it is small */
	size_t index_size; /* power of two */
};

struct jinja_cycle {
	struct jinja_value *items; /* cycler: values; joiner: one separator */
	size_t n;
	size_t position;
};

static inline struct jinja_value jinja_none(void)
{
	return (struct jinja_value){.kind = JINJA_NONE};
}

static inline struct jinja_value jinja_bool(bool b)
{
	return (struct jinja_value){.kind = JINJA_BOOL, .boolean = b};
}

static inline struct jinja_value jinja_int(int64_t i)
{
	return (struct jinja_value){.kind = JINJA_INT, .integer = i};
}

static inline struct jinja_value jinja_float(double f)
{
	return (struct jinja_value){.kind = JINJA_FLOAT, .real = f};
}

static inline struct jinja_value jinja_seq_value(struct jinja_seq *seq)
{
	return (struct jinja_value){.kind = JINJA_SEQ, .seq = seq};
}

static inline struct jinja_value jinja_dict_value(struct jinja_dict *dict)
{
	return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

static inline bool jinja_is_string(struct jinja_value v)
{
	return v.kind == JINJA_STRING;
}

static inline bool jinja_is_number(struct jinja_value v)
{
	return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL ||
	       v.kind == JINJA_BIGINT;
}

/* Is it consumed by iterating? */
static inline bool jinja_is_generator(struct jinja_value v)
{
	return v.kind == JINJA_SEQ &&
	       (v.seq->flavor == JINJA_GENERATOR || v.seq->flavor == JINJA_REVERSED);
}

static inline bool jinja_is_tuple(struct jinja_value v)
{
	return v.kind == JINJA_SEQ &&
	       (v.seq->flavor == JINJA_TUPLE || v.seq->flavor == JINJA_GROUP);
}

static inline bool jinja_is_list(struct jinja_value v)
{
	return v.kind == JINJA_SEQ && v.seq->flavor == JINJA_LIST;
}

/* int or bool, which Python lets stand for each other */
static inline bool jinja_as_int(struct jinja_value v, int64_t *ret)
{
	if (v.kind == JINJA_BOOL)
		*ret = v.boolean;
	else if (v.kind == JINJA_INT)
		*ret = v.integer;
	else
		return false;
	return true;
}

bool jinja_as_double(struct jinja_value v, double *ret);

/* Code points: decoding never fails, a stray byte stands for itself as one character. */
size_t jinja_utf8_decode(const char *data, size_t length, uint32_t *ret_char);
size_t jinja_utf8_encode(uint32_t c, char out[4]);
size_t jinja_utf8_count(const char *data, size_t length);
size_t jinja_str_chars(struct jinja_str *s);
/* Byte offset of character @index; index may be the count. */
size_t jinja_str_offset(struct jinja_str *s, size_t index);
bool jinja_str_is(const struct jinja_str *s, const char *literal);

/* Low-level containers over an arena: 0 or -ENOMEM (arena->exhausted says why). */
struct jinja_str *jinja_arena_str(struct jinja_arena *arena, const char *data, size_t length);
struct jinja_value *jinja_dict_find(const struct jinja_arena *arena, const struct jinja_dict *dict,
				    const char *key, size_t length);
struct jinja_entry *jinja_dict_find_hash(const struct jinja_dict *dict, uint64_t hash,
					 struct jinja_value key);
int jinja_dict_insert(struct jinja_arena *arena, struct jinja_dict *dict, uint64_t hash,
		      struct jinja_value key, struct jinja_value value);
uint64_t jinja_hash_bytes(const struct jinja_arena *arena, const char *data, size_t length);
/* Returns false when the value is no possible key. */
bool jinja_hash(const struct jinja_arena *arena, struct jinja_value v, unsigned int depth,
		uint64_t *ret);

bool jinja_truth(struct jinja_value v);
const char *jinja_type_name(struct jinja_value v);

/* Unicode. jinja_upper_special(): an upper case of two or three characters, else 0. */
enum jinja_char_class {
	JINJA_CHAR_UPPER,
	JINJA_CHAR_LOWER,
	JINJA_CHAR_TITLE,
	JINJA_CHAR_LETTER,  /* without case */
	JINJA_CHAR_DIGIT,   /* decimal */
	JINJA_CHAR_NUMERIC, /* other numbers */
	JINJA_CHAR_MARK,
	JINJA_CHAR_UNPRINTABLE, /* for repr(): controls, separators, unassigned */
	JINJA_CHAR_OTHER,
};
enum jinja_char_class jinja_classify(uint32_t c);
bool jinja_is_space(uint32_t c);
bool jinja_is_line_end(uint32_t c);
bool jinja_is_printable(uint32_t c);
bool jinja_is_cased(uint32_t c);
uint32_t jinja_to_lower(uint32_t c);
uint32_t jinja_to_upper(uint32_t c);
uint32_t jinja_to_title(uint32_t c);
unsigned int jinja_upper_special(uint32_t c, uint32_t out[3]);

#endif
