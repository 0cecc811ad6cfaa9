/* SPDX-License-Identifier: MIT */
/* The pictures of a request (pictures.h reads them), and their tokens in its prompt. */
#ifndef TXDA_REQUEST_PICTURES_PLACE_H
#define TXDA_REQUEST_PICTURES_PLACE_H

#include <stdbool.h>
#include <stdint.h>

struct account;
struct api_error;
struct api_params;
struct engine_image;
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

/*
 * Replaces the one image token that the template wrote for each picture by the tokens of its parts.
 * For a prompt that is too long anyway only the count is updated. Text workers.
 */
bool pictures_place(const struct model_text *t, const struct api_params *p,
		    const struct pictures *pictures, const struct text_caller *caller,
		    struct prompt_tokens *prompt, struct api_error *e);

/* @account: the user's, whose limits they were charged to. */
void pictures_free(struct pictures *p, struct account *account);

#endif
