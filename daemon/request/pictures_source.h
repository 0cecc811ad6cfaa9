/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a picture, wherever a request has them: a data: URI, file:///PATH below a directory of
 * --image-dir, or fd:N, the N-th descriptor that came with the request. In a text worker.
 */
#ifndef TXDA_SERVER_PICTURES_SOURCE_H
#define TXDA_SERVER_PICTURES_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct exchange;

/*
 * Reads them into *ret, the caller's to free, with memory from the user's budget: *taken grows by
 * what is to be returned. On false @e names picture @index.
 */
bool picture_source_read(struct exchange *x, unsigned index, const char *url, uint8_t **ret,
			 uint64_t *ret_bytes, uint64_t *taken, struct api_error *e);

#endif
