/* SPDX-License-Identifier: MIT */
/*
 * Reads the bytes of a picture from its URL: a data: URI, file:///PATH below a directory of
 * --image-dir, or fd:N, the N-th descriptor passed with the request. In a text worker.
 */
#ifndef TXDA_REQUEST_PICTURES_SOURCE_H
#define TXDA_REQUEST_PICTURES_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct exchange;

/*
 * Reads them into *ret, which the caller frees, with memory from the user's budget: *taken is
 * increased by what has to be returned. On false @e names picture @index.
 */
bool picture_source_read(struct exchange *x, unsigned index, const char *url, uint8_t **ret,
			 uint64_t *ret_bytes, uint64_t *taken, struct api_error *e);

#endif
