// SPDX-License-Identifier: MIT
/* GGUF files: good ones, each way in which a header can lie, blocks of weights, and several files. */
#include <errno.h>
#include <math.h>
#include <fcntl.h>
#include <unistd.h>

#include "unit.h"
#include "check.h"
#include "ggml.h"
#include "gguf_model.h"
#include "gguf_name.h"
#include "gguf_test.h"
#include "k_order.h"
#include "quant.h"
#include "pack.h"
#include "param.h"

static void expect_refused(const struct file *f, const char *what)
{
	struct gguf *g;

	assert_true(open_file(f, &g) < 0);
	expect_words(what);
}

#define DIM(...)                                                                                   \
	(const uint64_t[])                                                                         \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* A file that the statements make is refused with these words. */
#define REFUSED(what, ...)                                                                         \
	do {                                                                                       \
		struct file f = {0};                                                               \
		__VA_ARGS__;                                                                       \
		expect_refused(&f, what);                                                          \
	} while (0)

TEST(test_good)
{
	const char *const words[] = {"a", "", "\xc3\xa9"};
	const struct gguf_tensor *t;
	struct file f = {0};
	struct gguf_value v;
	struct gguf *g;
	char *text;

	key_text(&f, "general.name", "x");
	key_u32(&f, "n", 7);
	key_f32(&f, "f", 0.5f);
	key_texts(&f, "words", words, 3);
	key_array(&f, "i8", GGUF_I8, 2);
	put(&f.keys, "\xff\x02", 2);
	tensor(&f, "a", GGML_Q8_0, DIM(64, 3), 2, 6 * 34);
	tensor(&f, "b", GGML_F16, DIM(3), 1, 6);
	assert_int_equal(open_file(&f, &g), 0);
	assert_int_equal(gguf_string(g, "general.name", &text, NULL), 0);
	assert_string_equal(text, "x");
	free(text);
	assert_int_equal(gguf_string(g, "none", &text, NULL), 0);
	assert_null(text);
	assert_int_equal(gguf_string(g, "n", &text, &error), -EINVAL);
	assert_true(gguf_number(gguf_get(g, "n"), 0) == 7);
	assert_true(gguf_number(gguf_get(g, "f"), 0) == 0.5);
	assert_true(gguf_number(gguf_get(g, "i8"), 0) == -1);
	v = *gguf_get(g, "words");
	assert_int_equal(v.n, 3);
	for (unsigned i = 0; i < 3; i++) {
		struct gguf_text word = gguf_next_text(&v);

		assert_int_equal(word.bytes, strlen(words[i]));
		assert_memory_equal(word.text, words[i], word.bytes);
	}
	t = gguf_at(g, 1);
	assert_string_equal(t->name, "b");
	assert_int_equal(t->dim[0] * 10 + t->dim[1], 31);
	assert_int_equal(t->data[5], 5);
	assert_null(gguf_at(g, 2));
	gguf_close(g);
}

TEST(test_hostile_header)
{
	REFUSED("not a GGUF file", f = (struct file){.magic = 0x46554746});
	REFUSED("big-endian", f = (struct file){.version = 0x03000000});
	REFUSED("version 1", f = (struct file){.version = 1});
	REFUSED("18446744073709551615 keys", f = (struct file){.says_keys = UINT64_MAX});
	REFUSED("1099511627776 tensors", f = (struct file){.says_tensors = 1ull << 40});
	REFUSED("", f = (struct file){.says_keys = 2}; key_u32(&f, "a", 1));
	REFUSED("12 bytes are too short", f = (struct file){.cut = 20});
	REFUSED("truncated", f = (struct file){.cut = 30}; key_u32(&f, "a", 1));
}

TEST(test_hostile_keys)
{
	REFUSED("1152921504606846976 bytes", put_u64(&f.keys, 1ull << 60); f.n_keys = 1;
		put(&f.keys, (const uint8_t[64]){0}, 64));
	REFUSED("not 1 to 256", key_u32(&f, "", 1));
	REFUSED("UTF-8", key_u32(&f, "\xff", 1));
	REFUSED("k: values of type 13", key(&f, "k", 13));
	REFUSED("type 9 are not known in arrays", key_array(&f, "k", GGUF_ARRAY, 1));
	REFUSED("elements of 8 bytes", key_array(&f, "k", GGUF_U64, UINT64_MAX / 8 + 2));
	REFUSED("truncated", key_array(&f, "k", GGUF_STRING, UINT64_MAX));
	REFUSED("truncated", key(&f, "k", GGUF_STRING); put_u64(&f.keys, UINT64_MAX - 7));
	REFUSED("k: there twice", key_u32(&f, "k", 1); key_u32(&f, "k", 2));
	REFUSED("24 is not a power of two", key_u32(&f, "general.alignment", 24));
	REFUSED("general.alignment", key_text(&f, "general.alignment", "32"));
}

TEST(test_hostile_tensors)
{
	REFUSED("0 dimensions", tensor(&f, "a", GGML_F32, NULL, 0, 4));
	REFUSED("5 dimensions", tensor(&f, "a", GGML_F32, DIM(1, 1, 1, 1, 1), 5, 4));
	REFUSED("dimension 1 of 0", tensor(&f, "a", GGML_F32, DIM(1, 0), 2, 4));
	REFUSED("not 1 to 2^48", tensor(&f, "a", GGML_F32, DIM(1ull << 32, 1ull << 32), 2, 4));
	REFUSED("a\": 562949953421312 bytes",
		tensor(&f, "a", GGML_F32, DIM(1ull << 24, 1ull << 23), 2, 4));
	REFUSED("type 10 is not supported (F32", tensor(&f, "a", 10, DIM(256), 1, 84));
	REFUSED("type 4294967295", tensor(&f, "a", UINT32_MAX, DIM(256), 1, 84));
	REFUSED("rows of 128 elements are not a multiple of 256",
		tensor(&f, "a", GGML_Q6_K, DIM(128, 2), 2, 210));
	REFUSED("\"b\" begins at 64, not at 32", matrix(&f, "a", 8, 0);
		put(&f.data, (const uint8_t[32]){0}, 32); matrix(&f, "b", 8, 0));
	REFUSED("\"b\" begins at 0, not at 32", matrix(&f, "a", 8, 0); f.data.n = 0;
		matrix(&f, "b", 8, 0));
	REFUSED("truncated", f = (struct file){.cut = 1}; matrix(&f, "a", 8, 0));
	REFUSED("\"a\" occurs twice", matrix(&f, "a", 8, 0); matrix(&f, "a", 8, 0));
}

/* ---- blocks ---- */

TEST(test_blocks)
{
	uint8_t q4[18] = {0x00, 0x40}, q6[210] = {0}; /* a scale of 2 */
	uint8_t mx4[17] = {129, 0x2f};		      /* 4; -6, and for element 16: 1 */
	struct source_tensor t = ggml_tensor(GGML_Q4_0, 1, 32, q4);
	uint8_t codes[4];
	float y[3];

	q4[2] = 0xf1;
	q4[3] = 0x08;
	source_read(&t, 0, 0, 2, y);
	assert_true(y[0] == -14 && y[1] == 0);
	source_read(&t, 0, 16, 2, y);
	assert_true(y[0] == 14 && y[1] == -16);
	quant_codes(&t, 0, 15, 2, codes);
	assert_int_equal(codes[1], 15);
	assert_true(quant_scale(&t, 0, 0) == 2);
	t = ggml_tensor(GGML_MXFP4, 1, 32, mx4);
	source_read(&t, 0, 0, 2, y);
	assert_true(y[0] == -24 && y[1] == 0);
	source_read(&t, 0, 16, 1, y);
	assert_true(y[0] == 4);
	/* What a block is read as does not depend on where one begins. */
	t = ggml_tensor(GGML_Q6_K, 1, 256, q6);
	q6[209] = 0x40;
	q6[192 + 4] = 0x80; /* -128 for elements 64 to 79 */
	q6[0] = 0x50;	    /* element 64: 5, and two bits of it */
	q6[128] = 0x10;
	source_read(&t, 0, 63, 3, y);
	assert_true(y[0] == 0 && y[1] == 2.0f * -128 * (21 - 32) && y[2] == 2.0f * -128 * -32);
}

/* Whatever the bytes of a block are, the chip's tiles mean what the block does, to the bit: also where a
 * shard begins within a block. */
TEST(test_tiles)
{
	static const struct range parts[] = {{0, 512}, {256, 256}, {64, 448},
					     {32, 96}, {16, 80},   {8, 300}};
	static float block[PACK_K][TXDA_TILE_N];
	uint8_t data[32 * 512 * 4], out[512 * 160];
	float y[512];

	/* No half-precision number in it has all bits of the exponent. */
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13 & 0xbb);
	for (uint32_t type = 0; type < GGML_TYPES; type++) {
		const struct ggml_format *f = ggml_format(type);
		struct source_tensor t;

		if (!f || !f->bits)
			continue;
		t = ggml_tensor(type, 32, 512, data);
		for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
			struct param_part part = {.source = t, .rows = 32, .col = parts[i].first};
			struct k_order order;
			struct param_tiles tiles = {.name = f->name,
						    .dtype = f->tiles,
						    .layout = TXDA_TILE32,
						    .keep = true,
						    .n = 32,
						    .n_parts = 1,
						    .part = &part};
			struct cm_tensor w = {.dtype = f->tiles, .layout = TXDA_TILE32, .ptr = out};

			assert_int_equal(k_order_make(&t, parts[i], f->tiles, 0, &order), 0);
			tiles.k = order.n;
			tiles.group = w.group = order.group;
			tiles.columns = order.columns;
			w.dim[0] = 32;
			w.dim[1] = order.n;
			assert_true(txda_tile_panel_bytes(f->tiles, order.n, order.group) <=
				    sizeof(out));
			assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), 0);
			for (unsigned n = 0; n < 32; n++) {
				source_read(&t, n, parts[i].first, parts[i].n, y);
				for (uint32_t k = 0; k < order.n; k++) {
					uint32_t from = order.columns ? order.columns[k] : k;

					if (from != TXDA_NONE && cm_tile_get(&w, n, k) != y[from])
						fail_msg("%s, columns from %u: row %u, %u is %g, "
							 "not %g",
							 f->name, parts[i].first, n, from,
							 (double)cm_tile_get(&w, n, k),
							 (double)y[from]);
				}
			}
			free(order.columns);
		}
	}
}

TEST(test_not_finite)
{
	static const uint8_t types[] = {GGML_Q4_1, GGML_Q5_0, GGML_Q4_K,
					GGML_Q6_K, GGML_Q8_0, GGML_MXFP4};
	static float block[PACK_K][TXDA_TILE_N];
	uint8_t data[256 * 4], out[256 * 160];

	for (unsigned i = 0; i < sizeof(types); i++) {
		const struct ggml_format *f = ggml_format(types[i]);
		struct param_part part = {.source = ggml_tensor(types[i], 1, 256, data), .rows = 1};
		struct param_tiles tiles = {.name = "w",
					    .dtype = f->tiles,
					    .layout = TXDA_TILE32,
					    .group = 32,
					    .keep = true,
					    .n = 1,
					    .k = 256,
					    .n_parts = 1,
					    .part = &part};

		memset(data, 0xff, sizeof(data));
		assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), -ERANGE);
		expect_words("w: the scale of row 0, column 0 is not finite");
	}
}

/* Values of float32 that tiles of half precision do not hold. */
TEST(test_beyond_half)
{
	static float block[PACK_K][TXDA_TILE_N];
	static uint8_t out[64 * 256], codes[32];
	float values[32] = {65519, -65519, INFINITY}, scale = 65520;
	struct param_part part = {.source = {.dtype = TXDA_F32, .rows = 1, .cols = 32}, .rows = 1};
	struct param_tiles tiles = {.name = "w",
				    .dtype = TXDA_F16,
				    .layout = TXDA_TILE32,
				    .n = 1,
				    .k = 32,
				    .n_parts = 1,
				    .part = &part};

	part.source.data = (const uint8_t *)values;
	assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), 0);
	values[31] = -65520;
	assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), -ERANGE);
	expect_words("w: a weight is beyond 65504");
	tiles.dtype = TXDA_BF16;
	assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), 0);

	part.source = (struct source_tensor){.format = SOURCE_INT8,
					     .bits = 8,
					     .rows = 1,
					     .cols = 32,
					     .data = codes,
					     .scales = (const uint8_t *)&scale,
					     .scale_dtype = TXDA_F32,
					     .group = 32,
					     .n_groups = 1,
					     .block_rows = 1};
	tiles.dtype = TXDA_W8;
	tiles.group = 32;
	tiles.keep = true;
	assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), -ERANGE);
	expect_words("w: the scale of row 0, column 0 is not finite in float16");
	scale = 65519;
	assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), 0);
}

/* ---- several files ---- */

TEST(test_names)
{
	static const char *const none[] = {
		"a.gguf",
		"-00001-of-00002.gguf",
		"d/-00001-of-00002.gguf",
		"a-00003-of-00002.gguf",
		"a-00000-of-00002.gguf",
		"a-00001-of-00000.gguf",
		"a-00001-of-04097.gguf",
		"a-00001-of-0000x.gguf",
		"a-00001-of-00002.bin",
		"a-0001-of-00002.gguf",
		"",
	};
	char name[] = "d/a-00001-of-00012.gguf", whole_name[] = "a.b.gguf";

	for (unsigned i = 0; i < ARRAY_SIZE(none); i++)
		assert_int_equal(gguf_name_parts(none[i]), 0);
	assert_int_equal(gguf_name_parts(name), 12);
	gguf_name_set_part(name, 12);
	assert_string_equal(name, "d/a-00012-of-00012.gguf");
	assert_true(gguf_name_same(name, "d/a-00003-of-00012.gguf"));
	assert_false(gguf_name_same(name, "d/b-00003-of-00012.gguf"));
	assert_false(gguf_name_same(name, "d/a-00003-of-00013.gguf"));
	assert_false(gguf_name_same(name, "d/a-00013-of-00012.gguf"));
	gguf_name_cut(name);
	assert_string_equal(name, "d/a");
	gguf_name_cut(whole_name);
	assert_string_equal(whole_name, "a.b");
}

/* What a part says of itself; @no from 0 on. */
static void key_part(struct file *f, uint32_t no, uint32_t count, uint32_t tensors)
{
	key_u32(f, "split.no", no);
	key_u32(f, "split.count", count);
	key_u32(f, "split.tensors.count", tensors);
}

static void save(int dirfd, const char *name, const struct file *f)
{
	const struct bytes *b = whole(f);
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, b->at, b->n), b->n);
	close(fd);
}

#define PART(no, of) "m-0000" #no "-of-0000" #of ".gguf"

static void expect_split(int dirfd, const char *name, const char *file, const char *what)
{
	struct gguf_model *m;

	memset(&error, 0, sizeof(error));
	assert_true(gguf_model_open(dirfd, name, &m, &error) < 0);
	expect_words(file);
	expect_words(what);
}

TEST(test_parts)
{
	static const char *const names[] = {PART(1, 2), PART(2, 2), PART(1, 3), PART(3, 3),
					    "alone.gguf"};
	struct file first = {0}, second = {0}, twin = {0}, more = {0}, bare = {0}, joined = {0};
	char dir[] = "/tmp/txda-gguf-XXXXXX";
	struct gguf_model *m;
	int fd;

	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	key_part(&first, 0, 2, 2);
	key_text(&first, "general.architecture", "llama");
	matrix(&first, "token_embd.weight", 8, 4);
	key_part(&second, 1, 2, 2);
	matrix(&second, "output.weight", 8, 4);
	key_part(&twin, 1, 2, 2);
	matrix(&twin, "token_embd.weight", 8, 4);
	key_part(&more, 1, 2, 3);
	matrix(&more, "output.weight", 8, 4);
	matrix(&bare, "output.weight", 8, 4);
	key_part(&joined, 0, 0, 1);
	key_text(&joined, "general.architecture", "llama");
	matrix(&joined, "token_embd.weight", 8, 4);

	save(fd, PART(1, 2), &first);
	expect_split(fd, PART(1, 2), PART(2, 2), "No such file");
	save(fd, PART(2, 2), &second);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gguf_model_open(fd, names[i], &m, &error), 0);
		assert_true(gguf_model_has(m, "model.embed_tokens.weight"));
		assert_true(gguf_model_has(m, "lm_head.weight"));
		assert_non_null(gguf_get(gguf_model_file(m, 0), "general.architecture"));
		assert_null(gguf_model_file(m, 2));
		assert_int_equal(gguf_model_unchanged(m, &error), 0);
		gguf_model_free(m);
	}
	assert_int_equal(gguf_model_open(fd, PART(1, 2), &m, &error), 0);
	save(fd, PART(2, 2), &more);
	assert_int_equal(gguf_model_unchanged(m, &error), -ESTALE);
	gguf_model_free(m);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.tensors.count: 3, expected 2");
	save(fd, PART(2, 2), &twin);
	expect_split(fd, PART(1, 2), PART(2, 2), "\"token_embd.weight\"");
	save(fd, PART(2, 2), &first);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.no: 0, expected 1");
	save(fd, PART(2, 2), &bare);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.count: missing in a file of 2");
	/* As many as the name says. */
	save(fd, PART(1, 3), &first);
	save(fd, "m-00002-of-00003.gguf", &second);
	save(fd, PART(3, 3), &second);
	expect_split(fd, PART(3, 3), PART(1, 3), "split.count: 2, expected 3");
	save(fd, "alone.gguf", &first);
	expect_split(fd, "alone.gguf", "alone.gguf", "-00001-of-00002.gguf");
	save(fd, "alone.gguf", &joined);
	assert_int_equal(gguf_model_open(fd, "alone.gguf", &m, &error), 0);
	gguf_model_free(m);

	unlinkat(fd, "m-00002-of-00003.gguf", 0);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		unlinkat(fd, names[i], 0);
	close(fd);
	assert_int_equal(rmdir(dir), 0);
}

TEST_MAIN
