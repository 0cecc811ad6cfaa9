/* SPDX-License-Identifier: MIT */
/*
 * Decodes pictures in memory to RGB: JPEG, PNG, WebP and GIF, of which the first frame. As in the
 * reference implementations, alpha is dropped, gray is replicated, 16-bit samples are reduced to
 * their high byte, and the EXIF orientation (JPEG, PNG, WebP) is applied.
 *
 * The bytes are untrusted, and the libraries may have vulnerabilities: decode in a process that is
 * confined (confine.h) and has limits on memory and time. Nothing is printed.
 */
#ifndef TXDA_IMAGE_DECODE_H
#define TXDA_IMAGE_DECODE_H

#include "resize.h"

#define IMAGE_MAX_SIDE 65535

/*
 * 0, or with @err -EINVAL: corrupt or not a picture; -ENOTSUP: an unsupported kind; -E2BIG: more
 * than @max_pixels according to its header, checked before memory is allocated; -ENOMEM.
 */
int image_decode(const void *data, size_t bytes, uint64_t max_pixels, struct image_picture *ret,
		 char *err, size_t errlen);

#endif /* TXDA_IMAGE_DECODE_H */
