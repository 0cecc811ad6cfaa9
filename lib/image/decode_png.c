// SPDX-License-Identifier: MIT
#include "decode_internal.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (8u << 20) /* of text, profiles and similar chunks, which are not used */

struct reader {
	const struct image_bytes *in;
	size_t at;
	png_structp png;
	png_infop info;
	struct image_picture picture;
	png_bytep *rows;
	unsigned orientation;
	int result;
};

static void read_bytes(png_structp png, png_bytep to, png_size_t n)
{
	struct reader *r = png_get_io_ptr(png);

	if (n > r->in->bytes - r->at)
		png_error(png, "it ends early");
	memcpy(to, r->in->data + r->at, n);
	r->at += n;
}

static void on_error(png_structp png, png_const_charp text)
{
	struct reader *r = png_get_error_ptr(png);

	if (!r->result)
		r->result = image_fail(r->in, -EINVAL, "broken PNG: %s", text);
	png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

/* Converts any format to 8-bit RGB. */
static void to_rgb(struct reader *r)
{
	png_set_expand(r->png);
	png_set_strip_16(r->png);
	png_set_gray_to_rgb(r->png);
	png_set_strip_alpha(r->png);
	png_set_interlace_handling(r->png);
	png_read_update_info(r->png, r->info);
	if (png_get_rowbytes(r->png, r->info) != (size_t)r->picture.width * 3)
		png_error(r->png, "its rows have another length than its header says");
}

static void read_picture(struct reader *r)
{
	png_bytep exif = NULL;
	png_uint_32 n = 0;

	png_read_info(r->png, r->info);
	r->result = image_allocate(r->in, png_get_image_width(r->png, r->info),
				   png_get_image_height(r->png, r->info), &r->picture);
	if (r->result)
		return;
	r->rows = calloc(r->picture.height, sizeof(*r->rows));
	if (!r->rows) {
		r->result = image_fail(r->in, -ENOMEM, "no memory for a picture");
		return;
	}
	for (uint32_t y = 0; y < r->picture.height; y++)
		r->rows[y] = r->picture.rgb + (size_t)y * r->picture.width * 3;
	to_rgb(r);
	png_read_image(r->png, r->rows);
	png_read_end(r->png, r->info);
	if (png_get_eXIf_1(r->png, r->info, &n, &exif))
		r->orientation = image_exif_orientation(exif, n);
}

int image_decode_png(const struct image_bytes *in, struct image_picture *ret,
		     unsigned *ret_orientation)
{
	/* On the heap, since values on the stack are indeterminate after longjmp(). */
	struct reader *r = calloc(1, sizeof(*r));
	int result;

	if (!r)
		return image_fail(in, -ENOMEM, "no memory for the PNG decoder");
	r->in = in;
	r->orientation = 1;
	r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
	r->info = r->png ? png_create_info_struct(r->png) : NULL;
	if (!r->info) {
		r->result = image_fail(in, -ENOMEM, "no memory for the PNG decoder");
	} else if (!setjmp(png_jmpbuf(r->png))) {
		png_set_user_limits(r->png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
		png_set_chunk_malloc_max(r->png, CHUNK_BYTES);
		png_set_read_fn(r->png, r, read_bytes);
		read_picture(r);
	}
	png_destroy_read_struct(&r->png, &r->info, NULL);
	free(r->rows);
	result = r->result;
	if (result)
		free(r->picture.rgb);
	else
		*ret = r->picture;
	*ret_orientation = r->orientation;
	free(r);
	return result;
}
