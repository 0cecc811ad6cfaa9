// SPDX-License-Identifier: MIT
/*
 * Views: sets of schemas that apply to the same value, their rules, and references between schemas.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema_internal.h"

/* ---- words ----------------------------------------------------------------------------------- */

void schema_refuse(struct grammar_json *j, const char *keyword)
{
	if (j->options.strict)
		grammar_fail(j->b, -EINVAL, "the schema uses \"%.60s\", which cannot be enforced",
			     keyword);
	else
		grammar_skip(j->b, keyword);
}

void schema_wrong(struct grammar_json *j, const char *keyword, const char *wanted)
{
	grammar_fail(j->b, -EINVAL, "the schema's \"%.60s\" must be %s", keyword, wanted);
}

const cJSON *schema_member(const cJSON *schema, const char *name)
{
	return cJSON_IsObject(schema) ? cJSON_GetObjectItemCaseSensitive(schema, name) : NULL;
}

void schema_count(struct grammar_json *j, const cJSON *schema, const char *name, uint32_t *ret)
{
	const cJSON *value = schema_member(schema, name);

	if (!value)
		return;
	if (!cJSON_IsNumber(value) || value->valuedouble < 0 || value->valuedouble > 1e9 ||
	    value->valuedouble != (double)(uint32_t)value->valuedouble)
		schema_wrong(j, name, "a whole number from 0 to 1000000000");
	else
		*ret = (uint32_t)value->valuedouble;
}

/* ---- views ----------------------------------------------------------------------------------- */

bool view_add(struct grammar_json *j, struct view *v, const cJSON *schema)
{
	if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema)) {
		grammar_fail(j->b, -EINVAL, "a schema must be an object, true or false");
		return false;
	}
	if (cJSON_IsTrue(schema))
		return true;
	for (unsigned i = 0; i < v->n; i++) {
		if (v->parts[i].schema == schema)
			return true;
	}
	if (v->n == VIEW_MAX) {
		grammar_fail(j->b, -E2BIG, "more than %d schemas hold for one value", VIEW_MAX);
		return false;
	}
	v->parts[v->n++] = (struct part){.schema = schema};
	return true;
}

static int by_schema(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->schema != y->schema)
		return x->schema < y->schema ? -1 : 1;
	return x->done < y->done ? -1 : x->done > y->done;
}

static bool same_view(const struct view *a, const struct view *b)
{
	if (a->n != b->n || a->root != b->root)
		return false;
	for (unsigned i = 0; i < a->n; i++) {
		if (by_schema(&a->parts[i], &b->parts[i]))
			return false;
	}
	return true;
}

static size_t slot_of(const struct grammar_json *j, const struct view *v)
{
	uint64_t hash = v->n;
	size_t at;

	for (unsigned i = 0; i < v->n; i++)
		hash = (hash ^ (uintptr_t)v->parts[i].schema ^ v->parts[i].done) *
		       0x9E3779B97F4A7C15ull;
	for (at = (hash >> 20) & (j->n_slots - 1); j->slots[at]; at = (at + 1) & (j->n_slots - 1)) {
		if (same_view(j->work[j->slots[at] - 1].view, v))
			break;
	}
	return at;
}

static bool grow_work(struct grammar_json *j)
{
	size_t cap = j->cap_work ? 2 * j->cap_work : 32;
	struct work *work = realloc(j->work, cap * sizeof(*work));
	size_t *slots = calloc(4 * cap, sizeof(*slots));

	if (work)
		j->work = work;
	if (!work || !slots) {
		free(slots);
		grammar_fail(j->b, -ENOMEM, "out of memory");
		return false;
	}
	free(j->slots);
	j->slots = slots;
	j->n_slots = 4 * cap;
	j->cap_work = cap;
	for (size_t i = 0; i < j->n_work; i++)
		j->slots[slot_of(j, j->work[i].view)] = i + 1;
	return true;
}

uint32_t view_rule(struct grammar_json *j, const struct view *v)
{
	size_t at, size = offsetof(struct view, parts) + v->n * sizeof(v->parts[0]);
	struct view sorted = *v, *copy;

	if (!v->n)
		return grammar_json_value(j);
	if (grammar_failed(j->b) || (j->n_work == j->cap_work && !grow_work(j)))
		return 0;
	/* The first part stays first, as it determines the order of properties. */
	if (sorted.n > 2)
		qsort(sorted.parts + 1, sorted.n - 1, sizeof(sorted.parts[0]), by_schema);
	at = slot_of(j, &sorted);
	if (j->slots[at])
		return j->work[j->slots[at] - 1].rule;
	copy = malloc(size);
	if (!copy) {
		grammar_fail(j->b, -ENOMEM, "out of memory");
		return 0;
	}
	memcpy(copy, &sorted, size);
	j->work[j->n_work] = (struct work){copy, grammar_rule(j->b, "a schema's value")};
	j->slots[at] = ++j->n_work;
	return j->work[j->n_work - 1].rule;
}

struct grammar_piece view_call(struct grammar_json *j, const struct view *v)
{
	return grammar_call(j->b, view_rule(j, v));
}

/* ---- references ------------------------------------------------------------------------------ */

/* One step of a JSON pointer: decodes up to the next '/'. */
static const char *pointer_step(const char *at, char *name, size_t size)
{
	size_t n = 0;

	for (; *at && *at != '/' && n + 1 < size; at++) {
		if (at[0] == '~' && (at[1] == '0' || at[1] == '1')) {
			name[n++] = *++at == '0' ? '~' : '/';
		} else if (at[0] == '%' && at[1] && at[2]) {
			char hex[3] = {at[1], at[2], 0}, *end;
			long c = strtol(hex, &end, 16);

			if (*end || !c)
				return NULL;
			name[n++] = (char)c;
			at += 2;
		} else {
			name[n++] = *at;
		}
	}
	name[n] = 0;
	return *at && *at != '/' ? NULL : at;
}

static const cJSON *resolve(struct grammar_json *j, const cJSON *root, const cJSON *ref)
{
	const char *at = cJSON_IsString(ref) ? ref->valuestring : "";
	const cJSON *target = root;
	char name[512];

	if (*at++ != '#' || (*at && *at != '/')) {
		grammar_fail(
			j->b, -EINVAL,
			"the schema's \"$ref\" is \"%.80s\"; only references within it (#, #/...) "
			"are supported",
			cJSON_IsString(ref) ? ref->valuestring : "no string");
		return NULL;
	}
	while (*at && target) {
		at = pointer_step(at + 1, name, sizeof(name));
		if (!at)
			target = NULL;
		else if (cJSON_IsArray(target))
			target = name[0] >= '0' && name[0] <= '9'
					 ? cJSON_GetArrayItem(target, (int)strtol(name, NULL, 10))
					 : NULL;
		else
			target = schema_member(target, name);
		if (!at)
			break;
	}
	if (!target)
		grammar_fail(j->b, -EINVAL, "the schema's \"$ref\" \"%.80s\" does not resolve",
			     ref->valuestring);
	return target;
}

struct path {
	const cJSON *root;
	const cJSON *schemas[LOOP_DEPTH];
	unsigned n;
};

/* Fails if the schema leads to one of the path, or the ones that it leads to do. */
static void follow(struct grammar_json *j, struct path *p, const cJSON *schema)
{
	static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
	const cJSON *ref = schema_member(schema, "$ref"), *one;

	for (unsigned i = 0; i < p->n; i++) {
		if (p->schemas[i] == schema)
			grammar_fail(
				j->b, -EINVAL,
				"the schema's references lead back to where they begin, with no "
				"value in between: it matches nothing");
	}
	if (p->n == LOOP_DEPTH || ++j->loop_steps > LOOP_STEPS)
		grammar_fail(j->b, -E2BIG, "references and alternatives are too deep or too many");
	if (grammar_failed(j->b))
		return;
	p->schemas[p->n++] = schema;
	if (ref)
		follow(j, p, resolve(j, p->root, ref));
	for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		cJSON_ArrayForEach(one, schema_member(schema, lists[i]))
			follow(j, p, one);
	}
	p->n--;
}

bool view_flatten(struct grammar_json *j, struct view *v)
{
	struct path path = {.root = v->root};

	/* A value is valid by a schema only if something but the schema itself says so. */
	for (unsigned i = 0; i < v->n && !grammar_failed(j->b); i++)
		follow(j, &path, v->parts[i].schema);
	if (grammar_failed(j->b))
		return false;
	for (unsigned i = 0; i < v->n; i++) {
		struct part *part = &v->parts[i];
		const cJSON *ref = schema_member(part->schema, "$ref"), *target, *one;
		const cJSON *all = schema_member(part->schema, "allOf");

		if (ref && !(part->done & DONE_REF)) {
			part->done |= DONE_REF;
			target = resolve(j, v->root, ref);
			if (!target || !view_add(j, v, target))
				return false;
		}
		if (all && !(part->done & DONE_ALL_OF)) {
			part->done |= DONE_ALL_OF;
			if (!cJSON_IsArray(all)) {
				schema_wrong(j, "allOf", "an array");
				return false;
			}
			cJSON_ArrayForEach(one, all) {
				if (!view_add(j, v, one))
					return false;
			}
		}
	}
	return true;
}
