// SPDX-License-Identifier: MIT
/*
 * param.bin against the layout of txda_isa.h: whatever shape, type, fusion and shard, each element
 * read back by the formulas of that header is the one that went in.
 */
#include <errno.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "crc32c.h"
#include "floats.h"
#include "param.h"

static uint32_t seed = 1;

static uint32_t random_u32(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static uint32_t between(uint32_t low, uint32_t high)
{
	return low + random_u32() % (high - low + 1);
}

static float random_float(void)
{
	return ((float)(random_u32() % 20001) - 10000) / 10000;
}

/* Element (row, k) of a panel at @p, by the header's words. */
static float panel_element(const uint8_t *p, uint8_t dtype, uint32_t group, uint32_t c, uint64_t k)
{
	uint64_t g, in;
	uint16_t h;
	float f;

	switch (dtype) {
	case TXDA_F32: memcpy(&f, p + (k * 32 + c) * 4, 4); return f;
	case TXDA_BF16:
		memcpy(&h, p + ((k / 2 * 32 + c) * 2 + k % 2) * 2, 2);
		return bf16_to_float(h);
	case TXDA_F16: memcpy(&h, p + (k * 32 + c) * 2, 2); return f16_to_float(h);
	case TXDA_W8:
		g = k / group;
		in = k % group;
		p += g * (64 + (uint64_t)group * 32);
		memcpy(&h, p + 2 * c, 2);
		return f16_to_float(h) * (float)(p[64 + (in / 4 * 32 + c) * 4 + in % 4] - 128);
	default:
		g = k / group;
		in = k % group;
		p += g * (64 + (uint64_t)group * 16);
		memcpy(&h, p + 2 * c, 2);
		p += 64 + (in / 8 * 32 + c) * 4 + in % 4;
		return f16_to_float(h) * (float)((in % 8 < 4 ? *p & 15 : *p >> 4) - 8);
	}
}

/* Element (n, k) of W, n in the order of the checkpoint: gates, then ups. */
static float tile_element(const uint8_t *data, const struct param_tiles *t, uint32_t n, uint32_t k)
{
	uint64_t panel = n / 32, c = n % 32;

	if (t->layout == TXDA_TILE32_GATED) {
		uint32_t half = t->n / 2, j = n < half ? n : n - half;

		panel = j / 16;
		c = j % 16 + (n < half ? 0 : 16);
	}
	return panel_element(data + panel * txda_tile_panel_bytes(t->dtype, t->k, t->group),
			     t->dtype, t->group, (uint32_t)c, k);
}

/* A source [rows, cols] of random values of @dtype, at an odd address as files may have it. */
static struct source_tensor random_source(uint8_t dtype, uint32_t rows, uint32_t cols,
					  uint8_t **ret)
{
	uint8_t *data = malloc((size_t)rows * cols * 4 + 1);
	size_t i, size = dtype == TXDA_F32 ? 4 : 2;

	assert_non_null(data);
	for (i = 0; i < (size_t)rows * cols; i++) {
		float f = random_float() * (i % 37 == 0 ? 4 : 1);
		uint16_t h = dtype == TXDA_F16 ? float_to_f16(f) : float_to_bf16(f);

		memcpy(data + 1 + i * size, dtype == TXDA_F32 ? (void *)&f : (void *)&h, size);
	}
	*ret = data;
	return (struct source_tensor){.dtype = dtype, .rows = rows, .cols = cols, .data = data + 1};
}

#define MAX_PARTS 3

struct fixture {
	struct param_tiles tiles;
	struct param_part part[MAX_PARTS];
	uint8_t *source[MAX_PARTS];
};

static void make_fixture(struct fixture *f, uint8_t dtype, uint8_t layout, uint32_t group)
{
	static const uint8_t source_types[] = {TXDA_F32, TXDA_BF16, TXDA_F16};
	uint32_t i, k = between(1, 1100), col = between(0, 40), rows = between(1, 75);

	memset(f, 0, sizeof(*f));
	f->tiles = (struct param_tiles){
		.name = "w",
		.dtype = dtype,
		.layout = layout,
		.k = k,
		.group = (uint16_t)group,
		.n_parts = layout == TXDA_TILE32_GATED ? 2 : between(1, 3),
	};
	f->tiles.part = f->part;
	for (i = 0; i < f->tiles.n_parts; i++) {
		struct param_part *part = &f->part[i];

		if (layout != TXDA_TILE32_GATED)
			rows = between(1, 75);
		part->row = between(0, 5);
		part->rows = rows;
		part->col = col;
		part->source =
			random_source(source_types[between(0, 2)], (uint32_t)part->row + rows + 2,
				      col + k + 3, &f->source[i]);
		f->tiles.n += rows;
	}
	/* Rows of zeros behind the parts. */
	if (layout == TXDA_TILE32)
		f->tiles.n += between(0, 40);
}

static void free_fixture(struct fixture *f)
{
	unsigned i;

	for (i = 0; i < MAX_PARTS; i++)
		free(f->source[i]);
}

/* What must be at (n, k). */
static float expected(const struct fixture *f, uint32_t n, uint32_t k)
{
	unsigned i;
	float x;

	for (i = 0; i < f->tiles.n_parts; i++) {
		const struct param_part *part = &f->tiles.part[i];

		if (n < part->rows) {
			source_read(&part->source, part->row + n, part->col + k, 1, &x);
			return x;
		}
		n -= (uint32_t)part->rows;
	}
	return 0;
}

/* The largest magnitude in the group of (n, k). */
static float group_max(const struct fixture *f, uint32_t n, uint32_t k)
{
	uint32_t first = k / f->tiles.group * f->tiles.group, i;
	float most = 0;

	for (i = first; i < first + f->tiles.group && i < f->tiles.k; i++)
		most = fmaxf(most, fabsf(expected(f, n, i)));
	return most;
}

static void check_element(const struct fixture *f, uint32_t n, uint32_t k, float got)
{
	float want = expected(f, n, k), most;

	switch (f->tiles.dtype) {
	case TXDA_F32: assert_true(got == want); break;
	case TXDA_BF16: assert_true(got == bf16_to_float(float_to_bf16(want))); break;
	case TXDA_F16: assert_true(got == f16_to_float(float_to_f16(want))); break;
	case TXDA_W8:
		most = group_max(f, n, k);
		assert_true(fabsf(got - want) <= most / 127 * 0.505f);
		break;
	default:
		/* The search may clip the extremes: by a third of the range at most. */
		most = group_max(f, n, k);
		assert_true(fabsf(got - want) <= most * 0.34f);
	}
}

static uint8_t *write_list(const struct param_list *list, unsigned threads, uint32_t *ret_crc)
{
	int fd = memfd_create("param", MFD_CLOEXEC);
	uint8_t *data = malloc(list->bytes + 1);
	struct progress progress = {0};
	struct tool_error error;

	assert_true(fd >= 0 && data);
	assert_int_equal(param_write(list, fd, threads, &progress, ret_crc, &error), 0);
	assert_int_equal(pread(fd, data, list->bytes + 1, 0), (ssize_t)list->bytes);
	close(fd);
	return data;
}

static void check_tiles(const struct fixture *f, const uint8_t *data)
{
	uint64_t panels = txda_tile_panels(f->tiles.layout, f->tiles.n), p;
	uint32_t n, k;

	for (n = 0; n < f->tiles.n; n++) {
		for (k = 0; k < f->tiles.k; k++)
			check_element(f, n, k, tile_element(data, &f->tiles, n, k));
	}
	/* Lanes that belong to no row are zero. */
	for (p = 0; f->tiles.layout == TXDA_TILE32 && p < panels; p++) {
		for (n = 0; n < 32; n++) {
			if (p * 32 + n >= f->tiles.n)
				assert_true(
					panel_element(data + p * txda_tile_panel_bytes(
									 f->tiles.dtype, f->tiles.k,
									 f->tiles.group),
						      f->tiles.dtype, f->tiles.group, n, 0) == 0);
		}
	}
}

static void pack_type(uint8_t dtype, uint32_t group)
{
	unsigned round;

	for (round = 0; round < 12; round++) {
		struct param_list list = {0};
		struct fixture f;
		uint64_t at;
		uint8_t *data;
		uint32_t crc;

		make_fixture(&f, dtype, round % 2 ? TXDA_TILE32_GATED : TXDA_TILE32, group);
		param_add_bytes(&list, "before", "12345", 5);
		at = param_add_tiles(&list, &f.tiles);
		assert_int_equal(at % 64, 0);
		param_finish(&list);
		data = write_list(&list, 1 + round % 3, &crc);
		assert_memory_equal(data, "12345", 5);
		assert_int_equal(crc, crc32c_portable(0, data, list.bytes));
		check_tiles(&f, data + at);
		free(data);
		param_free(&list);
		free_fixture(&f);
	}
}

TEST(test_types)
{
	static const struct {
		uint8_t dtype;
		uint32_t group;
	} types[] = {
		{TXDA_F32, 0},	{TXDA_BF16, 0}, {TXDA_F16, 0}, {TXDA_W8, 32},  {TXDA_W8, 64},
		{TXDA_W8, 128}, {TXDA_W4, 32},	{TXDA_W4, 64}, {TXDA_W4, 128},
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		pack_type(types[i].dtype, types[i].group);
}

/* The whole of a large list, many chunks of several entries, is the same with any number of
 * threads. */
TEST(test_threads)
{
	struct param_list list = {0};
	struct fixture f[6];
	uint32_t crc[3];
	uint8_t *data[3];
	unsigned i;

	for (i = 0; i < 6; i++) {
		make_fixture(&f[i], i % 2 ? TXDA_W4 : TXDA_BF16, TXDA_TILE32, i % 2 ? 32 : 0);
		/* Large enough for several chunks: rows of zeros count too. */
		f[i].tiles.n += 4000;
		param_add_tiles(&list, &f[i].tiles);
	}
	param_finish(&list);
	for (i = 0; i < 3; i++)
		data[i] = write_list(&list, 1 + 3 * i, &crc[i]);
	for (i = 1; i < 3; i++) {
		assert_int_equal(crc[i], crc[0]);
		assert_memory_equal(data[i], data[0], list.bytes);
	}
	for (i = 0; i < 3; i++)
		free(data[i]);
	for (i = 0; i < 6; i++)
		free_fixture(&f[i]);
	param_free(&list);
}

static struct param_tiles one_row(const float *x, uint32_t k, uint8_t dtype)
{
	static struct param_part part;

	part = (struct param_part){
		.source = {.dtype = TXDA_F32, .rows = 1, .cols = k, .data = (const uint8_t *)x},
		.rows = 1,
	};
	return (struct param_tiles){
		.name = "row",
		.dtype = dtype,
		.layout = TXDA_TILE32,
		.group = 32,
		.n = 1,
		.k = k,
		.n_parts = 1,
		.part = &part,
	};
}

/* Squared error of a row packed as @dtype. */
static double row_error(const float *x, uint32_t k, uint8_t dtype)
{
	struct param_tiles t = one_row(x, k, dtype);
	float(*block)[TXDA_TILE_N] = malloc(512 * sizeof(*block));
	uint8_t *out = malloc(txda_tile_panel_bytes(dtype, k, 32));
	double sum = 0;
	uint32_t i;

	assert_int_equal(param_make_panel(&t, 0, block, out, NULL), 0);
	for (i = 0; i < k; i++) {
		double d = (double)tile_element(out, &t, 0, i) - (double)x[i];

		sum += d * d;
	}
	free(block);
	free(out);
	return sum;
}

/* Squared error with the obvious 4-bit scale: the signed extreme becomes -8. */
static double plain_w4_error(const float *x, uint32_t k)
{
	double sum = 0;
	uint32_t g, i;

	for (g = 0; g < k; g += 32) {
		float extreme = 0, scale;

		for (i = g; i < g + 32; i++)
			extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
		scale = f16_to_float(float_to_f16(extreme / -8));
		for (i = g; i < g + 32; i++) {
			float q = scale != 0 ? rintf(x[i] / scale) : 0;
			double d = (double)(fminf(fmaxf(q, -8), 7) * scale) - (double)x[i];

			sum += d * d;
		}
	}
	return sum;
}

TEST(test_quantiser_quality)
{
	double w4 = 0, plain = 0, w8 = 0, power = 0;
	unsigned round, i;

	for (round = 0; round < 200; round++) {
		float x[256];

		for (i = 0; i < 256; i++) {
			x[i] = random_float() + random_float() + random_float() + random_float();
			power += (double)x[i] * (double)x[i];
		}
		w4 += row_error(x, 256, TXDA_W4);
		w8 += row_error(x, 256, TXDA_W8);
		plain += plain_w4_error(x, 256);
	}
	assert_true(w4 < plain * 0.93);
	assert_true(sqrt(w4 / power) < 0.085);
	assert_true(sqrt(w8 / power) < 0.006);
}

/* Groups of zeros, of values below any half, of one large value; values that have no place. */
TEST(test_quantiser_extremes)
{
	float x[64] = {0};
	float(*block)[TXDA_TILE_N] = malloc(512 * sizeof(*block));
	uint8_t out[8192];
	struct param_tiles t;
	struct tool_error error;
	unsigned i;

	assert_true(row_error(x, 64, TXDA_W8) == 0 && row_error(x, 64, TXDA_W4) == 0);
	for (i = 0; i < 64; i++)
		x[i] = 1e-30f;
	assert_true(row_error(x, 64, TXDA_W8) < 1e-50 && row_error(x, 64, TXDA_W4) < 1e-50);
	for (i = 0; i < 64; i++)
		x[i] = 1e-38f / 16;
	assert_true(row_error(x, 64, TXDA_W8) < 1e-50 && row_error(x, 64, TXDA_W4) < 1e-50);
	/* Scales that are subnormal as halves. */
	for (i = 0; i < 64; i++)
		x[i] = 3e-6f * random_float();
	assert_true(row_error(x, 64, TXDA_W8) < 64 * 3e-8 * 3e-8);
	memset(x, 0, sizeof(x));
	x[5] = 400000;
	assert_true(row_error(x, 64, TXDA_W8) < 300.0 * 300 &&
		    row_error(x, 64, TXDA_W4) < 300.0 * 300);
	for (i = 0; i < 3; i++) {
		x[7] = i == 0 ? INFINITY : i == 1 ? NAN : -500000;
		t = one_row(x, 64, i % 2 ? TXDA_W8 : TXDA_W4);
		assert_int_equal(param_make_panel(&t, 0, block, out, &error), -ERANGE);
		assert_non_null(strstr(error.text, "row"));
	}
	free(block);
}

TEST(test_floats)
{
	uint32_t i;

	for (i = 0; i < 65536; i++) {
		float b = bf16_to_float((uint16_t)i), h = f16_to_float((uint16_t)i);

		if (b == b)
			assert_int_equal(float_to_bf16(b), i);
		if (h == h)
			assert_int_equal(float_to_f16(h), i);
	}
	/* Ties go to even; what rounds up past the largest is infinite. */
	assert_int_equal(float_to_bf16(float_from_bits(0x3f808000)), 0x3f80);
	assert_int_equal(float_to_bf16(float_from_bits(0x3f818000)), 0x3f82);
	assert_int_equal(float_to_f16(1 + 0x1p-11f), 0x3c00);
	assert_int_equal(float_to_f16(1 + 3 * 0x1p-11f), 0x3c02);
	assert_int_equal(float_to_f16(65519), 0x7bff);
	assert_int_equal(float_to_f16(65520), 0x7c00);
	assert_int_equal(float_to_f16(0x1p-25f), 0);
	assert_int_equal(float_to_f16(0x1.8p-25f), 1);
	assert_int_equal(float_to_f16(0x1.ff8p-15f), 0x03ff);
	assert_int_equal(float_to_f16(0x1.ffcp-15f), 0x0400);
	assert_true(isnan(f16_to_float(float_to_f16(NAN))) &&
		    isnan(bf16_to_float(float_to_bf16(NAN))));
}

TEST_MAIN
