/* SPDX-License-Identifier: MIT */
/*
 * JSON from outside: requests and model files.
 *
 * cJSON reads more than RFC 8259 allows (`[1.]`, `01`, control characters in strings, broken UTF-8,
 * trailing text), recurses up to 1000 levels and stops numbers at 63 characters. So text from
 * outside is first checked here, without recursion and without allocation, and only then passed to
 * cJSON.
 *
 * Threads: all functions are reentrant; nothing is shared.
 */
#ifndef TXDA_BASE_JSON_STRICT_H
#define TXDA_BASE_JSON_STRICT_H

#include <stddef.h>
#include <cjson/cJSON.h>

/* The deepest nesting of arrays and objects that txda_json_parse() takes. */
#define TXDA_JSON_MAX_DEPTH 128

/* The largest value of txda_json_check()'s max_depth; more is treated as this. */
#define TXDA_JSON_DEPTH_LIMIT 1024

/*
 * Checks that the @len bytes at @buf are one JSON text: RFC 8259 syntax, valid UTF-8, no byte order
 * mark, no lone surrogate in \u escapes, and no more than @max_depth levels of arrays and objects.
 *
 * Returns 0; -EINVAL for wrong syntax; -E2BIG for too deep nesting. On failure *ret_err_off (may be
 * NULL) is the offset of the byte that cannot stand there (@len at an unexpected end). For tests;
 * other callers use txda_json_parse().
 */
int txda_json_check(const char *buf, size_t len, unsigned max_depth, size_t *ret_err_off);

/*
 * Checks as above with TXDA_JSON_MAX_DEPTH and parses. Returns a tree that the caller frees with
 * cJSON_Delete(), or NULL; then @err (of @errlen bytes, may be NULL) says what and where:
 * "line 3, column 14: ...". Columns count bytes from 1.
 *
 * What the tree cannot represent: the escape \u0000 becomes U+FFFD (a C string ends at NUL, and
 * silently losing the rest would be worse); of duplicate keys the first is found. Numbers are
 * doubles, 1e999 is infinite: check ranges with that in mind. Look keys up with
 * cJSON_GetObjectItemCaseSensitive(), since cJSON_GetObjectItem() ignores case.
 */
cJSON *txda_json_parse(const char *buf, size_t len, char *err, size_t errlen);

/*
 * Reads the file @path (at most @max_bytes) and parses it; owned.h says which files can be read.
 * Returns 0 and the tree in *ret_json, or its errors, -EFBIG, -ENOMEM, -EINVAL (not JSON), with the
 * path and the cause in @err.
 */
int txda_json_load(const char *path, size_t max_bytes, cJSON **ret_json, char *err, size_t errlen);

/* The same, but \u0000 becomes U+FFFF, a noncharacter, for callers that replace it by NUL. */
#define TXDA_JSON_NUL "\xEF\xBF\xBF"
int txda_json_load_nul(const char *path, size_t max_bytes, cJSON **ret_json, char *err,
		       size_t errlen);

#endif
