/* SPDX-License-Identifier: MIT */
/*
 * The pictures of a chat: converts their URLs to images that the engine can encode, and places them
 * in the prompt. Runs in a text worker; each file is decoded by a confined process
 * (decode_apart.h).
 */
#ifndef TXDA_REQUEST_PICTURES_H
#define TXDA_REQUEST_PICTURES_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct api_params;
struct engine_image;
struct exchange;
struct identity;
struct image_parts;
struct model_text;
struct prompt_tokens;
struct text_caller;

struct pictures {
	unsigned n, n_images;
	struct image_parts *parts;    /* [n] the parts of each picture: one image or several */
	struct engine_image **images; /* [n_images] references, in the order of the prompt */
	unsigned taken;		      /* charged to the user's limits: pictures, */
	uint64_t pixels;	      /* and their pixels */
	struct identity *who;	      /* the client, whose files they may be; NULL: none */
};

/* Takes the descriptors and the client's identity of a request. Event loop. */
bool pictures_arrive(struct exchange *x, struct api_error *e);

/*
 * Reads the pictures of x->params into x->pictures, with memory from the user's budget. Returns
 * true at once if there are none. On false @e names the picture and the reason.
 */
bool pictures_read(struct exchange *x, struct api_error *e);
void pictures_free(struct exchange *x);

/*
 * Replaces the one image token that the template wrote for each picture by the tokens of its parts.
 * For a prompt that is too long anyway only the count is updated.
 */
bool pictures_place(const struct model_text *t, const struct api_params *p,
		    const struct pictures *pictures, const struct text_caller *caller,
		    struct prompt_tokens *prompt, struct api_error *e);

#endif
