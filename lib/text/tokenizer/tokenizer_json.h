/* SPDX-License-Identifier: MIT */
/*
 * Reads the settings of tokenizer.json, with errors that name the key and the value. Internal to
 * the tokeniser. `path` is the position of the object in the file ("decoder.decoders[2]"), for
 * messages.
 */
#ifndef TXDA_TEXT_TOKENIZER_JSON_H
#define TXDA_TEXT_TOKENIZER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#define JSON_PATH_MAX 192

/*
 * The buffer for messages (err may be NULL), and the first error: after an error, the functions
 * below still return harmless values, so callers may check it once at the end. Zero code: no error.
 */
struct json_errors {
	char *err;
	size_t errlen;
	int code; /* -EINVAL or -ENOMEM */
};

/* An object of the file. */
struct json_at {
	struct json_errors *errors;
	const cJSON *json;
	const char *path;
};

/*
 * Records -EINVAL with the message, or -ENOMEM, unless there already is an error; returns the code.
 */
int json_fail(struct json_errors *errors, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int json_no_memory(struct json_errors *errors);

/* The same, for a value that is not understood: `PATH.KEY: VALUE is not supported`. */
int json_unsupported(const struct json_at *at, const char *key, const cJSON *value);

/* The member @key of @object; NULL when there is none or it is null. */
const cJSON *json_get(const cJSON *object, const char *key);

/* Members of a given type; anything else is an error, except that a missing one has a default. */
bool json_get_bool(const struct json_at *at, const char *key, bool fallback);
const char *json_get_string(const struct json_at *at, const char *key); /* never NULL */
/* A whole number from 0 to @max. */
uint32_t json_get_number(const struct json_at *at, const char *key, uint32_t max);

/* {"String": "..."} or {"Regex": "..."}, the value of "pattern" in Split and Replace. */
const char *json_get_pattern(const struct json_at *at, bool *ret_is_regex);

/* A copy of @text that the caller frees; NULL records -ENOMEM. */
char *json_copy(struct json_errors *errors, const char *text);

/* One step of a pipeline, an object with that "type". */
typedef void json_step_fn(void *arg, const struct json_at *at, const char *type);

/*
 * Calls @load for the steps of a pipeline in order: @json itself, or the items that a "Sequence"
 * (and nested ones, to a limited depth) lists under @key; none after an error, or if @json is NULL.
 * Returns the code.
 */
int json_each_step(const cJSON *json, const char *path, const char *key, json_step_fn *load,
		   void *arg, struct json_errors *errors);

/* Whether @number is a whole number from 0 to @max; stores it in *ret_value. */
bool json_is_number(const cJSON *number, uint32_t max, uint32_t *ret_value);

#endif
