// SPDX-License-Identifier: MIT
/* Safetensors: good files, and each way in which a file can lie. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"
#include "../memory_file.h"
#include "case_file.h"
#include "quant.h"
#include "safetensors.h"
#include "source.h"

static struct tool_error error;

/* A file: length, @header, @data_bytes bytes. The caller frees it. */
static uint8_t *make_file(const char *header, size_t data_bytes, size_t *ret_bytes)
{
	uint64_t n = strlen(header);
	uint8_t *file = calloc(1, 8 + n + data_bytes + 1);
	unsigned i;

	assert_non_null(file);
	for (i = 0; i < 8; i++)
		file[i] = (uint8_t)(n >> (8 * i));
	memcpy(file + 8, header, n);
	for (i = 0; i < data_bytes; i++)
		file[8 + n + i] = (uint8_t)i;
	*ret_bytes = 8 + n + data_bytes;
	return file;
}

static int open_bytes(const void *file, size_t bytes, struct safetensors **ret)
{
	memset(&error, 0, sizeof(error));
	return safetensors_open_fd(memory_file(file, bytes), "test.safetensors", ret, &error);
}

static int open_header(const char *header, size_t data_bytes, struct safetensors **ret)
{
	size_t bytes;
	uint8_t *file = make_file(header, data_bytes, &bytes);
	int r = open_bytes(file, bytes, ret);

	free(file);
	return r;
}

TEST(test_good)
{
	const struct safetensors_tensor *t;
	struct safetensors *st;
	char shape[64];

	assert_int_equal(
		open_header(
			"{\"__metadata__\":{\"cases\":\"4\"},"
			"\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[6,14]},"
			"\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
			"\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[14,15]},"
			"\"empty\":{\"dtype\":\"I64\",\"shape\":[5,0],\"data_offsets\":[14,14]}}  ",
			15, &st),
		0);
	assert_string_equal(safetensors_metadata(st, "cases"), "4");
	assert_null(safetensors_metadata(st, "x"));
	t = safetensors_find(st, "b");
	assert_non_null(t);
	assert_int_equal(t->dtype, SAFETENSORS_F32);
	assert_string_equal(safetensors_shape(t->ndim, t->dim, shape, sizeof(shape)), "[2, 1]");
	assert_int_equal(((const uint8_t *)t->data)[0], 6);
	assert_int_equal(t->bytes, 8);
	assert_int_equal(safetensors_find(st, "empty")->bytes, 0);
	assert_null(safetensors_find(st, "c"));
	assert_string_equal(safetensors_find(st, "a")->name, "a");
	assert_int_equal(safetensors_find(st, "scalar")->ndim, 0);
	safetensors_close(st);
	assert_int_equal(open_header("{}", 0, &st), 0);
	assert_null(safetensors_find(st, ""));
	safetensors_close(st);
}

#define T(dtype, shape, offsets)                                                                   \
	"{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void check_lie(char **field)
{
	struct safetensors *st;

	assert_true(open_header(field[0], strtoul(field[1], NULL, 10), &st) < 0);
	if (!strstr(error.text, field[2]))
		fail_msg("%s: \"%s\" does not say \"%s\"", field[0], error.text, field[2]);
}

TEST(test_lies)
{
	each_case("safetensors.txt", "lies", check_lie);
}

TEST(test_frame)
{
	struct safetensors *st;
	size_t bytes, n;
	uint8_t *file = make_file(T("\"F32\"", "[1]", "[0,4]"), 4, &bytes);

	/* Every truncation is refused. */
	for (n = 0; n < bytes; n++)
		assert_true(open_bytes(file, n, &st) < 0);
	assert_int_equal(open_bytes(file, bytes, &st), 0);
	safetensors_close(st);
	file[7] = 0x80;
	assert_int_equal(open_bytes(file, bytes, &st), -EFBIG);
	file[7] = 0;
	file[1] = 0x10;
	assert_int_equal(open_bytes(file, bytes, &st), -EINVAL);
	assert_non_null(strstr(error.text, "truncated?"));
	free(file);
}

static char dir[64];

static void put_file(const char *name, const void *data, size_t bytes)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, bytes, f), bytes);
	fclose(f);
}

static void put_shard(const char *name, const char *header, size_t data_bytes)
{
	size_t bytes;
	uint8_t *file = make_file(header, data_bytes, &bytes);

	put_file(name, file, bytes);
	free(file);
}

static int open_index(const char *index, struct safetensors **ret)
{
	put_file("model.safetensors.index.json", index, strlen(index));
	return safetensors_open_dir(dir, ret, &error);
}

static void index_error(const char *index, const char *what)
{
	struct safetensors *st;

	assert_true(open_index(index, &st) < 0);
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

static void check_index(char **field)
{
	index_error(field[0], field[1]);
}

#define SHARD(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"

TEST(test_shards)
{
	struct safetensors *st;
	char path[128];

	strcpy(dir, "/tmp/txda-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(safetensors_open_dir(dir, &st, &error), -ENOENT);
	put_shard("one.safetensors", SHARD("a"), 2);
	put_shard("two.safetensors", SHARD("b"), 2);
	put_shard("three.safetensors", SHARD("a"), 2);
	assert_int_equal(open_index("{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\","
				    "\"b\":\"two.safetensors\"}}",
				    &st),
			 0);
	assert_int_equal(safetensors_files(st), 2);
	assert_string_equal(safetensors_file(st, safetensors_find(st, "b")->file)->name,
			    "two.safetensors");
	safetensors_close(st);
	each_case("safetensors.txt", "indices", check_index);
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	index_error("{\"weight_map\":{\"a\":\"fifo\"}}", "not a regular file");
	/* An index that was left beside the only file counts for nothing. */
	put_shard("model.safetensors", SHARD("c"), 2);
	assert_int_equal(open_index("{\"weight_map\":{\"a\":\"gone.safetensors\"}}", &st), 0);
	assert_int_equal(safetensors_files(st), 1);
	assert_non_null(safetensors_find(st, "c"));
	safetensors_close(st);
	snprintf(path, sizeof(path), "rm -r %s", dir);
	assert_int_equal(system(path), 0);
}

/* Scales of FP8 that are powers of two. */
TEST(test_exponents)
{
	static const char header[] =
		"{\"x.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [4, 2], \"data_offsets\": [0, "
		"8]},"
		"\"x.weight_scale_inv\": {\"dtype\": \"F8_E8M0\", \"shape\": [2, 1],"
		" \"data_offsets\": [8, 10]}}";
	const struct quant_config q = {.method = QUANT_FP8, .block_rows = 2, .block_cols = 2};
	struct source source = {0};
	struct source_tensor t;
	float row[2];
	size_t bytes;
	uint8_t *file = make_file(header, 10, &bytes);

	memset(file + bytes - 10, 0x38, 8); /* 1 */
	file[bytes - 2] = 127;
	file[bytes - 1] = 130;
	assert_int_equal(open_bytes(file, bytes, &source.checkpoint), 0);
	if (quant_find(&source, &q, "x", 4, 2, &t, &error))
		fail_msg("%s", error.text);
	for (unsigned i = 0; i < 4; i++) {
		source_read(&t, i, 0, 2, row);
		assert_true(row[0] == (i < 2 ? 1 : 8) && row[1] == row[0]);
	}
	safetensors_close(source.checkpoint);
	file[bytes - 1] = 255;
	assert_int_equal(open_bytes(file, bytes, &source.checkpoint), 0);
	assert_int_equal(quant_find(&source, &q, "x", 4, 2, &t, &error), -ERANGE);
	safetensors_close(source.checkpoint);
	free(file);
}

/* A checkpoint's owner rewrites it while it is compiled: what was checked is what is used. */
TEST(test_rewritten)
{
	static const char header[] = "{\"x.qweight\": {\"dtype\": \"I32\", \"shape\": [8, 8], "
				     "\"data_offsets\": [0, 256]},"
				     " \"x.scales\": {\"dtype\": \"F32\", \"shape\": [2, 8], "
				     "\"data_offsets\": [256, 320]},"
				     " \"x.g_idx\": {\"dtype\": \"I32\", \"shape\": [64], "
				     "\"data_offsets\": [320, 576]}}";
	const struct quant_config q = {.method = QUANT_GPTQ, .bits = 4, .group = 32};
	char place[] = "/tmp/txda-rewrite-XXXXXX", path[64];
	struct source_tensor t;
	struct source source;
	size_t bytes, i;
	uint8_t *file;
	FILE *f;

	file = make_file(header, 576, &bytes);
	memset(file + bytes - 576, 0, 576);
	/* Groups 1, 0, 1, 0, …: out of order, so that the list is needed. */
	for (i = 0; i < 64; i += 2)
		file[bytes - 256 + 4 * i] = 1;
	assert_non_null(mkdtemp(place));
	snprintf(path, sizeof(path), "%s/model.safetensors", place);
	f = fopen(path, "w+b");
	assert_non_null(f);
	assert_int_equal(fwrite(file, 1, bytes, f), bytes);
	assert_int_equal(fflush(f), 0);
	assert_int_equal(safetensors_open_dir(place, &source.checkpoint, &error), 0);
	assert_int_equal(quant_find(&source, &q, "x", 8, 64, &t, &error), 0);

	memset(file, 0xff, bytes);
	rewind(f);
	assert_int_equal(fwrite(file, 1, bytes, f), bytes);
	assert_int_equal(fflush(f), 0);
	for (i = 0; i < 64; i++)
		assert_int_equal(quant_group(&t, i), !(i & 1));
	assert_true(quant_scale(&t, 7, 1) == 0);
	assert_memory_equal(safetensors_file(source.checkpoint, 0)->header, header,
			    sizeof(header) - 1);

	safetensors_close(source.checkpoint);
	fclose(f);
	assert_int_equal(unlink(path) | rmdir(place), 0);
	free(file);
}

TEST(test_truncated)
{
	static const char header[] =
		"{\"a\": {\"dtype\": \"U8\", \"shape\": [9], \"data_offsets\": [0, 9]}}";
	char place[] = "/tmp/txda-truncate-XXXXXX", path[64];
	struct safetensors *st;
	const void *copy;
	size_t bytes;
	uint8_t *file;
	FILE *f;

	file = make_file(header, 9, &bytes);
	assert_non_null(mkdtemp(place));
	snprintf(path, sizeof(path), "%s/model.safetensors", place);
	f = fopen(path, "w+b");
	assert_non_null(f);
	assert_int_equal(fwrite(file, 1, bytes, f), bytes);
	assert_int_equal(fflush(f), 0);
	assert_int_equal(safetensors_open_dir(place, &st, &error), 0);
	assert_int_equal(ftruncate(fileno(f), 10), 0);
	assert_int_equal(safetensors_copy(st, safetensors_find(st, "a"), &copy, &error), -EIO);
	assert_non_null(strstr(error.text, "the file was truncated"));
	safetensors_close(st);
	fclose(f);
	assert_int_equal(unlink(path) | rmdir(place), 0);
	free(file);
}

TEST_MAIN
