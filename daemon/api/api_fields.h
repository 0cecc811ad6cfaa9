/* SPDX-License-Identifier: MIT */
/*
 * Which members a request may have. One table says for each route how a member is treated: it is
 * honoured; or it has no effect on the answer, and is accepted and reported (the header
 * Txda-Ignored); or it would change the answer and is not supported, and is accepted only with the
 * value that disables it. Unknown members are refused, as OpenAI's API does, so that a misspelt
 * member is not silently ignored. In messages and tools, which are passed to the model's chat
 * template unchanged, unknown members are reported instead. `null` counts as absent everywhere:
 * such members of these objects are removed from the tree.
 *
 * Whether an honoured member has an effect depends on others: `length_penalty` needs beam search.
 * So the code that reads members marks those that it uses (api_value.h), and after it the same
 * table is walked again: what is left over is reported too, or refused. A member that is added to
 * the table and forgotten by the code is thus named to the client and never dropped silently.
 *
 * Values are checked in api_params.c. Pure; any thread.
 */
#ifndef TXDA_API_API_FIELDS_H
#define TXDA_API_API_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "api_error.h"

/* The routes with different request bodies. */
enum api_kind {
	API_CHAT,
	API_COMPLETION,
	API_EMBEDDING,
	API_TOKENIZE,
	API_DETOKENIZE,
	API_FORWARD,
};

#define API_IGNORED_MAX 256

/*
 * False and @e: @root has a member that is unknown, or not supported with its value. *ret_ignored
 * [API_IGNORED_MAX]: "metadata, messages[].mood", safe for a header; "" if all were honoured.
 */
bool api_fields_check(enum api_kind kind, cJSON *root, char *ret_ignored, struct api_error *e);
/*
 * After the members have been read: reports honoured ones that nothing has used in @ignored
 * [API_IGNORED_MAX], where the others are. False and @e: such a one is within an object, such as
 * `schema` in a `response_format` whose type is "text".
 */
bool api_fields_settle(enum api_kind kind, const cJSON *root, char *ignored, struct api_error *e);
/*
 * Reports members, one a line of @names, of which only the model or the user's rights can tell that
 * they have no effect.
 */
void api_fields_ignore(char *ignored, const char *path, const char *names);
/* For small routes: only these (NULL-terminated) members are allowed. */
bool api_fields_only(const cJSON *root, const char *const *names, struct api_error *e);

#endif
