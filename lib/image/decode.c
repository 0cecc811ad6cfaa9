// SPDX-License-Identifier: MIT
#include "decode_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int image_fail(const struct image_bytes *in, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(in->err, in->errlen, format, args);
	va_end(args);
	return code;
}

int image_allocate(const struct image_bytes *in, int64_t width, int64_t height,
		   struct image_picture *ret)
{
	if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE)
		return image_fail(in, -EINVAL,
				  "the picture has %lld x %lld pixels; sides must be from 1 to %d",
				  (long long)width, (long long)height, IMAGE_MAX_SIDE);
	if ((uint64_t)width * (uint64_t)height > in->max_pixels)
		return image_fail(
			in, -E2BIG, "the picture has %lld x %lld pixels; the limit is %llu",
			(long long)width, (long long)height, (unsigned long long)in->max_pixels);
	*ret = (struct image_picture){
		(uint32_t)width, (uint32_t)height,
		calloc(1, image_picture_bytes((uint32_t)width, (uint32_t)height))};
	return ret->rgb ? 0
			: image_fail(in, -ENOMEM, "no memory for a picture of %lld x %lld",
				     (long long)width, (long long)height);
}

static uint32_t number(const uint8_t *p, unsigned bytes, int big)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint32_t)p[i] << 8 * (big ? bytes - 1 - i : i);
	return n;
}

unsigned image_exif_orientation(const uint8_t *exif, size_t bytes)
{
	int big = bytes > 2 && exif[0] == 'M';
	uint32_t at, n;

	if (bytes < 8 || (memcmp(exif, "MM", 2) && memcmp(exif, "II", 2)) ||
	    number(exif + 2, 2, big) != 42)
		return 1;
	at = number(exif + 4, 4, big);
	if (at > bytes - 2)
		return 1;
	n = number(exif + at, 2, big);
	for (uint32_t i = 0; i < n && at + 2 + 12 * (uint64_t)(i + 1) <= bytes; i++) {
		const uint8_t *entry = exif + at + 2 + 12 * (size_t)i;
		uint32_t value = number(entry + 8, 2, big);

		if (number(entry, 2, big) == 0x112 && number(entry + 2, 2, big) == 3)
			return value >= 1 && value <= 8 ? value : 1;
	}
	return 1;
}

/* Rotates and mirrors the picture to orientation 1. */
static int orient(const struct image_bytes *in, unsigned orientation, struct image_picture *p)
{
	bool swap = orientation > 4,
	     right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
	     down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
	struct image_picture out;
	int r;

	if (orientation == 1)
		return 0;
	r = image_allocate(in, swap ? p->height : p->width, swap ? p->width : p->height, &out);
	for (uint32_t y = 0; !r && y < out.height; y++)
		for (uint32_t x = 0; x < out.width; x++) {
			uint32_t fx = swap ? y : x, fy = swap ? x : y;

			fx = right ? p->width - 1 - fx : fx;
			fy = down ? p->height - 1 - fy : fy;
			memcpy(out.rgb + ((size_t)y * out.width + x) * 3,
			       p->rgb + ((size_t)fy * p->width + fx) * 3, 3);
		}
	free(p->rgb);
	if (!r)
		*p = out;
	return r;
}

int image_decode(const void *data, size_t bytes, uint64_t max_pixels, struct image_picture *ret,
		 char *err, size_t errlen)
{
	const struct image_bytes in = {data, bytes, max_pixels, err, errlen};
	struct image_picture p = {0};
	unsigned orientation = 1;
	int r;

	if (bytes >= 3 && !memcmp(data, "\xff\xd8\xff", 3))
		r = image_decode_jpeg(&in, &p, &orientation);
	else if (bytes >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8))
		r = image_decode_png(&in, &p, &orientation);
	else if (bytes >= 12 && !memcmp(data, "RIFF", 4) &&
		 !memcmp((const char *)data + 8, "WEBP", 4))
		r = image_decode_webp(&in, &p, &orientation);
	else if (bytes >= 6 && (!memcmp(data, "GIF87a", 6) || !memcmp(data, "GIF89a", 6)))
		r = image_decode_gif(&in, &p);
	else
		r = image_fail(&in, -ENOTSUP, "not a JPEG, PNG, WebP or GIF");
	if (!r)
		r = orient(&in, orientation, &p);
	if (!r)
		*ret = p;
	return r;
}
