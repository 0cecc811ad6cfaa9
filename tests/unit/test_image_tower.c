// SPDX-License-Identifier: MIT
/* What a tower wants to know of images: order of patches, windows, positions, tokens; what
 * model_info.json may say, sizes and prompts that do not fit. */
#include <errno.h>
#include <malloc.h>
#include <math.h>

#include "unit.h"
#include "tower.h"

#define LIMITS "\"limits\":{\"tokens\":64,\"seqs\":8,\"rows\":200,\"blocks\":64}"
#define TOWER(kind, positions, more)                                                               \
	"{" LIMITS ",\"tower\":{\"kind\":\"" kind "\",\"positions\":\"" positions "\","            \
	"\"patch\":2,\"frames\":1,\"channels\":3,\"window\":0,\"side\":4,\"tile\":8,"              \
	"\"deepstack\":0,"                                                                         \
	"\"image_token\":9" more "}}"

static char err[200];

static int parse(const char *text, struct image_tower *t)
{
	cJSON *json = cJSON_Parse(text);
	int r;

	assert_non_null(json);
	r = image_tower_parse(json, t, err, sizeof(err));
	cJSON_Delete(json);
	return r;
}

static void must_parse(const char *text, struct image_tower *t)
{
	if (parse(text, t))
		fail_msg("%s: %s", text, err);
}

static void refuse(const char *text)
{
	struct image_tower t;

	assert_true(parse(text, &t) < 0);
}

TEST(test_parse)
{
	struct image_tower t;

	must_parse(TOWER("merge", "bicubic", ",\"merge\":2"), &t);
	assert_int_equal(t.taps, 16);
	assert_int_equal(image_patch_elements(&t), 12);
	must_parse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16]]"), &t);
	assert_int_equal(t.pinpoints[0][1], 16);
	refuse(TOWER("merge", "bicubic", ""));
	assert_non_null(strstr(err, "vision.tower.merge"));
	refuse(TOWER("merge", "cubic", ",\"merge\":2"));
	assert_non_null(strstr(err, "vision.tower.positions"));
	refuse(TOWER("merge", "tile", ",\"merge\":2"));
	refuse(TOWER("tiles", "tile", ",\"merge\":1"));
	refuse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,12]]"));
	refuse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8]]"));
	must_parse(TOWER("slices", "nearest", ",\"merge\":2"), &t);
	assert_int_equal(t.taps, 1);
	refuse(TOWER("slices", "nearest", ",\"merge\":4"));
	refuse(TOWER("slices", "bilinear", ",\"merge\":2"));
	refuse(TOWER("merge", "nearest", ",\"merge\":2"));
	refuse("{}");
	refuse("{\"tower\":7,\"limits\":[]}");
}

/* What another process says it has read. */
TEST(test_check)
{
	static const struct {
		size_t at;
		uint32_t value;
		const char *words;
	} lies[] = {
		{offsetof(struct image_tower, kind), 3, "kind or positions is unknown"},
		{offsetof(struct image_tower, positions), 5, "kind or positions is unknown"},
		{offsetof(struct image_tower, positions), IMAGE_NONE, "kind or positions is unkn"},
		{offsetof(struct image_tower, taps), 3, "kind or positions is unknown"},
		{offsetof(struct image_tower, patch), 0, "vision.tower.patch: not a whole number"},
		{offsetof(struct image_tower, channels), 4, "vision.tower.channels: not a whole"},
		{offsetof(struct image_tower, merge), 2, "merge do not fit"},
		{offsetof(struct image_tower, side), 0, "merge do not fit"},
		{offsetof(struct image_tower, tile), 0, "merge do not fit"},
		{offsetof(struct image_tower, max_units), 0, "vision.limits.tokens: not a whole"},
		{offsetof(struct image_tower, max_rows), UINT32_MAX, "vision.limits.rows: not a"},
		{offsetof(struct image_tower, n_pinpoints), 0, "not an array of 1 to 64"},
		{offsetof(struct image_tower, n_pinpoints), 65, "not an array of 1 to 64"},
		{offsetof(struct image_tower, n_pinpoints), UINT32_MAX, "not an array of 1 to 64"},
		{offsetof(struct image_tower, pinpoints), 12, "entry 0 is not made of tiles of 8"},
		{offsetof(struct image_tower, pinpoints), 1 << 17, "entry 0 is not made of tiles"},
	};
	struct image_tower right, t;

	must_parse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16]]"), &right);
	t = right;
	assert_int_equal(image_tower_check(&t, err, sizeof(err)), 0);
	assert_memory_equal(&t, &right, sizeof(t));
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		t = right;
		memcpy((char *)&t + lies[i].at, &lies[i].value, sizeof(lies[i].value));
		assert_int_equal(image_tower_check(&t, err, sizeof(err)), -EINVAL);
		if (!strstr(err, lies[i].words))
			fail_msg("\"%s\" does not say \"%s\"", err, lies[i].words);
	}
	must_parse(TOWER("merge", "bicubic", ",\"merge\":2"), &t);
	t.n_pinpoints = UINT32_MAX;
	assert_int_equal(image_tower_check(&t, err, sizeof(err)), 0);
	assert_int_equal(t.n_pinpoints, 0);
}

/* Rows of a launch that no 32 bits can number. */
TEST(test_many_rows)
{
	struct image_tower t;

	must_parse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16]]"), &t);
	t.patch = 1;
	t.side = t.tile = 128;
	t.n_pinpoints = 1;
	t.pinpoints[0][0] = t.pinpoints[0][1] = 1 << 16;
	t.max_units = INT32_MAX / (128 * 128 + 1);
	assert_int_equal(image_tower_check(&t, err, sizeof(err)), 0);
	t.max_units++;
	assert_int_equal(image_tower_check(&t, err, sizeof(err)), -EINVAL);
	assert_string_equal(err, "vision.limits.tokens: 131065 units of 16385 rows; the limit is "
				 "2147483647 rows");
}

/* 3 x 5 units in windows of 2 x 2: those at the border are smaller. */
TEST(test_windows)
{
	static const int32_t spans[] = {0, 16, 16, 16, 32, 8, 40, 8, 48, 8, 56, 4},
			     rows[] = {0, 1, 4, 5, 8, 2, 3, 6, 7, 9, 10, 11, 12, 13, 14};
	static const struct image_size size = {6, 10};
	struct image_plan p;
	struct image_tower t;

	must_parse(TOWER("merge", "none", ",\"merge\":2"), &t);
	t.window = 2;
	assert_int_equal(image_plan_make(&t, &size, 1, &p, err, sizeof(err)), 0);
	assert_int_equal(p.rows, 60);
	assert_int_equal(p.windows, 6);
	assert_memory_equal(p.window_spans, spans, sizeof(spans));
	assert_memory_equal(p.embed_rows, rows, sizeof(rows));
	assert_int_equal(p.image_spans[1], 60);
	/* The third unit of the launch is the first of the second line: patches 20 to 23. */
	assert_int_equal(p.order[8], 20);
	assert_int_equal(p.positions[2 * 8], 2);
	assert_int_equal(p.positions[2 * 8 + 1], 0);
	assert_int_equal(p.positions[2 * 11], 3);
	assert_int_equal(p.positions[2 * 11 + 1], 1);
	image_plan_free(&p);
}

/* The weights of a patch's taps add up to 1, and a picture as large as the table has it as it is. */
TEST(test_positions)
{
	static const char *const kinds[] = {TOWER("merge", "bilinear", ",\"merge\":2"),
					    TOWER("merge", "bicubic", ",\"merge\":2")};
	static const struct image_size sizes[] = {{4, 4}, {2, 12}, {10, 6}};
	struct image_plan p;
	struct image_tower t;

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < 3; i++) {
			must_parse(kinds[k], &t);
			assert_int_equal(image_plan_make(&t, &sizes[i], 1, &p, err, sizeof(err)),
					 0);
			for (unsigned row = 0; row < p.rows; row++) {
				float sum = 0, own = 0;

				for (unsigned j = 0; j < t.taps; j++) {
					int32_t tap = p.taps[row * t.taps + j];
					float w = p.tap_weights[row * t.taps + j];

					assert_in_range(tap, 0, 15);
					sum += w;
					if (tap ==
					    p.positions[2 * row] * 4 + p.positions[2 * row + 1])
						own += w;
				}
				assert_true(fabsf(sum - 1) < 1e-5f);
				assert_true(i || fabsf(own - 1) < 1e-5f);
			}
			image_plan_free(&p);
		}
}

TEST(test_tiles)
{
	/* 10 wide, 4 high in a grid of 1 x 2 tiles: 8 columns, 3 of 4 lines show the picture … */
	static const struct image_size size = {4, 10};
	struct image_shown shown;
	struct image_plan p;
	struct image_tower t;

	must_parse(
		TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16],[16,8],[16,16]]"),
		&t);
	assert_int_equal(image_tile_grid(&t, size).height, 1);
	assert_int_equal(image_tile_grid(&t, size).width, 2);
	shown = image_find_shown(&t, size, image_tile_grid(&t, size));
	/* … and one line is not enough to cut it at top and bottom. */
	assert_int_equal(shown.top, 0);
	assert_int_equal(shown.bottom, 4);
	assert_int_equal(image_tokens(&t, size), 16 + 4 * 9);
	assert_int_equal(image_plan_make(&t, &size, 1, &p, err, sizeof(err)), 0);
	assert_int_equal(p.rows, 3 * 17);
	assert_int_equal(p.embed_rows[0], 1);
	assert_int_equal(p.embed_rows[16], 18);
	assert_int_equal(p.embed_rows[20], 35); /* the second tile goes on */
	assert_int_equal(p.embed_rows[24], -1);
	assert_int_equal(p.taps[0], 0);
	assert_int_equal(p.taps[1], 17);
	image_plan_free(&p);
	/* So narrow that no column shows it: the first grid, and the ends of its lines. */
	assert_int_equal(image_tokens(&t, (struct image_size){400, 10}), 16 + 4);
}

/* Tiles of 9 pixels with patches of 2: the last line and column are in no patch. */
TEST(test_uneven_tile)
{
	static const struct image_size size = {9, 18};
	struct image_plan p;
	struct image_tower t;
	float *pixels, *out;

	must_parse(TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16]]"), &t);
	t.tile = 9;
	t.pinpoints[0][0] = 9;
	t.pinpoints[0][1] = 18;
	assert_int_equal(image_unit_elements(&t), 3 * 81);
	assert_int_equal(image_plan_make(&t, &size, 1, &p, err, sizeof(err)), 0);
	pixels = malloc(3 * 3 * 81 * sizeof(*pixels));
	out = malloc(p.rows * 12 * sizeof(*out));
	for (int i = 0; i < 3 * 3 * 81; i++)
		pixels[i] = (float)i;
	image_plan_pixels(&t, &p, pixels, out);
	for (int i = 0; i < 12; i++)
		assert_true(out[i] == 0);
	/* The second tile's patch at (1, 3): its third colour, second line, first column. */
	assert_true(out[(17 + 1 + 4 + 3) * 12 + 10] == 243 + 2 * 81 + 3 * 9 + 6);
	free(pixels);
	free(out);
	image_plan_free(&p);
}

/* Two images of 4 x 8 and 4 x 4 patches: tokens of 16, window by window. */
TEST(test_slices)
{
	static const struct image_size sizes[] = {{4, 8}, {4, 4}};
	static const uint32_t order[] = {4,  5,	 12, 13, 6,  7,	 14, 15,
					 20, 21, 28, 29, 22, 23, 30, 31};
	static const int32_t ids[] = {9, 9, 1, 9}, merged[] = {0, 8, 8, 4};
	struct image_plan p;
	struct image_tower t;
	int32_t got[4][3], delta;

	must_parse(TOWER("slices", "nearest", ",\"merge\":2"), &t);
	t.window = 2;
	t.merge = 4;
	t.side = 3;
	assert_int_equal(image_tokens(&t, sizes[0]), 2);
	assert_int_equal(image_plan_make(&t, sizes, 2, &p, err, sizeof(err)), 0);
	assert_int_equal(p.rows, 48);
	assert_int_equal(p.windows, 12);
	assert_memory_equal(p.order + 16, order, sizeof(order));
	assert_int_equal(p.order[32], 32);
	/* Line 1 of 4 is in the first of three buckets, line 2 in the second; column 5 of 8 too. */
	assert_int_equal(p.taps[16 + 3], 1);
	assert_int_equal(p.taps[16 + 9], 3 + 1);
	assert_int_equal(p.taps[16 + 15], 6 + 2);
	assert_int_equal(p.image_spans[2], 32);
	assert_int_equal(p.image_spans[3], 16);
	assert_memory_equal(p.merged_spans, merged, sizeof(merged));
	assert_int_equal(p.window_spans[22], 44);
	assert_int_equal(p.mean_rows[47], 47);
	assert_int_equal(p.embed_rows[2], 2);
	image_plan_free(&p);
	assert_int_equal(
		image_prompt_positions(&t, ids, 4, sizes, 2, got, &delta, err, sizeof(err)), 0);
	assert_int_equal(got[1][0], 1);
	assert_int_equal(got[3][2], 3);
	assert_int_equal(delta, 0);
	/* 6 lines are no tokens of 4. */
	assert_int_equal(image_tokens(&t, (struct image_size){6, 8}), 0);
}

TEST(test_hostile_sizes)
{
	static const struct image_size bad[] = {
		{0, 4}, {4, 0}, {3, 4}, {UINT32_MAX, 2}, {65536, 65536}};
	static const struct image_size many[2] = {{16, 8}, {16, 10}};
	struct image_plan p;
	struct image_tower t;

	must_parse(TOWER("merge", "none", ",\"merge\":2"), &t);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(image_plan_make(&t, &bad[i], 1, &p, err, sizeof(err)), -EINVAL);
	assert_int_equal(image_plan_make(&t, many, 2, &p, err, sizeof(err)), -E2BIG);
	assert_int_equal(image_plan_make(&t, many, 1, &p, err, sizeof(err)), 0);
	image_plan_free(&p);
}

/* What a plan takes is known before, to be charged. */
TEST(test_bytes)
{
	static const char *const towers[] = {
		TOWER("merge", "bicubic", ",\"merge\":2"),
		TOWER("tiles", "tile", ",\"merge\":1,\"grid_pinpoints\":[[8,16]]"),
		TOWER("slices", "nearest", ",\"merge\":2"),
	};
	static const struct image_size size = {8, 12};

	for (unsigned i = 0; i < ARRAY_SIZE(towers); i++) {
		uint64_t bytes, found = 0;
		struct image_plan p;
		struct image_tower t;

		must_parse(towers[i], &t);
		assert_int_equal(image_plan_make(&t, &size, 1, &p, err, sizeof(err)), 0);
		const void *arrays[] = {p.order,       p.positions,    p.taps,	     p.tap_weights,
					p.image_spans, p.window_spans, p.embed_rows, p.merged_spans,
					p.mean_rows,   p.mean_weights};

		bytes = image_plan_bytes(&t, size);
		for (unsigned k = 0; k < ARRAY_SIZE(arrays); k++)
			found += malloc_usable_size((void *)(uintptr_t)arrays[k]);
		/* An allocator rounds up. */
		assert_in_range(found, bytes, bytes + 10 * 32);
		image_plan_free(&p);
	}
}

TEST(test_prompt)
{
	static const int32_t ids[] = {1, 9, 9, 9, 9, 9, 9, 2, 9, 9, 3};
	static const struct image_size sizes[] = {{4, 6}, {2, 4}};
	static const int32_t want[][3] = {{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3},
					  {1, 2, 1}, {1, 2, 2}, {1, 2, 3}, {4, 4, 4},
					  {5, 5, 5}, {5, 5, 6}, {7, 7, 7}};
	struct image_tower t;
	int32_t got[11][3], delta;

	must_parse(TOWER("merge", "none", ",\"merge\":2"), &t);
	assert_int_equal(
		image_prompt_positions(&t, ids, 11, sizes, 2, got, &delta, err, sizeof(err)), 0);
	assert_memory_equal(got, want, sizeof(want));
	assert_int_equal(delta, -3);
	assert_true(image_prompt_positions(&t, ids, 11, sizes, 1, got, &delta, err, sizeof(err)) <
		    0);
	assert_true(image_prompt_positions(&t, ids, 5, sizes, 1, got, &delta, err, sizeof(err)) <
		    0);
	assert_true(image_prompt_positions(&t, ids, 1, sizes, 1, got, &delta, err, sizeof(err)) <
		    0);
}

TEST_MAIN
