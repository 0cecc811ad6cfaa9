/* SPDX-License-Identifier: MIT */
/*
 * JSON Schema as grammars: the JSON texts that are valid against the schema.
 *
 * Understood (drafts 4 to 2020-12, as far as they agree): type, const, enum; properties, required,
 * additionalProperties, unevaluatedProperties (as a boolean), patternProperties, propertyNames,
 * minProperties, maxProperties; items, prefixItems, minItems, maxItems; minLength, maxLength,
 * pattern, format; minimum, maximum, their exclusive forms, multipleOf; anyOf, oneOf, allOf; $ref
 * within the document, $defs; true and false; nullable. docs/structured-output.md describes each
 * keyword. In short: properties are in the order of the schema; additional ones are allowed only by
 * additionalProperties; oneOf is treated as anyOf.
 *
 * Keywords that restrict a value and are not supported (not, if, uniqueItems, ...) are refused when
 * strict, otherwise ignored; each keyword that is in no table of schema.c is ignored. What is
 * ignored is recorded: grammar_skipped().
 *
 * Bounded: schemas are compiled from a work list, without recursion along references, so cyclic
 * references terminate. GRAMMAR_MAX_RULES and GRAMMAR_MAX_NODES apply.
 */
#ifndef TXDA_GRAMMAR_SCHEMA_H
#define TXDA_GRAMMAR_SCHEMA_H

#include <cjson/cJSON.h>

#include "grammar_build.h"

struct grammar_json;

struct grammar_json_options {
	bool strict;
	bool compact;		/* no white space at all */
	const char *whitespace; /* a regular expression for it; NULL: none, a blank, or a line break
				   and up to 20 blanks */
};

/* Defines the rules shared by all JSON of this builder. @options is copied; NULL: out of memory. */
struct grammar_json *grammar_json_new(struct grammar_builder *b,
				      const struct grammar_json_options *options);
void grammar_json_free(struct grammar_json *j);

/* The rule of the values of @schema, in which references are resolved against @root. The trees must
 * last until grammar_json_finish(). */
uint32_t grammar_json_schema(struct grammar_json *j, const cJSON *root, const cJSON *schema);
/* Likewise, of those values that are objects. */
uint32_t grammar_json_object_schema(struct grammar_json *j, const cJSON *root, const cJSON *schema);
/* The rule of any JSON value, or of any object. */
uint32_t grammar_json_value(struct grammar_json *j);
uint32_t grammar_json_object(struct grammar_json *j);
/*
 * For callers that write some value otherwise than as JSON and enforce only the keywords @names (up
 * to NULL) of its schema: treats the others as unsupported ones.
 */
void grammar_json_only(struct grammar_json *j, const cJSON *schema, const char *const *names);
/* The white space allowed between two tokens. */
struct grammar_piece grammar_json_space(struct grammar_json *j);
/* Compiles the requested schemas. Errors are recorded in the builder. */
void grammar_json_finish(struct grammar_json *j);

#endif
