/* SPDX-License-Identifier: MIT */
/*
 * Reading the settings of tokenizer.json, with errors that name the key and the value. Internal to
 * the tokeniser. `path` is where the object stands in the file ("decoder.decoders[2]"), for the
 * message.
 */
#ifndef TXDA_TEXT_TOKENIZER_JSON_H
#define TXDA_TEXT_TOKENIZER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#define JSON_PATH_MAX 192

/* Where messages go: err may be NULL. */
struct json_errors {
	char *err;
	size_t errlen;
};

/* Writes the message and returns -EINVAL. */
int json_fail(const struct json_errors *errors, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same, for a value that is not understood: `PATH.KEY: VALUE is not supported`. */
int json_unsupported(const struct json_errors *errors, const char *path, const char *key,
		     const cJSON *value);

/* The member @key of @object; NULL when there is none or it is null. */
const cJSON *json_get(const cJSON *object, const char *key);

/* Members of a given type: 0 and the value, or -EINVAL. Optional ones have a default. */
int json_get_bool(const cJSON *object, const char *path, const char *key, bool fallback,
		  bool *ret_value, const struct json_errors *errors);
int json_get_string(const cJSON *object, const char *path, const char *key, const char **ret_value,
		    const struct json_errors *errors);
/* A whole number from 0 to @max. */
int json_get_number(const cJSON *object, const char *path, const char *key, uint32_t max,
		    uint32_t *ret_value, const struct json_errors *errors);

/* {"String": "..."} or {"Regex": "..."}, as Split and Replace have it under "pattern". */
int json_get_pattern(const cJSON *object, const char *path, const char **ret_value,
		     bool *ret_is_regex, const struct json_errors *errors);

/* One step of a pipeline, an object with that "type". */
typedef int json_step_fn(void *arg, const cJSON *step, const char *path, const char *type);

/*
 * The steps of a pipeline, in their order: @json itself, or what a "Sequence" (and those inside of
 * it, to a limited depth) lists under @key. 0, or the first error of @load; without @json there are
 * none.
 */
int json_each_step(const cJSON *json, const char *path, const char *key, json_step_fn *load,
		   void *arg, const struct json_errors *errors);

/* Whether @number is a whole number from 0 to @max; then *ret_value. */
bool json_is_number(const cJSON *number, uint32_t max, uint32_t *ret_value);

#endif
