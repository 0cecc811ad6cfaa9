/* SPDX-License-Identifier: MIT */
/*
 * The images of a request: what the program `vision` is to make embeddings of, and where these go in
 * the prompt. Made by the client side, encoded by the engine (encoder.h), kept with the request: a
 * sequence that is preempted finds them again.
 *
 * A prompt's keys are its tokens with, in place of an image's, parts of that image's hash: blocks of
 * the prefix cache are the same only where the pictures are.
 */
#ifndef TXDA_ENGINE_IMAGES_H
#define TXDA_ENGINE_IMAGES_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "tower.h"

#define ENGINE_IMAGE_HASH 32 /* bytes: SHA-256 of the picture's file */

struct engine_image {
	atomic_uint refs;
	uint8_t hash[ENGINE_IMAGE_HASH];
	struct image_size size;
	unsigned tokens;
	/* Until it is encoded. */
	struct image_plan plan;
	float *pixels; /* the input of that name */
	/* The engine thread's. */
	float *embeds;	  /* [tokens][hidden]; NULL: it is not encoded yet */
	float *deepstack; /* [tokens][deep] or NULL */
};

struct engine_images {
	atomic_uint refs;
	struct image_tower tower; /* that they were prepared for */
	unsigned n, n_prompt;
	struct engine_image **image; /* [n] references; the engine thread's, once submitted */
	unsigned *first;	     /* [n] the position of its first token */
	int32_t (*positions)[3];     /* [n_prompt] time, row, column */
	int32_t *keys;		     /* [n_prompt] */
	int32_t delta;		     /* what the position of a later token is more than its place */
};

/*
 * Prepares one image: @pixels are image_process()'s. *ret has one reference. -EINVAL, -E2BIG, -ENOMEM
 * with @err.
 */
int engine_image_new(const struct image_tower *t, struct image_size size, const float *pixels,
		     const uint8_t hash[ENGINE_IMAGE_HASH], struct engine_image **ret, char *err,
		     size_t errlen);
struct engine_image *engine_image_ref(struct engine_image *i);
void engine_image_unref(struct engine_image *i); /* NULL is accepted */

/*
 * Places images in a prompt, where each has as many image tokens in a row as it takes; takes a
 * reference to each. *ret has one reference. -EINVAL: they are not those of the prompt; -ENOMEM.
 */
int engine_images_new(const struct image_tower *t, struct engine_image *const *images, unsigned n,
		      const int32_t *prompt, unsigned n_prompt, struct engine_images **ret,
		      char *err, size_t errlen);
struct engine_images *engine_images_ref(struct engine_images *i); /* NULL is accepted */
void engine_images_unref(struct engine_images *i);

/* The image whose token is at @position, and which one of it; NULL: a text's token. */
const struct engine_image *engine_images_at(const struct engine_images *i, unsigned position,
					    unsigned *ret_row);

#endif
