/* SPDX-License-Identifier: MIT */
/*
 * Encodes images: runs the program `vision` of a model that sees, one image a launch, so that an
 * image's embeddings depend on nothing but the image. What a user's images became is remembered by
 * their hash, up to ENCODER_CACHE_BYTES and ENCODER_CACHE_IMAGES of all users together, the least
 * recently used forgotten first; users find their own alone.
 *
 * One thread, the engine's.
 */
#ifndef TXDA_ENGINE_ENCODER_H
#define TXDA_ENGINE_ENCODER_H

#include <stdbool.h>
#include <sys/types.h>

#include "images.h"

#define ENCODER_CACHE_BYTES  (256ull << 20)
#define ENCODER_CACHE_IMAGES 1024

struct encoder;
struct engine_options;
struct txda_group;

/*
 * Loads the program `vision` of the case dir; before the model itself, whose KV cache takes what memory
 * is left. *ret is NULL for a model that does not see.
 */
int encoder_new(struct txda_group *group, const struct engine_options *options,
		struct encoder **ret, char *err, size_t errlen);
void encoder_free(struct encoder *e); /* NULL is accepted */

const struct image_tower *encoder_tower(const struct encoder *e);
/*
 * Columns of the embeddings of the step's program, which must be those of `vision`: -EINVAL. Call it
 * once, before the first image.
 */
int encoder_check(struct encoder *e, unsigned hidden, unsigned deep, char *err, size_t errlen);

/* Whether an image of the request is not encoded yet. */
bool encoder_wants(const struct engine_images *images);
/* Takes the request's images that are remembered for @uid; returns how many. */
unsigned encoder_recall(struct encoder *e, uid_t uid, struct engine_images *images);
/* Launches the first image that is not encoded yet. */
int encoder_begin(struct encoder *e, const struct engine_images *images, char *err, size_t errlen);
/*
 * 0: it is encoded, and remembered for @uid. -ETIMEDOUT: it is still running at @deadline_ns. -ENOMEM:
 * there is no memory for what it became, and the model can go on.
 */
int encoder_wait(struct encoder *e, uid_t uid, uint64_t deadline_ns, char *err, size_t errlen);

#endif
