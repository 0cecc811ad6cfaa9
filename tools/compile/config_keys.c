// SPDX-License-Identifier: MIT
#include "config_keys.h"

#include <errno.h>
#include <math.h>

const cJSON *config_find(const cJSON *json, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

	return cJSON_IsNull(item) ? NULL : item;
}

int config_double(const cJSON *json, const char *key, double min, double max,
		  const double *fallback, double *ret, struct tool_error *error)
{
	const cJSON *item = config_find(json, key);
	double d;

	if (!item) {
		if (!fallback)
			return tool_fail(error, -EINVAL, "%s: missing", key);
		*ret = *fallback;
		return 0;
	}
	if (!cJSON_IsNumber(item))
		return tool_fail(error, -EINVAL, "%s: not a number", key);
	d = item->valuedouble;
	if (!(d >= min && d <= max))
		return tool_fail(error, -ERANGE, "%s: %g is not in [%g, %g]", key, d, min, max);
	*ret = d;
	return 0;
}

int config_u32(const cJSON *json, const char *key, uint32_t min, uint32_t max, uint32_t fallback,
	       uint32_t *ret, struct tool_error *error)
{
	const double zero = 0;
	double d;
	int r;

	if (!config_find(json, key) && fallback != CONFIG_REQUIRED) {
		*ret = fallback;
		return 0;
	}
	r = config_double(json, key, min, max, config_find(json, key) ? &zero : NULL, &d, error);
	if (r)
		return r;
	if (d != floor(d))
		return tool_fail(error, -EINVAL, "%s: %g is not a whole number", key, d);
	*ret = (uint32_t)d;
	return 0;
}

int config_bool(const cJSON *json, const char *key, bool fallback, bool *ret,
		struct tool_error *error)
{
	const cJSON *item = config_find(json, key);

	if (!item) {
		*ret = fallback;
		return 0;
	}
	if (!cJSON_IsBool(item))
		return tool_fail(error, -EINVAL, "%s: not true or false", key);
	*ret = cJSON_IsTrue(item);
	return 0;
}

bool config_has(const cJSON *json, const char *key)
{
	return config_find(json, key) != NULL;
}

bool config_is_null(const cJSON *json, const char *key)
{
	return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, key));
}

const char *config_key(const cJSON *json, const char *a, const char *b)
{
	return !config_find(json, a) && config_find(json, b) ? b : a;
}

int config_layers(const cJSON *json, const char *key, uint32_t n_layers, bool value, bool *ret,
		  struct tool_error *error)
{
	const cJSON *list = config_find(json, key), *item;

	if (!list)
		return 0;
	if (!cJSON_IsArray(list))
		return tool_fail(error, -EINVAL, "%s: not an array", key);
	cJSON_ArrayForEach(item, list) {
		double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

		if (!(d >= 0 && d < 1e6) || d != floor(d))
			return tool_fail(error, -EINVAL, "%s: an element is not a layer number",
					 key);
		if (d < n_layers)
			ret[(uint32_t)d] = value;
	}
	return 0;
}
