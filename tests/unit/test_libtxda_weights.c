// SPDX-License-Identifier: MIT
/* Weights that pass from one context to the next, on both backends: the second context stands for
 * another process. */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "fake_drm.h"
#include "libtxda_case.h"
#include "libtxda_test.h"

#define WEIGHT_BYTES ((CASE_PARAM + 4095ull) & ~4095ull)

/* Which backend a test runs on. */
static bool drm;

static struct txda_context *context;
static char *path; /* a case dir of the test's model */

static void open_chips(void)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);

	options.backend = drm ? "drm" : "cmodel";
	options.cmodel = "chips=2,mem=64M,cores=1";
	if (txda_context_new(&options, &context) < 0)
		fail_msg("%s", txda_context_error(NULL));
}

static void begin(bool on_drm, unsigned tp)
{
	drm = on_drm;
	case_write(tp, &path);
	if (drm)
		fake_drm_start(2);
}

static void end(void)
{
	txda_context_unref(context);
	if (drm)
		fake_drm_end();
	case_remove(path);
}

static struct txda_device *chip(unsigned index)
{
	return device_of(context, index);
}

static struct txda_model *load(const char *from, unsigned tp, bool keep)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group *group;
	struct txda_model *model;

	group_options.tp = tp;
	options.path = from;
	options.kv_blocks = 2;
	options.keep_weights = keep;
	ok(context, txda_group_new(context, &group_options, &group));
	ok(context, txda_model_load(group, &options, &model));
	txda_group_unref(group);
	return model;
}

static void run(struct txda_model *model, float y[CASE_R][CASE_H])
{
	ok(context, case_run(model, y));
}

/* What one process leaves behind: fds and what tells them. */
struct kept {
	int fd[2];
	struct txda_weights_info info[2];
	float y[CASE_R][CASE_H];
};

static void leave(unsigned tp, struct kept *kept)
{
	struct txda_model *model;
	struct txda_weights *w;

	open_chips();
	model = load(path, tp, true);
	for (unsigned r = 0; r < tp; r++) {
		kept->info[r] = TXDA_INIT(struct txda_weights_info);
		ok(context, txda_model_weights(model, r, &w));
		ok(context, txda_weights_info(w, &kept->info[r]));
		ok(context, txda_weights_export(w, &kept->fd[r]));
		assert_int_equal(kept->info[r].bytes, CASE_PARAM);
		assert_false(kept->info[r].imported);
		txda_weights_unref(w);
	}
	run(model, kept->y);
	assert_int_equal(txda_model_weights(model, tp, &w), -EINVAL);
	txda_model_unref(model);
	txda_context_unref(context);
}

TEST(test_pass_on)
{
	for (unsigned i = 0; i < 4; i++) {
		struct txda_weights_info info = TXDA_INIT(struct txda_weights_info);
		unsigned tp = i / 2 + 1;
		struct txda_weights *w[2], *again;
		struct txda_model *model;
		float y[CASE_R][CASE_H];
		struct txda_model_plan plan;
		struct kept kept;
		uint64_t used;

		begin(i % 2, tp);
		leave(tp, &kept);
		open_chips();
		/* A chip's memory stays taken, a process's does when it is there. */
		assert_int_equal(used_bytes(context, 0), drm ? WEIGHT_BYTES : 0);
		for (unsigned r = 0; r < tp; r++) {
			ok(context, txda_weights_import(chip(r), kept.fd[r], &kept.info[r], &w[r]));
			assert_int_equal(used_bytes(context, r), WEIGHT_BYTES);
			ok(context, txda_weights_check(w[r], path, r));
			close(kept.fd[r]);
		}
		model = load(path, tp, true);
		/* Taken once; inputs and outputs of a chip behind a driver are in host memory. */
		plan = TXDA_INIT(struct txda_model_plan);
		ok(context, txda_model_plan(context, path, &plan));
		assert_int_equal(used_bytes(context, 0), WEIGHT_BYTES + plan.scratch_bytes +
								 (drm ? 0 : plan.io_bytes) +
								 2 * CASE_KV_BYTES);
		ok(context, txda_model_weights(model, 0, &again));
		assert_ptr_equal(again, w[0]);
		ok(context, txda_weights_info(again, &info));
		assert_true(info.imported);
		txda_weights_unref(again);
		used = used_bytes(context, 0);
		run(model, y);
		assert_memory_equal(y, kept.y, sizeof(y));
		for (unsigned r = 0; r < tp; r++)
			txda_weights_unref(w[r]);
		assert_int_equal(used_bytes(context, 0), used);
		/* And on to the next. */
		ok(context, txda_model_weights(model, 0, &again));
		ok(context, txda_weights_export(again, &kept.fd[0]));
		txda_weights_unref(again);
		txda_model_unref(model);
		assert_int_equal(used_bytes(context, 0), drm ? WEIGHT_BYTES : 0);
		close(kept.fd[0]);
		assert_int_equal(used_bytes(context, 0), 0);
		end();
	}
}

/* Another file, another content, another size: the import is not used, and the check says why. */
TEST(test_changed)
{
	struct txda_weights *w, *used;
	struct txda_model *model;
	struct kept kept;
	char *other, *json, *at;

	for (unsigned i = 0; i < 2; i++) {
		begin(i, 1);
		case_write(1, &other);
		leave(1, &kept);
		open_chips();
		ok(context, txda_weights_import(chip(0), kept.fd[0], &kept.info[0], &w));
		close(kept.fd[0]);
		fails(context, txda_weights_check(w, other, 0), -ESTALE,
		      "is another file, or was changed");
		fails(context, txda_weights_check(w, path, 1), -ESTALE,
		      "compiled for 1 chips; rank 1");
		assert_int_equal(txda_weights_check(w, "/nonexistent", 0), -ENOENT);
		json = case_info(1);
		at = strstr(json, "\"param_crc32c\": ");
		assert_non_null(at);
		at += strlen("\"param_crc32c\": ");
		*at = *at == '1' ? '2' : '1';
		case_put(path, "model_info.json", json, strlen(json));
		free(json);
		fails(context, txda_weights_check(w, path, 0), -ESTALE, "has checksum 0x");
		/* The load makes its own copy. */
		model = load(other, 1, false);
		ok(context, txda_model_weights(model, 0, &used));
		assert_ptr_not_equal(used, w);
		txda_weights_unref(used);
		txda_weights_unref(w);
		txda_model_unref(model);
		end();
		case_remove(other);
	}
}

static void refuse(int fd, const struct txda_weights_info *info, int error, const char *words)
{
	struct txda_weights *w = NULL;
	uint64_t used = used_bytes(context, 0);

	assert_int_equal(txda_weights_import(chip(0), fd, info, &w), error);
	assert_says(txda_context_error(context), words);
	assert_null(w);
	assert_int_equal(used_bytes(context, 0), used);
}

static int memfd_of(uint64_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Fds and descriptions from anywhere. */
TEST(test_refused)
{
	const int whole = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	struct txda_weights_info info;
	struct txda_weights *w;
	struct txda_model *model;
	struct kept kept;
	int fd, pipe_fd[2];

	for (unsigned i = 0; i < 2; i++) {
		begin(i, 1);
		leave(1, &kept);
		open_chips();
		info = kept.info[0];
		info.bytes = 0;
		refuse(kept.fd[0], &info, -EINVAL, "weights of 0 bytes");
		info.bytes = UINT64_MAX;
		refuse(kept.fd[0], &info, -EINVAL, "weights of 1844");
		info.bytes = CASE_PARAM + 4096;
		refuse(kept.fd[0], &info, -EINVAL, "bytes; 20480 were requested");
		info = kept.info[0];
		info.memory_id++;
		refuse(kept.fd[0], &info, -ESTALE, "was reset since");
		fd = memfd_of(WEIGHT_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
		refuse(fd, &kept.info[0], drm ? -EXDEV : -EPERM,
		       drm ? "not of chip 0" : "not sealed against writing");
		close(fd);
		fd = memfd_of(WEIGHT_BYTES, F_SEAL_FUTURE_WRITE);
		refuse(fd, &kept.info[0], -EPERM, "not sealed against shrinking");
		close(fd);
		if (!drm) {
			fd = memfd_of(65ull << 20, whole);
			info = kept.info[0];
			info.bytes = 65ull << 20;
			refuse(fd, &info, -ENOMEM, "65.0 MiB");
			close(fd);
		}
		assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
		refuse(pipe_fd[0], &kept.info[0], -EINVAL, "");
		close(pipe_fd[0]);
		close(pipe_fd[1]);
		refuse(-1, &kept.info[0], -EBADF, "");
		/* Twice is once too often. */
		ok(context, txda_weights_import(chip(0), kept.fd[0], &kept.info[0], &w));
		refuse(kept.fd[0], &kept.info[0], -EEXIST, "has these weights already");
		/* One more reference, and one less. */
		assert_ptr_equal(txda_weights_ref(w), w);
		txda_weights_unref(w);
		txda_weights_unref(w);
		close(kept.fd[0]);
		assert_int_equal(used_bytes(context, 0), 0);
		assert_null(txda_weights_unref(NULL));
		/* What was not meant to be kept cannot be had. */
		model = load(path, 1, false);
		ok(context, txda_model_weights(model, 0, &w));
		assert_int_equal(txda_weights_export(w, &fd), -ENOTSUP);
		txda_model_unref(model);
		/* They stay for whoever has them. */
		assert_int_equal(used_bytes(context, 0), WEIGHT_BYTES);
		txda_weights_unref(w);
		end();
	}
}

/* Nobody can write through what is exported. */
TEST(test_frozen)
{
	struct kept kept;
	struct stat st;

	begin(false, 1);
	leave(1, &kept);
	assert_int_equal(fstat(kept.fd[0], &st), 0);
	assert_int_equal(st.st_size, WEIGHT_BYTES);
	assert_int_equal(write(kept.fd[0], "x", 1), -1);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, kept.fd[0], 0),
			 MAP_FAILED);
	assert_int_equal(ftruncate(kept.fd[0], 0), -1);
	assert_int_equal(fcntl(kept.fd[0], F_ADD_SEALS, F_SEAL_SHRINK), -1);
	close(kept.fd[0]);
	context = NULL;
	end();
}

/* A second model checks the weights that the first has loaded, and frozen, unchecked. */
TEST(test_checked_later)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *first, *second;

	begin(false, 1);
	open_chips();
	first = load(path, 1, true);
	options.path = path;
	options.kv_blocks = 2;
	options.verify_weights = true;
	ok(context, txda_model_load(txda_model_group(first), &options, &second));
	txda_model_unref(second);
	txda_model_unref(first);
	end();
}

/* A reset between two processes clears the chip: what is kept says so. Other chips' memory is not
 * this one's. */
TEST(test_chip)
{
	struct txda_weights *w = NULL;
	struct kept kept;

	begin(true, 1);
	leave(1, &kept);
	open_chips();
	fails(context, txda_weights_import(chip(1), kept.fd[0], &kept.info[0], &w), -EXDEV,
	      "not in the memory of chip 1");
	/* What was taken before the reset is of no use to a load either. */
	ok(context, txda_weights_import(chip(0), kept.fd[0], &kept.info[0], &w));
	ok(context, txda_weights_check(w, path, 0));
	fake_drm_reset(0);
	fails(context, txda_weights_check(w, path, 0), -ESTALE, "chip 0 was reset since");
	txda_weights_unref(w);
	txda_context_unref(context);
	open_chips();
	refuse(kept.fd[0], &kept.info[0], -ESTALE, "chip 0 was reset since");
	close(kept.fd[0]);
	end();
}

/* ---- the pages of param.bin itself -------------------------------------------------------------- */

/* Whether this process maps a file of the case dir. */
static bool is_mapped(void)
{
	char line[5000];
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false;

	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, path);
	fclose(f);
	return found;
}

static int load_mapped(struct txda_model **ret)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group *group;
	int r;

	group_options.tp = 1;
	options.path = path;
	options.kv_blocks = 2;
	options.map_weights = true;
	ok(context, txda_group_new(context, &group_options, &group));
	r = txda_model_load(group, &options, ret);
	txda_group_unref(group);
	return r;
}

static void expect_same(struct txda_model *model, const float want[CASE_R][CASE_H])
{
	float y[CASE_R][CASE_H];

	run(model, y);
	assert_memory_equal(y, want, sizeof(y));
}

/*
 * Instead of the C library's. A thread of low priority would let all others wait for the lock of the
 * address space.
 */
static atomic_uint n_priorities;

int setpriority(__priority_which_t which, id_t who, int priority)
{
	atomic_fetch_add(&n_priorities, 1);
	return 0;
}

TEST(test_mapped)
{
	struct txda_model *model, *second;
	struct txda_weights *w, *w2;
	float y[CASE_R][CASE_H];
	char file[4200];
	int fd;

	begin(false, 1);
	snprintf(file, sizeof(file), "%s/chip0/param.bin", path);
	open_chips();
	model = load(path, 1, false);
	run(model, y);
	txda_model_unref(model);
	for (unsigned i = 0; i < 20; i++) {
		ok(context, load_mapped(&model));
		/* Half of the times it is unloaded while its pages are being replaced. */
		if (i % 2)
			expect_same(model, y);
		if (i < 19)
			txda_model_unref(model);
	}
	ok(context, load_mapped(&second));
	ok(context, txda_model_weights(model, 0, &w));
	ok(context, txda_model_weights(second, 0, &w2));
	assert_ptr_equal(w, w2);
	assert_int_equal(txda_weights_export(w, &fd), -ENOTSUP);
	/* In the end the memory is the chip's own, whatever becomes of the file. */
	while (is_mapped())
		usleep(1000);
	assert_int_equal(atomic_load(&n_priorities), 0);
	assert_int_equal(truncate(file, 0), 0);
	expect_same(model, y);
	txda_weights_unref(w);
	txda_weights_unref(w2);
	txda_model_unref(second);
	txda_model_unref(model);
	end();
}

TEST(test_not_mapped)
{
	struct txda_model *model;
	float y[CASE_R][CASE_H];
	char file[4200];
	int fd;

	for (unsigned i = 0; i < 2; i++) {
		begin(!i, 1);
		snprintf(file, sizeof(file), "%s/chip0/param.bin", path);
		open_chips();
		model = load(path, 1, false);
		run(model, y);
		txda_model_unref(model);
		/* Others could change it, so it is copied; a chip of its own has it copied anyway. */
		assert_int_equal(chmod(file, drm ? 0600 : 0620), 0);
		ok(context, load_mapped(&model));
		assert_false(is_mapped());
		expect_same(model, y);
		txda_model_unref(model);
		if (drm)
			end();
	}
	/* What is mapped is always checked. */
	assert_int_equal(chmod(file, 0600), 0);
	fd = open(file, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "wrong", 5, CASE_PARAM - 5), 5);
	close(fd);
	fails(context, load_mapped(&model), -EBADMSG, "checksum is 0x");
	end();
}

TEST_MAIN
