/* SPDX-License-Identifier: MIT */
/* Shared by the decoders of image formats; see decode.h for their results. */
#ifndef TXDA_IMAGE_DECODE_INTERNAL_H
#define TXDA_IMAGE_DECODE_INTERNAL_H

#include "decode.h"

struct image_bytes {
	const uint8_t *data;
	size_t bytes;
	uint64_t max_pixels;
	char *err;
	size_t errlen;
};

/* Writes a message to in->err; returns @code. */
int image_fail(const struct image_bytes *in, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Checks a size from a header and allocates memory for it: 0, -EINVAL, -E2BIG or -ENOMEM. */
int image_allocate(const struct image_bytes *in, int64_t width, int64_t height,
		   struct image_picture *ret);

/* *ret_orientation: 1 to 8 as in EXIF; 1 if there is none. */
int image_decode_jpeg(const struct image_bytes *in, struct image_picture *ret,
		      unsigned *ret_orientation);
int image_decode_png(const struct image_bytes *in, struct image_picture *ret,
		     unsigned *ret_orientation);
int image_decode_webp(const struct image_bytes *in, struct image_picture *ret,
		      unsigned *ret_orientation);
int image_decode_gif(const struct image_bytes *in, struct image_picture *ret);

/* The orientation from an EXIF block (a TIFF header and its first directory), or 1. */
unsigned image_exif_orientation(const uint8_t *exif, size_t bytes);

#endif /* TXDA_IMAGE_DECODE_INTERNAL_H */
