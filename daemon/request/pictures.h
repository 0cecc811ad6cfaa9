/* SPDX-License-Identifier: MIT */
/*
 * The pictures of a chat: from data: URIs to images that the engine can encode. In a text worker;
 * files are decoded by a confined process each (decode_apart.h).
 */
#ifndef TXDA_SERVER_PICTURES_H
#define TXDA_SERVER_PICTURES_H

#include <stdbool.h>

struct api_error;
struct engine_image;
struct exchange;

/*
 * Reads the pictures of x->params into x->images, with memory from the user's budget. True at once
 * when there are none. On false @e says why, and which picture.
 */
bool pictures_read(struct exchange *x, struct api_error *e);
void pictures_free(struct exchange *x);

#endif
