// SPDX-License-Identifier: MIT
#include "tower.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "set_error.h"

/* The numbers, with their ranges. */
static const struct {
	const char *object, *key;
	uint32_t min, max;
	size_t at;
} numbers[] = {
	{"tower", "patch", 1, 512, offsetof(struct image_tower, patch)},
	{"tower", "frames", 1, 16, offsetof(struct image_tower, frames)},
	{"tower", "channels", 3, 3, offsetof(struct image_tower, channels)},
	{"tower", "merge", 1, 8, offsetof(struct image_tower, merge)},
	{"tower", "window", 0, 1u << 16, offsetof(struct image_tower, window)},
	{"tower", "side", 0, 1024, offsetof(struct image_tower, side)},
	{"tower", "tile", 0, 1u << 14, offsetof(struct image_tower, tile)},
	{"tower", "deepstack", 0, 16, offsetof(struct image_tower, deepstack)},
	{"tower", "image_token", 0, 1u << 24, offsetof(struct image_tower, image_token)},
	{"limits", "tokens", 1, 1u << 20, offsetof(struct image_tower, max_units)},
	{"limits", "seqs", 1, 1u << 20, offsetof(struct image_tower, max_spans)},
	{"limits", "blocks", 1, 1u << 20, offsetof(struct image_tower, max_windows)},
	{"limits", "rows", 1, 1u << 24, offsetof(struct image_tower, max_rows)},
};

static int check_number(size_t i, double d, char *err, size_t errlen)
{
	if (d >= numbers[i].min && d <= numbers[i].max && d == floor(d))
		return 0;
	return set_error(-EINVAL, err, errlen, "vision.%s.%s: not a whole number in [%u, %u]",
			 numbers[i].object, numbers[i].key, numbers[i].min, numbers[i].max);
}

static uint32_t *number_at(struct image_tower *t, size_t i)
{
	return (uint32_t *)((char *)t + numbers[i].at);
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

static int check_pinpoint(const struct image_tower *t, unsigned i, double side, char *err,
			  size_t errlen)
{
	if (t->tile && side >= t->tile && side <= 1 << 16 && fmod(side, t->tile) == 0)
		return 0;
	return set_error(-EINVAL, err, errlen,
			 "vision.tower.grid_pinpoints: entry %u is not made of tiles of %u pixels",
			 i, t->tile);
}

static int check_pinpoint_count(int n, char *err, size_t errlen)
{
	if (n >= 1 && n <= IMAGE_MAX_PINPOINTS)
		return 0;
	return set_error(-EINVAL, err, errlen,
			 "vision.tower.grid_pinpoints: not an array of 1 to %d",
			 IMAGE_MAX_PINPOINTS);
}

static int parse_pinpoints(const cJSON *tower, struct image_tower *t, char *err, size_t errlen)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(tower, "grid_pinpoints"), *pair;

	if (check_pinpoint_count(cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, err, errlen))
		return -EINVAL;
	cJSON_ArrayForEach(pair, list) {
		for (int i = 0; i < 2; i++) {
			const cJSON *number = cJSON_GetArrayItem(pair, i);
			double d = cJSON_IsNumber(number) ? number->valuedouble : 0;

			if (check_pinpoint(t, t->n_pinpoints, d, err, errlen))
				return -EINVAL;
			t->pinpoints[t->n_pinpoints][i] = (uint32_t)d;
		}
		t->n_pinpoints++;
	}
	return 0;
}

static const uint32_t taps_of[] = {0, 4, 16, 2, 1}; /* by enum image_positions */

/* The rows of a launch are numbered in int32_t. */
static int check_rows(const struct image_tower *t, char *err, size_t errlen)
{
	uint64_t rows = (uint64_t)t->max_units * image_unit_rows(t);

	if (rows <= INT32_MAX)
		return 0;
	return set_error(-EINVAL, err, errlen,
			 "vision.limits.tokens: %u units of %llu rows; the limit is %d rows",
			 t->max_units, (unsigned long long)image_unit_rows(t), INT32_MAX);
}

static int check_kind(const struct image_tower *t, char *err, size_t errlen)
{
	bool tiles = t->kind == IMAGE_TILES, slices = t->kind == IMAGE_SLICES;

	if ((t->positions == IMAGE_NONE || t->side) && tiles == (t->positions == IMAGE_TILE) &&
	    (!tiles || (t->merge == 1 && t->tile / t->patch == t->side)) &&
	    slices == (t->positions == IMAGE_NEAREST) &&
	    (!slices || (t->window == 2 ? t->merge == 4 : !t->window && t->merge == 2)))
		return check_rows(t, err, errlen);
	return set_error(-EINVAL, err, errlen,
			 "vision.tower: kind, positions, side and merge do not fit");
}

int image_tower_parse(const cJSON *vision, struct image_tower *ret, char *err, size_t errlen)
{
	static const char *const kinds[] = {"merge", "tiles", "slices"}, *const positions[] = {
										 "none", "bilinear",
										 "bicubic", "tile",
										 "nearest"};
	const cJSON *tower = cJSON_GetObjectItemCaseSensitive(vision, "tower");
	struct image_tower t = {0};
	unsigned kind = 0, position = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const cJSON *item = cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(vision, numbers[i].object),
			numbers[i].key);
		double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

		if (check_number(i, d, err, errlen))
			return -EINVAL;
		*number_at(&t, i) = (uint32_t)d;
	}
	if (get_word(tower, "kind", kinds, 3, &kind, err, errlen) ||
	    get_word(tower, "positions", positions, 5, &position, err, errlen))
		return -EINVAL;
	t.kind = (enum image_kind)kind;
	t.positions = (enum image_positions)position;
	t.taps = taps_of[position];
	if (check_kind(&t, err, errlen) ||
	    (kind == IMAGE_TILES && parse_pinpoints(tower, &t, err, errlen)))
		return -EINVAL;
	*ret = t;
	return 0;
}

/* Which enumerator, of a value that need not be one. */
static uint32_t plain(const void *enumerator)
{
	uint32_t value;

	memcpy(&value, enumerator, sizeof(value));
	return value;
}

int image_tower_check(struct image_tower *t, char *err, size_t errlen)
{
	_Static_assert(sizeof(t->kind) == sizeof(uint32_t) &&
			       sizeof(t->positions) == sizeof(uint32_t),
		       "enumerators are numbers");
	if (plain(&t->kind) > IMAGE_SLICES || plain(&t->positions) > IMAGE_NEAREST ||
	    t->taps != taps_of[t->positions])
		return set_error(-EINVAL, err, errlen,
				 "vision.tower: kind or positions is unknown");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (check_number(i, *number_at(t, i), err, errlen))
			return -EINVAL;
	if (check_kind(t, err, errlen))
		return -EINVAL;
	if (t->kind != IMAGE_TILES) {
		t->n_pinpoints = 0;
		memset(t->pinpoints, 0, sizeof(t->pinpoints));
		return 0;
	}
	if (check_pinpoint_count(t->n_pinpoints > IMAGE_MAX_PINPOINTS ? -1 : (int)t->n_pinpoints,
				 err, errlen))
		return -EINVAL;
	for (unsigned i = 0; i < t->n_pinpoints; i++)
		for (unsigned j = 0; j < 2; j++)
			if (check_pinpoint(t, i, t->pinpoints[i][j], err, errlen))
				return -EINVAL;
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
