/* SPDX-License-Identifier: MIT */
/* An error in the OpenAI format: {"error": {"message", "type", "param", "code"}}. */
#ifndef TXDA_API_API_ERROR_H
#define TXDA_API_API_ERROR_H

#include "json_out.h"

struct api_error {
	int status;	      /* HTTP; 0: no error */
	unsigned retry_after; /* seconds; 0: no such header */
	bool final;	      /* tells clients that repeat requests by themselves not to */
	const char *type;     /* "invalid_request_error", ... */
	const char *code;     /* NULL: null */
	char param[96];	      /* "": null */
	char message[640];
};

/*
 * Sets the type from the status; @param may be NULL. Returns false, so that a check can return it.
 */
bool api_error_set(struct api_error *e, int status, const char *code, const char *param,
		   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Appends the JSON object. */
void api_error_write(const struct api_error *e, struct json_out *o);

#endif
