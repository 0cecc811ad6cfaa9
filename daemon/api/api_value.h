/* SPDX-License-Identifier: MIT */
/*
 * Reads members of a JSON object and checks their types and ranges: each function leaves *ret
 * unchanged when the member is absent or null, and returns false with @e set when it is invalid.
 * @path, if not NULL, precedes the name in errors.
 */
#ifndef TXDA_API_API_VALUE_H
#define TXDA_API_API_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "api_error.h"

/*
 * The member, or NULL if absent or null. Marks it as used, as all functions below do: what nobody
 * has used when a body is parsed is told to the client (api_fields_settle()).
 */
const cJSON *api_member(const cJSON *object, const char *name);
/* Takes the mark back: the member was checked, but has no effect on this request. */
void api_leave(const cJSON *object, const char *name);
bool api_is_used(const cJSON *value);
/* Describes a value for errors: `3.5`, `"abc..."`, `an array`. */
const char *api_describe(const cJSON *value, char *buf, size_t len);

bool api_bool(const cJSON *object, const char *name, bool *ret, struct api_error *e);
bool api_string(const cJSON *object, const char *name, const char **ret, struct api_error *e);
bool api_number(const cJSON *object, const char *name, double min, double max, double *ret,
		struct api_error *e);
bool api_int(const cJSON *object, const char *name, int64_t min, int64_t max, int64_t *ret,
	     struct api_error *e);
bool api_unsigned(const cJSON *object, const char *name, unsigned min, unsigned max, unsigned *ret,
		  struct api_error *e);
/*
 * Reads a value that is not a direct member, such as an array element. Exact for all int64_t whose
 * literal was recorded (txda_template_mark_numbers()).
 */
bool api_value_int(const cJSON *value, int64_t *ret);

/* False when this object or a nested one has a duplicate key. */
bool api_check_duplicates(const cJSON *root, struct api_error *e);
/* Counts the values in a well-formed JSON text; stops at @limit + 1. */
size_t api_count_values(const char *text, size_t len, size_t limit);

#endif
