/* SPDX-License-Identifier: MIT */
/*
 * The requested format of an answer: `response_format`, `structured_outputs`, `guided_json` and
 * similar members. At most one of them.
 */
#ifndef TXDA_API_API_FORMAT_H
#define TXDA_API_API_FORMAT_H

#include <stdbool.h>
#include <cjson/cJSON.h>

#include "api_error.h"

#define API_MAX_FORM_CHOICES 100000

enum api_form {
	API_FORM_NONE,
	API_FORM_OBJECT, /* any JSON object */
	API_FORM_SCHEMA,
	API_FORM_REGEX,
	API_FORM_GRAMMAR,
	API_FORM_CHOICE,
};

struct api_format {
	enum api_form form;
	const char *param;  /* the member that requested it, for errors */
	const cJSON *value; /* a schema, a string, or an array of strings */
	cJSON *owned;	    /* a schema given as a string */
	bool strict;
	bool compact;
	const char *whitespace; /* a regular expression, or NULL */
};

bool api_parse_format(const cJSON *root, struct api_format *ret, struct api_error *e);
void api_format_free(struct api_format *f);

#endif
