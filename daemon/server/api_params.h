/* SPDX-License-Identifier: MIT */
/*
 * What a request to /v1/chat/completions or /v1/completions asks for: its body, checked.
 *
 * Members that are not known here are ignored, as clients send more than servers know; those that
 * are known must have the right type and range, null counts as absent. Members that would change
 * the result and are not supported (penalties, response_format, ...) are refused unless they ask
 * for nothing. Twice the same key in an object is an error.
 *
 * Pure: no model is needed, nothing is shared, any thread.
 */
#ifndef TXDA_SERVER_API_PARAMS_H
#define TXDA_SERVER_API_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "api_error.h"
#include "stop.h"

#define API_MAX_VALUES	    1000000 /* JSON values in a body */
#define API_MAX_CHOICES	    256	    /* prompts times n */
#define API_MAX_N	    128
#define API_MAX_LOGPROBS    20
#define API_MAX_STOP_TOKENS 8

enum api_kind {
	API_CHAT,
	API_COMPLETION,
};

/* A prompt as text or as ids. */
struct api_prompt {
	const char *text; /* NULL: ids; belongs to the tree */
	int32_t *ids;
	unsigned n_ids;
};

struct api_params {
	enum api_kind kind;
	cJSON *root;	   /* the body; what is const below points into it */
	const char *model; /* NULL: the first one served */
	bool stream, include_usage;
	bool echo, ignore_eos, skip_special, include_stop;
	unsigned n;
	unsigned max_tokens; /* 0 and max_tokens_given: echo only */
	bool max_tokens_given;
	unsigned min_tokens;
	/* NaN, or -1 for top_k: not given, the model's default */
	double temperature, top_p, min_p;
	int64_t top_k;
	bool seed_given;
	int64_t seed;
	const char *stop[STOP_MAX_STRINGS];
	unsigned n_stop;
	int32_t stop_tokens[API_MAX_STOP_TOKENS];
	unsigned n_stop_tokens;
	int logprobs; /* -1: none; n: the chosen one's and the n best ones' */

	/* chat */
	const cJSON
		*messages;  /* array of objects with role; content is a string (parts are joined) */
	const cJSON *tools; /* array of objects, or NULL */
	const cJSON *template_kwargs; /* object, or NULL */
	bool add_generation_prompt, continue_final_message;
	/* completions */
	struct api_prompt *prompts;
	unsigned n_prompts;
};

/* Parses and checks @body. On false @e says what is wrong, and there is nothing to free. */
bool api_params_parse(enum api_kind kind, const char *body, size_t len, struct api_params *ret,
		      struct api_error *e);
void api_params_free(struct api_params *p);

#endif
