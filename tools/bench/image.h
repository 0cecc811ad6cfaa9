/* SPDX-License-Identifier: MIT */
/*
 * What an image costs a model that sees: its tower's launch, as a fraction of the bf16 peak, and
 * the first token of a prompt with the image against that of a text as long.
 */
#ifndef TXDA_BENCH_IMAGE_H
#define TXDA_BENCH_IMAGE_H

#include "report.h"

struct image_options {
	unsigned width, height; /* pixels */
	unsigned text;		/* tokens of the prompt beside the image's */
};

/*
 * Measures nothing and returns 0 where the case dir has no program `vision`. @r runs the step
 * of the same case dir. Says on stderr what failed.
 */
int image_bench(struct report *report, struct runner *r, const char *case_dir,
		const struct image_options *options);

#endif
