/* SPDX-License-Identifier: MIT */
/* Shared by the files of the schema compiler. */
#ifndef TXDA_GRAMMAR_SCHEMA_INTERNAL_H
#define TXDA_GRAMMAR_SCHEMA_INTERNAL_H

#include "grammar_schema.h"

#define VIEW_MAX   48	      /* schemas that apply to one value at once */
#define LOOP_DEPTH 64	      /* schemas that lead to each other for one value */
#define LOOP_STEPS (1u << 20) /* of all searches for loops */

/* Keywords of a schema that a view has handled. */
enum {
	DONE_REF = 1,
	DONE_ALL_OF = 2,
	DONE_ANY_OF = 4,
	DONE_ONE_OF = 8,
};

struct part {
	const cJSON *schema;
	unsigned done;
};

/* Schemas that all apply to a value. */
struct view {
	const cJSON *root; /* root for references */
	unsigned n;
	struct part parts[VIEW_MAX];
};

enum json_type {
	JSON_NULL = 1,
	JSON_BOOLEAN = 2,
	JSON_INTEGER = 4,
	JSON_NUMBER = 8, /* with JSON_INTEGER: any number */
	JSON_STRING = 16,
	JSON_ARRAY = 32,
	JSON_OBJECT = 64,
	JSON_ANY = 127,
};

/* A view and its rule. */
struct work {
	struct view *view; /* with room for its own parts only */
	uint32_t rule;
};

struct grammar_json {
	struct grammar_builder *b;
	struct grammar_json_options options;
	char *whitespace;
	cJSON *is_object;					/* the schema {"type": "object"} */
	uint32_t value, object, string, number, integer, space; /* rules that all share */
	struct work *work;					/* views and their rules */
	size_t n_work, cap_work, done;
	size_t *slots, n_slots; /* an index over work, number + 1 */
	unsigned loop_steps;
};

/* Refuses a keyword when strict, and otherwise records that it is not enforced. */
void schema_refuse(struct grammar_json *j, const char *keyword);
void schema_wrong(struct grammar_json *j, const char *keyword, const char *wanted);
/* A member of a schema that is an object; NULL: none. */
const cJSON *schema_member(const cJSON *schema, const char *name);
/* A member that is a count; *ret is unchanged if it is absent. */
void schema_count(struct grammar_json *j, const cJSON *schema, const char *name, uint32_t *ret);

bool view_add(struct grammar_json *j, struct view *v, const cJSON *schema);
/* Adds the schemas of references and allOf to the view until there are no more. */
bool view_flatten(struct grammar_json *j, struct view *v);
/* The rule of a view, to be compiled later if it is new. */
uint32_t view_rule(struct grammar_json *j, const struct view *v);
struct grammar_piece view_call(struct grammar_json *j, const struct view *v);
/* A string by the view of `propertyNames`, and whether @name is one of them. */
struct grammar_piece schema_key(struct grammar_json *j, const struct view *v);
bool schema_key_fits(struct grammar_json *j, const struct view *v, const char *name);

struct grammar_piece schema_sequence(struct grammar_builder *b, const struct grammar_piece *pieces,
				     size_t n);
/* A comma and the white space after it. */
struct grammar_piece schema_comma(struct grammar_json *j);

/* schema_object.c, schema_array.c */
struct grammar_piece schema_object(struct grammar_json *j, const struct view *v);
struct grammar_piece schema_array(struct grammar_json *j, const struct view *v);
/* schema_string.c */
struct grammar_piece schema_string(struct grammar_json *j, const struct view *v);
/* The expression of the schema's `format`; NULL: none, or an unknown one. */
const char *schema_format(const cJSON *schema);
/* schema_number.c */
struct grammar_piece schema_number(struct grammar_json *j, const struct view *v, bool integer);
struct grammar_piece schema_any_number(struct grammar_builder *b, bool integer);
/*
 * schema_value.c: whether a value of enum or const satisfies the rest of the view, as far as that is
 * checked: the rest is refused when strict. Its text, to be freed.
 */
bool schema_accepts(struct grammar_json *j, const struct view *v, const cJSON *value);
/* Likewise of a property's name, by a flat view. */
bool schema_accepts_name(struct grammar_json *j, const struct view *v, const char *name);
unsigned schema_type_of(const cJSON *value);
/* Whether two values are equal; members may be in any order. */
bool schema_same(const cJSON *a, const cJSON *b);
char *schema_print(const cJSON *value, size_t *ret_len);

#endif
