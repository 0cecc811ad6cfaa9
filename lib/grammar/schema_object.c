// SPDX-License-Identifier: MIT
/* Objects with a schema. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "grammar_regex.h"
#include "json_text.h"
#include "schema_internal.h"

struct property {
	const char *name;
	bool required, possible;
};

struct object {
	struct grammar_json *j;
	const struct view *view;
	struct property *properties;
	size_t n, cap;
	struct view others; /* schema of additional properties */
	bool others_allowed;
	uint32_t wide, tail; /* rules: a character beyond ASCII; the rest of a key */
	uint32_t min, max;   /* properties */
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct property *)a)->name, ((const struct property *)b)->name);
}

static bool note_property(struct object *o, const char *name, bool required)
{
	if (!array_grow(&o->properties, &o->cap, o->n + 1, sizeof(*o->properties))) {
		grammar_fail(o->j->b, -ENOMEM, "out of memory");
		return false;
	}
	o->properties[o->n++] = (struct property){.name = name, .required = required};
	return true;
}

/* Merges duplicates: a name keeps its first position, and is required if any occurrence is. */
static void merge_names(struct object *o)
{
	struct property *sorted = malloc((o->n + 1) * sizeof(*sorted)), *found;
	size_t n = 0, n_sorted = 0;

	if (!sorted) {
		grammar_fail(o->j->b, -ENOMEM, "out of memory");
		return;
	}
	memcpy(sorted, o->properties, o->n * sizeof(*sorted));
	qsort(sorted, o->n, sizeof(*sorted), by_name);
	for (size_t i = 0; i < o->n; i++) {
		if (n_sorted && !strcmp(sorted[n_sorted - 1].name, sorted[i].name))
			sorted[n_sorted - 1].required |= sorted[i].required;
		else
			sorted[n_sorted++] = sorted[i];
	}
	for (size_t i = 0; i < n_sorted; i++)
		sorted[i].possible = false;
	for (size_t i = 0; i < o->n; i++) {
		found = bsearch(&o->properties[i], sorted, n_sorted, sizeof(*sorted), by_name);
		if (found->possible)
			continue;
		found->possible = true; /* seen */
		o->properties[n] = *found;
		o->properties[n++].name = found->name;
	}
	o->n = n;
	free(sorted);
}

/* All names of `properties` and `required`, in their order. */
static void collect(struct object *o)
{
	const struct view *v = o->view;
	const cJSON *item;

	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *properties = schema_member(v->parts[i].schema, "properties");

		if (properties && !cJSON_IsObject(properties))
			schema_wrong(o->j, "properties", "an object");
		if (!cJSON_IsObject(properties))
			continue;
		cJSON_ArrayForEach(item, properties) {
			if (!note_property(o, item->string, false))
				return;
		}
	}
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *required = schema_member(v->parts[i].schema, "required");

		/* In draft 3 `required` was a boolean of the property itself. */
		if (required && !cJSON_IsArray(required) && !cJSON_IsBool(required))
			schema_wrong(o->j, "required", "an array of names");
		if (!cJSON_IsArray(required))
			continue;
		cJSON_ArrayForEach(item, required) {
			if (!cJSON_IsString(item))
				schema_wrong(o->j, "required", "an array of names");
			else if (!note_property(o, item->valuestring, true))
				return;
		}
	}
	if (o->n)
		merge_names(o);
}

/*
 * The schema of a property that is not named; false: it is not allowed. If properties or patterns
 * are given and additionalProperties is absent, no others are allowed: that keeps to any schema.
 */
static bool other_of(const cJSON *schema, bool named, const cJSON **ret)
{
	const cJSON *other = schema_member(schema, "additionalProperties");
	const cJSON *unevaluated = schema_member(schema, "unevaluatedProperties");

	*ret = NULL;
	if (cJSON_IsFalse(other) || (!other && cJSON_IsFalse(unevaluated)))
		return false;
	if (cJSON_IsObject(other))
		*ret = other;
	return other || !named;
}

static bool is_named(const struct view *v)
{
	for (unsigned i = 0; i < v->n; i++) {
		if (schema_member(v->parts[i].schema, "properties") ||
		    schema_member(v->parts[i].schema, "patternProperties"))
			return true;
	}
	return false;
}

static void read_others(struct object *o)
{
	const struct view *v = o->view;
	bool named = is_named(v);
	const cJSON *other, *unevaluated;

	o->others = (struct view){.root = v->root};
	o->others_allowed = true;
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema;
		uint32_t min = 0, max = GRAMMAR_UNLIMITED;

		schema_count(o->j, schema, "minProperties", &min);
		schema_count(o->j, schema, "maxProperties", &max);
		o->min = min > o->min ? min : o->min;
		o->max = max < o->max ? max : o->max;
		unevaluated = schema_member(schema, "unevaluatedProperties");
		if (cJSON_IsObject(unevaluated) && unevaluated->child &&
		    !schema_member(schema, "additionalProperties"))
			schema_refuse(o->j, "unevaluatedProperties with a schema");
		if (!other_of(schema, named, &other))
			o->others_allowed = false;
		else if (other && !view_add(o->j, &o->others, other))
			return;
	}
}

/* The schemas that apply to the property; false: it is not allowed. */
static bool view_of_property(struct object *o, const char *name, struct view *ret)
{
	const struct view *v = o->view;
	bool evaluated = false, must_be = false;

	*ret = (struct view){.root = v->root};
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema;
		const cJSON *other = schema_member(schema, "additionalProperties");
		const cJSON *mine = schema_member(schema_member(schema, "properties"), name);

		/* In a schema that does not name it, additionalProperties applies, if present. */
		if (!mine && cJSON_IsFalse(other))
			return false;
		if (!mine && cJSON_IsObject(other))
			mine = other;
		if (mine && !view_add(o->j, ret, mine))
			return false;
		if (mine || other)
			evaluated = true;
		else if (cJSON_IsFalse(schema_member(schema, "unevaluatedProperties")))
			must_be = true;
	}
	/* Unlike additionalProperties, unevaluatedProperties sees what the other parts name. */
	if (must_be && !evaluated)
		return false;
	for (unsigned i = 0; i < ret->n; i++) {
		if (cJSON_IsFalse(ret->parts[i].schema))
			return false;
	}
	return true;
}

static struct grammar_piece colon(struct grammar_json *j)
{
	return grammar_seq(j->b, grammar_text(j->b, ":"), grammar_json_space(j));
}

static struct grammar_piece named_member(struct object *o, const char *name, const struct view *v)
{
	struct grammar_builder *b = o->j->b;
	struct grammar_piece pieces[3];
	size_t len;
	char *key = json_quote(name, strlen(name), &len);

	if (!key) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return grammar_never(b);
	}
	pieces[0] = grammar_bytes(b, key, len);
	free(key);
	pieces[1] = colon(o->j);
	pieces[2] = view_call(o->j, v);
	return schema_sequence(b, pieces, 3);
}

/* The ASCII characters that may occur unescaped in a key. */
static void plain_characters(struct grammar_set *set)
{
	grammar_set_add(set, 0x20, 0x7F);
	grammar_set_remove(set, '"', '"');
	grammar_set_remove(set, '\\', '\\');
}

/*
 * A key that is none of the names: characters that follow the sorted names as far as they match
 * one, then any character that none of them has there. Without escapes, so that no name can be
 * written differently.
 */
static void key_besides(struct object *o, const struct property *names, size_t n, size_t depth,
			uint32_t from, uint32_t end)
{
	struct grammar_builder *b = o->j->b;
	struct grammar_set rest = {0};
	struct grammar_piece piece;
	size_t first = 0, last;
	bool wide = true;

	plain_characters(&rest);
	/* The key may end here unless that makes it a name. */
	if (!n || names[0].name[depth])
		grammar_link(b, from, end);
	while (first < n && !names[first].name[depth])
		first++;
	for (; first < n && !grammar_failed(b); first = last) {
		unsigned char byte = (unsigned char)names[first].name[depth];

		for (last = first + 1; last < n && (unsigned char)names[last].name[depth] == byte;)
			last++;
		/*
		 * Names are followed up to their first character beyond ASCII: keys that continue
		 * from there are not allowed.
		 */
		wide = wide && byte < 0x80;
		if (!grammar_set_has(&rest, byte))
			continue;
		grammar_set_remove(&rest, byte, byte);
		if (depth > 200)
			continue;
		piece = grammar_byte(b, byte, byte);
		grammar_link(b, from, piece.start);
		key_besides(o, names + first, last - first, depth + 1, piece.end, end);
	}
	piece = grammar_char(b, &rest);
	if (wide)
		piece = grammar_either(b, piece, grammar_call(b, o->wide));
	piece = grammar_seq(b, piece, grammar_call(b, o->tail));
	grammar_link(b, from, piece.start);
	grammar_link(b, piece.end, end);
}

static struct grammar_piece other_key(struct object *o)
{
	struct grammar_builder *b = o->j->b;
	struct grammar_piece piece = {grammar_node(b), grammar_node(b)}, any;
	struct property *sorted = malloc((o->n + 1) * sizeof(*sorted));
	struct grammar_set wide = {0}, plain = {0};

	if (!sorted) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return piece;
	}
	o->wide = grammar_rule(b, "a character beyond ASCII");
	grammar_set_add(&wide, 0x80, 0x10FFFF);
	grammar_define(b, o->wide, grammar_char(b, &wide));
	o->tail = grammar_rule(b, "the rest of a key");
	plain_characters(&plain);
	any = grammar_either(b, grammar_char(b, &plain), grammar_call(b, o->wide));
	grammar_define(b, o->tail, grammar_star(b, any));
	if (o->n)
		memcpy(sorted, o->properties, o->n * sizeof(*sorted));
	qsort(sorted, o->n, sizeof(*sorted), by_name);
	key_besides(o, sorted, o->n, 0, piece.start, piece.end);
	free(sorted);
	piece = grammar_seq(b, grammar_text(b, "\""), piece);
	return grammar_seq(b, piece, grammar_text(b, "\""));
}

/* The schemas of all names (propertyNames); false: there are none. */
static bool names_view(struct object *o, struct view *ret)
{
	*ret = (struct view){.root = o->view->root};
	for (unsigned i = 0; i < o->view->n; i++) {
		const cJSON *names = schema_member(o->view->parts[i].schema, "propertyNames");

		if (names && !view_add(o->j, ret, names))
			return false;
	}
	return ret->n;
}

/* A member whose key matches one of patternProperties. */
static struct grammar_piece pattern_member(struct object *o, const cJSON *pattern,
					   const cJSON *root)
{
	const struct grammar_regex_options options = {.search = true, .json = true};
	struct grammar_builder *b = o->j->b;
	struct view v = {.root = root};
	struct grammar_piece pieces[5];

	view_add(o->j, &v, pattern);
	pieces[0] = grammar_text(b, "\"");
	pieces[1] = grammar_regex(b, pattern->string, strlen(pattern->string), &options);
	pieces[2] = grammar_text(b, "\"");
	pieces[3] = colon(o->j);
	pieces[4] = view_call(o->j, &v);
	return schema_sequence(b, pieces, 5);
}

/* The text with which all keys that match a pattern begin. */
struct prefix {
	const char *text;
	size_t n;
};

static struct prefix prefix_of(const char *pattern)
{
	struct prefix p = {pattern, 0};

	/* Not if it may match elsewhere. */
	if (*pattern != '^' || strchr(pattern, '|'))
		return p;
	p.text++;
	while (p.text[p.n] && !strchr("\\.[](){}^$*+?", p.text[p.n]))
		p.n++;
	/* What may be left out is no part of it. */
	if (p.n && p.text[p.n] && strchr("*?{", p.text[p.n])) {
		do
			p.n--;
		while (p.n && ((unsigned char)p.text[p.n] & 0xC0) == 0x80);
	}
	return p;
}

static int by_text(const void *a, const void *b)
{
	const struct prefix *x = a, *y = b;
	int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);

	return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Whether a key may match two of the patterns: one prefix is the beginning of another. */
static bool may_overlap(struct prefix *list, size_t n)
{
	if (n)
		qsort(list, n, sizeof(*list), by_text);
	for (size_t i = 1; i < n; i++) {
		if (list[i - 1].n <= list[i].n &&
		    !memcmp(list[i - 1].text, list[i].text, list[i - 1].n))
			return true;
	}
	return false;
}

/*
 * A key that matches several patterns would need a value by all of their schemas; the grammar takes
 * one by any of them.
 */
static void refuse_overlaps(struct object *o)
{
	const cJSON *patterns, *one, *first = NULL;
	struct prefix *list = NULL;
	size_t n = 0, cap = 0;
	bool same = true;

	for (unsigned i = 0; i < o->view->n; i++) {
		patterns = schema_member(o->view->parts[i].schema, "patternProperties");
		if (!cJSON_IsObject(patterns))
			continue;
		cJSON_ArrayForEach(one, patterns) {
			if (!array_grow(&list, &cap, n + 1, sizeof(*list))) {
				grammar_fail(o->j->b, -ENOMEM, "out of memory");
				free(list);
				return;
			}
			list[n++] = prefix_of(one->string);
			first = first ? first : one;
			same = same && schema_same(first, one);
		}
	}
	if (!same && may_overlap(list, n))
		schema_refuse(o->j, "patternProperties whose patterns match the same key");
	free(list);
}

/*
 * A member's pattern is a language of keys that nothing is subtracted from: keys that are named, or
 * that other keywords also restrict, are members by the pattern as well.
 */
static void refuse_patterns(struct object *o)
{
	struct view names;

	if (o->n)
		schema_refuse(o->j, "patternProperties together with properties or required");
	if (o->others_allowed)
		schema_refuse(o->j, "patternProperties together with additionalProperties");
	if (names_view(o, &names))
		schema_refuse(o->j, "patternProperties together with propertyNames");
	if (o->j->options.strict)
		refuse_overlaps(o);
}

/* Whether a schema of the object names properties. */
static bool has_properties(const struct object *o)
{
	for (unsigned i = 0; i < o->view->n; i++) {
		const cJSON *properties = schema_member(o->view->parts[i].schema, "properties");

		if (properties && properties->child)
			return true;
	}
	return false;
}

/* A member that is not named by the schema; false: not allowed. */
static bool other_member(struct object *o, struct grammar_piece *ret)
{
	struct grammar_builder *b = o->j->b;
	struct grammar_piece piece = grammar_never(b), pieces[3];
	bool any = o->others_allowed;
	struct view names;

	for (unsigned i = 0; i < o->view->n; i++) {
		const cJSON *patterns =
			schema_member(o->view->parts[i].schema, "patternProperties");
		const cJSON *one;

		if (patterns && !cJSON_IsObject(patterns))
			schema_wrong(o->j, "patternProperties", "an object");
		if (!cJSON_IsObject(patterns) || !patterns->child)
			continue;
		refuse_patterns(o);
		cJSON_ArrayForEach(one, patterns) {
			any = true;
			piece = grammar_either(b, piece, pattern_member(o, one, o->view->root));
		}
	}
	if (any && o->others_allowed) {
		if (names_view(o, &names)) {
			/* Named properties are not subtracted from these names. */
			if (has_properties(o))
				schema_refuse(
					o->j,
					"propertyNames with properties and additionalProperties");
			pieces[0] = schema_key(o->j, &names);
		} else {
			pieces[0] = o->n ? other_key(o) : grammar_call(b, o->j->string);
		}
		pieces[1] = colon(o->j);
		pieces[2] = view_call(o->j, &o->others);
		piece = grammar_either(b, piece, schema_sequence(b, pieces, 3));
	}
	*ret = piece;
	return any;
}

/* min to max members that are not named, after other members if @more. */
static struct grammar_piece other_members(struct object *o, struct grammar_piece member,
					  uint32_t min, uint32_t max)
{
	struct grammar_builder *b = o->j->b;
	uint32_t rule = grammar_rule(b, "an object's member");
	struct grammar_piece first, more;

	grammar_define(b, rule, member);
	if (!max)
		return grammar_empty(b);
	first = grammar_call(b, rule);
	more = grammar_seq(b, schema_comma(o->j), grammar_call(b, rule));
	more = grammar_repeat(b, more, min ? min - 1 : 0, max == GRAMMAR_UNLIMITED ? max : max - 1);
	first = grammar_seq(b, first, more);
	return min ? first : grammar_optional(b, first);
}

/*
 * The named members in their order: one node per property and per whether a member precedes it, so
 * that commas are between members.
 */
static struct grammar_piece named_members(struct object *o)
{
	struct grammar_builder *b = o->j->b;
	uint32_t none = grammar_node(b), some = grammar_node(b), end = grammar_node(b);
	struct grammar_piece piece = {none, end}, member, other, rest;
	bool others = other_member(o, &other), restricted;
	struct view names;

	restricted = names_view(o, &names);
	for (size_t i = 0; i < o->n && !grammar_failed(b); i++) {
		uint32_t next_none = grammar_node(b), next_some = grammar_node(b);
		const char *name = o->properties[i].name;
		struct view v;

		if (!view_of_property(o, name, &v) ||
		    (restricted && !schema_key_fits(o->j, &names, name)))
			member = grammar_never(b);
		else
			member = named_member(o, name, &v);
		grammar_link(b, none, member.start);
		rest = schema_comma(o->j);
		grammar_link(b, some, rest.start);
		grammar_link(b, rest.end, member.start);
		grammar_link(b, member.end, next_some);
		if (!o->properties[i].required) {
			grammar_link(b, none, next_none);
			grammar_link(b, some, next_some);
		}
		none = next_none;
		some = next_some;
	}
	if (others) {
		uint32_t rule = grammar_rule(b, "an object's further members");

		grammar_define(b, rule, other_members(o, other, 1, GRAMMAR_UNLIMITED));
		rest = grammar_call(b, rule);
		grammar_link(b, none, rest.start);
		member = schema_comma(o->j);
		grammar_link(b, some, member.start);
		grammar_link(b, member.end, rest.start);
		rest = grammar_seq(b, rest, grammar_json_space(o->j));
		grammar_link(b, rest.end, end);
	}
	/* White space before the end only if there is a member. */
	rest = grammar_json_space(o->j);
	grammar_link(b, none, end);
	grammar_link(b, some, rest.start);
	grammar_link(b, rest.end, end);
	return piece;
}

struct grammar_piece schema_object(struct grammar_json *j, const struct view *v)
{
	struct object o = {.j = j, .view = v, .max = GRAMMAR_UNLIMITED};
	struct grammar_builder *b = j->b;
	struct grammar_piece pieces[4], member;

	collect(&o);
	read_others(&o);
	pieces[0] = grammar_text(b, "{");
	pieces[1] = grammar_json_space(j);
	if (grammar_failed(b)) {
		pieces[2] = grammar_never(b);
	} else if (o.n) {
		if (o.min || o.max != GRAMMAR_UNLIMITED)
			schema_refuse(j, "minProperties or maxProperties together with properties");
		pieces[2] = named_members(&o);
	} else if (other_member(&o, &member)) {
		if (o.max < o.min) {
			pieces[2] = grammar_never(b);
		} else {
			pieces[2] = other_members(&o, member, o.min, o.max);
			pieces[2] = grammar_seq(b, pieces[2], grammar_json_space(j));
		}
	} else {
		pieces[2] = o.min ? grammar_never(b) : grammar_empty(b);
	}
	pieces[3] = grammar_text(b, "}");
	free(o.properties);
	return schema_sequence(b, pieces, 4);
}
