// SPDX-License-Identifier: MIT
#include "json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Depth and number of values, without a parse: brackets and commas outside strings. */
static int json_scan(const char *text, size_t bytes, struct tool_error *error)
{
	size_t depth = 0, values = 1, i;
	bool in_string = false;

	for (i = 0; i < bytes; i++) {
		char c = text[i];

		if (!c)
			return tool_fail(error, -EINVAL, "JSON: NUL byte at offset %zu", i);
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			values++;
			if (++depth > TOOL_JSON_MAX_DEPTH)
				return tool_fail(error, -EINVAL,
						 "JSON: nested deeper than %d levels at offset %zu",
						 TOOL_JSON_MAX_DEPTH, i);
		} else if (c == '}' || c == ']') {
			depth -= depth > 0;
		} else if (c == ',') {
			values++;
		}
	}
	if (values > TOOL_JSON_MAX_VALUES)
		return tool_fail(error, -E2BIG, "JSON: %zu values, the limit is %u", values,
				 TOOL_JSON_MAX_VALUES);
	return 0;
}

static bool json_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int tool_json_parse(const char *text, size_t bytes, cJSON **ret, struct tool_error *error)
{
	const char *end = NULL;
	cJSON *root;
	int r;

	r = json_scan(text, bytes, error);
	if (r)
		return r;
	root = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
	if (!root)
		return tool_fail(error, -EINVAL, "JSON: syntax error at offset %zu of %zu",
				 end ? (size_t)(end - text) : bytes, bytes);
	while (end < text + bytes && json_space(*end))
		end++;
	if (end != text + bytes) {
		cJSON_Delete(root);
		return tool_fail(error, -EINVAL, "JSON: text after the value at offset %zu",
				 (size_t)(end - text));
	}
	*ret = root;
	return 0;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *object_duplicate(const cJSON *object)
{
	const char **keys, *found = NULL;
	const cJSON *child;
	size_t n = 0, i;

	cJSON_ArrayForEach(child, object)
		n++;
	if (n < 2)
		return NULL;
	keys = malloc(n * sizeof(*keys));
	if (!keys)
		return object->child->string;
	n = 0;
	cJSON_ArrayForEach(child, object)
		keys[n++] = child->string;
	qsort(keys, n, sizeof(*keys), compare_keys);
	for (i = 1; i < n && !found; i++) {
		if (!strcmp(keys[i - 1], keys[i]))
			found = keys[i];
	}
	free(keys);
	return found;
}

/* Recursion is bounded by TOOL_JSON_MAX_DEPTH. */
const char *tool_json_duplicate(const cJSON *root)
{
	const char *found = cJSON_IsObject(root) ? object_duplicate(root) : NULL;
	const cJSON *child;

	cJSON_ArrayForEach(child, root) {
		if (found)
			break;
		if (child->child)
			found = tool_json_duplicate(child);
	}
	return found;
}
