/* SPDX-License-Identifier: MIT */
/*
 * JSON from untrusted files: the strict parser of lib/base, with a limit on the number of values,
 * each of which takes about 80 bytes of memory, and a check for duplicate keys.
 */
#ifndef TXDA_TOOLS_JSON_H
#define TXDA_TOOLS_JSON_H

#include <stddef.h>
#include <cjson/cJSON.h>

#include "error.h"

#define TOOL_JSON_MAX_VALUES (4u << 20)

/* Parses exactly @bytes of @text (trailing white space is allowed). The caller frees *ret with
 * cJSON_Delete(). */
int tool_json_parse(const char *text, size_t bytes, cJSON **ret, struct tool_error *error);

/* The first key that an object below @root has twice, or NULL. */
const char *tool_json_duplicate(const cJSON *root);

#endif /* TXDA_TOOLS_JSON_H */
