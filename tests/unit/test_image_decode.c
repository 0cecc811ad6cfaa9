// SPDX-License-Identifier: MIT
/*
 * Pictures to pixels: those of the golden models against what the reference decoded, pictures that
 * the libraries write here (all kinds of PNG, WebP, GIF), orientations, limits that hold before
 * memory is taken, and broken ones.
 */
#include <errno.h>
#include <png.h>
#include <gif_lib.h>
#include <turbojpeg.h>
#include <webp/encode.h>

#include "unit.h"
#include "decode.h"
#include "decode_internal.h"
#include "safetensors.h"

#define MANY 1000000

static char err[300];

struct bytes {
	uint8_t *data;
	size_t n;
};

static struct bytes read_file(const char *model, const char *name)
{
	const char *dir = getenv("TXDA_FIXTURES");
	struct bytes b = {malloc(1 << 20), 0};
	char path[1024];
	FILE *f;

	assert_non_null(dir);
	snprintf(path, sizeof(path), "%s/%s/images/%s", dir, model, name);
	f = fopen(path, "re");
	assert_non_null(f);
	b.n = fread(b.data, 1, 1 << 20, f);
	fclose(f);
	return b;
}

static int decode(struct bytes b, uint64_t max, struct image_picture *p)
{
	err[0] = '\0';
	return image_decode(b.data, b.n, max, p, err, sizeof(err));
}

/* ---- what the reference decoded ---- */

static void compare(const char *model, const char *name, int levels)
{
	struct bytes b = read_file(model, name);
	const struct safetensors_tensor *t;
	struct tool_error error;
	struct safetensors *st;
	struct image_picture p;
	char path[1024];
	int most = 0;

	snprintf(path, sizeof(path), "%s/%s/golden.safetensors", getenv("TXDA_FIXTURES"), model);
	assert_int_equal(safetensors_open_file(path, &st, &error), 0);
	snprintf(path, sizeof(path), "image.%s", name);
	t = safetensors_find(st, path);
	assert_non_null(t);
	if (decode(b, MANY, &p))
		fail_msg("%s", err);
	assert_int_equal(p.height, t->dim[0]);
	assert_int_equal(p.width, t->dim[1]);
	for (size_t i = 0; i < image_picture_bytes(p.width, p.height); i++) {
		int off = abs(p.rgb[i] - ((const uint8_t *)t->data)[i]);

		most = off > most ? off : most;
	}
	if (most > levels)
		fail_msg("%s/%s: %d levels", model, name, most);
	free(p.rgb);
	free(b.data);
	safetensors_close(st);
}

TEST(test_golden)
{
	static const char *const models[] = {"qwen2_vl", "qwen3_vl", "glm4v", "llava_next"};

	for (int i = 0; i < 4; i++) {
		compare(models[i], "b.jpg", 4); /* another release of the same decoder */
		compare(models[i], "c.png", 0); /* alpha */
		compare(models[i], "d.png", 0); /* gray */
	}
}

/* ---- pictures that are written here ---- */

static void put_bytes(png_structp png, png_bytep data, png_size_t n)
{
	struct bytes *b = png_get_io_ptr(png);

	b->data = realloc(b->data, b->n + n);
	memcpy(b->data + b->n, data, n);
	b->n += n;
}

static void flush(png_structp png)
{
	(void)png;
}

#define W 13
#define H 11

/* Point (x, y) of channel c has the value 7 x + 11 y + 50 c, in the high byte when there are two. */
static struct bytes make_png(int type, int depth, int interlace, int orientation)
{
	static png_color palette[256];
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	uint8_t rows[H][W * 8] = {{0}}, *at[H];
	int channels = type == PNG_COLOR_TYPE_RGB	   ? 3
		       : type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
		       : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
							   : 1;
	struct bytes b = {0};

	for (int i = 0; i < 256; i++)
		palette[i] = (png_color){(png_byte)i, (png_byte)(i + 50), (png_byte)(i + 100)};
	for (int y = 0; y < H; y++) {
		at[y] = rows[y];
		for (int x = 0; x < W * channels; x++)
			rows[y][depth == 16 ? 2 * x : x] =
				(uint8_t)(7 * (x / channels) + 11 * y + 50 * (x % channels));
	}
	png_set_write_fn(png, &b, put_bytes, flush);
	png_set_IHDR(png, info, W, H, depth, type,
		     interlace ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
	if (type == PNG_COLOR_TYPE_PALETTE)
		png_set_PLTE(png, info, palette, 256);
	if (orientation) {
		uint8_t exif[] = {'M', 'M',  0, 42, 0, 0, 0, 8, 0, 1,
				  1,   0x12, 0, 3,  0, 0, 0, 1, 0, (uint8_t)orientation,
				  0,   0,    0, 0,  0, 0};

		png_set_eXIf_1(png, info, sizeof(exif), exif);
	}
	png_write_info(png, info);
	png_write_image(png, at);
	png_write_end(png, info);
	png_destroy_write_struct(&png, &info);
	return b;
}

TEST(test_png_kinds)
{
	static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
				    PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA,
				    PNG_COLOR_TYPE_PALETTE};

	for (int i = 0; i < 5 * 2 * 2; i++) {
		int type = types[i % 5], depth = i / 5 % 2 ? 16 : 8;
		bool gray = !(type & PNG_COLOR_MASK_COLOR);
		struct image_picture p;
		struct bytes b;

		if (type == PNG_COLOR_TYPE_PALETTE && depth == 16)
			continue;
		b = make_png(type, depth, i / 10, 0);
		if (decode(b, W * H, &p))
			fail_msg("type %d, depth %d: %s", type, depth, err);
		for (int k = 0; k < W * H * 3; k++)
			assert_int_equal(p.rgb[k], (uint8_t)(7 * (k / 3 % W) + 11 * (k / 3 / W) +
							     (gray ? 0 : 50 * (k % 3))));
		free(p.rgb);
		assert_int_equal(decode(b, W * H - 1, &p), -E2BIG);
		free(b.data);
	}
}

/* Where the first point goes: EXIF's orientations 1 to 8. */
TEST(test_orientation)
{
	static const int corner[9][2] = {{0, 0},	 {0, 0},	 {W - 1, 0},
					 {W - 1, H - 1}, {0, H - 1},	 {0, 0},
					 {H - 1, 0},	 {H - 1, W - 1}, {0, W - 1}};

	for (int i = 1; i <= 8; i++) {
		struct bytes b = make_png(PNG_COLOR_TYPE_GRAY, 8, 0, i);
		struct image_picture p;
		int x = corner[i][0], y = corner[i][1];

		assert_int_equal(decode(b, MANY, &p), 0);
		assert_int_equal(p.width, i > 4 ? H : W);
		assert_int_equal(p.rgb[((size_t)y * p.width + (size_t)x) * 3], 0);
		/* The point beside it along the file's line has 7, the one below it 11. */
		x += i > 4 ? 0 : x ? -1 : 1;
		y += i <= 4 ? 0 : y ? -1 : 1;
		assert_int_equal(p.rgb[((size_t)y * p.width + (size_t)x) * 3], 7);
		free(p.rgb);
		free(b.data);
	}
}

/* In a JPEG a marker may have more bytes 0xff before its code. */
TEST(test_fill_bytes)
{
	static const uint8_t segment[] = {0xff, 0xff, 0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f',
					  0,	0,    'M',  'M',  0, 42, 0,   0,   0,	8,
					  0,	1,    1,    0x12, 0, 3,	 0,   0,   0,	1,
					  0,	6,    0,    0,	  0, 0,	 0,   0};

	for (size_t fill = 0; fill < 3; fill++) {
		struct bytes b = read_file("qwen2_vl", "b.jpg");
		size_t n = sizeof(segment) - fill;
		struct image_picture p;

		b.data = realloc(b.data, b.n + n);
		assert_non_null(b.data);
		memmove(b.data + 2 + n, b.data + 2, b.n - 2);
		memcpy(b.data + 2, segment + fill, n);
		b.n += n;
		if (decode(b, MANY, &p))
			fail_msg("%s", err);
		assert_int_equal(p.width, 88);
		assert_int_equal(p.height, 120);
		free(p.rgb);
		free(b.data);
	}
}

TEST(test_exif_hostile)
{
	static const uint8_t far[] = {'I', 'I', 42, 0, 0xff, 0xff, 0xff, 0xff},
			     many[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 0xff, 0xff, 0x12, 1},
			     nine[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
				       1,   3,	 0,  1, 0, 0, 0, 9, 0, 0, 0};

	assert_int_equal(image_exif_orientation(far, sizeof(far)), 1);
	assert_int_equal(image_exif_orientation(many, sizeof(many)), 1);
	assert_int_equal(image_exif_orientation(nine, sizeof(nine)), 1);
	for (size_t n = 0; n < sizeof(nine); n++)
		assert_int_equal(image_exif_orientation(nine, n), 1);
}

static struct bytes make_webp(void)
{
	uint8_t rgb[W * H * 3], *out = NULL;
	struct bytes b;

	for (int i = 0; i < W * H * 3; i++)
		rgb[i] = (uint8_t)(i * 5);
	b.n = WebPEncodeLosslessRGB(rgb, W, H, W * 3, &out);
	assert_true(b.n > 0);
	b.data = malloc(b.n);
	memcpy(b.data, out, b.n);
	WebPFree(out);
	return b;
}

static void put_chunk(struct bytes *b, const char *name, const void *data, size_t n)
{
	const uint8_t size[4] = {(uint8_t)n, (uint8_t)(n >> 8)};

	b->data = realloc(b->data, b->n + n + 9);
	memcpy(b->data + b->n, name, 4);
	memcpy(b->data + b->n + 4, size, 4);
	memcpy(b->data + b->n + 8, data, n);
	b->data[b->n + 8 + n] = 0;
	b->n += 8 + n + n % 2;
}

/* Two frames of W x H pixels at (@left, @top) of a canvas with 4 more each way, and an EXIF. */
static struct bytes make_animation(int left, int top, int orientation)
{
	struct bytes one = make_webp(), frame = {calloc(1, one.n + 4), one.n - 12 + 16}, b = {0};
	const uint8_t about[10] = {0x0a, 0, 0, 0, W + 3, 0, 0, H + 3, 0, 0}, nothing[6] = {0};
	uint8_t exif[32] = "Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0";

	exif[24] = (uint8_t)orientation;
	frame.data[0] = (uint8_t)(left / 2);
	frame.data[3] = (uint8_t)(top / 2);
	frame.data[6] = W - 1;
	frame.data[9] = H - 1;
	memcpy(frame.data + 16, one.data + 12, one.n - 12);
	put_chunk(&b, "RIFF", "WEBP", 4);
	put_chunk(&b, "VP8X", about, sizeof(about));
	put_chunk(&b, "ANIM", nothing, sizeof(nothing));
	put_chunk(&b, "ANMF", frame.data, frame.n);
	put_chunk(&b, "ANMF", frame.data, frame.n);
	put_chunk(&b, "EXIF", exif, sizeof(exif));
	b.data[4] = (uint8_t)(b.n - 8);
	b.data[5] = (uint8_t)((b.n - 8) >> 8);
	free(frame.data);
	free(one.data);
	return b;
}

static int put_gif(GifFileType *gif, const GifByteType *data, int n)
{
	struct bytes *b = gif->UserData;

	b->data = realloc(b->data, b->n + (size_t)n);
	memcpy(b->data + b->n, data, (size_t)n);
	b->n += (size_t)n;
	return n;
}

/* Two frames; the first lies at (2, 1) of the canvas. */
static struct bytes make_gif(bool interlaced)
{
	GifColorType colours[4] = {{9, 8, 7}, {255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
	ColorMapObject *map = GifMakeMapObject(4, colours);
	struct bytes b = {0};
	int error;
	GifFileType *gif = EGifOpen(&b, put_gif, &error);

	assert_int_equal(EGifPutScreenDesc(gif, W, H, 2, 0, map), GIF_OK);
	for (int frame = 0; frame < 2; frame++) {
		assert_int_equal(EGifPutImageDesc(gif, 2, 1, 5, 8, interlaced, NULL), GIF_OK);
		for (int y = 0; y < 8; y++) {
			static const int order[8] = {0, 4, 2, 6, 1, 3, 5, 7};
			GifPixelType line[5];

			for (int x = 0; x < 5; x++)
				line[x] = (GifPixelType)((x + (interlaced ? order[y] : y) + frame) %
							 4);
			assert_int_equal(EGifPutLine(gif, line, 5), GIF_OK);
		}
	}
	assert_int_equal(EGifCloseFile(gif, &error), GIF_OK);
	GifFreeMapObject(map);
	return b;
}

TEST(test_webp_and_gif)
{
	static const uint8_t colours[4][3] = {{9, 8, 7}, {255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
	struct bytes b = make_webp();
	struct image_picture p;

	assert_int_equal(decode(b, MANY, &p), 0);
	for (int i = 0; i < W * H * 3; i++)
		assert_int_equal(p.rgb[i], (uint8_t)(i * 5));
	free(p.rgb);
	assert_int_equal(decode(b, W * H - 1, &p), -E2BIG);
	free(b.data);
	for (int interlaced = 0; interlaced < 2; interlaced++) {
		b = make_gif(interlaced);
		assert_int_equal(decode(b, MANY, &p), 0);
		assert_int_equal(p.width, W);
		for (int i = 0; i < W * H; i++) {
			int x = i % W - 2, y = i / W - 1;
			bool inside = x >= 0 && x < 5 && y >= 0 && y < 8;

			assert_memory_equal(p.rgb + 3 * i, colours[inside ? (x + y) % 4 : 0], 3);
		}
		free(p.rgb);
		assert_int_equal(decode(b, W * H - 1, &p), -E2BIG);
		free(b.data);
	}
}

/* The first frame where it lies, black around it, turned as its EXIF says. */
TEST(test_animation)
{
	struct bytes b;
	struct image_picture p;

	for (int orientation = 1; orientation <= 3; orientation += 2) {
		b = make_animation(2, 4, orientation);
		if (decode(b, MANY, &p))
			fail_msg("%s", err);
		assert_true(p.width == W + 4 && p.height == H + 4);
		for (int i = 0; i < (W + 4) * (H + 4); i++) {
			int at = orientation == 3 ? (W + 4) * (H + 4) - 1 - i : i;
			int x = at % (W + 4) - 2, y = at / (W + 4) - 4;
			bool inside = x >= 0 && x < W && y >= 0 && y < H;

			for (int c = 0; c < 3; c++)
				assert_int_equal(p.rgb[3 * i + c],
						 inside ? (uint8_t)(((y * W + x) * 3 + c) * 5) : 0);
		}
		free(p.rgb);
		assert_int_equal(decode(b, (W + 4) * (H + 4) - 1, &p), -E2BIG);
		free(b.data);
	}
	/* A frame that reaches beyond the canvas; one that is cut; none. */
	b = make_animation(6, 4, 1);
	assert_int_equal(decode(b, MANY, &p), -EINVAL);
	assert_non_null(strstr(err, "frame"));
	free(b.data);
	b = make_animation(2, 4, 1);
	b.data[12 + 18 + 14 + 8 + 9]++;
	assert_int_equal(decode(b, MANY, &p), -EINVAL);
	memcpy(b.data + 12 + 18 + 14 + 5, "\xff\xff\xff", 3);
	assert_int_equal(decode(b, MANY, &p), -EINVAL);
	assert_non_null(strstr(err, "no frame"));
	free(b.data);
}

/* ---- broken ones ---- */

static struct bytes sample(int i)
{
	switch (i) {
	case 0: return read_file("qwen2_vl", "b.jpg");
	case 1: return read_file("qwen2_vl", "c.png");
	case 2: return make_png(PNG_COLOR_TYPE_PALETTE, 8, 1, 6);
	case 3: return make_webp();
	case 6: return make_animation(2, 4, 6);
	default: return make_gif(i % 2);
	}
}

/*
 * Cut short anywhere it is an error; changed anywhere it is a picture or an error in words.
 * TXDA_MUTATIONS=10000 is how many of each a proof by hand takes.
 */
TEST(test_broken)
{
	const char *many = getenv("TXDA_MUTATIONS");
	const int mutations = many ? atoi(many) : 400;
	uint32_t seed = 1;

	for (int i = 0; i < 7; i++) {
		struct bytes whole = sample(i);
		struct image_picture p;

		for (size_t n = 0; n < whole.n - 16; n += 1 + whole.n / 97) {
			struct bytes part = {malloc(n + 1), n};

			memcpy(part.data, whole.data, n);
			if (!decode(part, MANY, &p))
				free(p.rgb); /* the second frame of the GIF is cut */
			else
				assert_true(err[0]);
			assert_true(i >= 4 || err[0]);
			free(part.data);
		}
		for (int k = 0; k < mutations; k++) {
			struct bytes other = {malloc(whole.n), whole.n};

			memcpy(other.data, whole.data, whole.n);
			for (int j = 0; j <= k % 4; j++) {
				seed = seed * 1664525 + 1013904223;
				other.data[(seed >> 8) % other.n] = (uint8_t)(seed >> 24);
			}
			if (!decode(other, MANY, &p))
				free(p.rgb);
			else
				assert_true(err[0]);
			free(other.data);
		}
		free(whole.data);
	}
}

/* A header that promises much takes no memory. */
TEST(test_bomb)
{
	struct bytes b = make_png(PNG_COLOR_TYPE_GRAY, 8, 0, 0);
	struct image_picture p;

	/* 50,000 x 50,000; whether the checksum is looked at first is the library's business. */
	memcpy(b.data + 16, "\0\0\xc3\x50\0\0\xc3\x50", 8);
	assert_true(decode(b, MANY, &p) < 0);
	free(b.data);
	b = make_gif(false);
	memcpy(b.data + 6, "\xff\xff\xff\xff", 4);
	assert_int_equal(decode(b, MANY, &p), -E2BIG);
	assert_non_null(strstr(err, "65535 x 65535"));
	free(b.data);
	b = (struct bytes){malloc(4), 4};
	memcpy(b.data, "BM\0\0", 4);
	assert_int_equal(decode(b, MANY, &p), -ENOTSUP);
	b.n = 0;
	assert_int_equal(decode(b, MANY, &p), -ENOTSUP);
	free(b.data);
}

TEST_MAIN
