// SPDX-License-Identifier: MIT
#include "decode_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <webp/decode.h>

int image_decode_webp(const struct image_bytes *in, struct image_picture *ret)
{
	WebPBitstreamFeatures f;
	int r;

	if (WebPGetFeatures(in->data, in->bytes, &f) != VP8_STATUS_OK)
		return image_fail(in, -EINVAL, "broken WebP");
	if (f.has_animation)
		return image_fail(in, -ENOTSUP, "a WebP with several frames is not supported");
	r = image_allocate(in, f.width, f.height, ret);
	if (!r &&
	    !WebPDecodeRGBInto(in->data, in->bytes, ret->rgb,
			       image_picture_bytes(ret->width, ret->height), (int)ret->width * 3)) {
		r = image_fail(in, -EINVAL, "broken WebP");
		free(ret->rgb);
	}
	return r;
}
