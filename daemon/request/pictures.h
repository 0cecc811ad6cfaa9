/* SPDX-License-Identifier: MIT */
/*
 * Reads the pictures of a chat: converts their URLs to images that the engine can encode. Runs in a
 * text worker; each file is decoded by a confined process (decode_apart.h).
 */
#ifndef TXDA_REQUEST_PICTURES_H
#define TXDA_REQUEST_PICTURES_H

#include <stdbool.h>

struct api_error;
struct exchange;

/* Takes the descriptors and the client's identity of a request. Event loop. */
bool pictures_arrive(struct exchange *x, struct api_error *e);

/*
 * Reads the pictures of x->params into x->pictures, with memory from the user's budget. Returns
 * true at once if there are none. On false @e names the picture and the reason.
 */
bool pictures_read(struct exchange *x, struct api_error *e);

#endif
