// SPDX-License-Identifier: MIT
#include "tokenizer_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#define MAX_NESTING 8 /* sequences in sequences */

int json_fail(const struct json_errors *errors, const char *format, ...)
{
	va_list args;

	if (errors->err && errors->errlen) {
		va_start(args, format);
		vsnprintf(errors->err, errors->errlen, format, args);
		va_end(args);
	}
	return -EINVAL;
}

int json_unsupported(const struct json_errors *errors, const char *path, const char *key,
		     const cJSON *value)
{
	char *text = value ? cJSON_PrintUnformatted(value) : NULL;

	json_fail(errors, "%s%s%s: %.200s is not supported", path, *path ? "." : "", key,
		  text ? text : "null");
	free(text);
	return -EINVAL;
}

const cJSON *json_get(const cJSON *object, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(value) ? NULL : value;
}

int json_get_bool(const cJSON *object, const char *path, const char *key, bool fallback,
		  bool *ret_value, const struct json_errors *errors)
{
	const cJSON *value = json_get(object, key);

	if (value && !cJSON_IsBool(value))
		return json_unsupported(errors, path, key, value);
	*ret_value = value ? cJSON_IsTrue(value) : fallback;
	return 0;
}

int json_get_string(const cJSON *object, const char *path, const char *key, const char **ret_value,
		    const struct json_errors *errors)
{
	const cJSON *value = json_get(object, key);

	if (!value)
		return json_fail(errors, "%s: \"%s\" is missing", path, key);
	if (!cJSON_IsString(value))
		return json_unsupported(errors, path, key, value);
	*ret_value = value->valuestring;
	return 0;
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

int json_get_number(const cJSON *object, const char *path, const char *key, uint32_t max,
		    uint32_t *ret_value, const struct json_errors *errors)
{
	const cJSON *value = json_get(object, key);

	if (!value)
		return json_fail(errors, "%s: \"%s\" is missing", path, key);
	if (!json_is_number(value, max, ret_value)) {
		if (!cJSON_IsNumber(value))
			return json_unsupported(errors, path, key, value);
		return json_fail(errors, "%s.%s: %g is not a whole number from 0 to %u", path, key,
				 value->valuedouble, max);
	}
	return 0;
}

int json_get_pattern(const cJSON *object, const char *path, const char **ret_value,
		     bool *ret_is_regex, const struct json_errors *errors)
{
	const cJSON *pattern = json_get(object, "pattern");
	const cJSON *string = json_get(pattern, "String");
	const cJSON *regex = json_get(pattern, "Regex");

	/* An old form: the pattern itself. */
	if (cJSON_IsString(pattern))
		string = pattern;
	if (!cJSON_IsString(string ? string : regex) || !(string ? string : regex)->valuestring[0])
		return json_unsupported(errors, path, "pattern", pattern);
	*ret_value = (string ? string : regex)->valuestring;
	*ret_is_regex = !string;
	return 0;
}

struct pipeline {
	const char *key;
	json_step_fn *load;
	void *arg;
	const struct json_errors *errors;
};

static int each_step(const struct pipeline *p, const cJSON *json, const char *path, unsigned depth)
{
	const cJSON *list, *item;
	char item_path[JSON_PATH_MAX];
	const char *type;
	unsigned i = 0;
	int ret;

	ret = json_get_string(json, path, "type", &type, p->errors);
	if (ret)
		return ret;
	if (strcmp(type, "Sequence"))
		return p->load(p->arg, json, path, type);
	list = json_get(json, p->key);
	if (!cJSON_IsArray(list))
		return json_unsupported(p->errors, path, p->key, list);
	if (depth == MAX_NESTING)
		return json_fail(p->errors, "%s: nested deeper than %d", path, MAX_NESTING);
	cJSON_ArrayForEach(item, list)
	{
		snprintf(item_path, sizeof(item_path), "%.150s.%s[%u]", path, p->key, i++);
		ret = each_step(p, item, item_path, depth + 1);
		if (ret)
			return ret;
	}
	return 0;
}

int json_each_step(const cJSON *json, const char *path, const char *key, json_step_fn *load,
		   void *arg, const struct json_errors *errors)
{
	const struct pipeline p = {.key = key, .load = load, .arg = arg, .errors = errors};

	return json ? each_step(&p, json, path, 0) : 0;
}
