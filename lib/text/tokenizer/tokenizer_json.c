// SPDX-License-Identifier: MIT
#include "tokenizer_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#define MAX_NESTING 8 /* nested sequences */

int json_fail(struct json_errors *errors, const char *format, ...)
{
	va_list args;

	if (errors->code)
		return errors->code;
	if (errors->err && errors->errlen) {
		va_start(args, format);
		vsnprintf(errors->err, errors->errlen, format, args);
		va_end(args);
	}
	errors->code = -EINVAL;
	return -EINVAL;
}

int json_no_memory(struct json_errors *errors)
{
	if (!errors->code)
		errors->code = -ENOMEM;
	return errors->code;
}

int json_unsupported(const struct json_at *at, const char *key, const cJSON *value)
{
	char *text;
	int code;

	if (at->errors->code)
		return at->errors->code;
	text = value ? cJSON_PrintUnformatted(value) : NULL;
	code = json_fail(at->errors, "%s%s%s: %.200s is not supported", at->path,
			 *at->path ? "." : "", key, text ? text : "null");
	free(text);
	return code;
}

const cJSON *json_get(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(value) ? NULL : value;
}

bool json_get_bool(const struct json_at *at, const char *key, bool fallback)
{
	const cJSON *value = json_get(at->json, key);

	if (value && !cJSON_IsBool(value))
		json_unsupported(at, key, value);
	return value ? cJSON_IsTrue(value) : fallback;
}

/* The required member @key. */
static const cJSON *need(const struct json_at *at, const char *key)
{
	const cJSON *value = json_get(at->json, key);

	if (!value)
		json_fail(at->errors, "%s: \"%s\" is missing", at->path, key);
	return value;
}

const char *json_get_string(const struct json_at *at, const char *key)
{
	const cJSON *value = need(at, key);

	if (cJSON_IsString(value))
		return value->valuestring;
	json_unsupported(at, key, value);
	return "";
}

bool json_is_number(const cJSON *number, uint32_t max, uint32_t *ret_value)
{
	double value;

	if (!cJSON_IsNumber(number))
		return false;
	value = number->valuedouble;
	if (!(value >= 0 && value <= max) || value != (double)(uint32_t)value)
		return false;
	*ret_value = (uint32_t)value;
	return true;
}

uint32_t json_get_number(const struct json_at *at, const char *key, uint32_t max)
{
	const cJSON *value = need(at, key);
	uint32_t number = 0;

	if (json_is_number(value, max, &number))
		return number;
	if (cJSON_IsNumber(value))
		json_fail(at->errors, "%s.%s: %g is not a whole number from 0 to %u", at->path, key,
			  value->valuedouble, max);
	else
		json_unsupported(at, key, value);
	return 0;
}

const char *json_get_pattern(const struct json_at *at, bool *ret_is_regex)
{
	const cJSON *pattern = json_get(at->json, "pattern");
	const cJSON *string = json_get(pattern, "String"), *either;

	/* An older form: the pattern itself. */
	if (cJSON_IsString(pattern))
		string = pattern;
	either = string ? string : json_get(pattern, "Regex");
	*ret_is_regex = !string;
	if (cJSON_IsString(either) && either->valuestring[0])
		return either->valuestring;
	json_unsupported(at, "pattern", pattern);
	return "";
}

char *json_copy(struct json_errors *errors, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		json_no_memory(errors);
	return copy;
}

struct pipeline {
	const char *key;
	json_step_fn *load;
	void *arg;
};

static void each_step(const struct pipeline *p, const struct json_at *at, unsigned depth)
{
	const char *type = json_get_string(at, "type");
	const cJSON *list = json_get(at->json, p->key), *item;
	char path[JSON_PATH_MAX];
	unsigned i = 0;

	if (at->errors->code)
		return;
	if (strcmp(type, "Sequence")) {
		p->load(p->arg, at, type);
		return;
	}
	if (!cJSON_IsArray(list))
		json_unsupported(at, p->key, list);
	else if (depth == MAX_NESTING)
		json_fail(at->errors, "%s: nested deeper than %d", at->path, MAX_NESTING);
	cJSON_ArrayForEach(item, list) {
		if (at->errors->code)
			return;
		snprintf(path, sizeof(path), "%.150s.%s[%u]", at->path, p->key, i++);
		each_step(p, &(struct json_at){at->errors, item, path}, depth + 1);
	}
}

int json_each_step(const cJSON *json, const char *path, const char *key, json_step_fn *load,
		   void *arg, struct json_errors *errors)
{
	const struct pipeline p = {.key = key, .load = load, .arg = arg};

	if (json)
		each_step(&p, &(struct json_at){errors, json, path}, 0);
	return errors->code;
}
