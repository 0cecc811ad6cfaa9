/* SPDX-License-Identifier: MIT */
/*
 * The images of a request: inputs for the program `vision`, and where the embeddings go in the
 * prompt. Created by the client side, encoded by the engine (encoder.h), kept with the request: a
 * sequence that is preempted finds them again.
 *
 * Blocks of the prefix cache match only where the images in them are the same: engine_images_key()
 * is part of their keys, after the tokens.
 */
#ifndef TXDA_ENGINE_IMAGES_H
#define TXDA_ENGINE_IMAGES_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "tower.h"

#define ENGINE_IMAGE_HASH	32 /* bytes: SHA-256 of the picture's file and of the part's index */
#define ENGINE_IMAGES_KEY_WORDS (ENGINE_IMAGE_HASH / 4)

struct engine_image {
	atomic_uint refs;
	uint8_t hash[ENGINE_IMAGE_HASH];
	struct image_size size;
	unsigned tokens;
	/* Inputs, until it is encoded. */
	struct image_plan plan;
	float *pixels; /* the input of that name */
	/* Private to the engine thread. */
	float *embeds;	  /* [tokens][hidden]; NULL: not encoded */
	float *deepstack; /* [tokens][deep] or NULL */
};

struct engine_images {
	atomic_uint refs;
	struct image_tower tower; /* the tower that they were prepared for */
	unsigned n, n_prompt;
	struct engine_image **image; /* [n] references; the engine thread's, once submitted */
	unsigned *first;	     /* [n] the position of its first token */
	int32_t (*positions)[3];     /* [n_prompt] time, row, column */
	int32_t delta;		     /* offset of later tokens' positions from their indices */
};

/*
 * Prepares one image: @pixels come from image_process(). *ret has one reference. -EINVAL, -E2BIG,
 * -ENOMEM with @err.
 */
int engine_image_new(const struct image_tower *t, struct image_size size, const float *pixels,
		     const uint8_t hash[ENGINE_IMAGE_HASH], struct engine_image **ret, char *err,
		     size_t errlen);
struct engine_image *engine_image_ref(struct engine_image *i);
void engine_image_unref(struct engine_image *i); /* NULL is accepted */

/*
 * Places images in a prompt, which has a run of image tokens of the right length for each; takes a
 * reference to each. *ret has one reference. -EINVAL: they do not match the prompt; -ENOMEM.
 */
int engine_images_new(const struct image_tower *t, struct engine_image *const *images, unsigned n,
		      const int32_t *prompt, unsigned n_prompt, struct engine_images **ret,
		      char *err, size_t errlen);
struct engine_images *engine_images_ref(struct engine_images *i); /* NULL is accepted */
void engine_images_unref(struct engine_images *i);

/* The image whose token is at @position, and the token's index in it; NULL: a text token. */
const struct engine_image *engine_images_at(const struct engine_images *i, unsigned position,
					    unsigned *ret_row);

/*
 * A hash of the images that have tokens at the @n positions from @first on, and of the indices of
 * these tokens; zeros: only text. NULL is accepted.
 */
void engine_images_key(const struct engine_images *i, unsigned first, unsigned n,
		       int32_t ret[ENGINE_IMAGES_KEY_WORDS]);

#endif
