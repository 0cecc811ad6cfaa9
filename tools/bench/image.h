/* SPDX-License-Identifier: MIT */
/*
 * Measures the cost of an image for a vision model: the launch of its tower, as a fraction of the
 * bf16 peak, and the time to the first token of a prompt with the image, compared with a text
 * prompt of the same length.
 */
#ifndef TXDA_BENCH_IMAGE_H
#define TXDA_BENCH_IMAGE_H

#include "report.h"

struct image_options {
	unsigned width, height; /* pixels */
	unsigned text;		/* tokens of the prompt beside the image's */
};

/*
 * Returns 0 without measuring if the case dir has no program `vision`. @r runs the step program of
 * the same case dir. Errors are reported on stderr.
 */
int image_bench(struct report *report, struct runner *r, const char *case_dir,
		const struct image_options *options);

#endif
