// SPDX-License-Identifier: MIT
/* What a preprocessor_config.json says, from the process that reads it to the one that uses it. */
#include <errno.h>
#include <math.h>

#include "processor.h"
#include "processor_limits.h"

enum { COUNT_FRAMES = 1, SLICE = 2, NUMBER = 4, RESIZE = 8, ALL_FLAGS = 15 };

void image_processor_export(const struct image_processor *p, struct image_values *ret)
{
	*ret = (struct image_values){
		.min_pixels = p->min_pixels,
		.max_pixels = p->max_pixels,
		.scale = p->scale,
		.max_slices = p->max_slices,
		.resolution = p->resolution,
		.filter = p->filter,
		.flags = (p->count_frames ? COUNT_FRAMES : 0) | (p->slice ? SLICE : 0) |
			 (p->number ? NUMBER : 0) | (p->resize ? RESIZE : 0),
	};
	for (int i = 0; i < 3; i++) {
		ret->mean[i] = p->mean[i];
		ret->std[i] = p->std[i];
	}
}

static bool is_within(double value, double min, double max)
{
	return value >= min && value <= max;
}

/* NaN is within nothing. */
static bool are_sound(const struct image_values *v, enum image_kind kind)
{
	bool sound = v->flags <= ALL_FLAGS && is_within(v->scale, 0, PROCESSOR_MAX_SCALE) &&
		     (v->filter == IMAGE_BILINEAR_FILTER || v->filter == IMAGE_BICUBIC_FILTER);

	for (int i = 0; i < 3; i++)
		sound = sound && is_within(v->mean[i], -PROCESSOR_MAX_VALUE, PROCESSOR_MAX_VALUE) &&
			v->std[i] > 0 && v->std[i] <= (float)PROCESSOR_MAX_VALUE;
	if (kind == IMAGE_MERGE)
		sound = sound && v->min_pixels && v->min_pixels <= v->max_pixels &&
			is_within((double)v->max_pixels, 1, PROCESSOR_MAX_PIXELS);
	if (kind == IMAGE_SLICES)
		sound = sound && v->flags & RESIZE &&
			is_within(v->max_slices, 1, PROCESSOR_MAX_SLICES) &&
			is_within(v->resolution, 1, PROCESSOR_MAX_SIDE);
	return sound;
}

int image_processor_import(const struct image_values *v, const struct image_tower *t,
			   struct image_processor *ret)
{
	if (!are_sound(v, t->kind))
		return -EINVAL;
	*ret = (struct image_processor){
		.count_frames = v->flags & COUNT_FRAMES,
		.min_pixels = v->min_pixels,
		.max_pixels = v->max_pixels,
		.max_slices = v->max_slices,
		.resolution = v->resolution,
		.slice = v->flags & SLICE,
		.number = v->flags & NUMBER,
		.resize = v->flags & RESIZE,
		.filter = (enum image_filter)v->filter,
		.scale = v->scale,
	};
	for (int i = 0; i < 3; i++) {
		ret->mean[i] = v->mean[i];
		ret->std[i] = v->std[i];
	}
	return 0;
}
