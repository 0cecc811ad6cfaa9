// SPDX-License-Identifier: MIT
/*
 * One render from the outside: the variables come in as cJSON, the text goes out.
 */
#include "jinja_render.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct txda_template_limits txda_template_default_limits = {
	.steps = 20u * 1000 * 1000,
	.memory = (size_t)256 << 20,
	.output = (size_t)64 << 20,
	.depth = 600,
};

static int from_number(struct jinja_render *r, const cJSON *json, struct jinja_value *ret)
{
	const char *literal = json->valuestring; /* txda_template_mark_numbers() */
	double f = json->valuedouble;
	long long i;
	int rc;

	if (!literal && f >= -9e18 && f <= 9e18 && f == floor(f)) {
		*ret = jinja_int((int64_t)f);
		return 0;
	}
	if (!literal || strpbrk(literal, ".eE")) {
		*ret = jinja_float(literal ? strtod(literal, NULL) : f);
		return 0;
	}
	errno = 0;
	i = strtoll(literal, NULL, 10);
	if (!errno) {
		*ret = jinja_int(i);
		return 0;
	}
	rc = jinja_literal(r, literal, ret);
	if (!rc)
		ret->kind = JINJA_BIGINT;
	return rc;
}

static int from_array(struct jinja_render *r, const cJSON *json, struct jinja_value *ret)
{
	struct jinja_seq *seq;
	struct jinja_value v;
	const cJSON *item;
	int rc = jinja_new_seq(r, JINJA_LIST, 0, &seq);

	for (item = json->child; !rc && item; item = item->next) {
		rc = jinja_from_cjson(r, item, &v);
		if (!rc)
			rc = jinja_append(r, seq, v);
	}
	if (!rc)
		*ret = jinja_seq_value(seq);
	return rc;
}

static int from_object(struct jinja_render *r, const cJSON *json, struct jinja_value *ret)
{
	struct jinja_dict *dict;
	struct jinja_value key, v;
	const cJSON *item;
	int rc = jinja_new_dict(r, &dict);

	for (item = json->child; !rc && item; item = item->next) {
		rc = jinja_literal(r, item->string ? item->string : "", &key);
		if (!rc)
			rc = jinja_from_cjson(r, item, &v);
		if (!rc)
			rc = jinja_dict_set(r, dict, key, v);
	}
	if (!rc)
		*ret = jinja_dict_value(dict);
	return rc;
}

int jinja_from_cjson(struct jinja_render *r, const cJSON *json, struct jinja_value *ret)
{
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	switch (json->type & 0xff) {
	case cJSON_False: *ret = jinja_bool(false); return 0;
	case cJSON_True: *ret = jinja_bool(true); return 0;
	case cJSON_NULL: *ret = jinja_none(); return 0;
	case cJSON_Number: return from_number(r, json, ret);
	case cJSON_String: return jinja_literal(r, json->valuestring ? json->valuestring : "", ret);
	case cJSON_Array:
	case cJSON_Object:
		rc = jinja_enter(r);
		if (rc)
			return rc;
		rc = cJSON_IsArray(json) ? from_array(r, json, ret) : from_object(r, json, ret);
		jinja_leave(r);
		return rc;
	default: return jinja_fail(r, "a variable holds JSON of an unknown type, %d", json->type);
	}
}

static int run(struct jinja_render *r, const cJSON *context)
{
	struct jinja_value variables;
	int rc;

	if (!cJSON_IsObject(context))
		return jinja_fail(r, "the variables of a template must be an object");
	rc = jinja_from_cjson(r, context, &variables);
	if (rc)
		return rc;
	r->context = variables.dict;
	rc = jinja_push_scope(r, NULL);
	return rc ? rc : jinja_exec(r, &r->template->body);
}

int txda_template_render(const struct txda_template *template, const cJSON *context,
			 const struct txda_template_options *options,
			 struct txda_template_error *error, char **ret_text, size_t *ret_length)
{
	struct txda_template_error own_error;
	struct jinja_render r = {
		.template = template,
		.error = error ? error : &own_error,
		.limits = txda_template_default_limits,
		.now = options ? options->now : NULL,
	};
	int rc;

	*r.error = (struct txda_template_error){0};
	if (options && options->limits)
		r.limits = *options->limits;
	r.out.limit = r.limits.output;
	jinja_arena_init(&r.arena, r.limits.memory);
	rc = run(&r, context);
	if (!rc)
		rc = jinja_write(&r, "", 1); /* the terminator */
	jinja_arena_free(&r.arena);
	if (rc) {
		free(r.out.data);
		return rc;
	}
	*ret_text = r.out.data;
	if (ret_length)
		*ret_length = r.out.length - 1;
	return 0;
}

/* The next number token of JSON text behind *at, strings skipped; returns its length or 0. */
static size_t next_number(const char *text, size_t length, size_t *at)
{
	size_t i = *at, n;

	for (; i < length; i++) {
		if (text[i] == '"') {
			for (i++; i < length && text[i] != '"'; i++)
				if (text[i] == '\\')
					i++;
		} else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
			for (n = 1; i + n < length && strchr("+-.eE0123456789", text[i + n]) &&
				    text[i + n];)
				n++;
			*at = i;
			return n;
		}
	}
	return 0;
}

static int mark_number(cJSON *item, const char *literal, size_t n)
{
	bool plain =
		!memchr(literal, '.', n) && !memchr(literal, 'e', n) && !memchr(literal, 'E', n);

	/* 2^53 itself may be the double of 2^53 + 1. */
	if (plain && fabs(item->valuedouble) < 9007199254740992.0)
		return 0;
	if (item->valuestring)
		return 0; /* marked before */
	/* cJSON frees it, so its allocator must have made it */
	item->valuestring = cJSON_malloc(n + 1);
	if (!item->valuestring)
		return -ENOMEM;
	memcpy(item->valuestring, literal, n);
	item->valuestring[n] = '\0';
	return 0;
}

struct walk {
	const char *text;
	size_t length;
	size_t at;
};

static int mark_tree(cJSON *item, struct walk *walk, unsigned int depth)
{
	cJSON *child;
	size_t n;
	int rc = 0;

	if (cJSON_IsNumber(item)) {
		n = next_number(walk->text, walk->length, &walk->at);
		if (!n)
			return -EINVAL;
		rc = mark_number(item, walk->text + walk->at, n);
		walk->at += n;
		return rc;
	}
	if (depth > 1000) /* cJSON's own limit */
		return -EINVAL;
	if (cJSON_IsArray(item) || cJSON_IsObject(item))
		for (child = item->child; !rc && child; child = child->next)
			rc = mark_tree(child, walk, depth + 1);
	return rc;
}

int txda_template_mark_numbers(cJSON *root, const char *text, size_t length)
{
	struct walk walk = {text, length, 0};
	int rc = mark_tree(root, &walk, 0);

	if (!rc && next_number(text, length, &walk.at))
		return -EINVAL;
	return rc;
}
