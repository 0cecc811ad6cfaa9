// SPDX-License-Identifier: MIT
/* Arrays with a schema. */
#include "schema_internal.h"

struct array {
	unsigned n_fixed; /* elements that have schemas of their own */
	uint32_t min, max;
	struct view rest;
	bool rest_allowed;
};

/* `prefixItems`, or `items` if that is an array. */
static const cJSON *fixed_items(const cJSON *schema)
{
	const cJSON *prefix = schema_member(schema, "prefixItems");
	const cJSON *items = schema_member(schema, "items");

	return cJSON_IsArray(prefix) ? prefix : cJSON_IsArray(items) ? items : NULL;
}

static const cJSON *rest_items(const cJSON *schema)
{
	const cJSON *items = schema_member(schema, "items");

	return cJSON_IsArray(items) ? schema_member(schema, "additionalItems") : items;
}

static void read_array(struct grammar_json *j, const struct view *v, struct array *a)
{
	*a = (struct array){.max = GRAMMAR_UNLIMITED, .rest_allowed = true};
	a->rest.root = v->root;
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema, *fixed = fixed_items(schema);
		const cJSON *rest = rest_items(schema);
		uint32_t min = 0, max = GRAMMAR_UNLIMITED;

		schema_count(j, schema, "minItems", &min);
		schema_count(j, schema, "maxItems", &max);
		a->min = min > a->min ? min : a->min;
		a->max = max < a->max ? max : a->max;
		if (fixed && (unsigned)cJSON_GetArraySize(fixed) > a->n_fixed)
			a->n_fixed = (unsigned)cJSON_GetArraySize(fixed);
		if (cJSON_IsFalse(rest))
			a->rest_allowed = false;
		else if (rest)
			view_add(j, &a->rest, rest);
	}
}

/* The schema of element @index; false: it is not allowed. */
static bool element_view(struct grammar_json *j, const struct view *v, unsigned index,
			 struct view *ret)
{
	*ret = (struct view){.root = v->root};
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *fixed = fixed_items(v->parts[i].schema), *mine;

		mine = fixed ? cJSON_GetArrayItem(fixed, (int)index) : NULL;
		if (!mine)
			mine = rest_items(v->parts[i].schema);
		if (cJSON_IsFalse(mine) || (mine && !view_add(j, ret, mine)))
			return false;
	}
	return true;
}

/* The elements after the fixed ones, of which there is at least one. */
static void add_rest(struct grammar_json *j, const struct array *a, uint32_t from, uint32_t end)
{
	struct grammar_builder *b = j->b;
	uint32_t rule, min = a->min > a->n_fixed ? a->min - a->n_fixed : 0, max = a->max;
	struct grammar_piece more;

	if (!a->rest_allowed || max <= a->n_fixed) {
		if (!min)
			grammar_link(b, from, end);
		return;
	}
	max = max == GRAMMAR_UNLIMITED ? max : max - a->n_fixed;
	rule = view_rule(j, &a->rest);
	if (a->n_fixed) {
		more = grammar_seq(b, schema_comma(j), grammar_call(b, rule));
		more = grammar_repeat(b, more, min, max);
	} else {
		more = grammar_seq(b, schema_comma(j), grammar_call(b, rule));
		more = grammar_repeat(b, more, min ? min - 1 : 0,
				      max == GRAMMAR_UNLIMITED ? max : max - 1);
		more = grammar_seq(b, grammar_call(b, rule), more);
		if (!min)
			more = grammar_optional(b, more);
	}
	grammar_link(b, from, more.start);
	grammar_link(b, more.end, end);
}

struct grammar_piece schema_array(struct grammar_json *j, const struct view *v)
{
	struct grammar_builder *b = j->b;
	struct grammar_piece pieces[5], element;
	struct array a;
	uint32_t at, end;
	bool more = true;

	read_array(j, v, &a);
	/* No array, but perhaps another type or branch. */
	if (a.max < a.min)
		return grammar_never(b);
	at = grammar_node(b);
	end = grammar_node(b);
	pieces[2] = (struct grammar_piece){at, end};
	for (unsigned i = 0; i < a.n_fixed && more && !grammar_failed(b); i++) {
		struct view element_is;

		if (i >= a.min)
			grammar_link(b, at, end);
		more = i < a.max && element_view(j, v, i, &element_is);
		if (!more)
			break;
		element = view_call(j, &element_is);
		if (i)
			element = grammar_seq(b, schema_comma(j), element);
		grammar_link(b, at, element.start);
		at = element.end;
	}
	if (more)
		add_rest(j, &a, at, end);
	pieces[0] = grammar_text(b, "[");
	pieces[1] = grammar_json_space(j);
	pieces[3] = grammar_json_space(j);
	pieces[4] = grammar_text(b, "]");
	return schema_sequence(b, pieces, 5);
}
