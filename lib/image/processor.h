/* SPDX-License-Identifier: MIT */
/*
 * From a decoded picture to what a tower reads: size, patches or tiles, normalised values, as the
 * image processors of the checkpoints do it. A preprocessor_config.json is honoured key by key; a
 * step that is asked for and not known is refused by its name.
 */
#ifndef TXDA_IMAGE_PROCESSOR_H
#define TXDA_IMAGE_PROCESSOR_H

#include "resize.h"
#include "tower.h"

struct image_processor {
	bool count_frames;		 /* limits of pixels are of all frames (GLM) */
	uint64_t min_pixels, max_pixels; /* of MERGE */
	uint32_t max_slices, resolution; /* of SLICES: pieces at most, pixels of a piece's side */
	bool slice, number;		 /* cut at all, number the pictures of a prompt */
	bool resize;
	enum image_filter filter;
	double scale;
	float mean[3], std[3]; /* (value * scale - mean) / std */
};

/*
 * Reads @config, the whole preprocessor_config.json of the model whose tower is *@t: its sizes must
 * be the tower's. 0, or -EINVAL or -ENOTSUP with @err.
 */
int image_processor_parse(const cJSON *config, const struct image_tower *t,
			  struct image_processor *ret, char *err, size_t errlen);

/*
 * The size of a picture as the tower has it, without its pixels: for limits and counts of tokens.
 * -EINVAL: no size that the processor takes.
 */
int image_process_size(const struct image_processor *p, const struct image_tower *t, uint32_t width,
		       uint32_t height, struct image_parts *ret, char *err, size_t errlen);

/*
 * Makes the pixels of a picture, image_plan_pixels()'s input, from malloc(). *ret_parts are for
 * image_plan_make(), each with its pixels behind those before it. -E2BIG: one is more than a launch
 * of the tower takes.
 */
int image_process(const struct image_processor *p, const struct image_tower *t,
		  const struct image_picture *picture, struct image_parts *ret_parts,
		  float **ret_pixels, char *err, size_t errlen);

#endif /* TXDA_IMAGE_PROCESSOR_H */
