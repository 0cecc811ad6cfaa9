/* SPDX-License-Identifier: MIT */
/*
 * Checks the images of a golden case: runs the program `vision` and compares with the reference's
 * embeddings.
 */
#ifndef TXDA_VERIFY_VISION_H
#define TXDA_VERIFY_VISION_H

#include "runner.h"
#include "safetensors.h"
#include "processor.h"

struct vision_case {
	struct runner_images images;	      /* for struct runner */
	unsigned n_embeds;		      /* 0: the case has only text */
	double embeds_error, deepstack_error; /* relative, of the worst row */
	unsigned n_pictures;		      /* that were processed by lib/image, too */
	double pixels_error;		      /* of those: the largest of a value */
	float *embeds, *deepstack;
	int32_t (*positions)[3];
	int32_t *rows;
};

/* Reads a case dir's description of its tower, and of how pictures are prepared for it. */
int vision_open(const char *case_dir, struct image_tower *ret,
		struct image_processor *ret_processor, struct tool_error *error);
/*
 * Encodes the pixels of case @index of the file @golden, whose prompt is @ids, and compares; images
 * are looked for beside the file. Positions, where the file has them, must be those of the
 * reference.
 */
int vision_case(struct runner *r, const struct safetensors *st, const char *golden, unsigned index,
		const int32_t *ids, unsigned n_ids, struct vision_case *ret,
		struct tool_error *error);
void vision_case_free(struct vision_case *c);

#endif /* TXDA_VERIFY_VISION_H */
