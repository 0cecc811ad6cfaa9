/* SPDX-License-Identifier: MIT */
/*
 * Pictures in memory to red, green and blue: JPEG, PNG, WebP and the first frame of GIF. Alpha is
 * dropped, gray is repeated, of 16 bits the high ones count, and what EXIF says of the orientation
 * (JPEG, PNG) is done, as the reference implementations load pictures.
 *
 * The bytes are hostile, and so is what libraries make of them: decode in a process that is confined
 * (confine.h) and has limits of memory and time. Nothing is printed.
 */
#ifndef TXDA_IMAGE_DECODE_H
#define TXDA_IMAGE_DECODE_H

#include "resize.h"

#define IMAGE_MAX_SIDE 65535

/*
 * 0, or with @err -EINVAL: broken or no picture; -ENOTSUP: one of a kind that is not decoded; -E2BIG:
 * more than @max_pixels, by its header, before memory is taken for it; -ENOMEM.
 */
int image_decode(const void *data, size_t bytes, uint64_t max_pixels, struct image_picture *ret,
		 char *err, size_t errlen);

#endif /* TXDA_IMAGE_DECODE_H */
