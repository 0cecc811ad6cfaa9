/* SPDX-License-Identifier: MIT */
/*
 * Converts a decoded picture to the input of a vision tower (size, patches or tiles, normalised
 * values) as the image processors of the checkpoints do. All keys of preprocessor_config.json are
 * honoured; an unknown step is refused with an error that names it.
 */
#ifndef TXDA_IMAGE_PROCESSOR_H
#define TXDA_IMAGE_PROCESSOR_H

#include "resize.h"
#include "tower.h"

struct image_processor {
	bool count_frames;		 /* limits of pixels apply to all frames together (GLM) */
	uint64_t min_pixels, max_pixels; /* of MERGE */
	uint32_t max_slices, resolution; /* SLICES: slices at most, pixels of their side */
	bool slice, number;		 /* cut slices; number the pictures of a prompt */
	bool resize;
	enum image_filter filter;
	double scale;
	float mean[3], std[3]; /* (value * scale - mean) / std */
};

/*
 * The part of a processor_config.json, or NULL, that newer checkpoints have in place of
 * preprocessor_config.json, and that takes precedence over it. NULL: there is none.
 */
const cJSON *image_processor_within(const cJSON *processor_config);
/*
 * Reads @config, that part or the whole preprocessor_config.json of the model whose tower is *@t:
 * its sizes must match the tower's. Keys that are missing have the defaults of the family's
 * processor. 0, or -EINVAL or -ENOTSUP with @err.
 */
int image_processor_parse(const cJSON *config, const struct image_tower *t,
			  struct image_processor *ret, char *err, size_t errlen);

/*
 * The same as numbers of fixed size: one process reads the file, another one takes over what it
 * found. A bit of @flags for each bool, in their order.
 */
struct image_values {
	uint64_t min_pixels, max_pixels;
	double scale;
	float mean[3], std[3];
	uint32_t max_slices, resolution, filter, flags;
};
void image_processor_export(const struct image_processor *p, struct image_values *ret);
/* Checks all of them, whoever wrote them. -EINVAL: not what image_processor_parse() makes. */
int image_processor_import(const struct image_values *v, const struct image_tower *t,
			   struct image_processor *ret);

/*
 * The size at which the tower processes a picture, computed without its pixels, for limits and
 * token counts. -EINVAL: a size that the processor does not accept.
 */
int image_process_size(const struct image_processor *p, const struct image_tower *t, uint32_t width,
		       uint32_t height, struct image_parts *ret, char *err, size_t errlen);

/*
 * Computes the pixels of a picture, the input of image_plan_pixels(), in memory from malloc().
 * *ret_parts are for image_plan_make(); their pixels are stored one after the other. -E2BIG: a part
 * exceeds one launch of the tower.
 */
int image_process(const struct image_processor *p, const struct image_tower *t,
		  const struct image_picture *picture, struct image_parts *ret_parts,
		  float **ret_pixels, char *err, size_t errlen);

#endif /* TXDA_IMAGE_PROCESSOR_H */
