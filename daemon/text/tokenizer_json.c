// SPDX-License-Identifier: MIT
#include "tokenizer_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
