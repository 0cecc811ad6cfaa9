// SPDX-License-Identifier: MIT
/* Case dirs that are cut, changed or lie: refused with a reason, never followed. */
#include <sys/stat.h>

#include "case_info.h"
#include "libtxda_case.h"
#include "libtxda_test.h"
#include "program.h"

/* Replaces the first @from in @text by @to; the caller frees. */
static char *replaced(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	size_t len = strlen(text) + strlen(to) + 1;
	char *copy = malloc(len);

	assert_non_null(at);
	snprintf(copy, len, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return copy;
}

TEST(test_info)
{
	static const struct {
		const char *from, *to, *reason;
	} change[] = {
		{"\"format\": 1", "\"format\": 2", "format is 2; this library reads 1"},
		{"\"format\": 1", "\"format\": \"1\"", "format is not a number"},
		{"\"format\": 1", "\"forma\": 1", "format is missing"},
		{"\"name\": \"tiny\"", "\"name\": \"\"", "name is not a string"},
		{"\"name\": \"tiny\"", "\"name\": 5", "name is not a string"},
		{"\"name\": \"tiny\"", "\"name\": \"a\\nb\"", "control character"},
		{"\"tp\": 1", "\"tp\": 2", "tp is 2, but chips has 1"},
		{"\"tp\": 1", "\"tp\": 9", "it must be from 1 to 8"},
		{"\"tokens\": 16", "\"tokens\": -1", "limits.tokens is -1"},
		{"\"tokens\": 16", "\"tokens\": 1.5", "limits.tokens is 1.5"},
		{"\"tokens\": 16", "\"tokens\": 1e300", "limits.tokens is 1"},
		{"\"tokens\": 16", "\"tokens\": 0", "limits.tokens is 0"},
		{"\"limits\": {", "\"limits\": [], \"l\": {", "limits is not an object"},
		{"\"block_size\": 32", "\"block_size\": null", "kv.block_size is not a number"},
		{"\"chips\": [", "\"chips\": 7, \"c\": [", "chips is not an array"},
		{"chip0/kcore.bin", "../kcore.bin",
		 "chips[0].kcore is \"../kcore.bin\"; it must be a file below"},
		{"chip0/param.bin", "/etc/passwd", "chips[0].param is \"/etc/passwd\""},
		{"chip0/param.bin", "chip0//param.bin", "chips[0].param"},
		{"chip0/param.bin", "chip0/./param.bin", "chips[0].param"},
		{"chip0/param.bin", "chip0/", "chips[0].param"},
		{"\"param_bytes\": 12544", "\"param_bytes\": 0", "param_bytes is 0"},
		{"\"param_bytes\": 12544", "\"param_bytes\": 9007199254740993", "param_bytes is"},
		{"\"param_crc32c\": ", "\"param_crc32c\": 1", "param_crc32c is 1"},
		{"[\"step\"]", "[]", "programs is not an array of 1 to 8"},
		{"[\"step\"]", "[3]", "programs[] is not a string"},
		{"\"F32\"", "\"F31\"", "dtype \"F31\" is not known"},
		{"[\"T\", 64]", "[\"Q\", 64]", "inputs[0].shape[0] is neither"},
		{"[\"T\", 64]", "[\"T\", 0]", "inputs[0].shape[1] is neither"},
		{"[\"T\", 64]", "[\"T\", 1.5]", "inputs[0].shape[1] is neither"},
		{"[\"T\", 64]", "[]", "shape is not an array of 1 to 4"},
		{"[\"T\", 64]", "[1,1,1,1,1]", "shape is not an array of 1 to 4"},
		{"\"name\": \"rows\"", "\"name\": \"x\"", "\"x\" occurs twice"},
		{"\"outputs\": [{", "\"outputs\": [4, {", "outputs[0] is not an object"},
		{"{\"format\"", "[{\"format\"", "not JSON"},
		{"}]}\n", "}]} x", "model_info.json is not JSON: line "},
	};
	static struct case_said said;
	char err[300], *text = case_info(1), *bad;

	assert_int_equal(case_said_parse(text, strlen(text), &said, err, sizeof(err)), 0);
	assert_int_equal(said.error, 0);
	assert_int_equal(said.info.n_inputs, 2);
	assert_int_equal(said.info.input[0].dim[0].sym, TXDA_SYM_T);
	for (size_t i = 0; i < ARRAY_SIZE(change); i++) {
		int r;

		bad = replaced(text, change[i].from, change[i].to);
		r = case_said_parse(bad, strlen(bad), &said, err, sizeof(err));
		if (r != -EINVAL && said.error != -EINVAL)
			fail_msg("\"%s\" was taken", change[i].to);
		assert_says(r ? err : said.message, change[i].reason);
		free(bad);
	}
	free(text);
}

/*
 * What is wrong with a program when 4 or 2 bytes at @offset are changed and the checksum is right.
 */
static void check_change(size_t offset, uint32_t value, size_t size, const char *reason)
{
	struct txda__program view;
	unsigned char *program;
	char err[300];
	size_t bytes;

	program = case_program(1, 0, &bytes);
	memcpy(program + offset, &value, size);
	if (offset != offsetof(struct txda_program, crc32c))
		case_seal(program, bytes);
	if (txda__program_check(program, bytes, &view, err, sizeof(err)) != -EINVAL)
		fail_msg("taken, though %s is expected", reason);
	assert_says(err, reason);
	free(program);
}

#define HEADER(field) offsetof(struct txda_program, field)

TEST(test_program)
{
	struct txda__program view;
	const struct txda_program *h;
	unsigned char *program;
	size_t bytes, slots, tensors, ops;
	char err[300];

	program = case_program(1, 0, &bytes);
	assert_int_equal(txda__program_check(program, bytes, &view, err, sizeof(err)), 0);
	h = view.header;
	slots = h->slots_off;
	tensors = h->tensors_off;
	ops = h->ops_off;
	for (size_t n = 0; n < bytes; n += 7)
		assert_int_equal(txda__program_check(program, n, &view, err, sizeof(err)), -EINVAL);
	/* Every flipped bit is seen by the checksum. */
	for (size_t i = 0; i < bytes; i += 3) {
		program[i] ^= (unsigned char)(1 << i % 8);
		assert_int_equal(txda__program_check(program, bytes, &view, err, sizeof(err)),
				 -EINVAL);
		program[i] ^= (unsigned char)(1 << i % 8);
	}
	free(program);

	check_change(HEADER(magic), 1, 4, "magic is 0x00000001");
	check_change(HEADER(major), 2, 2, "version 2.");
	check_change(HEADER(minor), 9, 2, "version 1.9");
	check_change(HEADER(bytes), 5000, 4, "the header says 5000 bytes");
	check_change(HEADER(crc32c), 5, 4, "the header says 0x00000005");
	check_change(HEADER(n_slots), 0, 4, "0 slots");
	check_change(HEADER(n_slots), 65, 4, "65 slots");
	check_change(HEADER(n_slots), 60, 4, "a name is outside");
	check_change(HEADER(n_tensors), 0xffffffff, 4, "not inside the program");
	check_change(HEADER(n_tensors), 0, 4, "no tensors");
	check_change(HEADER(n_ops), 0xffffffff, 4, "not inside the program");
	check_change(HEADER(n_ops), 0, 4, "no ops");
	check_change(HEADER(slots_off), 0, 4, "not inside the program");
	check_change(HEADER(slots_off), 0xfffffff8, 4, "not inside the program");
	check_change(HEADER(tensors_off), 129, 4, "8-byte border");
	check_change(HEADER(strings_off), 0xfffffff8, 4, "not inside the program");
	check_change(HEADER(strings_bytes), 0, 4, "not inside the program");
	check_change(HEADER(strings_bytes), 2, 4, "a name is outside");
	check_change(HEADER(name), 0xffffff, 4, "a name is outside");
	check_change(HEADER(rank), 1, 4, "rank 1 of a group of 1");
	check_change(HEADER(group_size), 0, 4, "rank 0 of a group of 0");
	check_change(HEADER(group_size), 9, 4, "rank 0 of a group of 9");
	check_change(HEADER(sym_max), 1, 4, "unknown symbol has a limit");
	check_change(slots + offsetof(struct txda_slot, kind), 9, 4, "slot 0 (weights) has kind 9");
	check_change(slots + offsetof(struct txda_slot, kind), TXDA_SLOT_KV, 4,
		     "there is one of that kind already");
	check_change(slots + offsetof(struct txda_slot, bytes) + 4, 0xffff, 4,
		     "slot 0 (weights) has");
	check_change(slots + offsetof(struct txda_slot, bytes), 0, 4,
		     "slot 0 (weights) has 0 bytes");
	check_change(slots + offsetof(struct txda_slot, name), 1 << 20, 4, "a name is outside");
	/* The NUL behind the first name, for the input x. */
	check_change(slots + 3 * sizeof(struct txda_slot) + offsetof(struct txda_slot, name), 4, 4,
		     "slot 3 has a name of 0 bytes");
	check_change(slots + 4 * sizeof(struct txda_slot) + offsetof(struct txda_slot, name), 0, 4,
		     "holds no tensor of that name");
	check_change(ops + offsetof(struct txda_op, label), 1 << 20, 4, "a name is outside");
	/* The input x is tensor 3. */
	tensors += 3 * sizeof(struct txda_tensor);
	check_change(tensors + offsetof(struct txda_tensor, name), 1 << 20, 4, "a name is outside");
	check_change(tensors + offsetof(struct txda_tensor, slot), 99, 2,
		     "tensor 3 (x) is in slot 99 of 6");
	check_change(tensors + offsetof(struct txda_tensor, dtype), TXDA_W4, 1,
		     "not a plain array");
	check_change(tensors + offsetof(struct txda_tensor, dtype), 200, 1, "not a plain array");
	check_change(tensors + offsetof(struct txda_tensor, layout), TXDA_TILE32, 1,
		     "not a plain array");
	check_change(tensors + offsetof(struct txda_tensor, ndim), 0, 1, "not a plain array");
	check_change(tensors + offsetof(struct txda_tensor, ndim), 5, 1, "not a plain array");
	check_change(tensors + offsetof(struct txda_tensor, dim), 7, 4, "has symbol 7");
	check_change(tensors + offsetof(struct txda_tensor, dim), 0xffffffff, 4, "has symbol");
	check_change(tensors + offsetof(struct txda_tensor, dim) + 4, 0xffffffff, 4,
		     "does not fit its slot");
	check_change(tensors + offsetof(struct txda_tensor, dim) + 4, 0, 4,
		     "does not fit its slot");
}

static struct txda_context *context;
static char *dir;

static int try_load(const char *path, const char *program)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model = (void *)1;
	struct txda_group *group;
	int r;

	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	options.program = program;
	r = txda_model_load(group, &options, &model);
	if (r >= 0)
		txda_model_unref(model);
	else
		assert_ptr_equal(model, (void *)1);
	txda_group_unref(group);
	assert_int_equal(used_bytes(context, 0), 0);
	return r;
}

/* Puts another document or program into the case dir and sees how a load fails. */
static void check_dir(const char *from, const char *to, const char *reason)
{
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	char *text = case_info(1), *bad = replaced(text, from, to);

	case_put(dir, "model_info.json", bad, strlen(bad));
	if (try_load(dir, NULL) >= 0)
		fail_msg("\"%s\" was loaded", to);
	assert_says(txda_context_error(context), reason);
	assert_says(txda_context_error(context), dir);
	txda_model_plan(context, dir, &plan);
	case_put(dir, "model_info.json", text, strlen(text));
	free(bad);
	free(text);
}

TEST(test_dir)
{
	char name[512];
	void *program;
	size_t bytes;

	context = open_context("mem=64M,cores=1");
	case_write(1, &dir);
	assert_int_equal(try_load(dir, "step"), 0);
	fails(context, try_load(dir, "prefill"), -ENOENT, "no program \"prefill\"");
	assert_int_equal(try_load("/nowhere", NULL), -ENOENT);
	assert_int_equal(try_load(NULL, NULL), -EINVAL);

	check_dir("\"tokens\": 16", "\"tokens\": 17",
		  "limits.tokens is 17 in model_info.json, but 16");
	check_dir("\"block_bytes\": 8192", "\"block_bytes\": 4096", "kv.block_bytes is 4096");
	check_dir("\"scratch_bytes\": 8192", "\"scratch_bytes\": 64", "scratch_bytes is 64");
	check_dir("\"kcore_bytes\": ", "\"kcore_bytes\": 1", "chip0/kcore.bin has ");
	check_dir("\"kcore_bytes\": ", "\"kcore_bytes\": 9999999",
		  "chips[0].kcore_bytes is 9999999");
	check_dir("chip0/kcore.bin", "chip0", "chip0 is not a regular file");
	check_dir("chip0/kcore.bin", "chip0/gone", "chip0/gone: No such file");
	check_dir("[\"step\"]", "[\"other\"]", "holds program \"step\"; expected \"other\"");
	check_dir("[\"T\", 64]", "[\"T\", 65]", "type or shape of tensor x differ");
	check_dir("\"dtype\": \"I32\"", "\"dtype\": \"F32\"",
		  "type or shape of tensor rows differ");
	check_dir("\"name\": \"rows\"", "\"name\": \"rowz\"", "tensor rows is in the program");
	check_dir("\"outputs\": [{",
		  "\"outputs\": [{\"name\": \"z\", \"dtype\": \"F32\", \"shape\": [1]}, {",
		  "lists 2 outputs, the program has 1");

	/* A program that is none, and one for another rank or number of chips. */
	program = case_program(1, 0, &bytes);
	memset(program, 0, 4);
	case_put(dir, "chip0/kcore.bin", program, bytes);
	fails(context, try_load(dir, NULL), -EINVAL, "chip0/kcore.bin: magic is 0x00000000");
	free(program);
	program = case_program(2, 0, &bytes);
	case_put(dir, "chip0/kcore.bin", program, bytes);
	fails(context, try_load(dir, NULL), -EINVAL, "is for rank 0 of 2, not for rank 0 of 1");
	free(program);

	/* A FIFO does not block, a huge document is not read. */
	snprintf(name, sizeof(name), "%s/model_info.json", dir);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(mkfifo(name, 0600), 0);
	fails(context, try_load(dir, NULL), -EINVAL, "not a regular file");
	assert_int_equal(unlink(name), 0);
	case_put(dir, "model_info.json", "", 0);
	assert_int_equal(truncate(name, 1ll << 34), 0);
	assert_int_equal(try_load(dir, NULL), -EFBIG);
	case_remove(dir);
	txda_context_unref(context);
}

/*
 * Programs with a right checksum and wrong contents: whatever the library takes, the chip runs or
 * refuses.
 */
TEST(test_changed_programs)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group *group;
	unsigned seed = 7, taken = 0, ran = 0;

	context = open_context("mem=64M,cores=1");
	case_write(1, &dir);
	ok(context, txda_group_new(context, NULL, &group));
	options.path = dir;
	options.kv_blocks = 1;
	for (unsigned i = 0; i < 1500; i++) {
		struct txda_step step = TXDA_INIT(struct txda_step);
		struct txda_model *model;
		unsigned char *program;
		uint64_t fence;
		size_t bytes;

		program = case_program(1, 0, &bytes);
		for (unsigned n = 0; n <= i % 3; n++) {
			static const unsigned char spice[] = {0, 1, 2, 0x7f, 0x80, 0xff};

			seed = seed * 1103515245 + 12345;
			program[64 + (seed >> 8) % (bytes - 64)] =
				i & 1 ? spice[seed % 6] : (unsigned char)(seed >> 3);
		}
		case_seal(program, bytes);
		case_put(dir, "chip0/kcore.bin", program, bytes);
		free(program);
		if (txda_model_load(group, &options, &model) < 0)
			continue;
		taken++;
		step.tokens = step.seqs = step.rows = 2;
		if (txda_model_run(model, &step, &fence) >= 0 &&
		    txda_model_sync(model, fence, TXDA_FOREVER) >= 0)
			ran++;
		txda_model_unref(model);
		assert_int_equal(used_bytes(context, 0), 0);
	}
	print_message("of 1500 changed programs %u were loaded, %u ran\n", taken, ran);
	txda_group_unref(group);
	case_remove(dir);
	txda_context_unref(context);
}

TEST_MAIN
