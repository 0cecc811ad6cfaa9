/* SPDX-License-Identifier: MIT */
/*
 * Values of the template interpreter, their memory, and error handling.
 *
 * Values are 16 bytes and copied freely; what they point to lives in an arena and is immutable once
 * built (namespaces, loops, cyclers and the position of a generator excepted, which are private to
 * one render). Strings may point into other strings, into the template or into the caller's cJSON
 * tree, so slicing and stripping copy nothing.
 *
 * Errors: a failing function calls jinja_throw(), which fills in the error and jumps back to the
 * entry point (txda_template_parse() or txda_template_render()). So functions return their result
 * and never an error. This is safe because nothing between the entry point and the error owns
 * memory or other resources outside of struct jinja_run.
 */
#ifndef TXDA_TEXT_JINJA_VALUE_H
#define TXDA_TEXT_JINJA_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jinja.h"
#include "utf8.h"

/* Memory that is freed as a whole. */
struct jinja_chunk;
struct jinja_arena {
	struct jinja_chunk *chunks;
	size_t used; /* bytes allocated from the system */
	size_t limit;
	uint64_t seed; /* of the hash tables, so that colliding keys cannot be constructed */
};

/* One parse or render: its memory and where errors jump to. */
struct jinja_run {
	struct jinja_arena *arena;
	struct txda_template_error *error;
	unsigned int line; /* of the template, for errors */
	jmp_buf escape;	   /* set by the entry point; a throw arrives there with the -errno */
};

__attribute__((format(printf, 3, 4))) _Noreturn void
jinja_throw(struct jinja_run *run, enum txda_template_error_kind kind, const char *format, ...);
/* The -errno for an error. */
int jinja_error_code(enum txda_template_error_kind kind);

void jinja_arena_init(struct jinja_arena *arena, size_t limit);
void jinja_arena_free(struct jinja_arena *arena);
/* 16-aligned, not cleared. Throws past the limit and when malloc() fails. */
void *jinja_arena_alloc(struct jinja_run *run, size_t size);

enum jinja_kind {
	JINJA_ABSENT, /* no value: an argument that was not given */
	JINJA_UNDEFINED,
	JINJA_NONE,
	JINJA_BOOL,
	JINJA_INT,
	JINJA_FLOAT,
	JINJA_BIGINT, /* integer beyond 64 bits, kept as decimal text */
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
	size_t chars;	  /* code points; JINJA_UNCOUNTED until requested */
};

#define JINJA_UNCOUNTED SIZE_MAX

/* "%.*s" arguments of a string, truncated for an error message. */
#define JINJA_SHOW(s) (int)((s)->length < 80 ? (s)->length : 80), (s)->data

struct jinja_value {
	uint8_t kind; /* enum jinja_kind */
	bool safe;    /* string marked by the filter `safe` */
	union {
		bool boolean;
		int64_t integer;
		double real;
		struct jinja_str *string; /* STRING, BIGINT */
		struct jinja_seq *seq;
		struct jinja_dict *dict; /* DICT, NAMESPACE */
		const char *undefined;	 /* message for using it; may be NULL */
		const struct jinja_bound *callable;
		const struct jinja_macro *macro;
		struct jinja_loop *loop;
		struct jinja_cycle *cycle; /* CYCLER, JOINER */
	};
};

/* Python's sequence and iterator types; here all items exist in memory. */
enum jinja_flavor {
	JINJA_LIST,
	JINJA_TUPLE,
	JINJA_RANGE,
	JINJA_GROUP, /* tuple (grouper, list) with these attributes */
	JINJA_KEYS,  /* from here on: no items by index */
	JINJA_VALUES,
	JINJA_ITEMS,
	JINJA_GENERATOR, /* consumed by iteration: no length */
	JINJA_REVERSED,	 /* the same, made by `reverse` */
};

struct jinja_seq {
	enum jinja_flavor flavor;
	struct jinja_value *items;
	size_t n;
	size_t capacity;
	size_t position;  /* generators: items consumed so far */
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

static inline struct jinja_value jinja_str_value(const struct jinja_str *s)
{
	return (struct jinja_value){.kind = JINJA_STRING, .string = (struct jinja_str *)s};
}

static inline struct jinja_value jinja_seq_value(struct jinja_seq *seq)
{
	return (struct jinja_value){.kind = JINJA_SEQ, .seq = seq};
}

static inline struct jinja_value jinja_dict_value(struct jinja_dict *dict)
{
	return (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
}

static inline bool jinja_is_number(struct jinja_value v)
{
	return v.kind >= JINJA_BOOL && v.kind <= JINJA_BIGINT;
}

/* Whether it is consumed by iterating. */
static inline bool jinja_is_generator(struct jinja_value v)
{
	return v.kind == JINJA_SEQ && v.seq->flavor >= JINJA_GENERATOR;
}

/* Whether it has items by index. */
static inline bool jinja_is_indexed(struct jinja_value v)
{
	return v.kind == JINJA_SEQ && v.seq->flavor < JINJA_KEYS;
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

/* int or bool, which are interchangeable in Python */
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
bool jinja_truth(struct jinja_value v);
const char *jinja_type_name(struct jinja_value v);

/* Strings. Decoding never fails: a stray byte stands for itself as one character. */
static inline size_t jinja_decode(const struct jinja_str *s, size_t at, uint32_t *ret_char)
{
	const uint8_t *bytes = (const uint8_t *)s->data + at;
	bool whole;
	unsigned int size = utf8_scan(bytes, s->length - at, &whole);

	*ret_char = whole ? utf8_decode(bytes, &size) : bytes[0];
	return whole ? size : 1;
}

size_t jinja_str_chars(struct jinja_str *s);
/* Byte offset of character @index; index may be the count. */
size_t jinja_str_offset(struct jinja_str *s, size_t index);
/* The number of characters in the first @length bytes. */
size_t jinja_count_chars(const struct jinja_str *s, size_t length);
bool jinja_str_is(const struct jinja_str *s, const char *literal);
bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b);

/* Dictionaries. */
uint64_t jinja_hash_bytes(const struct jinja_arena *arena, const char *data, size_t length);
struct jinja_entry *jinja_dict_find_hash(const struct jinja_dict *dict, uint64_t hash,
					 struct jinja_value key);
/* NULL: there is no such key */
struct jinja_value *jinja_dict_find(const struct jinja_arena *arena, const struct jinja_dict *dict,
				    const struct jinja_str *key);
/* Adds or replaces a value; a key that is there stays, as in Python (1 and 1.0 are equal). */
void jinja_dict_insert(struct jinja_run *run, struct jinja_dict *dict, uint64_t hash,
		       struct jinja_value key, struct jinja_value value);

/* Properties and cases of characters as Python has them (jinja_text.c). */

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

enum jinja_case {
	JINJA_CASE_LOWER,
	JINJA_CASE_UPPER,
	JINJA_CASE_SWAP,
	JINJA_CASE_FOLD,
	JINJA_CASE_TITLE,      /* the first of each run of cased characters */
	JINJA_CASE_CAPITALIZE, /* only the first character */
	JINJA_CASE_WORDS,      /* the filter `title`: words begin after blanks and brackets */
};

/* Whether the simple mapping of @c to upper or lower case is another character. */
bool jinja_changes(uint32_t c, enum jinja_case mode);
/*
 * Converts the character at @at of @s; *@state is 0 at the start. Returns the number of resulting
 * characters.
 */
unsigned int jinja_change_char(const struct jinja_str *s, size_t at, enum jinja_case mode,
			       unsigned int *state, uint32_t out[3]);

/* Python's int(text, base) and float(text): false when the text is not a number. */
bool jinja_parse_int(const struct jinja_str *s, unsigned int base, int64_t *ret);
bool jinja_parse_float(const struct jinja_str *s, double *ret);
/* An integer of any length in decimal, into @text without +, space and leading zeros. */
bool jinja_parse_decimal(const struct jinja_str *s, char *text, size_t size);

#endif
