// SPDX-License-Identifier: MIT
#include "processor.h"
#include "processor_limits.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "set_error.h"

#define MAX_ASPECT 200 /* the reference processors refuse pictures with a larger one */

/* ---- preprocessor_config.json ---- */

/* A member that is present and not null. */
static const cJSON *find(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNull(item) ? NULL : item;
}

static int get_number(const cJSON *object, const char *key, double min, double max, double *ret,
		      char *err, size_t errlen)
{
	const cJSON *item = find(object, key);

	if (!item)
		return 0;
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= min && item->valuedouble <= max))
		return set_error(-EINVAL, err, errlen, "%s: not a number in [%g, %g]", key, min,
				 max);
	*ret = item->valuedouble;
	return 0;
}

static int get_three(const cJSON *config, const char *key, float ret[3], char *err, size_t errlen)
{
	const cJSON *list = find(config, key);

	if (!list)
		return 0;
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 3)
		return set_error(-EINVAL, err, errlen, "%s: not an array of 3 numbers", key);
	for (int i = 0; i < 3; i++) {
		const cJSON *item = cJSON_GetArrayItem(list, i);

		if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= PROCESSOR_MAX_VALUE))
			return set_error(-EINVAL, err, errlen, "%s: entry %d is not a number", key,
					 i);
		ret[i] = (float)item->valuedouble;
	}
	return 0;
}

/* Checks the steps that a processor may be told to do; unknown ones are refused. */
static int check_steps(const cJSON *config, enum image_kind kind, char *err, size_t errlen)
{
	static const char *const known[] = {"do_resize", "do_rescale", "do_normalize",
					    "do_convert_rgb"};
	static const char *const tiles[] = {"do_center_crop", "do_pad"};
	const cJSON *item;

	cJSON_ArrayForEach(item, config) {
		bool fine = cJSON_IsFalse(item);

		if (strncmp(item->string, "do_", 3) || cJSON_IsNull(item))
			continue;
		if (!cJSON_IsBool(item))
			return set_error(-EINVAL, err, errlen, "%s: not true or false",
					 item->string);
		for (int i = 0; i < 4; i++)
			fine |= !strcmp(item->string, known[i]);
		for (int i = 0; i < 2; i++)
			fine |= kind == IMAGE_TILES && !strcmp(item->string, tiles[i]);
		if (!fine)
			return set_error(-ENOTSUP, err, errlen, "%s: this step is not supported",
					 item->string);
	}
	if (cJSON_IsFalse(find(config, "do_convert_rgb")))
		return set_error(-ENOTSUP, err, errlen, "do_convert_rgb: false is not supported");
	return 0;
}

const cJSON *image_processor_within(const cJSON *processor_config)
{
	return find(processor_config, "image_processor");
}

/* Checks that the processor's type matches the tower; a missing one is that of the family. */
static int check_type(const cJSON *config, const struct image_tower *t, struct image_processor *p,
		      char *err, size_t errlen)
{
	static const struct {
		const char *name;
		enum image_kind kind;
		bool count_frames;
	} known[] = {
		{"Qwen2VLImageProcessor", IMAGE_MERGE, false},
		{"Qwen2_5_VLImageProcessor", IMAGE_MERGE, false},
		{"Qwen3VLImageProcessor", IMAGE_MERGE, false},
		{"Glm4vImageProcessor", IMAGE_MERGE, true},
		{"LlavaNextImageProcessor", IMAGE_TILES, false},
		{"MiniCPMV4_6ImageProcessor", IMAGE_SLICES, false},
	};
	const char *type = cJSON_GetStringValue(find(config, "image_processor_type"));
	size_t len = type ? strlen(type) : 0;

	if (!find(config, "image_processor_type")) {
		p->count_frames = t->positions == IMAGE_BICUBIC; /* only GLM's */
		return 0;
	}
	if (len > 4 && !strcmp(type + len - 4, "Fast"))
		len -= 4;
	else if (len > 3 && !strcmp(type + len - 3, "Pil"))
		len -= 3;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strlen(known[i].name) == len && !memcmp(known[i].name, type, len) &&
		    known[i].kind == t->kind) {
			p->count_frames = known[i].count_frames;
			return 0;
		}
	}
	return set_error(-ENOTSUP, err, errlen,
			 "image_processor_type: \"%.64s\" is not supported for this model",
			 type ? type : "not a string");
}

/* Values of the tower that the file may repeat, but not change. */
static int check_same(const cJSON *config, const char *key, uint32_t tower, char *err,
		      size_t errlen)
{
	double value = tower;
	int r = get_number(config, key, 0, 1e9, &value, err, errlen);

	if (!r && value != tower)
		r = set_error(-EINVAL, err, errlen, "%s: %g, but the model has %u", key, value,
			      tower);
	return r;
}

/* An object that describes a size may have only these keys. */
static int check_keys(const cJSON *object, const char *name, const char *const *known, unsigned n,
		      char *err, size_t errlen)
{
	const cJSON *item;

	if (object && !cJSON_IsObject(object))
		return set_error(-EINVAL, err, errlen, "%s: not an object", name);
	cJSON_ArrayForEach(item, object) {
		bool fine = cJSON_IsNull(item);

		for (unsigned i = 0; i < n; i++)
			fine |= !strcmp(item->string, known[i]);
		if (!fine)
			return set_error(-ENOTSUP, err, errlen, "%s: %s is not supported", name,
					 item->string);
	}
	return 0;
}

/*
 * Each limit has two names, of which the newer one is within "size"; older files use the other one
 * there.
 */
static int parse_limits(const cJSON *config, struct image_processor *p, char *err, size_t errlen)
{
	static const char *const keys[] = {"shortest_edge", "longest_edge", "min_pixels",
					   "max_pixels"};
	const cJSON *size = find(config, "size");
	double least = p->count_frames ? 112.0 * 112 : 56.0 * 56,
	       most = p->count_frames ? 28.0 * 28 * 15000 : 28.0 * 28 * 1280;
	int r = check_keys(size, "size", keys, 4, err, errlen);

	for (int i = 0; i < 4 && !r; i++)
		r = get_number(size, keys[i], 1, PROCESSOR_MAX_PIXELS, i % 2 ? &most : &least, err,
			       errlen);
	for (int i = 2; i < 4 && !r; i++)
		r = get_number(config, keys[i], 1, PROCESSOR_MAX_PIXELS, i % 2 ? &most : &least,
			       err, errlen);
	if (!r && least > most)
		r = set_error(-EINVAL, err, errlen, "min_pixels: %g is above max_pixels %g", least,
			      most);
	p->min_pixels = (uint64_t)least;
	p->max_pixels = (uint64_t)most;
	return r;
}

/* TILES: all sizes given for tiles must equal the tower's, and the grids must be the model's. */
static int check_tiles(const cJSON *config, const struct image_tower *t, char *err, size_t errlen)
{
	static const char *const objects[] = {"size", "crop_size"}, *const keys[] = {
									    "shortest_edge",
									    "height", "width"};
	const cJSON *list = find(config, "image_grid_pinpoints");
	int r = 0;

	for (int i = 0; i < 2 && !r; i++) {
		const cJSON *object = find(config, objects[i]);

		if (cJSON_IsNumber(object))
			r = check_same(config, objects[i], t->tile, err, errlen);
		else
			r = check_keys(object, objects[i], keys, 3, err, errlen);
		for (int k = 0; k < 3 && !r && cJSON_IsObject(object); k++)
			r = check_same(object, keys[k], t->tile, err, errlen);
	}
	if (r || !list)
		return r;
	for (uint32_t i = 0; i < t->n_pinpoints; i++)
		for (int k = 0; k < 2; k++) {
			const cJSON *number =
				cJSON_GetArrayItem(cJSON_GetArrayItem(list, (int)i), k);

			if (cJSON_GetArraySize(list) != (int)t->n_pinpoints ||
			    !cJSON_IsNumber(number) || number->valuedouble != t->pinpoints[i][k])
				return set_error(-EINVAL, err, errlen,
						 "image_grid_pinpoints: entry %u is not that of "
						 "config.json",
						 i);
		}
	return 0;
}

static int parse_values(const cJSON *config, struct image_processor *p, char *err, size_t errlen)
{
	double filter = p->filter, scale = 1.0 / 255;
	int r = get_number(config, "resample", 0, 5, &filter, err, errlen);

	if (!r && filter != IMAGE_BILINEAR_FILTER && filter != IMAGE_BICUBIC_FILTER)
		r = set_error(-ENOTSUP, err, errlen,
			      "resample: %g is not supported (2, bilinear, and 3, bicubic, are)",
			      filter);
	if (!r)
		r = get_number(config, "rescale_factor", 0, PROCESSOR_MAX_SCALE, &scale, err,
			       errlen);
	if (!r)
		r = get_three(config, "image_mean", p->mean, err, errlen);
	if (!r)
		r = get_three(config, "image_std", p->std, err, errlen);
	for (int i = 0; i < 3 && !r; i++) {
		if (!(p->std[i] > 0))
			r = set_error(-EINVAL, err, errlen, "image_std: entry %d is not above 0",
				      i);
	}
	p->filter = (enum image_filter)filter;
	p->scale = cJSON_IsFalse(find(config, "do_rescale")) ? 1 : scale;
	for (int i = 0; i < 3 && cJSON_IsFalse(find(config, "do_normalize")); i++) {
		p->mean[i] = 0;
		p->std[i] = 1;
	}
	return r;
}

static int get_bool(const cJSON *object, const char *key, bool *ret, char *err, size_t errlen)
{
	const cJSON *item = find(object, key);

	if (!item)
		return 0;
	if (!cJSON_IsBool(item))
		return set_error(-EINVAL, err, errlen, "%s: not true or false", key);
	*ret = cJSON_IsTrue(item);
	return 0;
}

static int parse_slices(const cJSON *config, const struct image_tower *t, struct image_processor *p,
			char *err, size_t errlen)
{
	const cJSON *mode = find(config, "downsample_mode");
	const char *want = t->window ? "16x" : "4x",
		   *name = mode ? cJSON_GetStringValue(mode) : "16x";
	double most = 9, side = 448;
	int r;

	p->slice = p->number = true;
	r = check_same(config, "patch_size", t->patch, err, errlen);
	if (!r)
		r = get_number(config, "max_slice_nums", 1, PROCESSOR_MAX_SLICES, &most, err,
			       errlen);
	if (!r)
		r = get_number(config, "scale_resolution", 1, PROCESSOR_MAX_SIDE, &side, err,
			       errlen);
	if (!r)
		r = get_bool(config, "slice_mode", &p->slice, err, errlen);
	if (!r)
		r = get_bool(config, "use_image_id", &p->number, err, errlen);
	if (!r && (!name || strcmp(name, want)))
		r = set_error(-EINVAL, err, errlen,
			      "downsample_mode: \"%.16s\", but the model has %s", name ? name : "?",
			      want);
	if (!r && !p->resize)
		r = set_error(-ENOTSUP, err, errlen, "do_resize: false is not supported");
	if (!r && (most != floor(most) || side != floor(side)))
		r = set_error(-EINVAL, err, errlen,
			      "max_slice_nums or scale_resolution: %g or %g is not a whole number",
			      most, side);
	p->max_slices = (uint32_t)most;
	p->resolution = (uint32_t)side;
	return r;
}

int image_processor_parse(const cJSON *config, const struct image_tower *t,
			  struct image_processor *ret, char *err, size_t errlen)
{
	struct image_processor p = {
		.filter = IMAGE_BICUBIC_FILTER,
		.mean = {0.48145466f, 0.4578275f, 0.40821073f},
		.std = {0.26862954f, 0.26130258f, 0.27577711f},
		/* Pictures are always resized to the size of their tiles. */
		.resize = t->kind == IMAGE_TILES || !cJSON_IsFalse(find(config, "do_resize")),
	};
	int r = cJSON_IsObject(config) ? 0 : set_error(-EINVAL, err, errlen, "not an object");

	for (int i = 0; i < 3 && t->kind == IMAGE_SLICES; i++)
		p.mean[i] = p.std[i] = 0.5f;
	if (!r)
		r = check_type(config, t, &p, err, errlen);
	if (!r)
		r = check_steps(config, t->kind, err, errlen);
	if (!r)
		r = parse_values(config, &p, err, errlen);
	if (!r && t->kind == IMAGE_TILES)
		r = check_tiles(config, t, err, errlen);
	if (!r && t->kind == IMAGE_SLICES)
		r = parse_slices(config, t, &p, err, errlen);
	if (!r && t->kind == IMAGE_MERGE) {
		r = check_same(config, "patch_size", t->patch, err, errlen);
		if (!r)
			r = check_same(config, "temporal_patch_size", t->frames, err, errlen);
		if (!r)
			r = check_same(config, "merge_size", t->merge, err, errlen);
		if (!r)
			r = parse_limits(config, &p, err, errlen);
	}
	if (!r)
		*ret = p;
	return r;
}

/* ---- sizes ---- */

/* Rounds a side to a multiple of @f, halves to even. */
static double to_multiple(double side, double f)
{
	return nearbyint(side / f) * f;
}

/* Height and width in pixels: multiples of a token's side, with an area within the limits. */
static int fit(const struct image_processor *p, const struct image_tower *t, double *height,
	       double *width, char *err, size_t errlen)
{
	double f = t->patch * t->merge, h = *height, w = *width, area, beta;
	double frames = p->count_frames ? t->frames : 1;

	if (p->count_frames && (h < f || w < f)) {
		double scale = fmax(f / h, f / w);

		h = floor(h * scale);
		w = floor(w * scale);
	}
	if (fmax(h, w) / fmin(h, w) > MAX_ASPECT)
		return set_error(-EINVAL, err, errlen,
				 "a picture of %g x %g: one side is more than %d times the other",
				 w, h, MAX_ASPECT);
	*height = to_multiple(h, f);
	*width = to_multiple(w, f);
	area = frames * *height * *width;
	if (area > (double)p->max_pixels) {
		beta = sqrt(frames * h * w / (double)p->max_pixels);
		*height = fmax(f, floor(h / beta / f) * f);
		*width = fmax(f, floor(w / beta / f) * f);
	} else if (area < (double)p->min_pixels) {
		beta = sqrt((double)p->min_pixels / (frames * h * w));
		*height = ceil(h * beta / f) * f;
		*width = ceil(w * beta / f) * f;
	}
	return 0;
}

/* SLICES: sides as multiples of 4 patches; with @scale the area is close to a slice's. */
static void fit_piece(const struct image_processor *p, const struct image_tower *t, bool scale,
		      double *height, double *width)
{
	double f = 4.0 * t->patch, side = p->resolution, ratio = *width / *height;

	if (scale || *height * *width > side * side) {
		*height = floor(side / sqrt(ratio));
		*width = floor(*height * ratio);
	}
	*height = fmax(to_multiple(*height, f), f);
	*width = fmax(to_multiple(*width, f), f);
}

/* Rows and columns of slices whose shape is closest to a square; none if the picture is small. */
static void find_grid(const struct image_processor *p, double h, double w, struct image_parts *ret)
{
	double side = p->resolution, least = INFINITY, many = ceil(w * h / (side * side));
	uint32_t n = many < p->max_slices ? (uint32_t)many : p->max_slices;

	ret->rows = ret->columns = 0;
	if (!p->slice || n <= 1)
		return;
	ret->rows = ret->columns = 1;
	for (uint32_t pieces = n - 1; pieces <= n + 1; pieces++) {
		if (pieces == 1 || pieces > p->max_slices)
			continue;
		for (uint32_t columns = 1; columns <= pieces; columns++) {
			uint32_t rows = pieces / columns;
			double off = fabs(log(w / h) - log((double)columns / rows));

			if (pieces % columns || !(off < least))
				continue;
			least = off;
			ret->rows = rows;
			ret->columns = columns;
		}
	}
}

static int fit_slices(const struct image_processor *p, const struct image_tower *t, uint32_t width,
		      uint32_t height, struct image_parts *ret, char *err, size_t errlen)
{
	double h = height, w = width, sh = 0, sw = 0;

	find_grid(p, h, w, ret);
	if (ret->rows) {
		sh = fmax(to_multiple(h, ret->rows) / ret->rows, 1);
		sw = fmax(to_multiple(w, ret->columns) / ret->columns, 1);
		fit_piece(p, t, true, &sh, &sw);
	}
	fit_piece(p, t, !ret->rows, &h, &w);
	if (h > PROCESSOR_MAX_SIDE || w > PROCESSOR_MAX_SIDE ||
	    sh * ret->rows > PROCESSOR_MAX_SIDE || sw * ret->columns > PROCESSOR_MAX_SIDE)
		return set_error(-EINVAL, err, errlen, "a picture of %u x %u becomes %g x %g",
				 width, height, w, h);
	ret->whole = (struct image_size){(uint32_t)h / t->patch, (uint32_t)w / t->patch};
	ret->slice = (struct image_size){(uint32_t)sh / t->patch, (uint32_t)sw / t->patch};
	return 0;
}

int image_process_size(const struct image_processor *p, const struct image_tower *t, uint32_t width,
		       uint32_t height, struct image_parts *ret, char *err, size_t errlen)
{
	double h = height, w = width, f = t->patch * t->merge;
	int r;

	if (!width || !height || width > PROCESSOR_MAX_SIDE || height > PROCESSOR_MAX_SIDE)
		return set_error(-EINVAL, err, errlen,
				 "a picture of %u x %u; sides must be from 1 to %d", width, height,
				 PROCESSOR_MAX_SIDE);
	*ret = (struct image_parts){.whole = {height, width}};
	if (t->kind == IMAGE_TILES)
		return 0;
	if (t->kind == IMAGE_SLICES)
		return fit_slices(p, t, width, height, ret, err, errlen);
	if (p->resize) {
		r = fit(p, t, &h, &w, err, errlen);
		if (r)
			return r;
	} else if (fmod(h, f) != 0 || fmod(w, f) != 0) {
		return set_error(
			-EINVAL, err, errlen,
			"a picture of %u x %u: without do_resize sides must be multiples of %g",
			width, height, f);
	}
	if (!(h >= f && w >= f && h <= PROCESSOR_MAX_SIDE && w <= PROCESSOR_MAX_SIDE))
		return set_error(-EINVAL, err, errlen, "a picture of %u x %u becomes %g x %g",
				 width, height, w, h);
	ret->whole = (struct image_size){(uint32_t)h / t->patch, (uint32_t)w / t->patch};
	return 0;
}

/* ---- values ---- */

static float value_of(const struct image_processor *p, uint8_t byte, unsigned channel)
{
	return ((float)(byte * p->scale) - p->mean[channel]) / p->std[channel];
}

/*
 * Writes the patches of the part of a picture that begins at (@top, @left), square by square, each
 * in the order channel, frame, row, column; all frames are the same. SLICES have no squares.
 */
static void put_patches(const struct image_processor *p, const struct image_tower *t,
			const struct image_picture *from, struct image_size size, uint32_t top,
			uint32_t left, float *to)
{
	uint32_t m = t->kind == IMAGE_SLICES ? 1 : t->merge, ps = t->patch, across = size.width / m,
		 n = size.width * size.height;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t unit = i / (m * m), in = i % (m * m);
		uint32_t y0 = top + (unit / across * m + in / m) * ps,
			 x0 = left + (unit % across * m + in % m) * ps;

		for (uint32_t c = 0; c < 3; c++)
			for (uint32_t k = 0; k < t->frames * ps * ps; k++) {
				uint32_t y = y0 + k % (ps * ps) / ps, x = x0 + k % ps;

				*to++ = value_of(
					p, from->rgb[((size_t)y * from->width + x) * 3 + c], c);
			}
	}
}

/*
 * Writes the planes of the tile at (@y0, @x0) of a canvas on which @from is placed at (@top,
 * @left).
 */
static void put_tile(const struct image_processor *p, const struct image_picture *from,
		     uint32_t side, int64_t y0, int64_t x0, float *to)
{
	for (unsigned c = 0; c < 3; c++)
		for (uint32_t i = 0; i < side * side; i++) {
			int64_t y = y0 + i / side, x = x0 + i % side;
			bool inside = y >= 0 && x >= 0 && y < from->height && x < from->width;

			*to++ = value_of(
				p,
				inside ? from->rgb[((size_t)y * from->width + (size_t)x) * 3 + c]
				       : 0,
				c);
		}
}

/* The whole picture in one tile, then the tiles of the grid with the picture centred in it. */
static int put_tiles(const struct image_processor *p, const struct image_tower *t,
		     const struct image_picture *picture, float *to)
{
	uint32_t side = t->tile, width, height;
	struct image_size size = {picture->height, picture->width}, grid = image_tile_grid(t, size);
	double w = grid.width * side, h = grid.height * side;
	double by_width = w / size.width, by_height = h / size.height;
	struct image_picture small = {0}, large = {0};
	int r;

	width = by_width < by_height ? (uint32_t)w
				     : (uint32_t)fmin(ceil(size.width * by_height), w);
	height = by_width < by_height ? (uint32_t)fmin(ceil(size.height * by_width), h)
				      : (uint32_t)h;
	r = image_resize(picture, side, side, p->filter, &small);
	if (!r)
		r = image_resize(picture, width, height, p->filter, &large);
	if (!r) {
		int64_t top = ((int64_t)h - height) / 2, left = ((int64_t)w - width) / 2;

		put_tile(p, &small, side, 0, 0, to);
		for (uint32_t i = 0; i < grid.width * grid.height; i++)
			put_tile(p, &large, side, (int64_t)(i / grid.width * side) - top,
				 (int64_t)(i % grid.width * side) - left,
				 to + (size_t)(i + 1) * side * side * 3);
	}
	free(small.rgb);
	free(large.rgb);
	return r;
}

/* The picture at one size, then its slices, if any, at another. */
static int put_parts(const struct image_processor *p, const struct image_tower *t,
		     const struct image_picture *picture, const struct image_parts *parts,
		     float *to)
{
	const uint32_t ps = t->patch, height = parts->slice.height, width = parts->slice.width;
	struct image_picture sized = {0};
	int r = image_resize(picture, parts->whole.width * ps, parts->whole.height * ps, p->filter,
			     &sized);

	if (!r)
		put_patches(p, t, &sized, parts->whole, 0, 0, to);
	free(sized.rgb);
	if (r || !parts->rows)
		return r;
	to += image_units(t, parts->whole) * image_unit_elements(t);
	r = image_resize(picture, parts->columns * width * ps, parts->rows * height * ps, p->filter,
			 &sized);
	if (r)
		return r;
	for (uint32_t i = 0; i < parts->rows * parts->columns; i++) {
		put_patches(p, t, &sized, parts->slice, i / parts->columns * height * ps,
			    i % parts->columns * width * ps, to);
		to += image_units(t, parts->slice) * image_unit_elements(t);
	}
	free(sized.rgb);
	return 0;
}

int image_process(const struct image_processor *p, const struct image_tower *t,
		  const struct image_picture *picture, struct image_parts *ret_parts,
		  float **ret_pixels, char *err, size_t errlen)
{
	struct image_parts parts;
	uint64_t units = 0;
	float *pixels;
	int r = image_process_size(p, t, picture->width, picture->height, &parts, err, errlen);

	if (r)
		return r;
	for (uint32_t i = 0; i < image_parts_count(&parts); i++) {
		const struct image_size size = image_part(&parts, i);
		uint64_t tokens = image_tokens(t, size);

		if (image_units(t, size) > t->max_units || tokens > t->max_rows)
			return set_error(
				-E2BIG, err, errlen,
				"a picture of %u x %u takes %llu tokens; the model encodes %u at a "
				"time",
				picture->width, picture->height, (unsigned long long)tokens,
				t->max_rows);
		units += image_units(t, size);
	}
	pixels = malloc(units * image_unit_elements(t) * sizeof(float));
	r = !pixels		     ? -ENOMEM
	    : t->kind == IMAGE_TILES ? put_tiles(p, t, picture, pixels)
				     : put_parts(p, t, picture, &parts, pixels);
	if (r) {
		free(pixels);
		return set_error(r, err, errlen, "no memory for a picture of %u x %u",
				 picture->width, picture->height);
	}
	*ret_parts = parts;
	*ret_pixels = pixels;
	return 0;
}
