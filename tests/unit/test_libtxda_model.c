// SPDX-License-Identifier: MIT
/* Models: loading, tensors, launches, sharing of weights and KV caches, faults. */
#include <poll.h>

#include "model_rig.h"

TEST(test_run)
{
	for (unsigned tp = 1; tp <= 2; tp++) {
		struct txda_model_info info = TXDA_INIT(struct txda_model_info);
		struct txda_tensor_info tensor = TXDA_INIT(struct txda_tensor_info);
		struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
		struct txda_model *model;
		unsigned index;

		begin("chips=2,mem=64M,cores=2", tp);
		ok(context, txda_model_plan(context, path, &plan));
		ok(NULL, txda_model_plan(NULL, path, &plan));
		assert_int_equal(plan.tp, tp);
		assert_int_equal(plan.weight_bytes + plan.scratch_bytes + plan.io_bytes, FIXED);
		assert_int_equal(plan.kv_block_bytes, CASE_KV_BYTES);
		assert_int_equal(plan.kv_blocks_at_limit,
				 16); /* 4 sequences of 128 tokens, 32 a block */

		model = load(group, 0);
		ok(context, txda_model_info(model, &info));
		assert_string_equal(info.name, "tiny");
		assert_int_equal(info.tp, tp);
		assert_int_equal(info.max_tokens, CASE_T);
		assert_int_equal(info.kv_blocks, 16);
		assert_int_equal(info.kv_block_bytes, CASE_KV_BYTES);
		assert_int_equal(used_bytes(context, 0), FIXED + 16 * CASE_KV_BYTES);

		assert_int_equal(txda_model_tensor_count(model), 3);
		ok(context, txda_model_find(model, "y", &index));
		ok(context, txda_model_tensor(model, index, &tensor));
		assert_string_equal(tensor.name, "y");
		assert_string_equal(tensor.shape, "[R, 64]");
		assert_int_equal(tensor.kind, TXDA_TENSOR_OUTPUT);
		assert_int_equal(tensor.dtype, TXDA_F32);
		assert_int_equal(tensor.dim[0], CASE_R);
		assert_int_equal(tensor.bytes, CASE_R * CASE_H * 4);
		fails(context, txda_model_find(model, "z", &index), -ENOENT,
		      "no input or output \"z\"");
		assert_int_equal(txda_model_tensor(model, 3, &tensor), -ENOENT);

		for (unsigned t = 1; t <= CASE_T; t++)
			run_and_check(model, t, t % CASE_R, (float)tp);
		group = txda_group_unref(group);
		model = txda_model_unref(model);
		assert_null(model);
		assert_int_equal(used_bytes(context, 0), 0);
		end(state);
	}
}

TEST_WITH(test_programs, NULL, end)
{
	char name[16], small[3];

	begin("mem=64M,cores=1", 1);
	assert_int_equal(txda_model_program(context, path, 0, name, sizeof(name)), 4);
	assert_string_equal(name, "step");
	assert_int_equal(txda_model_program(context, path, 0, small, sizeof(small)), 4);
	assert_string_equal(small, "st");
	assert_int_equal(txda_model_program(context, path, 0, NULL, 0), 4);
	fails(context, txda_model_program(context, path, 1, name, sizeof(name)), -ENOENT,
	      "program 1 does not exist; it has 1");
	assert_int_equal(txda_model_program(context, "/nowhere", 0, name, sizeof(name)), -ENOENT);
}

TEST_WITH(test_limits, NULL, end)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct txda_model *model;
	char big[8192];
	uint64_t fence = 77;

	begin("mem=64M,cores=1", 1);
	model = load(group, 4);
	step.tokens = CASE_T + 1;
	step.seqs = 1;
	fails(context, txda_model_run(model, &step, &fence), -E2BIG,
	      "a step of 17 tokens; model tiny takes 16");
	step.tokens = 0;
	assert_int_equal(txda_model_run(model, &step, &fence), -EINVAL);
	step.tokens = 1;
	step.rows = CASE_R + 1;
	assert_int_equal(txda_model_run(model, &step, &fence), -E2BIG);
	step.rows = 0;
	step.flags = 0x80;
	assert_int_equal(txda_model_run(model, &step, &fence), -EINVAL);
	assert_int_equal(fence, 77);
	fails(context, txda_model_set_input(model, "x", big, sizeof(big)), -E2BIG,
	      "\"x\" [T, 64] has 4096 bytes at most; 8192 are given");
	assert_int_equal(txda_model_set_input(model, "y", big, 4), -EINVAL);
	assert_int_equal(txda_model_get_output(model, "x", big, 4), -EINVAL);
	txda_model_unref(model);
}

TEST_WITH(test_kv, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model_info info = TXDA_INIT(struct txda_model_info);
	struct txda_model *model, *second, *third = NULL;
	struct txda_buffer *hog;

	begin("mem=4M,cores=1", 1);
	options.path = path;
	options.max_kv_blocks = 5;
	ok(context, txda_model_load(group, &options, &model));
	ok(context, txda_model_info(model, &info));
	assert_int_equal(info.kv_blocks, 5);
	txda_model_unref(model);

	/* What is left, less what is to be left. */
	ok(context,
	   txda_buffer_new(txda_group_device(group, 0), (4 << 20) - FIXED - 9 * CASE_KV_BYTES,
			   TXDA_MEMORY_DEVICE, 0, &hog));
	options.max_kv_blocks = 0;
	options.kv_reserve_bytes = 2 * CASE_KV_BYTES + 1;
	ok(context, txda_model_load(group, &options, &model));
	ok(context, txda_model_info(model, &info));
	assert_int_equal(info.kv_blocks, 6);
	txda_model_unref(model);
	options.kv_reserve_bytes = 9 * CASE_KV_BYTES;
	fails(context, txda_model_load(group, &options, &model), -ENOMEM, "wanted for a KV block");
	options.kv_reserve_bytes = 0;
	options.kv_blocks = 10;
	fails(context, txda_model_load(group, &options, &model), -ENOMEM,
	      "80.0 KiB (81920 bytes) requested, 72.0 KiB (73728 bytes) of 4.00 MiB free");
	options.kv_blocks = 65;
	assert_int_equal(txda_model_load(group, &options, &model), -E2BIG);
	txda_buffer_unref(hog);
	assert_int_equal(used_bytes(context, 0), 0);

	/* Two models, one cache, which lives as long as either. */
	model = load(group, 7);
	options.kv_blocks = 0;
	options.share_kv = model;
	ok(context, txda_model_load(group, &options, &second));
	ok(context, txda_model_info(second, &info));
	assert_int_equal(info.kv_blocks, 7);
	assert_int_equal(used_bytes(context, 0), 2 * FIXED - PAGES(CASE_PARAM) + 7 * CASE_KV_BYTES);
	txda_model_unref(model);
	assert_int_equal(used_bytes(context, 0), FIXED + 7 * CASE_KV_BYTES);
	run_and_check(second, 3, 2, 1);
	options.share_kv = second;
	options.precise = true;
	fails(context, txda_model_load(group, &options, &third), -EINVAL, "another geometry");
	txda_model_unref(second);

	options.share_kv = NULL;
	options.kv_blocks = 3;
	ok(context, txda_model_load(group, &options, &third));
	ok(context, txda_model_info(third, &info));
	assert_int_equal(info.kv_block_bytes, 2 * CASE_KV_BYTES);
	assert_int_equal(used_bytes(context, 0), FIXED + PAGES(CASE_SCRATCH) + 6 * CASE_KV_BYTES);
	run_and_check(third, 5, 5, 1);
	txda_model_unref(third);
	assert_int_equal(used_bytes(context, 0), 0);
}

TEST_WITH(test_weights, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model[4];
	struct txda_group *b;
	const uint64_t own = FIXED - PAGES(CASE_PARAM) + CASE_KV_BYTES;
	char name[512];
	FILE *file;

	begin("chips=2,mem=64M,cores=1", 1);
	b = new_group(1, 1);
	model[0] = load(group, 1);
	model[1] = load(group, 1);
	assert_int_equal(used_bytes(context, 0), PAGES(CASE_PARAM) + 2 * own);
	model[2] = load(b, 1);
	assert_int_equal(used_bytes(context, 1), PAGES(CASE_PARAM) + own);
	txda_model_unref(model[0]);
	assert_int_equal(used_bytes(context, 0), PAGES(CASE_PARAM) + own);
	run_and_check(model[1], 2, 2, 1);
	/* A file that changed is another one, though the name is the same. */
	snprintf(name, sizeof(name), "%s/chip0/param.bin", path);
	file = fopen(name, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, 8000, SEEK_SET), 0);
	assert_int_equal(fputc('!', file), '!');
	fclose(file);
	model[3] = load(group, 1);
	assert_int_equal(used_bytes(context, 0), 2 * PAGES(CASE_PARAM) + 2 * own);
	for (unsigned i = 1; i < 4; i++)
		txda_model_unref(model[i]);
	assert_int_equal(used_bytes(context, 0), 0);

	/* Asked to look, it sees that the file is not what the case dir says. */
	options.path = path;
	options.verify_weights = true;
	fails(context, txda_model_load(group, &options, &model[0]), -EBADMSG,
	      "chip0/param.bin: checksum is 0x");
	assert_int_equal(used_bytes(context, 0), 0);
	model[0] = load(group, 1);
	assert_int_equal(txda_model_load(group, &options, &model[1]),
			 -EBADMSG); /* also when it is there already */
	txda_model_unref(model[0]);
	assert_int_equal(truncate(name, CASE_PARAM - 1), 0);
	fails(context, txda_model_load(group, &options, &model[0]), -EINVAL,
	      "chip0/param.bin has 12543 bytes; model_info.json says 12544");
	txda_group_unref(b);
}

/* What a plan for the same options says is what a load takes, to the page. */
TEST_WITH(test_plan_load, NULL, end)
{
	static const char *const dummies[] = {"x", NULL};
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	struct txda_model *model;

	begin("mem=64M,cores=1", 1);
	fails(context, txda_model_plan_load(context, &options, &plan), -EINVAL, "path is NULL");
	options.path = path;
	options.kv_blocks = 3;
	for (unsigned i = 0; i < 8; i++) {
		options.precise = i & 1;
		options.dummies = i & 2 ? dummies : NULL;
		options.program = i & 4 ? "step" : NULL;
		ok(context, txda_model_plan_load(context, &options, &plan));
		ok(context, txda_model_load(group, &options, &model));
		assert_int_equal(used_bytes(context, 0), plan.weight_bytes + plan.scratch_bytes +
								 plan.io_bytes +
								 PAGES(3 * plan.kv_block_bytes));
		txda_model_unref(model);
	}
	options.program = "steps";
	fails(context, txda_model_plan_load(context, &options, &plan), -ENOENT,
	      "no program \"steps\"");
}

TEST_WITH(test_bind, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_step step = TXDA_INIT(struct txda_step);
	static const char *const dummies[] = {"x", NULL}, *const unknown[] = {"z", NULL};
	struct txda_model *first, *second;
	struct txda_buffer *buffer, *elsewhere, *imported;
	uint64_t offset, fence;
	void *a, *b;
	int fd;

	begin("chips=2,mem=64M,cores=1", 1);
	first = load(group, 1);
	options.path = path;
	options.kv_blocks = 1;
	options.dummies = unknown;
	fails(context, txda_model_load(group, &options, &second), -ENOENT, "dummy \"z\"");
	options.dummies = dummies;
	ok(context, txda_model_load(group, &options, &second));
	step.tokens = step.seqs = 1;
	fails(context, txda_model_run(second, &step, &fence), -ENXIO,
	      "tensor \"x\" of rank 0 is not bound yet");
	assert_int_equal(txda_model_tensor_ptr(second, 0, "x", &a), -ENXIO);
	ok(context, txda_model_tensor_buffer(first, 0, "x", &buffer, &offset));
	ok(context, txda_model_bind(second, 0, "x", buffer, offset));
	ok(context, txda_model_tensor_ptr(first, 0, "x", &a));
	ok(context, txda_model_tensor_ptr(second, 0, "x", &b));
	assert_ptr_equal(a, b);
	txda_model_unref(first); /* the binding keeps the memory */
	run_and_check(second, 7, 3, 1);

	assert_int_equal(txda_model_bind(second, 1, "x", buffer, 0), -EINVAL);
	assert_int_equal(txda_model_bind(second, 0, "w", buffer, 0), -ENOENT);
	assert_int_equal(txda_model_bind(second, 0, "x", buffer, 8), -ERANGE);
	assert_int_equal(txda_model_bind(second, 0, "x", buffer, 1 << 20), -ERANGE);
	ok(context,
	   txda_buffer_new(device_of(context, 1), 65536, TXDA_MEMORY_DEVICE, 0, &elsewhere));
	assert_int_equal(txda_model_bind(second, 0, "x", elsewhere, 0), -EXDEV);
	txda_buffer_unref(elsewhere);
	ok(context, txda_buffer_new(txda_group_device(group, 0), 65536, TXDA_MEMORY_DEVICE,
				    TXDA_BUFFER_READ_ONLY, &elsewhere));
	assert_int_equal(txda_model_bind(second, 0, "y", elsewhere, 0), -EACCES);
	ok(context, txda_model_bind(second, 0, "x", elsewhere, 64));
	run_and_check(second, 2, 3, 1);
	/* An input that others write. */
	ok(context, txda_buffer_export(elsewhere, &fd));
	ok(context,
	   txda_buffer_import(txda_group_device(group, 0), fd, TXDA_BUFFER_READ_ONLY, &imported));
	close(fd);
	ok(context, txda_model_bind(second, 0, "x", imported, 64));
	assert_int_equal(txda_model_set_input(second, "x", &offset, sizeof(offset)), -EACCES);
	ok(context, txda_model_run(second, &step, &fence));
	ok(context, txda_model_sync(second, fence, TXDA_FOREVER));
	txda_buffer_unref(imported);
	txda_buffer_unref(elsewhere);
	txda_model_unref(second);
	assert_int_equal(used_bytes(context, 0), 0);
}

/* A fault of one model leaves others alone, and a new load of it works. */
TEST(test_fault)
{
	for (unsigned tp = 1; tp <= 2; tp++) {
		struct txda_event event = TXDA_INIT(struct txda_event);
		struct txda_step step = TXDA_INIT(struct txda_step);
		struct txda_model_options options = TXDA_INIT(struct txda_model_options);
		struct txda_model *bad, *good, *same, *heir;
		struct txda_group *b;
		const int32_t row = 1000;
		char text[8];
		uint64_t fence;

		begin("chips=4,mem=64M,cores=2", tp);
		b = new_group(2, tp);
		bad = load(group, 1);
		same = load(group, 1);
		good = load(b, 1);
		ok(context, txda_model_set_input(bad, "rows", &row, 4));
		step.tokens = step.seqs = step.rows = 1;
		ok(context, txda_model_run(bad, &step, &fence));
		fails(context, txda_model_sync(bad, fence, TXDA_FOREVER), -EIO, "model tiny");
		assert_says(txda_context_error(context), "the.rows");
		assert_says(txda_context_error(context), "\"rows\"");
		assert_says(txda_context_error(context), "1000");
		fails(context, txda_model_run(bad, &step, &fence), -EIO, "the.rows");
		ok(context, txda_context_event(context, &event));
		assert_int_equal(event.kind, TXDA_EVENT_FAULT);
		assert_says(event.text, "model tiny");
		run_and_check(good, 4, 4, (float)tp);
		run_and_check(same, 4, 4, (float)tp);
		/* Its KV cache can be taken over. */
		ok(context, txda_buffer_write(bad->rank[tp - 1].kv, 8, "kept", 5));
		options.path = path;
		options.share_kv = bad;
		ok(context, txda_model_load(group, &options, &heir));
		txda_model_unref(bad);
		ok(context, txda_buffer_read(heir->rank[tp - 1].kv, 8, text, 5));
		assert_string_equal(text, "kept");
		run_and_check(heir, 4, 4, (float)tp);
		txda_model_unref(heir);
		bad = load(group, 1);
		run_and_check(bad, 4, 4, (float)tp);
		txda_model_unref(bad);
		txda_model_unref(same);
		txda_model_unref(good);
		txda_group_unref(b);
		end(state);
	}
}

TEST_WITH(test_timing, NULL, end)
{
	struct txda_op_timing timing[2] = {{0, 0}, {0, 0}};
	struct txda_step step = TXDA_INIT(struct txda_step);
	const char *opcode, *label;
	struct pollfd poll_fd = {.events = POLLIN};
	struct txda_model *model;
	uint64_t fence, again, count;

	begin("mem=64M,cores=1", 1);
	model = load(group, 1);
	assert_int_equal(txda_model_op_count(model), 2);
	ok(context, txda_model_op(model, 1, &opcode, &label));
	assert_string_equal(opcode, "GATHER_ROWS");
	assert_string_equal(label, "the.rows");
	assert_int_equal(txda_model_op(model, 2, &opcode, &label), -ENOENT);
	step.tokens = step.seqs = step.rows = 1;
	step.timing = timing;
	ok(context, txda_model_run(model, &step, &fence));
	/* A fence that is none does not lose the timeline. */
	fails(context, txda_model_sync(model, fence + 1, TXDA_FOREVER), -EINVAL,
	      "was not given out");
	assert_int_equal(txda_model_run(model, &step, &again), -EBUSY);
	ok(context, txda_model_sync(model, fence, TXDA_FOREVER));
	assert_true(timing[0].start_ns > 0 && timing[0].start_ns <= timing[0].end_ns);
	assert_true(timing[0].end_ns <= timing[1].start_ns &&
		    timing[1].start_ns <= timing[1].end_ns);
	ok(context, txda_model_run(model, &step, &fence));
	ok(context, txda_model_sync(model, fence, TXDA_FOREVER));

	poll_fd.fd = txda_model_fd(model);
	assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
	step.timing = NULL;
	for (unsigned i = 0; i < 20; i++) {
		ok(context, txda_model_run(model, &step, &fence));
		assert_int_equal(poll(&poll_fd, 1, 10000), 1);
		assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
		ok(context, txda_model_sync(model, fence, 0));
	}
	txda_model_unref(model);
}

/* As many launches as go, and models that span chips up to the number of group slots. */
TEST_WITH(test_many, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct txda_model *model[20];
	unsigned n = 0;
	uint64_t fence = 0;
	int r;

	begin("chips=2,mem=256M,cores=2", 2);
	options.path = path;
	options.kv_blocks = 1;
	while (n < 20 && (r = txda_model_load(group, &options, &model[n])) >= 0)
		n++;
	assert_int_equal(n, 16);
	assert_int_equal(r, -EBUSY);
	step.tokens = step.seqs = 1;
	for (unsigned i = 0; i < 3000; i++) {
		while ((r = txda_model_run(model[i % 2], &step, &fence)) == -EAGAIN)
			usleep(100);
		ok(context, r);
	}
	for (unsigned i = 0; i < 2; i++)
		ok(context, txda_model_sync(model[i], 1500, TXDA_FOREVER));
	txda_model_unref(model[--n]);
	ok(context, txda_model_load(group, &options, &model[n++]));
	while (n)
		txda_model_unref(model[--n]);
}

/* A program that each chip runs for itself takes no group slot; all ranks have one for as many chips. */
TEST_WITH(test_replicated, NULL, end)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model[16], *alone;
	size_t bytes;
	char *replicated;
	void *program = case_program(1, 0, &bytes);

	begin("chips=2,mem=256M,cores=2", 2);
	case_write(2, &replicated);
	options.path = replicated;
	options.kv_blocks = 1;
	case_put(replicated, "chip1/kcore.bin", program, bytes);
	fails(context, txda_model_load(group, &options, &alone), -EINVAL,
	      "chip1/kcore.bin is for 1 chips together, chip0/kcore.bin for 2");
	case_put(replicated, "chip0/kcore.bin", program, bytes);
	free(program);
	for (unsigned i = 0; i < 16; i++)
		model[i] = load(group, 1);
	ok(context, txda_model_load(group, &options, &alone));
	run_and_check(alone, 5, 2, 1);
	run_and_check(model[15], 5, 2, 2);
	txda_model_unref(alone);
	for (unsigned i = 0; i < 16; i++)
		txda_model_unref(model[i]);
	case_remove(replicated);
}

TEST_MAIN
