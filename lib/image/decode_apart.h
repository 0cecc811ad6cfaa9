/* SPDX-License-Identifier: MIT */
/*
 * Pictures of strangers: decoded by a process of its own, txda-decode, which is confined before it
 * reads the first byte (it can read and write its socket and get memory, nothing else), has a limit
 * of memory and of time, and ends with the picture. What it answers is checked: whoever has taken it
 * over can make other pixels, and nothing more.
 *
 * Threads: any number at the same time. The caller does not ignore SIGCHLD.
 */
#ifndef TXDA_IMAGE_DECODE_APART_H
#define TXDA_IMAGE_DECODE_APART_H

#include <stdbool.h>

#include "resize.h"

#define IMAGE_MAX_BYTES (256u << 20) /* of a file */

/* What goes to the child before the file, and what comes back before the pixels. */
struct image_request {
	uint64_t bytes, max_pixels;
};
struct image_answer {
	int32_t code; /* 0, or -errno as image_decode() has it */
	uint32_t width, height;
	char text[236]; /* of an error */
};

struct image_child_options {
	const char *program; /* NULL: txda-decode, beside this program or in PATH */
	unsigned seconds;    /* 0: 20 */
	/* Asked before the caller's memory for a picture is allocated; NULL: it may be. */
	bool (*may_take)(void *arg, uint32_t width, uint32_t height);
	void *arg;
};

/*
 * As image_decode() (decode.h); also -ETIMEDOUT, -EPIPE: the child ended without an answer, as one
 * does that needs more memory than such a picture may take; -EDQUOT: may_take() refused; and what
 * starting a process gives.
 */
int image_decode_apart(const void *data, size_t bytes, uint64_t max_pixels,
		       const struct image_child_options *options, struct image_picture *ret,
		       char *err, size_t errlen);

#endif /* TXDA_IMAGE_DECODE_APART_H */
