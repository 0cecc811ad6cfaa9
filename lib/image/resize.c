// SPDX-License-Identifier: MIT
#include "resize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BITS 22 /* fractional bits of a weight */

/*
 * For each point of one side: the first source point, the number of source points, and their
 * weights.
 */
struct taps {
	uint32_t most;
	struct {
		uint32_t first, n;
	} * at;
	int32_t *weight; /* [points][most] */
};

static double weigh(enum image_filter filter, double x)
{
	const double a = -0.5;

	x = x < 0 ? -x : x;
	if (filter == IMAGE_BILINEAR_FILTER)
		return x < 1 ? 1 - x : 0;
	if (x < 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static void taps_free(struct taps *t)
{
	free(t->at);
	free(t->weight);
}

static int taps_make(uint32_t in, uint32_t out, enum image_filter filter, struct taps *t)
{
	double scale = (double)in / out, wide = scale < 1 ? 1 : scale;
	double support = (filter == IMAGE_BILINEAR_FILTER ? 1 : 2) * wide;
	double *w;

	t->most = (uint32_t)support * 2 + 3;
	t->at = calloc(out, sizeof(*t->at));
	t->weight = calloc((size_t)out * t->most, sizeof(*t->weight));
	w = calloc(t->most, sizeof(*w));
	if (!t->at || !t->weight || !w) {
		free(w);
		taps_free(t);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < out; i++) {
		double centre = (i + 0.5) * scale, sum = 0;
		int64_t first = (int64_t)(centre - support + 0.5),
			end = (int64_t)(centre + support + 0.5);

		first = first < 0 ? 0 : first;
		end = end > in ? in : end;
		t->at[i].first = (uint32_t)first;
		t->at[i].n = (uint32_t)(end - first);
		for (int64_t k = first; k < end; k++) {
			w[k - first] = weigh(filter, ((double)k - centre + 0.5) / wide);
			sum += w[k - first];
		}
		for (uint32_t k = 0; k < t->at[i].n; k++) {
			double v = w[k] * (1 / sum) * (1 << BITS);

			t->weight[(size_t)i * t->most + k] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
		}
	}
	free(w);
	return 0;
}

static uint8_t clip(int32_t sum)
{
	sum >>= BITS;
	return sum < 0 ? 0 : sum > 255 ? 255 : (uint8_t)sum;
}

/* Computes one point from @n points that are @stride bytes apart. */
static void mix(uint8_t *to, const uint8_t *from, size_t stride, uint32_t n, const int32_t *weight)
{
	int32_t sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};

	for (uint32_t k = 0; k < n; k++, from += stride)
		for (int c = 0; c < 3; c++)
			sum[c] += from[c] * weight[k];
	for (int c = 0; c < 3; c++)
		to[c] = clip(sum[c]);
}

/* One pass; @across: along the rows. */
static int pass(const struct image_picture *from, uint32_t width, uint32_t height, int across,
		enum image_filter filter, struct image_picture *ret)
{
	struct taps t;
	uint8_t *to = malloc(image_picture_bytes(width, height));
	int r = to ? taps_make(across ? from->width : from->height, across ? width : height, filter,
			       &t)
		   : -ENOMEM;

	if (r) {
		free(to);
		return r;
	}
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++) {
			uint32_t i = across ? x : y;
			size_t line = (size_t)from->width * 3;
			const uint8_t *p = from->rgb + (across ? y : t.at[i].first) * line +
					   (size_t)(across ? t.at[i].first : x) * 3;

			mix(to + ((size_t)y * width + x) * 3, p, across ? 3 : line, t.at[i].n,
			    t.weight + (size_t)i * t.most);
		}
	taps_free(&t);
	*ret = (struct image_picture){width, height, to};
	return 0;
}

int image_resize(const struct image_picture *from, uint32_t width, uint32_t height,
		 enum image_filter filter, struct image_picture *ret)
{
	struct image_picture wide = {0}, out = {0};
	int r = 0;

	if (width != from->width)
		r = pass(from, width, from->height, 1, filter, &wide);
	if (!r && height != from->height)
		r = pass(wide.rgb ? &wide : from, width, height, 0, filter, &out);
	if (!r && !out.rgb && !wide.rgb) {
		out = (struct image_picture){width, height,
					     malloc(image_picture_bytes(width, height))};
		if (out.rgb)
			memcpy(out.rgb, from->rgb, image_picture_bytes(width, height));
		r = out.rgb ? 0 : -ENOMEM;
	}
	if (out.rgb || r) {
		free(wide.rgb);
		wide = out;
	}
	if (!r)
		*ret = wide;
	return r;
}
