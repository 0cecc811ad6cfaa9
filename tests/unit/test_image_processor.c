// SPDX-License-Identifier: MIT
/*
 * From pictures to pixels: what a preprocessor_config.json may say and what is refused by which
 * name, sizes and their limits, resizing of plain and tiny pictures. That values are those of the
 * reference processors is for the golden models (tests/fixtures).
 */
#include <errno.h>
#include <math.h>

#include "unit.h"
#include "case_file.h"
#include "processor.h"

#define QWEN(more)                                                                                 \
	"{\"image_processor_type\":\"Qwen2VLImageProcessorFast\",\"patch_size\":8," more           \
	"\"merge_size\":2}"

static const struct image_tower merging = {
	.kind = IMAGE_MERGE,
	.patch = 8,
	.frames = 2,
	.channels = 3,
	.merge = 2,
	.max_units = 64,
	.max_rows = 64,
};
static const struct image_tower tiled = {
	.kind = IMAGE_TILES,
	.patch = 6,
	.frames = 1,
	.channels = 3,
	.merge = 1,
	.side = 4,
	.tile = 24,
	.n_pinpoints = 1,
	.pinpoints = {{24, 48}},
	.max_units = 8,
	.max_rows = 200,
};

static char err[200];

static int parse(const char *text, const struct image_tower *t, struct image_processor *p)
{
	cJSON *json = cJSON_Parse(text);
	int r;

	assert_non_null(json);
	err[0] = '\0';
	r = image_processor_parse(json, t, p, err, sizeof(err));
	cJSON_Delete(json);
	return r;
}

static void must_parse(const char *text, const struct image_tower *t, struct image_processor *p)
{
	if (parse(text, t, p))
		fail_msg("%s: %s", text, err);
}

static void refuse(const char *text, const struct image_tower *t, const char *what)
{
	struct image_processor p;

	assert_true(parse(text, t, &p) < 0);
	if (!strstr(err, what))
		fail_msg("\"%s\" does not say \"%s\"", err, what);
}

TEST(test_config)
{
	struct image_processor p;

	must_parse(QWEN("\"min_pixels\":512,\"max_pixels\":3072,"), &merging, &p);
	assert_int_equal(p.max_pixels, 3072);
	assert_true(p.scale == 1.0 / 255 && p.filter == IMAGE_BICUBIC_FILTER);
	must_parse(QWEN("\"size\":{\"shortest_edge\":256,\"longest_edge\":1024},"
			"\"resample\":2,\"unknown\":[1],\"do_resize\":null,"),
		   &merging, &p);
	assert_int_equal(p.min_pixels, 256);
	assert_int_equal(p.filter, IMAGE_BILINEAR_FILTER);
	must_parse(QWEN("\"do_normalize\":false,\"do_rescale\":false,"), &merging, &p);
	assert_true(p.scale == 1 && p.mean[0] == 0 && p.std[2] == 1);
	refuse("{\"image_processor_type\":7}", &merging, "image_processor_type");
	refuse("[]", &merging, "object");
	refuse("{\"image_processor_type\":\"LlavaNextImageProcessor\"}", &merging,
	       "image_processor_type");
	refuse("{\"image_processor_type\":\"Fast\"}", &merging, "image_processor_type");
}

TEST(test_tiles_config)
{
	struct image_processor p;

#define LLAVA(more) "{\"image_processor_type\":\"LlavaNextImageProcessor\"" more "}"
	must_parse(LLAVA(",\"do_center_crop\":true,\"size\":{\"shortest_edge\":24},"
			 "\"crop_size\":{\"height\":24,\"width\":24},\"image_grid_"
			 "pinpoints\":[[24,48]]"),
		   &tiled, &p);
}

#define MINICPM(more) "{\"image_processor_type\":\"MiniCPMV4_6ImageProcessor\"" more "}"

static const struct image_tower sliced = {
	.kind = IMAGE_SLICES,
	.patch = 4,
	.frames = 1,
	.channels = 3,
	.merge = 4,
	.window = 2,
	.side = 12,
	.max_units = 64,
	.max_rows = 64,
};

/* Without a type the processor is the family's; newer files have it within another one. */
TEST(test_family)
{
	struct image_tower glm = merging;
	struct image_processor p;
	cJSON *all =
		cJSON_Parse("{\"image_processor\":{\"max_slice_nums\":3},\"image_token\":\"a\"}");

	glm.positions = IMAGE_BICUBIC;
	must_parse("{}", &merging, &p);
	assert_true(!p.count_frames && p.min_pixels == 3136);
	must_parse("{}", &glm, &p);
	assert_true(p.count_frames && p.max_pixels == 11760000);
	assert_int_equal(
		image_processor_parse(image_processor_within(all), &sliced, &p, err, sizeof(err)),
		0);
	assert_true(p.max_slices == 3 && p.slice);
	cJSON_Delete(all);
	all = cJSON_Parse("{\"image_processor\":null}");
	assert_null(image_processor_within(all));
	assert_null(image_processor_within(NULL));
	cJSON_Delete(all);
}

TEST(test_slices_config)
{
	struct image_processor p;

	must_parse(MINICPM(",\"patch_size\":4"), &sliced, &p);
	assert_int_equal(p.max_slices, 9);
	assert_true(p.slice && p.number && p.mean[1] == 0.5f && p.std[2] == 0.5f);
	must_parse(MINICPM(",\"slice_mode\":false,\"use_image_id\":false"), &sliced, &p);
	assert_true(!p.slice && !p.number);
	refuse(MINICPM(""), &merging, "image_processor_type");
}

static bool differ(const struct image_processor *a, const struct image_processor *b)
{
	return a->count_frames != b->count_frames || a->min_pixels != b->min_pixels ||
	       a->max_pixels != b->max_pixels || a->max_slices != b->max_slices ||
	       a->resolution != b->resolution || a->slice != b->slice || a->number != b->number ||
	       a->resize != b->resize || a->filter != b->filter || a->scale != b->scale ||
	       memcmp(a->mean, b->mean, sizeof(a->mean)) || memcmp(a->std, b->std, sizeof(a->std));
}

/* The processor whose keys are tried. */
static const char *type;
static const struct image_tower *tower;

static void check_key(char **field)
{
	struct image_processor plain, with;
	const char *want = field[1];
	char text[300];
	int r;

	snprintf(text, sizeof(text), "{\"image_processor_type\":\"%s\"}", type);
	must_parse(text, tower, &plain);
	snprintf(text, sizeof(text), "{%s,\"image_processor_type\":\"%s\"}", field[0], type);
	r = parse(text, tower, &with);
	if (want[0] == '!' ? !r || !strstr(err, want + 1)
			   : r || differ(&plain, &with) != !strcmp(want, "changes"))
		fail_msg("%s: %d \"%s\", or else than \"%s\"", text, r, err, want);
}

/* Each key of each processor is honoured, says what is so anyway, or is refused. */
TEST(test_keys)
{
	static const struct {
		const char *type;
		const struct image_tower *tower;
		const char *keys;
	} processors[] = {
		{"Qwen2VLImageProcessor", &merging, "merging"},
		{"Qwen2_5_VLImageProcessor", &merging, "merging"},
		{"Qwen3VLImageProcessorFast", &merging, "merging"},
		{"Glm4vImageProcessorPil", &merging, "merging"},
		{"LlavaNextImageProcessorFast", &tiled, "tiles"},
		{"MiniCPMV4_6ImageProcessor", &sliced, "slices"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(processors); i++) {
		type = processors[i].type;
		tower = processors[i].tower;
		each_case("images.txt", "all", check_key);
		each_case("images.txt", processors[i].keys, check_key);
	}
}

/* Grids of pieces, and sizes in patches, as the reference has them. */
TEST(test_slices_sizes)
{
	static const struct {
		uint32_t width, height;
		struct image_parts want;
	} known[] = {
		{38, 62, {{8, 8}, {8, 8}, 2, 1}},   {120, 88, {{8, 8}, {8, 8}, 2, 2}},
		{61, 33, {{4, 12}, {8, 8}, 1, 2}},  {40, 44, {{8, 8}, {4, 12}, 2, 1}},
		{211, 37, {{4, 20}, {8, 8}, 1, 4}}, {5, 7, {{8, 8}, {0, 0}, 0, 0}},
	};
	struct image_processor p;
	struct image_parts got;

	must_parse(MINICPM(",\"max_slice_nums\":4,\"scale_resolution\":32"), &sliced, &p);
	for (unsigned i = 0; i < ARRAY_SIZE(known); i++) {
		assert_int_equal(image_process_size(&p, &sliced, known[i].width, known[i].height,
						    &got, err, sizeof(err)),
				 0);
		assert_memory_equal(&got, &known[i].want, sizeof(got));
	}
	p.slice = false;
	assert_int_equal(image_process_size(&p, &sliced, 120, 88, &got, err, sizeof(err)), 0);
	assert_int_equal(image_parts_count(&got), 1);
	p.resolution = 65535;
	assert_int_equal(image_process_size(&p, &sliced, 65535, 1, &got, err, sizeof(err)),
			 -EINVAL);
}

static void expect_size(const struct image_processor *p, uint32_t width, uint32_t height,
			uint32_t columns, uint32_t rows)
{
	struct image_parts parts;

	assert_int_equal(image_process_size(p, &merging, width, height, &parts, err, sizeof(err)),
			 0);
	assert_int_equal(image_parts_count(&parts), 1);
	assert_int_equal(parts.whole.width, columns);
	assert_int_equal(parts.whole.height, rows);
}

TEST(test_sizes)
{
	struct image_processor p;
	struct image_parts size;

	must_parse(QWEN("\"min_pixels\":512,\"max_pixels\":3072,"), &merging, &p);
	expect_size(&p, 40, 24, 4, 4);	 /* 2.5 and 1.5 squares: both to the even number */
	expect_size(&p, 640, 480, 8, 6); /* too large: down */
	expect_size(&p, 5, 7, 4, 4);	 /* too small: up */
	expect_size(&p, 211, 37, 16, 2);
	p.count_frames = true; /* half of that, and no side below a square */
	expect_size(&p, 640, 480, 4, 4);
	expect_size(&p, 5, 7, 2, 2);
	assert_true(image_process_size(&p, &merging, 2001, 10, &size, err, sizeof(err)) < 0);
	assert_non_null(strstr(err, "200 times"));
	assert_true(image_process_size(&p, &merging, 0, 10, &size, err, sizeof(err)) < 0);
	assert_true(image_process_size(&p, &merging, 65536, 9, &size, err, sizeof(err)) < 0);
	p.resize = false;
	assert_true(image_process_size(&p, &merging, 40, 32, &size, err, sizeof(err)) < 0);
	p.count_frames = false;
	expect_size(&p, 48, 32, 6, 4);
}

TEST(test_too_many)
{
	struct image_picture picture = {160, 160, calloc(160 * 160, 3)};
	struct image_processor p;
	struct image_parts size;
	float *pixels;

	must_parse(QWEN("\"max_pixels\":1000000,\"min_pixels\":1,"), &merging, &p);
	assert_int_equal(image_process(&p, &merging, &picture, &size, &pixels, err, sizeof(err)),
			 -E2BIG);
	assert_non_null(strstr(err, "100 tokens"));
	free(picture.rgb);
}

/* One colour stays what it is at every size, in the middle and at the borders. */
TEST(test_resize)
{
	static const uint32_t sides[] = {1, 2, 7, 64, 301};

	for (unsigned i = 0; i < 5 * 5 * 2; i++) {
		uint32_t from = sides[i % 5], to = sides[i / 5 % 5];
		struct image_picture a = {from, 9, malloc(from * 27u)}, b;

		memset(a.rgb, 131, from * 27u);
		assert_int_equal(image_resize(&a, to, 5 + to,
					      i / 25 ? IMAGE_BICUBIC_FILTER : IMAGE_BILINEAR_FILTER,
					      &b),
				 0);
		assert_int_equal(b.width, to);
		assert_int_equal(b.height, 5 + to);
		for (uint32_t k = 0; k < to * (5 + to) * 3; k++)
			assert_int_equal(b.rgb[k], 131);
		free(a.rgb);
		free(b.rgb);
	}
}

/* Halves of black and white: bicubic overshoots, which is clipped, not wrapped round. */
TEST(test_clip)
{
	struct image_picture a = {16, 1, calloc(16, 3)}, b;

	memset(a.rgb + 24, 255, 24);
	assert_int_equal(image_resize(&a, 64, 1, IMAGE_BICUBIC_FILTER, &b), 0);
	for (uint32_t i = 0; i < 64; i++) {
		assert_true(i < 29 ? b.rgb[3 * i] <= 1 : i < 35 || b.rgb[3 * i] >= 254);
		assert_int_equal(b.rgb[3 * i], b.rgb[3 * i + 2]);
	}
	free(a.rgb);
	free(b.rgb);
}

/* What another process says is taken over as it was read, and checked. */
TEST(test_values)
{
	static const struct {
		const char *text;
		const struct image_tower *tower;
	} all[] = {
		{QWEN("\"min_pixels\":512,\"max_pixels\":3072,"), &merging},
		{QWEN("\"do_resize\":false,"), &merging},
		{LLAVA(",\"do_normalize\":false"), &tiled},
		{MINICPM(",\"use_image_id\":false"), &sliced},
	};
	struct image_processor p, copy;
	struct image_values good, v;

	for (unsigned i = 0; i < 4; i++) {
		must_parse(all[i].text, all[i].tower, &p);
		image_processor_export(&p, &v);
		assert_int_equal(image_processor_import(&v, all[i].tower, &copy), 0);
		assert_true(p.count_frames == copy.count_frames && p.resize == copy.resize &&
			    p.slice == copy.slice && p.number == copy.number &&
			    p.filter == copy.filter && p.scale == copy.scale &&
			    p.min_pixels == copy.min_pixels && p.max_pixels == copy.max_pixels &&
			    p.max_slices == copy.max_slices && p.resolution == copy.resolution &&
			    !memcmp(p.mean, copy.mean, sizeof(p.mean)) &&
			    !memcmp(p.std, copy.std, sizeof(p.std)));
		good = v;
#define WRONG(member, value)                                                                       \
	do {                                                                                       \
		v = good;                                                                          \
		v.member = value;                                                                  \
		assert_int_equal(image_processor_import(&v, all[i].tower, &copy), -EINVAL);        \
	} while (0)
		WRONG(flags, 16);
		WRONG(filter, 1);
		WRONG(scale, NAN);
		WRONG(scale, -1);
		WRONG(mean[2], INFINITY);
		WRONG(std[0], 0);
		WRONG(std[1], NAN);
		if (all[i].tower->kind == IMAGE_MERGE) {
			WRONG(min_pixels, 0);
			WRONG(max_pixels, good.min_pixels - 1);
			WRONG(max_pixels, UINT64_MAX);
		}
		if (all[i].tower->kind == IMAGE_SLICES) {
			WRONG(max_slices, 0);
			WRONG(resolution, 65536);
			WRONG(flags, good.flags & ~8u);
		}
	}
}

TEST_MAIN
