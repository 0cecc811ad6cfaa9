// SPDX-License-Identifier: MIT
#include "decode_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#define RIFF_HEADER  12 /* "RIFF", a size, "WEBP" */
#define CHUNK_HEADER 8	/* a name and a size */
#define FRAME_HEADER 16 /* of an ANMF chunk */

struct chunk {
	const uint8_t *data;
	size_t bytes;
};

static uint32_t number(const uint8_t *p, unsigned bytes)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint32_t)p[i] << 8 * i;
	return n;
}

/* The first chunk of that name; false: there is none, or one before it is cut. */
static bool find_chunk(const struct image_bytes *in, const char *name, struct chunk *ret)
{
	size_t at = RIFF_HEADER;

	while (in->bytes > at && in->bytes - at >= CHUNK_HEADER) {
		const uint8_t *p = in->data + at;
		size_t bytes = number(p + 4, 4), left = in->bytes - at - CHUNK_HEADER;

		if (bytes > left)
			return false;
		if (!memcmp(p, name, 4)) {
			*ret = (struct chunk){p + CHUNK_HEADER, bytes};
			return true;
		}
		at += CHUNK_HEADER + bytes + bytes % 2;
	}
	return false;
}

static unsigned find_orientation(const struct image_bytes *in)
{
	static const char before[] = "Exif\0"; /* and its own NUL */
	struct chunk exif;

	if (!find_chunk(in, "EXIF", &exif))
		return 1;
	if (exif.bytes >= sizeof(before) && !memcmp(exif.data, before, sizeof(before))) {
		exif.data += sizeof(before);
		exif.bytes -= sizeof(before);
	}
	return image_exif_orientation(exif.data, exif.bytes);
}

/* The part of the picture that the first frame covers, and its data; @f: of the whole. */
static int find_frame(const struct image_bytes *in, const WebPBitstreamFeatures *f,
		      struct chunk *ret, size_t *ret_left, size_t *ret_top)
{
	WebPBitstreamFeatures own;
	struct chunk frame;
	size_t left, top;

	if (!find_chunk(in, "ANMF", &frame) || frame.bytes < FRAME_HEADER)
		return image_fail(in, -EINVAL, "broken WebP: no frame");
	left = 2 * (size_t)number(frame.data, 3);
	top = 2 * (size_t)number(frame.data + 3, 3);
	*ret = (struct chunk){frame.data + FRAME_HEADER, frame.bytes - FRAME_HEADER};
	if (WebPGetFeatures(ret->data, ret->bytes, &own) != VP8_STATUS_OK ||
	    (uint32_t)own.width != number(frame.data + 6, 3) + 1 ||
	    (uint32_t)own.height != number(frame.data + 9, 3) + 1 ||
	    left + (size_t)own.width > (size_t)f->width ||
	    top + (size_t)own.height > (size_t)f->height)
		return image_fail(in, -EINVAL, "broken WebP: its first frame");
	*ret_left = left;
	*ret_top = top;
	return 0;
}

int image_decode_webp(const struct image_bytes *in, struct image_picture *ret,
		      unsigned *ret_orientation)
{
	struct chunk data = {in->data, in->bytes};
	WebPBitstreamFeatures f;
	size_t left = 0, top = 0, first;
	int r = 0;

	if (WebPGetFeatures(in->data, in->bytes, &f) != VP8_STATUS_OK)
		return image_fail(in, -EINVAL, "broken WebP");
	if (f.has_animation)
		r = find_frame(in, &f, &data, &left, &top);
	/* Black where a frame does not cover it. */
	if (!r)
		r = image_allocate(in, f.width, f.height, ret);
	if (r)
		return r;
	first = (top * ret->width + left) * 3;
	if (!WebPDecodeRGBInto(data.data, data.bytes, ret->rgb + first,
			       image_picture_bytes(ret->width, ret->height) - first,
			       (int)ret->width * 3)) {
		free(ret->rgb);
		return image_fail(in, -EINVAL, "broken WebP");
	}
	*ret_orientation = find_orientation(in);
	return 0;
}
