// SPDX-License-Identifier: MIT
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "json_strict.h"

/* Every value but the first follows one of these characters; those in strings are counted, too. */
static size_t count_values(const char *text, size_t bytes)
{
	size_t n = 1, i;

	for (i = 0; i < bytes; i++)
		n += text[i] == ',' || text[i] == '[' || text[i] == '{';
	return n;
}

int tool_json_parse(const char *text, size_t bytes, cJSON **ret, struct tool_error *error)
{
	size_t values = count_values(text, bytes);
	char reason[200];
	cJSON *root;

	if (values > TOOL_JSON_MAX_VALUES)
		return tool_fail(error, -E2BIG, "JSON: up to %zu values, the limit is %u", values,
				 TOOL_JSON_MAX_VALUES);
	root = txda_json_parse(text, bytes, reason, sizeof(reason));
	if (!root)
		return tool_fail(error, -EINVAL, "JSON: %s", reason);
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

/* The parser bounds the depth. */
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
