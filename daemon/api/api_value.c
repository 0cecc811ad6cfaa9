// SPDX-License-Identifier: MIT
#include "api_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_DOUBLE ((double)(1ll << 53))
#define USED	     (1 << 16) /* in the type of a member, above cJSON's own bits */

const cJSON *api_member(const cJSON *object, const char *name)
{
	cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);

	if (!value || cJSON_IsNull(value))
		return NULL;
	value->type |= USED;
	return value;
}

void api_leave(const cJSON *object, const char *name)
{
	cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);

	if (value)
		value->type &= ~USED;
}

bool api_is_used(const cJSON *value)
{
	return value->type & USED;
}

const char *api_describe(const cJSON *value, char *buf, size_t len)
{
	size_t n;

	switch (value->type & 0xFF) {
	case cJSON_False: return "false";
	case cJSON_True: return "true";
	case cJSON_NULL: return "null";
	case cJSON_Array: return value->child ? "an array" : "an empty array";
	case cJSON_Object: return "an object";
	case cJSON_Number:
		if (value->valuestring)
			snprintf(buf, len, "%.40s", value->valuestring);
		else
			snprintf(buf, len, "%.17g", value->valuedouble);
		return buf;
	default:
		n = strlen(value->valuestring);
		if (n > 40) {
			n = 40;
			/* Does not cut in the middle of a character. */
			while (n && ((unsigned char)value->valuestring[n] & 0xC0) == 0x80)
				n--;
		}
		snprintf(buf, len, "\"%.*s%s\"", (int)n, value->valuestring,
			 value->valuestring[n] ? "..." : "");
		return buf;
	}
}

static bool wrong(const char *name, const cJSON *value, const char *wanted, struct api_error *e)
{
	char buf[96];

	return api_error_set(e, 400, NULL, name, "%s must be %s, not %s", name, wanted,
			     api_describe(value, buf, sizeof(buf)));
}

bool api_bool(const cJSON *object, const char *name, bool *ret, struct api_error *e)
{
	const cJSON *value = api_member(object, name);

	if (value && !cJSON_IsBool(value))
		return wrong(name, value, "true or false", e);
	if (value)
		*ret = cJSON_IsTrue(value);
	return true;
}

bool api_string(const cJSON *object, const char *name, const char **ret, struct api_error *e)
{
	const cJSON *value = api_member(object, name);

	if (value && !cJSON_IsString(value))
		return wrong(name, value, "a string", e);
	if (value)
		*ret = value->valuestring;
	return true;
}

bool api_number(const cJSON *object, const char *name, double min, double max, double *ret,
		struct api_error *e)
{
	const cJSON *value = api_member(object, name);
	char wanted[96];

	if (!value)
		return true;
	if (!cJSON_IsNumber(value) || !(value->valuedouble >= min && value->valuedouble <= max)) {
		snprintf(wanted, sizeof(wanted), "a number between %g and %g", min, max);
		return wrong(name, value, wanted, e);
	}
	*ret = value->valuedouble;
	return true;
}

bool api_value_int(const cJSON *value, int64_t *ret)
{
	const char *literal = value->valuestring;
	double d = value->valuedouble;

	if (!cJSON_IsNumber(value))
		return false;
	if (literal && !strpbrk(literal, ".eE")) {
		long long n;

		errno = 0;
		n = strtoll(literal, NULL, 10);
		if (errno)
			return false;
		*ret = n;
		return true;
	}
	if (!(d >= -EXACT_DOUBLE && d <= EXACT_DOUBLE) || d != (double)(int64_t)d)
		return false;
	*ret = (int64_t)d;
	return true;
}

bool api_int(const cJSON *object, const char *name, int64_t min, int64_t max, int64_t *ret,
	     struct api_error *e)
{
	const cJSON *value = api_member(object, name);
	char wanted[96];
	int64_t n;

	if (!value)
		return true;
	if (!api_value_int(value, &n) || n < min || n > max) {
		snprintf(wanted, sizeof(wanted), "an integer between %" PRId64 " and %" PRId64, min,
			 max);
		return wrong(name, value, wanted, e);
	}
	*ret = n;
	return true;
}

bool api_unsigned(const cJSON *object, const char *name, unsigned min, unsigned max, unsigned *ret,
		  struct api_error *e)
{
	int64_t n = *ret;

	if (!api_int(object, name, min, max, &n, e))
		return false;
	*ret = (unsigned)n;
	return true;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool keys_unique(const cJSON *object, struct api_error *e)
{
	size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
	const char **keys;
	const cJSON *item;
	bool ok = true;

	if (n < 2)
		return true;
	keys = malloc(n * sizeof(*keys));
	if (!keys)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	cJSON_ArrayForEach(item, object)
		keys[i++] = item->string;
	qsort(keys, n, sizeof(*keys), compare_keys);
	for (i = 1; ok && i < n; i++)
		if (!strcmp(keys[i - 1], keys[i]))
			ok = api_error_set(
				e, 400, NULL, NULL,
				"the JSON body has the key \"%.80s\" twice in one object", keys[i]);
	free(keys);
	return ok;
}

/* Recursion is limited by the parser's TXDA_JSON_MAX_DEPTH. */
bool api_check_duplicates(const cJSON *root, struct api_error *e)
{
	const cJSON *item;

	if (cJSON_IsObject(root) && !keys_unique(root, e))
		return false;
	cJSON_ArrayForEach(item, root)
		if (item->child && !api_check_duplicates(item, e))
			return false;
	return true;
}

size_t api_count_values(const char *text, size_t len, size_t limit)
{
	bool in_string = false;
	size_t n = 1;

	for (size_t i = 0; i < len && n <= limit; i++) {
		char c = text[i];

		if (c == '\\' && in_string)
			i++;
		else if (c == '"')
			in_string = !in_string;
		else if (!in_string && (c == ',' || c == '[' || c == '{'))
			n++;
	}
	return n;
}
