/* SPDX-License-Identifier: MIT */
/*
 * Which members a request may have. One table says for each route what becomes of a member: it is
 * honoured; it has no effect on the answer, is accepted and reported (the header Txda-Ignored); or
 * it would change the answer, is not supported, and is accepted only with a value that asks for
 * nothing. Others are refused, as OpenAI's own API does, so that a misspelt member is no silent
 * default. In messages and tools, which go to the model's chat template as they are, others are
 * reported instead. `null` counts as absent everywhere.
 *
 * Values are checked elsewhere (api_params.c). Pure; any thread.
 */
#ifndef TXDA_SERVER_API_FIELDS_H
#define TXDA_SERVER_API_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "api_error.h"

/* The routes, as far as their bodies differ. */
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
 * [API_IGNORED_MAX]: "metadata, messages[].mood", fit for a header; "" if all was honoured.
 */
bool api_fields_check(enum api_kind kind, const cJSON *root, char *ret_ignored,
		      struct api_error *e);
/* For small routes: only these [NULL-terminated] members. */
bool api_fields_only(const cJSON *root, const char *const *names, struct api_error *e);

#endif
