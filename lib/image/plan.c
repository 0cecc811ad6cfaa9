// SPDX-License-Identifier: MIT
#include "tower.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void image_plan_free(struct image_plan *p)
{
	free(p->order);
	free(p->positions);
	free(p->taps);
	free(p->tap_weights);
	free(p->image_spans);
	free(p->window_spans);
	free(p->embed_rows);
	free(p->merged_spans);
	free(p->mean_rows);
	free(p->mean_weights);
	*p = (struct image_plan){0};
}

static uint64_t spans_of(const struct image_tower *t, struct image_size size)
{
	return t->kind == IMAGE_TILES ? image_units(t, size) : 1;
}

/* Checks sizes and totals against the limits of a launch. */
static int measure(const struct image_tower *t, const struct image_size *sizes, unsigned n,
		   struct image_plan *p, char *err, size_t errlen)
{
	uint64_t units = 0, tokens = 0, spans = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t own = image_tokens(t, sizes[i]);

		if (!own) {
			snprintf(err, errlen,
				 "image %u: %u x %u is not a size that the model accepts", i,
				 sizes[i].width, sizes[i].height);
			return -EINVAL;
		}
		tokens += own;
		units += image_units(t, sizes[i]);
		spans += spans_of(t, sizes[i]);
	}
	if (units > t->max_units || tokens > t->max_rows || spans > t->max_spans) {
		snprintf(err, errlen,
			 "%u images of %llu tokens in %llu units; the model takes %u and %u "
			 "together",
			 n, (unsigned long long)tokens, (unsigned long long)units, t->max_rows,
			 t->max_units);
		return -E2BIG;
	}
	p->units = (uint32_t)units;
	p->tokens = (uint32_t)tokens;
	p->spans = (uint32_t)spans;
	p->rows = (uint32_t)(units * image_unit_rows(t));
	return 0;
}

/* The arrays of a plan: which, for each of what, and bytes for each. */
enum per { ROW, TAP, SPAN, TOKEN };
#define ARRAY(name, per, n)                                                                        \
	{                                                                                          \
		offsetof(struct image_plan, name), per,                                            \
			(n) * sizeof(*((struct image_plan *)0)->name)                              \
	}
static const struct {
	size_t at;
	enum per per;
	size_t bytes;
} arrays[] = {
	ARRAY(order, ROW, 1),	     ARRAY(positions, ROW, 2),	   ARRAY(taps, TAP, 1),
	ARRAY(tap_weights, TAP, 1),  ARRAY(image_spans, SPAN, 2),  ARRAY(window_spans, ROW, 2),
	ARRAY(embed_rows, TOKEN, 1), ARRAY(merged_spans, SPAN, 2), ARRAY(mean_rows, ROW, 1),
	ARRAY(mean_weights, ROW, 1),
};
#define N_ARRAYS (sizeof(arrays) / sizeof(arrays[0]))

/* One more than needed: never empty. */
static uint64_t array_bytes(size_t i, const struct image_tower *t, uint64_t rows, uint64_t spans,
			    uint64_t tokens)
{
	switch (arrays[i].per) {
	case ROW: return (rows + 1) * arrays[i].bytes;
	case TAP: return (rows + 1) * (t->taps + 1) * arrays[i].bytes;
	case SPAN: return (spans + 1) * arrays[i].bytes;
	default: return (tokens + 1) * arrays[i].bytes;
	}
}

static int allocate(const struct image_tower *t, struct image_plan *p)
{
	bool all = true;

	for (size_t i = 0; i < N_ARRAYS; i++) {
		void *array = calloc(1, array_bytes(i, t, p->rows, p->spans, p->tokens));

		memcpy((char *)p + arrays[i].at, &array, sizeof(array));
		all = all && array;
	}
	return all ? 0 : -ENOMEM;
}

uint64_t image_plan_bytes(const struct image_tower *t, struct image_size size)
{
	uint64_t rows = image_units(t, size) * image_unit_rows(t), tokens = image_tokens(t, size),
		 bytes = 0;

	for (size_t i = 0; i < N_ARRAYS; i++)
		bytes += array_bytes(i, t, rows, spans_of(t, size), tokens);
	return bytes;
}

/* ---- learned positions ---- */

/* Point @i of @n equidistant points from 0 to @last, in float32 as computed by torch.linspace. */
static float step_at(uint32_t i, uint32_t n, uint32_t last)
{
	float step = n > 1 ? (float)last / (float)(n - 1) : 0;

	return i < n / 2 || n == 1 ? step * (float)i : (float)last - step * (float)(n - 1 - i);
}

static void bilinear(const struct image_tower *t, struct image_size size, uint32_t y, uint32_t x,
		     int32_t *taps, float *weights)
{
	float fy = step_at(y, size.height, t->side - 1), fx = step_at(x, size.width, t->side - 1);
	uint32_t y0 = (uint32_t)fy, x0 = (uint32_t)fx;
	uint32_t y1 = y0 + 1 < t->side ? y0 + 1 : y0, x1 = x0 + 1 < t->side ? x0 + 1 : x0;
	float dy = fy - (float)y0, dx = fx - (float)x0;
	const uint32_t at[4] = {y0 * t->side + x0, y0 * t->side + x1, y1 * t->side + x0,
				y1 * t->side + x1};
	const float w[4] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};

	for (int i = 0; i < 4; i++) {
		taps[i] = (int32_t)at[i];
		weights[i] = w[i];
	}
}

/*
 * The four points of a line of @side around pixel centre @i of @n; points past the border are
 * clamped.
 */
static void cubic(uint32_t i, uint32_t n, uint32_t side, uint32_t at[4], float w[4])
{
	const float a = -0.75f;
	float place = ((((float)i + 0.5f) / (float)n * 2 - 1 + 1) * (float)side - 1) / 2;
	float base = floorf(place), f = place - base;
	float far[2] = {f + 1, 2 - f}, near[2] = {f, 1 - f};

	for (int k = 0; k < 4; k++) {
		float p = base - 1 + (float)k;

		at[k] = p < 0 ? 0 : p > (float)(side - 1) ? side - 1 : (uint32_t)p;
	}
	for (int k = 0; k < 2; k++) {
		w[3 * k] = ((a * far[k] - 5 * a) * far[k] + 8 * a) * far[k] - 4 * a;
		w[1 + k] = ((a + 2) * near[k] - (a + 3)) * near[k] * near[k] + 1;
	}
}

static void bicubic(const struct image_tower *t, struct image_size size, uint32_t y, uint32_t x,
		    int32_t *taps, float *weights)
{
	uint32_t row[4], column[4];
	float wy[4], wx[4];

	cubic(y, size.height, t->side, row, wy);
	cubic(x, size.width, t->side, column, wx);
	for (int i = 0; i < 16; i++) {
		taps[i] = (int32_t)(row[i / 4] * t->side + column[i % 4]);
		weights[i] = wy[i / 4] * wx[i % 4];
	}
}

/* ---- towers that merge ---- */

/* Adds unit (@y, @x) of the image as the next one of the launch. */
static void put_unit(const struct image_tower *t, struct image_plan *p, struct image_size size,
		     uint32_t first_unit, uint32_t unit, uint32_t y, uint32_t x)
{
	uint32_t m = t->merge, of = y * (size.width / m) + x;

	for (uint32_t i = 0; i < m * m; i++) {
		uint32_t row = unit * m * m + i, py = y * m + i / m, px = x * m + i % m;

		p->order[row] = (first_unit + of) * m * m + i;
		p->positions[2 * row] = (int32_t)py;
		p->positions[2 * row + 1] = (int32_t)px;
		if (t->positions == IMAGE_BILINEAR)
			bilinear(t, size, py, px, p->taps + (size_t)row * t->taps,
				 p->tap_weights + (size_t)row * t->taps);
		else if (t->positions == IMAGE_BICUBIC)
			bicubic(t, size, py, px, p->taps + (size_t)row * t->taps,
				p->tap_weights + (size_t)row * t->taps);
	}
	p->embed_rows[first_unit + of] = (int32_t)unit;
}

/* Window by window, smaller ones at the border; without windows the image is a single one. */
static uint32_t put_image(const struct image_tower *t, struct image_plan *p, struct image_size size,
			  uint32_t first)
{
	uint32_t h = size.height / t->merge, w = size.width / t->merge, unit = first, m2;
	uint32_t wh = t->window ? t->window : h, ww = t->window ? t->window : w;

	m2 = t->merge * t->merge;
	for (uint32_t y0 = 0; y0 < h; y0 += wh)
		for (uint32_t x0 = 0; x0 < w; x0 += ww) {
			uint32_t begin = unit;

			for (uint32_t y = y0; y < y0 + wh && y < h; y++)
				for (uint32_t x = x0; x < x0 + ww && x < w; x++)
					put_unit(t, p, size, first, unit++, y, x);
			p->window_spans[2 * p->windows] = (int32_t)(begin * m2);
			p->window_spans[2 * p->windows + 1] = (int32_t)((unit - begin) * m2);
			p->windows++;
		}
	return unit;
}

static void put_merged(const struct image_tower *t, struct image_plan *p,
		       const struct image_size *sizes, unsigned n)
{
	uint32_t unit = 0, m2 = t->merge * t->merge;

	for (unsigned i = 0; i < n; i++) {
		uint32_t end = put_image(t, p, sizes[i], unit);

		p->image_spans[2 * i] = (int32_t)(unit * m2);
		p->image_spans[2 * i + 1] = (int32_t)((end - unit) * m2);
		unit = end;
	}
}

/* ---- towers of slices ---- */

/* Adds a token's patches, window by window, so that patches that are merged are adjacent. */
static void put_square(const struct image_tower *t, struct image_plan *p, struct image_size size,
		       uint32_t first, uint32_t unit)
{
	uint32_t m = t->merge, n = m * m, across = size.width / m, of = unit - first,
		 side = t->side;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = unit * n + i, window = i / 4, in = i % 4;
		uint32_t y = of / across * m + window / 2 * 2 + in / 2,
			 x = of % across * m + window % 2 * 2 + in % 2;

		p->order[row] = first * n + y * size.width + x;
		p->taps[row] = (int32_t)(y * side / size.height * side + x * side / size.width);
		p->tap_weights[row] = 1;
	}
	p->embed_rows[unit] = (int32_t)unit;
}

static void put_slices(const struct image_tower *t, struct image_plan *p,
		       const struct image_size *sizes, unsigned n)
{
	uint32_t unit = 0, rows = t->merge * t->merge;

	for (unsigned i = 0; i < n; i++) {
		uint32_t first = unit, end = unit + (uint32_t)image_units(t, sizes[i]);

		while (unit < end)
			put_square(t, p, sizes[i], first, unit++);
		p->image_spans[2 * i] = (int32_t)(first * rows);
		p->image_spans[2 * i + 1] = (int32_t)((end - first) * rows);
		p->merged_spans[2 * i] = (int32_t)(first * rows / 4);
		p->merged_spans[2 * i + 1] = (int32_t)((end - first) * rows / 4);
	}
	for (uint32_t row = 0; row < p->rows; row++) {
		p->mean_rows[row] = (int32_t)row;
		p->mean_weights[row] = 0.25f;
	}
	p->windows = p->rows / 4;
	for (uint32_t i = 0; i < p->windows; i++) {
		p->window_spans[2 * i] = (int32_t)(4 * i);
		p->window_spans[2 * i + 1] = 4;
	}
}

/* ---- towers of tiles ---- */

/* Adds the class row, then the patches; the class has its own embedding after the table. */
static void put_tile(const struct image_tower *t, struct image_plan *p, uint32_t tile)
{
	uint32_t n = t->side * t->side, first = tile * (n + 1);

	p->image_spans[2 * tile] = (int32_t)first;
	p->image_spans[2 * tile + 1] = (int32_t)(n + 1);
	for (uint32_t i = 0; i <= n; i++) {
		int32_t *taps = p->taps + (size_t)(first + i) * t->taps;
		float *weights = p->tap_weights + (size_t)(first + i) * t->taps;

		taps[0] = (int32_t)i;
		weights[0] = 1;
		taps[1] = i ? 0 : (int32_t)n + 1;
		weights[1] = i ? 0 : 1;
	}
}

static uint32_t put_tiles(const struct image_tower *t, struct image_plan *p, struct image_size size,
			  uint32_t tile, uint32_t token)
{
	struct image_size grid = image_tile_grid(t, size);
	uint32_t n = t->side * t->side, rows = n + 1, i;
	struct image_shown s = image_find_shown(t, size, grid);

	for (i = 0; i < grid.height * grid.width + 1; i++)
		put_tile(t, p, tile + i);
	for (i = 0; i < n; i++)
		p->embed_rows[token++] = (int32_t)(tile * rows + 1 + i);
	for (uint32_t y = s.top; y < s.bottom; y++) {
		for (uint32_t x = s.left; x < s.right; x++) {
			uint32_t of = tile + 1 + y / t->side * grid.width + x / t->side;

			p->embed_rows[token++] =
				(int32_t)(of * rows + 1 + y % t->side * t->side + x % t->side);
		}
		p->embed_rows[token++] = -1; /* end of a row */
	}
	return token;
}

int image_plan_make(const struct image_tower *t, const struct image_size *sizes, unsigned n,
		    struct image_plan *ret, char *err, size_t errlen)
{
	struct image_plan p = {0};
	uint32_t tile = 0, token = 0;
	int r = measure(t, sizes, n, &p, err, errlen);

	if (r)
		return r;
	if (allocate(t, &p)) {
		image_plan_free(&p);
		snprintf(err, errlen, "no memory");
		return -ENOMEM;
	}
	if (t->kind == IMAGE_MERGE) {
		put_merged(t, &p, sizes, n);
	} else if (t->kind == IMAGE_SLICES) {
		put_slices(t, &p, sizes, n);
	} else {
		for (unsigned i = 0; i < n; i++) {
			token = put_tiles(t, &p, sizes[i], tile, token);
			tile += (uint32_t)image_units(t, sizes[i]);
		}
	}
	*ret = p;
	return 0;
}

void image_plan_pixels(const struct image_tower *t, const struct image_plan *p, const float *pixels,
		       float *out)
{
	size_t k = image_patch_elements(t), plane = (size_t)t->tile * t->tile;

	for (uint32_t row = 0; row < p->rows && t->kind != IMAGE_TILES; row++)
		memcpy(out + row * k, pixels + p->order[row] * k, k * sizeof(*out));
	for (uint32_t row = 0; row < p->rows && t->kind == IMAGE_TILES; row++) {
		uint32_t rows = t->side * t->side + 1, i = row % rows, width = t->tile;
		const float *tile = pixels + row / rows * t->channels * plane;
		float *to = out + row * k;

		if (!i) {
			memset(to, 0, k * sizeof(*to));
			continue;
		}
		tile += (size_t)((i - 1) / t->side) * t->patch * width +
			(size_t)((i - 1) % t->side) * t->patch;
		for (uint32_t line = 0; line < t->channels * t->patch; line++)
			memcpy(to + (size_t)line * t->patch,
			       tile + line / t->patch * plane + (size_t)(line % t->patch) * width,
			       t->patch * sizeof(*to));
	}
}

unsigned image_plan_inputs(const struct image_tower *t, const struct image_plan *p,
			   const float *pixels, struct image_input ret[IMAGE_INPUTS])
{
	const size_t taps = (size_t)p->rows * t->taps;
	/* Windows that become one row each. */
	const bool shrinks = t->kind == IMAGE_SLICES && t->window;
	const struct {
		const char *name;
		const void *data;
		size_t n;
	} all[IMAGE_INPUTS] = {
		{"pixels", pixels, (size_t)p->rows * image_patch_elements(t)},
		{"patch_positions", p->positions, t->kind == IMAGE_MERGE ? 2 * (size_t)p->rows : 0},
		{"taps", p->taps, taps},
		{"tap_weights", p->tap_weights, taps},
		{"image_spans", p->image_spans, 2 * (size_t)p->spans},
		{"window_spans", p->window_spans, t->window ? 2 * (size_t)p->windows : 0},
		{"merged_spans", p->merged_spans, shrinks ? 2 * (size_t)p->spans : 0},
		{"mean_rows", p->mean_rows, shrinks ? p->rows : 0},
		{"mean_weights", p->mean_weights, shrinks ? p->rows : 0},
		{"embed_rows", p->embed_rows, p->tokens},
	};
	unsigned n = 0;

	for (unsigned i = 0; i < IMAGE_INPUTS; i++) {
		if (all[i].n)
			ret[n++] = (struct image_input){all[i].name, all[i].data, all[i].n * 4};
	}
	return n;
}

/* ---- the prompt ---- */

/*
 * Fills in the tokens of image @i in the prompt and their positions; returns the extent of the
 * positions.
 */
static uint32_t place_image(const struct image_tower *t, struct image_size size, uint32_t tokens,
			    int32_t base, int32_t (*ret)[3])
{
	uint32_t h = size.height / t->merge, w = size.width / t->merge;

	for (uint32_t i = 0; i < tokens; i++) {
		bool plain = t->kind != IMAGE_MERGE;

		ret[i][0] = base + (plain ? (int32_t)i : 0);
		ret[i][1] = base + (int32_t)(plain ? i : i / w);
		ret[i][2] = base + (int32_t)(plain ? i : i % w);
	}
	return t->kind != IMAGE_MERGE ? tokens : h > w ? h : w;
}

int image_prompt_positions(const struct image_tower *t, const int32_t *ids, size_t n,
			   const struct image_size *sizes, unsigned n_images, int32_t (*ret)[3],
			   int32_t *ret_delta, char *err, size_t errlen)
{
	unsigned image = 0;
	int32_t base = 0;

	for (size_t i = 0; i < n;) {
		uint64_t tokens, j;

		if (ids[i] != (int32_t)t->image_token) {
			ret[i][0] = ret[i][1] = ret[i][2] = base++;
			i++;
			continue;
		}
		tokens = image < n_images ? image_tokens(t, sizes[image]) : 0;
		for (j = 0; j < tokens && i + j < n && ids[i + j] == ids[i]; j++)
			;
		if (!tokens || j < tokens) {
			snprintf(err, errlen,
				 "token %zu stands for image %u, which has %llu tokens; %llu are "
				 "there",
				 i, image, (unsigned long long)tokens, (unsigned long long)j);
			return -EINVAL;
		}
		base += (int32_t)place_image(t, sizes[image++], (uint32_t)tokens, base, ret + i);
		i += tokens;
	}
	if (image != n_images) {
		snprintf(err, errlen, "the prompt has room for %u of %u images", image, n_images);
		return -EINVAL;
	}
	*ret_delta = base - (int32_t)n;
	return 0;
}
