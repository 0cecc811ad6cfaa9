/* SPDX-License-Identifier: MIT */
/*
 * Resizes 8-bit pictures as Pillow up to version 12 does: in fixed point, rows first, each pass
 * rounded to 8 bits. Pure functions.
 */
#ifndef TXDA_IMAGE_RESIZE_H
#define TXDA_IMAGE_RESIZE_H

#include <stddef.h>
#include <stdint.h>

/* Rows of RGB pixels without gaps. Memory from malloc(), freed by the owner. */
struct image_picture {
	uint32_t width, height;
	uint8_t *rgb;
};

/* Values as in preprocessor_config.json. */
enum image_filter { IMAGE_BILINEAR_FILTER = 2, IMAGE_BICUBIC_FILTER = 3 };

/* 0 or -ENOMEM. Sizes are 1 to 65535. */
int image_resize(const struct image_picture *from, uint32_t width, uint32_t height,
		 enum image_filter filter, struct image_picture *ret);

static inline size_t image_picture_bytes(uint32_t width, uint32_t height)
{
	return (size_t)width * height * 3;
}

#endif /* TXDA_IMAGE_RESIZE_H */
