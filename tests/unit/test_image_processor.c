// SPDX-License-Identifier: MIT
/*
 * From pictures to pixels: what a preprocessor_config.json may say and what is refused by which
 * name, sizes and their limits, resizing of plain and tiny pictures. That values are those of the
 * reference processors is for the golden models (tests/fixtures).
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

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

static void refuse(const char *text, const struct image_tower *t, const char *what)
{
	struct image_processor p;

	assert_true(parse(text, t, &p) < 0);
	if (!strstr(err, what))
		fail_msg("\"%s\" does not say \"%s\"", err, what);
}

static void test_config(void **state)
{
	struct image_processor p;

	(void)state;
	assert_int_equal(parse(QWEN("\"min_pixels\":512,\"max_pixels\":3072,"), &merging, &p), 0);
	assert_int_equal(p.max_pixels, 3072);
	assert_true(p.scale == 1.0 / 255 && p.filter == IMAGE_BICUBIC_FILTER);
	assert_int_equal(parse(QWEN("\"size\":{\"shortest_edge\":256,\"longest_edge\":1024},"
				    "\"resample\":2,\"unknown\":[1],\"do_resize\":null,"),
			       &merging, &p),
			 0);
	assert_int_equal(p.min_pixels, 256);
	assert_int_equal(p.filter, IMAGE_BILINEAR_FILTER);
	assert_int_equal(parse(QWEN("\"do_normalize\":false,\"do_rescale\":false,"), &merging, &p),
			 0);
	assert_true(p.scale == 1 && p.mean[0] == 0 && p.std[2] == 1);
	refuse("{\"image_processor_type\":7}", &merging, "image_processor_type");
	refuse("[]", &merging, "object");
	refuse("{\"image_processor_type\":\"LlavaNextImageProcessor\"}", &merging,
	       "image_processor_type");
	refuse("{\"image_processor_type\":\"Fast\"}", &merging, "image_processor_type");
	refuse(QWEN("\"temporal_patch_size\":1,"), &merging, "temporal_patch_size: 1");
	refuse(QWEN("\"resample\":1,"), &merging, "resample: 1");
	refuse(QWEN("\"do_flip\":true,"), &merging, "do_flip");
	refuse(QWEN("\"do_center_crop\":true,"), &merging, "do_center_crop");
	refuse(QWEN("\"do_convert_rgb\":false,"), &merging, "do_convert_rgb");
	refuse(QWEN("\"image_std\":[1,0,1],"), &merging, "image_std");
	refuse(QWEN("\"image_mean\":[1,0],"), &merging, "image_mean");
	refuse(QWEN("\"min_pixels\":9,\"max_pixels\":8,"), &merging, "min_pixels");
	refuse(QWEN("\"max_pixels\":\"many\","), &merging, "max_pixels");
}

static void test_tiles_config(void **state)
{
	struct image_processor p;

	(void)state;
#define LLAVA(more) "{\"image_processor_type\":\"LlavaNextImageProcessor\"" more "}"
	assert_int_equal(parse(LLAVA(",\"do_center_crop\":true,\"size\":{\"shortest_edge\":24},"
				     "\"crop_size\":{\"height\":24,\"width\":24},"
				     "\"image_grid_pinpoints\":[[24,48]]"),
			       &tiled, &p),
			 0);
	refuse(LLAVA(",\"size\":{\"shortest_edge\":30}"), &tiled, "shortest_edge: 30");
	refuse(LLAVA(",\"crop_size\":{\"height\":24,\"width\":12}"), &tiled, "width: 12");
	refuse(LLAVA(",\"image_grid_pinpoints\":[[48,24]]"), &tiled, "image_grid_pinpoints");
	refuse(LLAVA(",\"image_grid_pinpoints\":[[24,48],[48,24]]"), &tiled,
	       "image_grid_pinpoints");
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
static void test_family(void **state)
{
	struct image_tower glm = merging;
	struct image_processor p;
	cJSON *all =
		cJSON_Parse("{\"image_processor\":{\"max_slice_nums\":3},\"image_token\":\"a\"}");

	(void)state;
	glm.positions = IMAGE_BICUBIC;
	assert_int_equal(parse("{}", &merging, &p), 0);
	assert_true(!p.count_frames && p.min_pixels == 3136);
	assert_int_equal(parse("{}", &glm, &p), 0);
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

static void test_slices_config(void **state)
{
	struct image_processor p;

	(void)state;
	assert_int_equal(parse(MINICPM(",\"patch_size\":4"), &sliced, &p), 0);
	assert_int_equal(p.max_slices, 9);
	assert_true(p.slice && p.number && p.mean[1] == 0.5f && p.std[2] == 0.5f);
	assert_int_equal(
		parse(MINICPM(",\"slice_mode\":false,\"use_image_id\":false"), &sliced, &p), 0);
	assert_true(!p.slice && !p.number);
	refuse(MINICPM(",\"patch_size\":14"), &sliced, "patch_size: 14");
	refuse(MINICPM(",\"max_slice_nums\":0"), &sliced, "max_slice_nums");
	refuse(MINICPM(",\"max_slice_nums\":1e9"), &sliced, "max_slice_nums");
	refuse(MINICPM(",\"max_slice_nums\":2.5"), &sliced, "max_slice_nums");
	refuse(MINICPM(",\"scale_resolution\":0"), &sliced, "scale_resolution");
	refuse(MINICPM(",\"downsample_mode\":\"4x\""), &sliced, "downsample_mode: \"4x\"");
	refuse(MINICPM(",\"slice_mode\":1"), &sliced, "slice_mode");
	refuse(MINICPM(",\"do_resize\":false"), &sliced, "do_resize");
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

static const char changes[] = "changes", nothing[] = "nothing";

/* What a key does beside the type: it changes something, nothing, or is refused with these words. */
struct key {
	const char *text, *want;
};

static const struct key
	of_all[] =
		{
			{"\"resample\":2", changes},
			{"\"resample\":3", nothing},
			{"\"resample\":0", "resample: 0"},
			{"\"resample\":\"bicubic\"", "resample: not a number"},
			{"\"rescale_factor\":0.5", changes},
			{"\"rescale_factor\":\"1\"", "rescale_factor"},
			{"\"do_rescale\":false", changes},
			{"\"do_rescale\":true", nothing},
			{"\"do_rescale\":0", "do_rescale: not true or false"},
			{"\"do_normalize\":false", changes},
			{"\"do_normalize\":\"false\"", "do_normalize: not true or false"},
			{"\"image_mean\":[0.1,0.2,0.3]", changes},
			{"\"image_mean\":0.5", "image_mean"},
			{"\"image_std\":[1,1,1]", changes},
			{"\"image_std\":[1,-1,1]", "image_std: entry 1"},
			{"\"do_convert_rgb\":true", nothing},
			{"\"do_convert_rgb\":false", "do_convert_rgb"},
			{"\"do_resize\":1", "do_resize: not true or false"},
			{"\"do_flip\":false", nothing},
			{"\"do_flip\":1", "do_flip"},
			{"\"do_reduce_labels\":true", "do_reduce_labels"},
			{"\"image_mean\":null,\"size\":null,\"resample\":null,\"do_pad\":null",
			 nothing},
			{"\"processor_class\":\"X\",\"return_tensors\":\"pt\",\"device\":\"cpu\"",
			 nothing},
},
	of_merging[] =
		{
			{"\"do_resize\":false", changes},
			{"\"do_pad\":true", "do_pad"},
			{"\"do_center_crop\":true", "do_center_crop"},
			{"\"size\":{\"shortest_edge\":999}", changes},
			{"\"size\":{\"longest_edge\":99999}", changes},
			{"\"size\":{\"min_pixels\":999,\"max_pixels\":99999}", changes},
			{"\"size\":{\"height\":448,\"width\":448}", "size: height"},
			{"\"size\":448", "size: not an object"},
			{"\"size\":{\"shortest_edge\":0}", "shortest_edge"},
			{"\"min_pixels\":999", changes},
			{"\"max_pixels\":99999", changes},
			{"\"min_pixels\":1e13", "min_pixels"},
			{"\"patch_size\":8,\"temporal_patch_size\":2,\"merge_size\":2", nothing},
			{"\"patch_size\":14", "patch_size: 14"},
			{"\"temporal_patch_size\":1", "temporal_patch_size: 1"},
			{"\"merge_size\":1", "merge_size: 1"},
},
	of_tiles[] =
		{
			{"\"do_resize\":false,\"do_center_crop\":false,\"do_pad\":true", nothing},
			{"\"size\":24,\"crop_size\":24", nothing},
			{"\"size\":{\"height\":24,\"width\":24}", nothing},
			{"\"size\":336", "size: 336"},
			{"\"size\":[24,24]", "size: not an object"},
			{"\"size\":{\"longest_edge\":24}", "size: longest_edge"},
			{"\"crop_size\":{\"height\":30}", "height: 30"},
			{"\"image_grid_pinpoints\":[[24,48]]", nothing},
			{"\"image_grid_pinpoints\":[[24,24]]", "image_grid_pinpoints"},
			{"\"aspect_ratio_setting\":\"anyres\"", nothing},
},
	of_slices[] = {
		{"\"max_slice_nums\":4", changes},
		{"\"scale_resolution\":32", changes},
		{"\"use_image_id\":false", changes},
		{"\"use_image_id\":0", "use_image_id"},
		{"\"slice_mode\":false", changes},
		{"\"patch_size\":4,\"downsample_mode\":\"16x\"", nothing},
		{"\"patch_size\":8", "patch_size: 8"},
		{"\"do_pad\":true", "do_pad"},
		{"\"do_resize\":false", "do_resize"},
};

static void check_keys(const char *type, const struct image_tower *t, const struct key *keys,
		       size_t n)
{
	struct image_processor plain, with;
	char text[300];

	snprintf(text, sizeof(text), "{\"image_processor_type\":\"%s\"}", type);
	assert_int_equal(parse(text, t, &plain), 0);
	for (size_t i = 0; i < n; i++) {
		int r;

		snprintf(text, sizeof(text), "{%s,\"image_processor_type\":\"%s\"}", keys[i].text,
			 type);
		r = parse(text, t, &with);
		if (keys[i].want != changes && keys[i].want != nothing) {
			if (!r || !strstr(err, keys[i].want))
				fail_msg("%s: %d \"%s\", not \"%s\"", text, r, err, keys[i].want);
		} else if (r || differ(&plain, &with) != (keys[i].want == changes)) {
			fail_msg("%s: %d \"%s\", or else than \"%s\"", text, r, err, keys[i].want);
		}
	}
}

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Each key of each processor is honoured, says what is so anyway, or is refused. */
static void test_keys(void **state)
{
	static const struct {
		const char *type;
		const struct image_tower *tower;
		const struct key *keys;
		size_t n;
	} processors[] = {
		{"Qwen2VLImageProcessor", &merging, of_merging, N(of_merging)},
		{"Qwen2_5_VLImageProcessor", &merging, of_merging, N(of_merging)},
		{"Qwen3VLImageProcessorFast", &merging, of_merging, N(of_merging)},
		{"Glm4vImageProcessorPil", &merging, of_merging, N(of_merging)},
		{"LlavaNextImageProcessorFast", &tiled, of_tiles, N(of_tiles)},
		{"MiniCPMV4_6ImageProcessor", &sliced, of_slices, N(of_slices)},
	};

	(void)state;
	for (size_t i = 0; i < N(processors); i++) {
		check_keys(processors[i].type, processors[i].tower, of_all, N(of_all));
		check_keys(processors[i].type, processors[i].tower, processors[i].keys,
			   processors[i].n);
	}
}

/* Grids of pieces, and sizes in patches, as the reference has them. */
static void test_slices_sizes(void **state)
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

	(void)state;
	assert_int_equal(
		parse(MINICPM(",\"max_slice_nums\":4,\"scale_resolution\":32"), &sliced, &p), 0);
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
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

static void test_sizes(void **state)
{
	struct image_processor p;
	struct image_parts size;

	(void)state;
	assert_int_equal(parse(QWEN("\"min_pixels\":512,\"max_pixels\":3072,"), &merging, &p), 0);
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

static void test_too_many(void **state)
{
	struct image_picture picture = {160, 160, calloc(160 * 160, 3)};
	struct image_processor p;
	struct image_parts size;
	float *pixels;

	(void)state;
	assert_int_equal(parse(QWEN("\"max_pixels\":1000000,\"min_pixels\":1,"), &merging, &p), 0);
	assert_int_equal(image_process(&p, &merging, &picture, &size, &pixels, err, sizeof(err)),
			 -E2BIG);
	assert_non_null(strstr(err, "100 tokens"));
	free(picture.rgb);
}

/* One colour stays what it is at every size, in the middle and at the borders. */
static void test_resize(void **state)
{
	static const uint32_t sides[] = {1, 2, 7, 64, 301};

	(void)state;
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
static void test_clip(void **state)
{
	struct image_picture a = {16, 1, calloc(16, 3)}, b;

	(void)state;
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
static void test_values(void **state)
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

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(parse(all[i].text, all[i].tower, &p), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),	      cmocka_unit_test(test_tiles_config),
		cmocka_unit_test(test_sizes),	      cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_resize),	      cmocka_unit_test(test_clip),
		cmocka_unit_test(test_slices_config), cmocka_unit_test(test_keys),
		cmocka_unit_test(test_slices_sizes),  cmocka_unit_test(test_values),
		cmocka_unit_test(test_family),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
