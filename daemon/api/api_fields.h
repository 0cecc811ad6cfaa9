/* SPDX-License-Identifier: MIT */
/*
 * Which members a request may have. One table says for each route how a member is treated: it is
 * honoured; or it has no effect on the answer, and is accepted and reported (the header
 * Txda-Ignored); or it would change the answer and is not supported, and is accepted only with the
 * value that disables it. Unknown members are refused, as OpenAI's API does, so that a misspelt
 * member is not silently ignored. In messages and tools, which are passed to the model's chat
 * template unchanged, unknown members are reported instead. `null` counts as absent everywhere.
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
bool api_fields_check(enum api_kind kind, const cJSON *root, char *ret_ignored,
		      struct api_error *e);
/* For small routes: only these (NULL-terminated) members are allowed. */
bool api_fields_only(const cJSON *root, const char *const *names, struct api_error *e);

#endif
