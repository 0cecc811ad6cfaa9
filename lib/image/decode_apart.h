/* SPDX-License-Identifier: MIT */
/*
 * Decodes an untrusted picture in a separate process, txda-decode, which is confined before it
 * reads the first byte (it can only use its socket and allocate memory), has limits on memory and
 * time, and exits after one picture. Its answer is checked: an attacker who controls the process
 * can only return wrong pixels.
 *
 * Threads: any, concurrently. The caller must not ignore SIGCHLD.
 */
#ifndef TXDA_IMAGE_DECODE_APART_H
#define TXDA_IMAGE_DECODE_APART_H

#include <stdatomic.h>
#include <stdbool.h>

#include "resize.h"

#define IMAGE_MAX_BYTES (256u << 20) /* of a file */

/* Sent to the child before the file, and received from it before the pixels. */
struct image_request {
	uint64_t bytes, max_pixels;
};
struct image_answer {
	int32_t code; /* 0, or -errno as returned by image_decode() */
	uint32_t width, height;
	char text[236]; /* error message */
};

struct image_child_options {
	const char *program; /* NULL: txda-decode, beside this program or in PATH */
	unsigned seconds;    /* 0: 20 */
	uint64_t end_ns;     /* CLOCK_MONOTONIC: killed then at the latest; 0: only by @seconds */
	uint64_t low_ns;     /* CLOCK_MONOTONIC: low priority from then on (priority.h); 0: never */
	/* Asked before memory for the picture is allocated; NULL: always allowed. */
	bool (*may_take)(void *arg, uint32_t width, uint32_t height);
	void *arg;
	const atomic_bool *gone; /* once it is true nobody waits for the picture; NULL */
};

/*
 * As image_decode() (decode.h); also -ETIMEDOUT; -ECANCELED: @gone is true; -EPIPE: the child ended without an answer, for
 * example because it exceeded its memory limit; -EDQUOT: may_take() refused; and errors of starting
 * a process.
 */
int image_decode_apart(const void *data, size_t bytes, uint64_t max_pixels,
		       const struct image_child_options *options, struct image_picture *ret,
		       char *err, size_t errlen);

#endif /* TXDA_IMAGE_DECODE_APART_H */
