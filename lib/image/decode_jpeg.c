// SPDX-License-Identifier: MIT
#include "decode_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

/* The orientation of the first EXIF segment before the pixels. */
static unsigned find_orientation(const struct image_bytes *in)
{
	size_t at = 2;

	while (at + 4 <= in->bytes && in->data[at] == 0xff && in->data[at + 1] != 0xda) {
		size_t len = (size_t)in->data[at + 2] << 8 | in->data[at + 3];

		/* A marker may have any number of these before its code. */
		if (in->data[at + 1] == 0xff) {
			at++;
			continue;
		}
		if (len < 2 || at + 2 + len > in->bytes)
			break;
		if (in->data[at + 1] == 0xe1 && len >= 8 && !memcmp(in->data + at + 4, "Exif\0", 6))
			return image_exif_orientation(in->data + at + 10, len - 8);
		at += 2 + len;
	}
	return 1;
}

int image_decode_jpeg(const struct image_bytes *in, struct image_picture *ret,
		      unsigned *ret_orientation)
{
	int width = 0, height = 0, chroma, space = TJCS_RGB, r;
	tjhandle tj = tjInitDecompress();

	if (!tj)
		return image_fail(in, -ENOMEM, "no memory for the JPEG decoder");
	if (tjDecompressHeader3(tj, in->data, in->bytes, &width, &height, &chroma, &space)) {
		r = image_fail(in, -EINVAL, "broken JPEG: %s", tjGetErrorStr2(tj));
	} else if (space == TJCS_CMYK || space == TJCS_YCCK) {
		r = image_fail(in, -ENOTSUP, "a JPEG with four colours (CMYK) is not supported");
	} else {
		r = image_allocate(in, width, height, ret);
	}
	/* For a truncated picture the library only warns; treat that as an error. */
	if (!r && tjDecompress2(tj, in->data, in->bytes, ret->rgb, width, 0, height, TJPF_RGB,
				TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS | TJFLAG_STOPONWARNING)) {
		r = image_fail(in, -EINVAL, "broken JPEG: %s", tjGetErrorStr2(tj));
		free(ret->rgb);
	}
	tjDestroy(tj);
	*ret_orientation = find_orientation(in);
	return r;
}
