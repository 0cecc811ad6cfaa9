// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_regex.h"
#include "json_text.h"
#include "schema_internal.h"

/* ---- alternatives ---------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name))
		names++;
	return *names;
}

/* Keywords that restrict nothing. */
static bool is_annotation(const char *name)
{
	static const char *const names[] = {
		"$schema",    "$id",	     "id",	  "$comment",	 "$defs",   "definitions",
		"$anchor",    "$vocabulary", "title",	  "default",	 "example", "examples",
		"deprecated", "readOnly",    "writeOnly", "description", NULL,
	};

	return is_one_of(name, names) || !strncmp(name, "x-", 2);
}

/* Whether all keywords of a part have been handled or have no effect. */
static bool says_nothing(const struct part *part)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, part->schema) {
		bool known = (!strcmp(item->string, "$ref") && (part->done & DONE_REF)) ||
			     (!strcmp(item->string, "allOf") && (part->done & DONE_ALL_OF)) ||
			     (!strcmp(item->string, "anyOf") && (part->done & DONE_ANY_OF)) ||
			     (!strcmp(item->string, "oneOf") && (part->done & DONE_ONE_OF));

		if (!known && !is_annotation(item->string))
			return false;
	}
	return !cJSON_IsFalse(part->schema);
}

/* Removes parts without further effect. */
static void thin_out(struct view *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < v->n; i++) {
		if (!says_nothing(&v->parts[i]))
			v->parts[n++] = v->parts[i];
	}
	v->n = n;
}

/* The view with each of @branches added in turn. */
static struct grammar_piece branches(struct grammar_json *j, const struct view *v,
				     const cJSON *branches, const char *name)
{
	struct grammar_piece piece = grammar_never(j->b);
	const cJSON *one;

	if (!cJSON_IsArray(branches) || !branches->child) {
		schema_wrong(j, name, "an array that is not empty");
		return piece;
	}
	cJSON_ArrayForEach(one, branches) {
		struct view with = *v;

		if (grammar_failed(j->b) || !view_add(j, &with, one))
			break;
		thin_out(&with);
		piece = grammar_either(j->b, piece, view_call(j, &with));
	}
	return piece;
}

/* Finds an anyOf or oneOf that has not been handled; NULL: none. */
static const cJSON *find_branches(struct grammar_builder *b, struct view *v, const char **ret_name)
{
	for (unsigned i = 0; i < v->n; i++) {
		struct part *part = &v->parts[i];
		const cJSON *any = schema_member(part->schema, "anyOf");
		const cJSON *one = schema_member(part->schema, "oneOf");

		if (any && !(part->done & DONE_ANY_OF)) {
			part->done |= DONE_ANY_OF;
			*ret_name = "anyOf";
			return any;
		}
		if (one && !(part->done & DONE_ONE_OF)) {
			part->done |= DONE_ONE_OF;
			if (cJSON_GetArraySize(one) > 1)
				grammar_skip(b, "oneOf as anyOf");
			*ret_name = "oneOf";
			return one;
		}
	}
	return NULL;
}

/* ---- types ----------------------------------------------------------------------------------- */

static unsigned type_by_name(const char *name)
{
	static const struct {
		const char *name;
		unsigned type;
	} types[] = {
		{"null", JSON_NULL},	   {"boolean", JSON_BOOLEAN},
		{"integer", JSON_INTEGER}, {"number", JSON_NUMBER | JSON_INTEGER},
		{"string", JSON_STRING},   {"array", JSON_ARRAY},
		{"object", JSON_OBJECT},
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (!strcmp(types[i].name, name))
			return types[i].type;
	}
	return 0;
}

static unsigned one_type(struct grammar_json *j, const cJSON *name)
{
	unsigned type = cJSON_IsString(name) ? type_by_name(name->valuestring) : 0;

	if (!type)
		schema_wrong(j, "type", "a type of JSON or an array of them");
	return type;
}

/* The type implied by the keywords of a schema that states none; JSON_ANY: none. */
static unsigned implied_type(const cJSON *schema)
{
	static const struct {
		const char *keyword;
		unsigned type;
	} keywords[] = {
		{"properties", JSON_OBJECT},
		{"required", JSON_OBJECT},
		{"additionalProperties", JSON_OBJECT},
		{"patternProperties", JSON_OBJECT},
		{"propertyNames", JSON_OBJECT},
		{"minProperties", JSON_OBJECT},
		{"maxProperties", JSON_OBJECT},
		{"items", JSON_ARRAY},
		{"prefixItems", JSON_ARRAY},
		{"minItems", JSON_ARRAY},
		{"maxItems", JSON_ARRAY},
		{"pattern", JSON_STRING},
		{"minLength", JSON_STRING},
		{"maxLength", JSON_STRING},
		{"format", JSON_STRING},
		{"minimum", JSON_NUMBER | JSON_INTEGER},
		{"maximum", JSON_NUMBER | JSON_INTEGER},
		{"exclusiveMinimum", JSON_NUMBER | JSON_INTEGER},
		{"exclusiveMaximum", JSON_NUMBER | JSON_INTEGER},
		{"multipleOf", JSON_NUMBER | JSON_INTEGER},
	};
	unsigned types = 0;

	for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
		if (schema_member(schema, keywords[i].keyword))
			types |= keywords[i].type;
	}
	return types ? types : JSON_ANY;
}

/* Whether one of the parts states the type explicitly. */
static bool has_type(const struct view *v)
{
	for (unsigned i = 0; i < v->n; i++) {
		if (schema_member(v->parts[i].schema, "type"))
			return true;
	}
	return false;
}

static unsigned types_of(struct grammar_json *j, const struct view *v)
{
	unsigned types = JSON_ANY;
	bool typed = has_type(v);

	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *type = schema_member(v->parts[i].schema, "type"), *one;
		unsigned mine = 0;

		if (cJSON_IsFalse(v->parts[i].schema))
			return 0;
		if (cJSON_IsArray(type)) {
			cJSON_ArrayForEach(one, type)
				mine |= one_type(j, one);
		} else if (type) {
			mine = one_type(j, type);
		} else {
			mine = typed ? JSON_ANY : implied_type(v->parts[i].schema);
		}
		if (cJSON_IsTrue(schema_member(v->parts[i].schema, "nullable")))
			mine |= JSON_NULL;
		types &= mine;
	}
	return types;
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* Keywords that the compiler enforces, some only together with others. */
static const char *const enforced[] = {
	"type",
	"const",
	"enum",
	"nullable",
	"properties",
	"required",
	"$ref",
	"allOf",
	"anyOf",
	"oneOf",
	"additionalProperties",
	"unevaluatedProperties",
	"patternProperties",
	"propertyNames",
	"minProperties",
	"maxProperties",
	"items",
	"prefixItems",
	"additionalItems",
	"minItems",
	"maxItems",
	"minLength",
	"maxLength",
	"pattern",
	"format",
	"minimum",
	"maximum",
	"exclusiveMinimum",
	"exclusiveMaximum",
	"multipleOf",
	NULL,
};

/* Keywords of the standard that restrict a value and are not supported. */
static const char *const unsupported[] = {
	"not",
	"if",
	"then",
	"else",
	"dependentRequired",
	"dependentSchemas",
	"dependencies",
	"contains",
	"minContains",
	"maxContains",
	"uniqueItems",
	"unevaluatedItems",
	"$dynamicRef",
	"$recursiveRef",
	NULL,
};

/*
 * Refuses what is not supported. Keywords that the standard does not know mean nothing by it, as do
 * unknown formats, but their author may think otherwise: they are recorded.
 */
static void refuse_unknown(struct grammar_json *j, const struct view *v)
{
	const cJSON *item;
	char format[64];

	for (unsigned i = 0; i < v->n; i++) {
		cJSON_ArrayForEach(item, v->parts[i].schema) {
			if (is_one_of(item->string, unsupported) &&
			    !(cJSON_IsFalse(item) && !strcmp(item->string, "uniqueItems")))
				schema_refuse(j, item->string);
			else if (!is_one_of(item->string, enforced) &&
				 !is_one_of(item->string, unsupported) &&
				 !is_annotation(item->string))
				grammar_skip(j->b, item->string);
		}
		item = schema_member(v->parts[i].schema, "format");
		if (item && !schema_format(v->parts[i].schema)) {
			snprintf(format, sizeof(format), "format %.40s",
				 cJSON_IsString(item) ? item->valuestring : "of no name");
			grammar_skip(j->b, format);
		}
	}
}

void grammar_json_only(struct grammar_json *j, const cJSON *schema, const char *const *names)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, schema) {
		if (!is_one_of(item->string, names) && !is_annotation(item->string))
			schema_refuse(j, item->string);
	}
}

/*
 * The values of the first enum or const that satisfy everything else; false: there is no such
 * keyword.
 */
static bool listed(struct grammar_json *j, const struct view *v, unsigned types,
		   struct grammar_piece *ret)
{
	const cJSON *values = NULL, *constant = NULL, *value;
	struct grammar_bytes *strings;
	size_t n = 0, cap;

	for (unsigned i = 0; i < v->n && !values && !constant; i++) {
		constant = schema_member(v->parts[i].schema, "const");
		values = schema_member(v->parts[i].schema, "enum");
	}
	if (!values && !constant)
		return false;
	*ret = grammar_never(j->b);
	if (!constant && (!cJSON_IsArray(values) || !values->child)) {
		schema_wrong(j, "enum", "an array that is not empty");
		return true;
	}
	cap = constant ? 1 : (size_t)cJSON_GetArraySize(values);
	strings = calloc(cap, sizeof(*strings));
	if (!strings) {
		grammar_fail(j->b, -ENOMEM, "out of memory");
		return true;
	}
	for (value = constant ? constant : values->child; value;
	     value = constant ? NULL : value->next) {
		if (!(schema_type_of(value) & types) || !schema_accepts(j, v, value))
			continue;
		strings[n].bytes = schema_print(value, &strings[n].len);
		if (!strings[n].bytes)
			grammar_fail(j->b, -ENOMEM, "out of memory");
		else
			n++;
	}
	*ret = grammar_one_of(j->b, strings, n);
	for (size_t i = 0; i < n; i++)
		free((char *)(uintptr_t)strings[i].bytes);
	free(strings);
	return true;
}

static struct grammar_piece by_type(struct grammar_json *j, const struct view *v)
{
	unsigned types = types_of(j, v);
	struct grammar_piece piece = grammar_never(j->b);
	struct grammar_builder *b = j->b;

	if (types & JSON_NULL)
		piece = grammar_either(b, piece, grammar_text(b, "null"));
	if (types & JSON_BOOLEAN)
		piece = grammar_either(
			b, piece,
			grammar_either(b, grammar_text(b, "true"), grammar_text(b, "false")));
	if (types & (JSON_NUMBER | JSON_INTEGER))
		piece = grammar_either(b, piece, schema_number(j, v, !(types & JSON_NUMBER)));
	if (types & JSON_STRING)
		piece = grammar_either(b, piece, schema_string(j, v));
	if (types & JSON_ARRAY)
		piece = grammar_either(b, piece, schema_array(j, v));
	if (types & JSON_OBJECT)
		piece = grammar_either(b, piece, schema_object(j, v));
	return piece;
}

static void compile(struct grammar_json *j, const struct work *work)
{
	struct view v = {.root = work->view->root, .n = work->view->n};
	uint32_t rule = work->rule;
	struct grammar_piece piece;
	const cJSON *alternatives;
	const char *name;

	memcpy(v.parts, work->view->parts, v.n * sizeof(v.parts[0]));
	if (!view_flatten(j, &v))
		return;
	thin_out(&v);
	refuse_unknown(j, &v);
	alternatives = find_branches(j->b, &v, &name);
	if (alternatives)
		piece = branches(j, &v, alternatives, name);
	else if (!v.n)
		piece = grammar_call(j->b, grammar_json_value(j));
	else if (!listed(j, &v, JSON_ANY, &piece))
		piece = by_type(j, &v);
	grammar_define(j->b, rule, piece);
}

/* Whether the view, which is made flat, has names: they are strings, without branches. */
static bool key_view(struct grammar_json *j, struct view *v)
{
	if (!view_flatten(j, v))
		return false;
	refuse_unknown(j, v);
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema;

		if (schema_member(schema, "anyOf") || schema_member(schema, "oneOf"))
			schema_refuse(j, "anyOf or oneOf in propertyNames");
	}
	/* Without a type they are strings, whatever the keywords imply. */
	for (unsigned i = 0; i < v->n; i++) {
		if (cJSON_IsFalse(v->parts[i].schema))
			return false;
	}
	return !has_type(v) || types_of(j, v) & JSON_STRING;
}

struct grammar_piece schema_key(struct grammar_json *j, const struct view *v)
{
	struct view flat = *v;
	struct grammar_piece piece;

	if (!key_view(j, &flat))
		return grammar_never(j->b);
	return listed(j, &flat, JSON_STRING, &piece) ? piece : schema_string(j, &flat);
}

bool schema_key_fits(struct grammar_json *j, const struct view *v, const char *name)
{
	struct view flat = *v;

	return key_view(j, &flat) && schema_accepts_name(j, &flat, name);
}

void grammar_json_finish(struct grammar_json *j)
{
	while (j->done < j->n_work && !grammar_failed(j->b))
		compile(j, &j->work[j->done++]);
}

uint32_t grammar_json_schema(struct grammar_json *j, const cJSON *root, const cJSON *schema)
{
	struct view v = {.root = root};

	view_add(j, &v, schema);
	return view_rule(j, &v);
}

uint32_t grammar_json_object_schema(struct grammar_json *j, const cJSON *root, const cJSON *schema)
{
	const char *type = cJSON_GetStringValue(schema_member(schema, "type"));
	struct view v = {.root = root};

	view_add(j, &v, schema);
	if (!type || strcmp(type, "object") != 0)
		view_add(j, &v, j->is_object);
	return view_rule(j, &v);
}

/* ---- rules that all share -------------------------------------------------------------------- */

struct grammar_piece schema_sequence(struct grammar_builder *b, const struct grammar_piece *pieces,
				     size_t n)
{
	struct grammar_piece piece = pieces[0];

	for (size_t i = 1; i < n; i++)
		piece = grammar_seq(b, piece, pieces[i]);
	return piece;
}

struct grammar_piece schema_comma(struct grammar_json *j)
{
	return grammar_seq(j->b, grammar_text(j->b, ","), grammar_json_space(j));
}

static struct grammar_piece default_space(struct grammar_builder *b)
{
	struct grammar_set blank = {0};
	struct grammar_piece line;

	grammar_set_add(&blank, ' ', ' ');
	grammar_set_add(&blank, '\t', '\t');
	line = grammar_seq(b, grammar_text(b, "\n"),
			   grammar_repeat(b, grammar_char(b, &blank), 0, 20));
	return grammar_optional(b, grammar_either(b, grammar_text(b, " "), line));
}

struct grammar_piece grammar_json_space(struct grammar_json *j)
{
	return j->options.compact ? grammar_empty(j->b) : grammar_call(j->b, j->space);
}

static void define_shared(struct grammar_json *j)
{
	const struct grammar_regex_options plain = {0};
	struct grammar_builder *b = j->b;
	struct grammar_piece piece;

	j->space = grammar_rule(b, "white space");
	grammar_define(b, j->space,
		       j->whitespace
			       ? grammar_regex(b, j->whitespace, strlen(j->whitespace), &plain)
			       : default_space(b));
	j->string = grammar_rule(b, "a string");
	piece = grammar_seq(b, grammar_text(b, "\""), grammar_star(b, json_any_char(b)));
	grammar_define(b, j->string, grammar_seq(b, piece, grammar_text(b, "\"")));
	j->number = grammar_rule(b, "a number");
	grammar_define(b, j->number, schema_any_number(b, false));
	j->integer = grammar_rule(b, "an integer");
	grammar_define(b, j->integer, schema_any_number(b, true));
	j->value = grammar_rule(b, "a value");
	j->object = grammar_rule(b, "an object");
	/* Any object: the result for a schema without keywords. */
	grammar_define(b, j->object, schema_object(j, &(struct view){0}));
	piece = grammar_either(b, grammar_call(b, j->object), schema_array(j, &(struct view){0}));
	piece = grammar_either(b, piece, grammar_call(b, j->string));
	piece = grammar_either(b, piece, grammar_call(b, j->number));
	piece = grammar_either(b, piece, grammar_text(b, "true"));
	piece = grammar_either(b, piece, grammar_text(b, "false"));
	piece = grammar_either(b, piece, grammar_text(b, "null"));
	grammar_define(b, j->value, piece);
}

struct grammar_json *grammar_json_new(struct grammar_builder *b,
				      const struct grammar_json_options *options)
{
	struct grammar_json *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->b = b;
	j->options = *options;
	j->is_object = cJSON_CreateObject();
	if (options->whitespace)
		j->whitespace = strdup(options->whitespace);
	if (!cJSON_AddStringToObject(j->is_object, "type", "object") ||
	    (options->whitespace && !j->whitespace)) {
		grammar_json_free(j);
		return NULL;
	}
	define_shared(j);
	return j;
}

void grammar_json_free(struct grammar_json *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < j->n_work; i++)
		free(j->work[i].view);
	free(j->whitespace);
	cJSON_Delete(j->is_object);
	free(j->work);
	free(j->slots);
	free(j);
}

uint32_t grammar_json_value(struct grammar_json *j)
{
	return j->value;
}

uint32_t grammar_json_object(struct grammar_json *j)
{
	return j->object;
}
