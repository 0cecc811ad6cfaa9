// SPDX-License-Identifier: MIT
/* The first frame of a GIF, on the canvas described by the file. */
#include "decode_internal.h"

#include <errno.h>
#include <gif_lib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 65536 /* extension blocks before the frame */

struct source {
	const struct image_bytes *in;
	size_t at;
};

static int read_bytes(GifFileType *gif, GifByteType *to, int n)
{
	struct source *s = gif->UserData;
	size_t left = s->in->bytes - s->at, take = (size_t)n < left ? (size_t)n : left;

	memcpy(to, s->in->data + s->at, take);
	s->at += take;
	return (int)take;
}

/*
 * Skips extensions up to the first frame; *ret_clear: the index of the transparent colour, or -1.
 */
static bool find_frame(GifFileType *gif, int *ret_clear)
{
	GraphicsControlBlock control;
	GifRecordType type;

	*ret_clear = -1;
	for (unsigned blocks = 0; blocks < MAX_BLOCKS; blocks++) {
		GifByteType *block;
		int code;

		if (DGifGetRecordType(gif, &type) != GIF_OK)
			return false;
		if (type == IMAGE_DESC_RECORD_TYPE)
			return DGifGetImageDesc(gif) == GIF_OK;
		if (type != EXTENSION_RECORD_TYPE || DGifGetExtension(gif, &code, &block) != GIF_OK)
			return false;
		if (block && code == GRAPHICS_EXT_FUNC_CODE &&
		    DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
			*ret_clear = control.TransparentColor;
		while (block && blocks++ < MAX_BLOCKS)
			if (DGifGetExtensionNext(gif, &block) != GIF_OK)
				return false;
	}
	return false;
}

static void put(struct image_picture *p, const ColorMapObject *map, uint64_t x, uint64_t y,
		unsigned index)
{
	uint8_t *to = p->rgb + (y * p->width + x) * 3;

	if (x >= p->width || y >= p->height || index >= (unsigned)map->ColorCount)
		return;
	to[0] = map->Colors[index].Red;
	to[1] = map->Colors[index].Green;
	to[2] = map->Colors[index].Blue;
}

static bool read_frame(GifFileType *gif, const ColorMapObject *map, struct image_picture *p)
{
	static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
	const GifImageDesc *d = &gif->Image;
	GifPixelType *line = malloc((size_t)d->Width + 1);
	bool fine = line != NULL;

	for (int pass = 0; pass < (d->Interlace ? 4 : 1) && fine; pass++)
		for (int y = d->Interlace ? first[pass] : 0; y < d->Height && fine;
		     y += d->Interlace ? step[pass] : 1) {
			fine = DGifGetLine(gif, line, d->Width) == GIF_OK;
			for (int x = 0; x < d->Width && fine; x++)
				put(p, map, (uint64_t)d->Left + (uint64_t)x,
				    (uint64_t)d->Top + (uint64_t)y, line[x]);
		}
	free(line);
	return fine;
}

int image_decode_gif(const struct image_bytes *in, struct image_picture *ret)
{
	struct source source = {in, 0};
	int error = 0, clear, r = 0;
	GifFileType *gif = DGifOpen(&source, read_bytes, &error);
	const ColorMapObject *map = NULL;

	if (!gif)
		return image_fail(in, -EINVAL, "broken GIF: error %d", error);
	if (!find_frame(gif, &clear) || gif->Image.Left < 0 || gif->Image.Top < 0 ||
	    gif->Image.Width < 1 || gif->Image.Height < 1)
		r = image_fail(in, -EINVAL, "broken GIF: no frame");
	if (!r)
		map = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
	if (!r && !map)
		r = image_fail(in, -EINVAL, "broken GIF: no colours");
	if (!r && (uint64_t)gif->Image.Width * (uint64_t)gif->Image.Height > in->max_pixels)
		r = image_fail(in, -E2BIG, "the GIF's frame has %d x %d pixels; the limit is %llu",
			       gif->Image.Width, gif->Image.Height,
			       (unsigned long long)in->max_pixels);
	if (!r)
		r = image_allocate(in, gif->SWidth, gif->SHeight, ret);
	if (!r) {
		for (uint64_t i = 0; i < (uint64_t)ret->width * ret->height; i++)
			put(ret, map, i % ret->width, i / ret->width,
			    clear >= 0 ? (unsigned)clear : 0);
		if (!read_frame(gif, map, ret)) {
			r = image_fail(in, -EINVAL, "broken GIF: error %d", gif->Error);
			free(ret->rgb);
		}
	}
	DGifCloseFile(gif, &error);
	return r;
}
