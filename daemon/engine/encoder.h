/* SPDX-License-Identifier: MIT */
/*
 * Encodes images: runs the program `vision` of a vision model, for one image at a time, so that an
 * image's embeddings depend on nothing but the image. It can run in several launches of some ops
 * each, with steps in between; the bits are the same. Embeddings are cached by image hash and owner
 * (engine_owner()), who alone finds them, up to ENCODER_CACHE_BYTES and ENCODER_CACHE_IMAGES for all
 * users together, evicting the least recently used.
 *
 * One thread, the engine's.
 */
#ifndef TXDA_ENGINE_ENCODER_H
#define TXDA_ENGINE_ENCODER_H

#include <stdbool.h>
#include <sys/types.h>

#include "images.h"
#include "launch.h"

#define ENCODER_CACHE_BYTES  (256ull << 20)
#define ENCODER_CACHE_IMAGES 1024

struct encoder;
struct engine_options;
struct txda_group;

/*
 * Loads the program `vision` of the case dir; call before loading the model, whose KV cache takes
 * the remaining memory. *ret is NULL for a model without vision.
 */
int encoder_new(struct txda_group *group, const struct engine_options *options,
		struct encoder **ret, char *err, size_t errlen);
void encoder_free(struct encoder *e); /* NULL is accepted */

const struct image_tower *encoder_tower(const struct encoder *e);
/*
 * Checks the width of the embeddings expected by the step program against `vision`: -EINVAL. Call
 * once, before the first image.
 */
int encoder_check(struct encoder *e, unsigned hidden, unsigned deep, char *err, size_t errlen);

/* Whether an image of the request is not encoded yet. */
bool encoder_wants(const struct engine_images *images);
/* Fills in the request's images that are cached for @owner; returns how many. */
unsigned encoder_recall(struct encoder *e, uint64_t owner, struct engine_images *images);
/*
 * Launches the first image that is not encoded yet: as many of its remaining ops as take @most_ns
 * by what was measured so far, at least one; 0: all.
 */
int encoder_begin(struct encoder *e, const struct engine_images *images, uint64_t most_ns,
		  char *err, size_t errlen);
/*
 * Waits for the launch that began at @start_ns. 0: it is over; *ret_encoded: so is the image, which
 * is cached for @owner. -ENOMEM: no memory for the result; the model can continue. Other errors as
 * launch_wait().
 */
int encoder_wait(struct encoder *e, uint64_t owner, uint64_t start_ns,
		 const struct launch_limits *limits, bool *ret_encoded, char *err, size_t errlen);

#endif
