// SPDX-License-Identifier: MIT
#include "tower.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "set_error.h"

static int get_u32(const cJSON *object, const char *where, const char *key, uint32_t min,
		   uint32_t max, uint32_t *ret, char *err, size_t errlen)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
	double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

	if (!(d >= min && d <= max) || d != floor(d))
		return set_error(-EINVAL, err, errlen, "%s%s: not a whole number in [%u, %u]",
				 where, key, min, max);
	*ret = (uint32_t)d;
	return 0;
}

static int get_word(const cJSON *object, const char *key, const char *const *words, unsigned n,
		    unsigned *ret, char *err, size_t errlen)
{
	const char *word = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	for (unsigned i = 0; word && i < n; i++) {
		if (!strcmp(words[i], word)) {
			*ret = i;
			return 0;
		}
	}
	return set_error(-EINVAL, err, errlen, "vision.tower.%s: \"%.32s\" is unknown", key,
			 word ? word : "?");
}

static int parse_pinpoints(const cJSON *tower, struct image_tower *t, char *err, size_t errlen)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(tower, "grid_pinpoints"), *pair;

	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
	    cJSON_GetArraySize(list) > IMAGE_MAX_PINPOINTS)
		return set_error(-EINVAL, err, errlen,
				 "vision.tower.grid_pinpoints: not an array of 1 to %d",
				 IMAGE_MAX_PINPOINTS);
	cJSON_ArrayForEach(pair, list) {
		for (int i = 0; i < 2; i++) {
			const cJSON *number = cJSON_GetArrayItem(pair, i);
			double d = cJSON_IsNumber(number) ? number->valuedouble : 0;

			if (!(d >= t->tile && d <= 1 << 16) || fmod(d, t->tile) != 0)
				return set_error(
					-EINVAL, err, errlen,
					"vision.tower.grid_pinpoints: entry %u is not made of "
					"tiles of %u pixels",
					t->n_pinpoints, t->tile);
			t->pinpoints[t->n_pinpoints][i] = (uint32_t)d;
		}
		t->n_pinpoints++;
	}
	return 0;
}

int image_tower_parse(const cJSON *vision, struct image_tower *ret, char *err, size_t errlen)
{
	static const char *const kinds[] = {"merge", "tiles", "slices"}, *const positions[] = {
										 "none", "bilinear",
										 "bicubic", "tile",
										 "nearest"};
	static const uint32_t taps[] = {0, 4, 16, 2, 1};
	const cJSON *tower = cJSON_GetObjectItemCaseSensitive(vision, "tower"),
		    *limits = cJSON_GetObjectItemCaseSensitive(vision, "limits");
	struct image_tower t = {0};
	const struct {
		const cJSON *object;
		const char *where, *key;
		uint32_t min, max, *value;
	} numbers[] = {
		{tower, "vision.tower.", "patch", 1, 512, &t.patch},
		{tower, "vision.tower.", "frames", 1, 16, &t.frames},
		{tower, "vision.tower.", "channels", 3, 3, &t.channels},
		{tower, "vision.tower.", "merge", 1, 8, &t.merge},
		{tower, "vision.tower.", "window", 0, 1u << 16, &t.window},
		{tower, "vision.tower.", "side", 0, 1024, &t.side},
		{tower, "vision.tower.", "tile", 0, 1u << 14, &t.tile},
		{tower, "vision.tower.", "deepstack", 0, 16, &t.deepstack},
		{tower, "vision.tower.", "image_token", 0, 1u << 24, &t.image_token},
		{limits, "vision.limits.", "tokens", 1, 1u << 20, &t.max_units},
		{limits, "vision.limits.", "seqs", 1, 1u << 20, &t.max_spans},
		{limits, "vision.limits.", "blocks", 1, 1u << 20, &t.max_windows},
		{limits, "vision.limits.", "rows", 1, 1u << 24, &t.max_rows},
	};
	unsigned kind = 0, position = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (get_u32(numbers[i].object, numbers[i].where, numbers[i].key, numbers[i].min,
			    numbers[i].max, numbers[i].value, err, errlen))
			return -EINVAL;
	}
	if (get_word(tower, "kind", kinds, 3, &kind, err, errlen) ||
	    get_word(tower, "positions", positions, 5, &position, err, errlen))
		return -EINVAL;
	t.kind = (enum image_kind)kind;
	t.positions = (enum image_positions)position;
	t.taps = taps[position];
	if ((position && !t.side) || (kind == IMAGE_TILES) != (position == IMAGE_TILE) ||
	    (kind == IMAGE_TILES && (t.merge != 1 || t.tile / t.patch != t.side)) ||
	    (kind == IMAGE_SLICES) != (position == IMAGE_NEAREST) ||
	    (kind == IMAGE_SLICES && (t.window == 2 ? t.merge != 4 : t.window || t.merge != 2)))
		return set_error(-EINVAL, err, errlen,
				 "vision.tower: kind, positions, side and merge do not fit");
	if (kind == IMAGE_TILES && parse_pinpoints(tower, &t, err, errlen))
		return -EINVAL;
	*ret = t;
	return 0;
}

struct image_size image_tile_grid(const struct image_tower *t, struct image_size size)
{
	double most = -1, least = 0;
	uint32_t best = 0, i, tile = t->tile;

	for (i = 0; i < t->n_pinpoints; i++) {
		double h = t->pinpoints[i][0], w = t->pinpoints[i][1],
		       own = (double)size.height * size.width;
		double scale = fmin(w / size.width, h / size.height);
		double area = floor(size.width * scale) * floor(size.height * scale);
		double used = fmin(area, own), waste = h * w - used;

		if (used > most || (used == most && waste < least)) {
			most = used;
			least = waste;
			best = i;
		}
	}
	return (struct image_size){t->pinpoints[best][0] / tile, t->pinpoints[best][1] / tile};
}

/* int(round(x, 7)) in the reference implementation. */
static uint32_t whole_part(double x)
{
	return (uint32_t)(nearbyint(x * 1e7) / 1e7);
}

struct image_shown image_find_shown(const struct image_tower *t, struct image_size size,
				    struct image_size grid)
{
	uint32_t gh = grid.height * t->side, gw = grid.width * t->side, n;
	struct image_shown s = {0, gh, 0, gw};

	if ((double)size.width / size.height > (double)gw / gh) {
		n = whole_part(size.height * ((double)gw / size.width));
		s.top = n < gh ? (gh - n) / 2 : 0;
		s.bottom = gh - s.top;
	} else {
		n = whole_part(size.width * ((double)gh / size.height));
		s.left = n < gw ? (gw - n) / 2 : 0;
		s.right = gw - s.left;
	}
	return s;
}

uint64_t image_units(const struct image_tower *t, struct image_size size)
{
	struct image_size grid;

	if (t->kind != IMAGE_TILES)
		return (uint64_t)(size.height / t->merge) * (size.width / t->merge);
	grid = image_tile_grid(t, size);
	return (uint64_t)grid.height * grid.width + 1;
}

static bool size_ok(const struct image_tower *t, struct image_size size)
{
	return size.height && size.width && size.height <= 65535 && size.width <= 65535 &&
	       size.height % t->merge == 0 && size.width % t->merge == 0;
}

uint64_t image_tokens(const struct image_tower *t, struct image_size size)
{
	struct image_shown s;

	if (!size_ok(t, size))
		return 0;
	if (t->kind != IMAGE_TILES)
		return image_units(t, size);
	s = image_find_shown(t, size, image_tile_grid(t, size));
	return (uint64_t)t->side * t->side + (uint64_t)(s.bottom - s.top) * (s.right - s.left + 1);
}
