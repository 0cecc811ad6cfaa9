/* SPDX-License-Identifier: MIT */
/*
 * The members of a request that make up the prompt: `messages` and `tools`, or `prompt`, `input`,
 * `tokens`. Used by api_params.c only.
 */
#ifndef TXDA_API_API_MESSAGES_H
#define TXDA_API_API_MESSAGES_H

#include "api_params.h"

/*
 * Both fill in the prompt's members of @p from p->root. api_params_free() frees what they
 * allocated, also on failure.
 */
bool api_parse_messages(struct api_params *p, struct api_error *e);
/* @name: the member. */
bool api_parse_prompts(struct api_params *p, const char *name, struct api_error *e);

#endif
