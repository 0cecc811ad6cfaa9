// SPDX-License-Identifier: MIT
/* The DRM backend on a kernel that is a fake: chips that come and go, fail and are reset; forks. */
#include <pthread.h>
#include <sys/wait.h>

#include "drm_rig.h"

static void take_event(enum txda_event_kind kind, unsigned device, const char *text)
{
	struct txda_event event = TXDA_INIT(struct txda_event);

	ok(context, txda_context_event(context, &event));
	assert_int_equal(event.kind, kind);
	assert_int_equal(event.device, device);
	assert_says(event.text, text);
}

static void *pull_chip(void *arg)
{
	usleep(20000);
	fake_drm_unplug(0);
	return NULL;
}

TEST(test_unplug)
{
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_buffer *buffer = NULL;
	struct txda_queue *other;
	pthread_t thread;
	uint64_t fence;
	char data[4096];

	begin(2);
	assert_true(txda_context_event_fd(context) >= 0);
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	ok(context, txda_queue_new(device_of(context, 1), TXDA_QUEUE_COMPUTE, &other));
	fence = submit_wait(1);
	pthread_create(&thread, NULL, pull_chip, NULL);
	assert_int_equal(txda_queue_wait(queue, fence, TXDA_FOREVER), -ENODEV);
	pthread_join(thread, NULL);
	assert_says(txda_context_error(context), "the chip is lost");
	/* Its objects fail, those of the other go on. */
	assert_int_equal(txda_queue_submit(queue, NULL, 0, 0, &fence), -ENODEV);
	assert_int_equal(
		txda_buffer_new(device_of(context, 0), 4096, TXDA_MEMORY_DEVICE, 0, &buffer),
		-ENODEV);
	memset(value, 1, 4096); /* host memory is still there */
	ok(context, txda_device_status(device_of(context, 0), &status));
	assert_true(status.lost);
	ok(context, txda_device_status(device_of(context, 1), &status));
	assert_false(status.lost);
	pass(other);
	take_event(TXDA_EVENT_FAULT, 0, "the chip is lost");
	take_event(TXDA_EVENT_DEVICE_REMOVED, 0, "chip 0: /fake/accel0 is gone");

	/* The one that comes takes its place; what is held of the old one stays lost. */
	fake_drm_plug(0);
	take_event(TXDA_EVENT_DEVICE_ADDED, 0, "chip 0: /fake/accel0 was added");
	assert_int_equal(txda_context_device_count(context), 2);
	assert_int_equal(txda_queue_submit(queue, NULL, 0, 0, &fence), -ENODEV);
	ok(context, txda_buffer_new(device_of(context, 0), 4096, TXDA_MEMORY_DEVICE, 0, &buffer));
	memset(data, 3, sizeof(data));
	ok(context, txda_buffer_write(buffer, 0, data, sizeof(data)));
	buffer = txda_buffer_unref(buffer);

	/* Again and again. */
	fake_drm_unplug(0);
	take_event(TXDA_EVENT_DEVICE_REMOVED, 0, "is gone");
	for (unsigned i = 0; i < 8; i++) {
		fake_drm_plug(0);
		take_event(TXDA_EVENT_DEVICE_ADDED, 0, "was added");
		assert_int_equal(txda_context_device_count(context), 2);
		ok(context,
		   txda_buffer_new(device_of(context, 0), 4096, TXDA_MEMORY_DEVICE, 0, &buffer));
		ok(context, txda_device_status(device_of(context, 0), &status));
		assert_false(status.lost);
		fake_drm_unplug(0);
		assert_int_equal(txda_buffer_write(buffer, 0, data, sizeof(data)), -ENODEV);
		txda_buffer_unref(buffer);
		take_event(TXDA_EVENT_DEVICE_REMOVED, 0, "is gone");
	}
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	txda_queue_unref(other);
	end();
}

/* A function reset: what was on the chip is lost, what comes then works beside it. */
TEST(test_reset)
{
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct txda_model *model;
	struct txda_group *group;
	uint64_t fence;
	char *path;

	case_write(1, &path);
	begin(1);
	ok(context, run_tiny(1, path, wanted));
	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	options.kv_blocks = 2;
	ok(context, txda_model_load(group, &options, &model));
	fake_drm_reset(0);
	step.tokens = step.seqs = 1;
	fails(context, txda_model_run(model, &step, &fence), -EIO, "that another queue caused");
	assert_int_equal(txda_queue_submit(queue, NULL, 0, 0, &fence), -EIO);
	/* The weights of the lost model are not used again. */
	memset(got, 0, sizeof(got));
	ok(context, run_tiny(1, path, got));
	assert_memory_equal(got, wanted, sizeof(got));
	txda_model_unref(model);
	txda_group_unref(group);
	end();
	case_remove(path);
}

static struct txda_buffer *new_buffer(const char *text)
{
	struct txda_buffer *ret;

	ok(context, txda_buffer_new(device_of(context, 0), 65536, TXDA_MEMORY_DEVICE, 0, &ret));
	ok(context, txda_buffer_write(ret, 0, text, strlen(text) + 1));
	return ret;
}

static struct txda_model *load(struct txda_group *group, const struct txda_model_options *options)
{
	struct txda_model *ret;

	ok(context, txda_model_load(group, options, &ret));
	return ret;
}

/* What is of before a reset has addresses that are somebody else's after it. */
TEST(test_reset_mixed)
{
	static const char *const dummies[] = {"x", NULL};
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model *old_model, *model, *shared;
	struct txda_queue *old_queue;
	struct txda_buffer *old, *buffer[4];
	struct txda_group *group;
	uint64_t fence;
	char text[8];
	char *path;

	case_write(1, &path);
	begin(1);
	old_queue = queue;
	old = new_buffer("before");
	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	options.kv_blocks = 2;
	options.dummies = dummies;
	old_model = load(group, &options);
	fake_drm_reset(0);
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COPY, &queue));
	for (unsigned i = 0; i < ARRAY_SIZE(buffer); i++)
		buffer[i] = new_buffer("after");
	model = load(group, &options);

	fails(context, txda_queue_copy(queue, old, 0, buffer[0], 0, 8, &fence), -ENODEV,
	      "chip 0 was reset: what was made before");
	fails(context, txda_queue_copy(queue, buffer[0], 0, old, 0, 8, &fence), -ENODEV,
	      "chip 0 was reset");
	fails(context, txda_queue_copy(old_queue, buffer[0], 0, buffer[1], 0, 8, &fence), -ENODEV,
	      "chip 0 was reset");
	assert_int_equal(txda_queue_copy(old_queue, old, 0, old, 8, 8, &fence), -EIO);
	ok(context, txda_queue_copy(queue, buffer[0], 0, buffer[1], 0, 8, &fence));
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	fails(context, txda_model_bind(model, 0, "x", old, 0), -ENODEV, "chip 0 was reset");
	fails(context, txda_model_bind(old_model, 0, "x", buffer[0], 0), -ENODEV,
	      "chip 0 was reset");
	ok(context, txda_model_bind(model, 0, "x", buffer[0], 0));
	options.share_kv = old_model;
	fails(context, txda_model_load(group, &options, &shared), -ENODEV, "chip 0 was reset");
	options.share_kv = model;
	txda_model_unref(load(group, &options));
	for (unsigned i = 0; i < ARRAY_SIZE(buffer); i++) {
		ok(context, txda_buffer_read(buffer[i], 0, text, 6));
		assert_string_equal(text, "after");
		txda_buffer_unref(buffer[i]);
	}
	txda_model_unref(old_model);
	txda_model_unref(model);
	txda_group_unref(group);
	txda_buffer_unref(old);
	txda_queue_unref(old_queue);
	end();
	case_remove(path);
}

/* A reset at any moment of a load: it fails, or the model is of before or of after, not of both. */
TEST(test_reset_loading)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	unsigned failed = 0, lost = 0, good = 0;

	for (unsigned tp = 1; tp <= 2; tp++) {
		bool hit = true;
		char *path;

		case_write(tp, &path);
		fake_drm_start(2);
		context = open_fake();
		ok(context, run_tiny(tp, path, wanted));
		txda_context_unref(context);
		fake_drm_end();
		options.path = path;
		options.kv_blocks = 2;
		group_options.tp = tp;
		for (unsigned at = 1; hit; at++) {
			struct txda_group *group;
			struct txda_model *model = NULL;
			int r;

			fake_drm_start(2);
			context = open_fake();
			ok(context, txda_group_new(context, &group_options, &group));
			fake_drm.reset_at = at;
			r = txda_model_load(group, &options, &model);
			hit = !fake_drm.reset_at;
			fake_drm.reset_at = 0;
			if (r < 0) {
				failed++;
				assert_true(r == -EIO || r == -ENODEV);
			} else if ((r = case_run(model, got)) < 0) {
				lost++;
				assert_says(txda_context_error(context),
					    "lost in a reset of the chip");
			} else {
				good++;
				assert_memory_equal(got, wanted, sizeof(got));
			}
			txda_model_unref(model);
			/* The next one works in any case. */
			ok(context, run_tiny(tp, path, got));
			assert_memory_equal(got, wanted, sizeof(got));
			txda_group_unref(group);
			txda_context_unref(context);
			fake_drm_end();
		}
		case_remove(path);
	}
	assert_true(failed > 20 && lost && good);
}

/* What is idle is not used: the queue would fault, the model would be lost. */
TEST(test_idle)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_step step = TXDA_INIT(struct txda_step);
	struct txda_buffer *idle, *other;
	struct txda_model *model;
	struct txda_group *group;
	uint64_t fence;
	char *path;

	case_write(1, &path);
	begin(1);
	idle = new_buffer("idle");
	other = new_buffer("other");
	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	options.kv_blocks = 2;
	model = load(group, &options);
	ok(context, txda_model_bind(model, 0, "x", idle, 0));
	step.tokens = step.seqs = 1;
	for (unsigned advice = TXDA_ADVICE_COLD; advice <= TXDA_ADVICE_DONTNEED; advice++) {
		ok(context, txda_buffer_advise(idle, advice, NULL));
		fails(context, txda_queue_copy(queue, idle, 0, other, 0, 8, &fence), -EBUSY,
		      "the buffer is idle");
		assert_int_equal(txda_queue_copy(queue, other, 0, idle, 0, 8, &fence), -EBUSY);
		fails(context, txda_model_run(model, &step, &fence), -EBUSY,
		      "tensor \"x\" of rank 0 is in an idle buffer");
		assert_int_equal(txda_model_bind(model, 0, "x", idle, 0), -EBUSY);
		ok(context, txda_buffer_advise(idle, TXDA_ADVICE_WILLNEED, NULL));
		ok(context, txda_queue_copy(queue, idle, 0, other, 0, 8, &fence));
		ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
		ok(context, txda_model_run(model, &step, &fence));
		ok(context, txda_model_sync(model, fence, TXDA_FOREVER));
	}
	txda_model_unref(model);
	txda_group_unref(group);
	txda_buffer_unref(other);
	txda_buffer_unref(idle);
	end();
	case_remove(path);
}

/* Chips that came or went before anybody listened; and those that are not for this process. */
TEST(test_catch_up)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_event event = TXDA_INIT(struct txda_event);

	fake_drm_start(2);
	context = open_fake();
	fake_drm_unplug(1);
	fake_drm_plug(2);
	take_event(TXDA_EVENT_DEVICE_REMOVED, 1, "/fake/accel1 is gone");
	take_event(TXDA_EVENT_DEVICE_ADDED, 2, "/fake/accel2 was added");
	txda_context_unref(context);
	fake_drm_end();

	fake_drm_start(1);
	options.backend = "drm";
	options.visible_devices = "0";
	ok(NULL, txda_context_new(&options, &context));
	fake_drm_plug(1);
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	assert_int_equal(txda_context_device_count(context), 1);
	txda_context_unref(context);
	fake_drm_end();

	fake_drm_start(1);
	options.visible_devices = "0000:01:00.0";
	ok(NULL, txda_context_new(&options, &context));
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	fake_drm_unplug(0);
	fake_drm_plug(1);
	fake_drm_plug(0);
	take_event(TXDA_EVENT_DEVICE_REMOVED, 0, "is gone");
	take_event(TXDA_EVENT_DEVICE_ADDED, 0, "/fake/accel0 was added");
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	txda_context_unref(context);
	fake_drm_end();
}

TEST(test_health)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda__node_event source = {.kind = TXDA_EVENT_ECC, .text = "2 corrected"};
	struct txda_pkt bad = {.op = 99, .bytes = sizeof(bad)};
	uint64_t fence;
	int fd;

	begin(2);
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	strcpy(source.node.bus, "0000:02:00.0");
	fake_drm_tell(&source);
	take_event(TXDA_EVENT_ECC, 1, "chip 1: 2 corrected");
	strcpy(source.node.bus, "0000:09:00.0"); /* not ours */
	fake_drm_tell(&source);
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);

	/* A fault of somebody else's, then one of ours that nobody waits for. */
	strcpy(source.node.bus, "0000:01:00.0");
	source.kind = TXDA_EVENT_FAULT;
	strcpy(source.text, "other 77: page fault");
	source.pid = 77;
	fake_drm_tell(&source);
	take_event(TXDA_EVENT_FAULT, 0, "chip 0: other 77: page fault");
	fd = txda_queue_fd(queue);
	assert_true(readable(fd, 0));
	ok(context, txda_queue_submit(queue, &bad, sizeof(bad), 0, &fence));
	assert_true(readable(fd, -1));
	source.pid = getpid();
	for (unsigned i = 1; i < 20; i++) {
		source.queue_id = i;
		fake_drm_tell(&source);
	}
	for (unsigned tries = 0;; tries++) {
		ok(context, txda_context_event(context, &event));
		if (strstr(event.text, "bad packet"))
			break;
		assert_true(tries < 19);
	}
	assert_int_equal(event.kind, TXDA_EVENT_FAULT);
	end();
}

/* A child makes no call to the kernel for what it inherited: the node is the parent's. */
TEST(test_fork)
{
	struct txda_buffer *buffer = NULL;
	unsigned long calls;
	uint64_t fence;
	int status;
	pid_t pid;

	begin(1);
	ok(context, txda_buffer_new(device_of(context, 0), 65536, TXDA_MEMORY_DEVICE, 0, &buffer));
	fence = submit_wait(1);
	calls = fake_drm_calls(0);
	pid = fork();
	if (!pid) {
		alarm(60);
		if (txda_queue_wait(queue, fence, TXDA_FOREVER) != -EPERM ||
		    txda_queue_submit(queue, NULL, 0, 0, &fence) != -EPERM ||
		    txda_buffer_advise(buffer, TXDA_ADVICE_COLD, NULL) != -EPERM)
			_exit(1);
		txda_buffer_unref(buffer);
		close_rig();
		_exit(fake_drm_calls(0) == calls ? 0 : 2);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(txda_queue_wait(queue, fence, 0), -ETIMEDOUT);
	release(1);
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	txda_buffer_unref(buffer);
	end();
}

/* What is counted does not fall while a chip is down or lost: that would look like new errors. */
TEST(test_counters)
{
	static const char *const names[] = {"state", "npu_busy_time_us", "ecc_corrected",
					    "ecc_uncorrected"};
	static const char *const values[] = {"up\n", "3700\n", "17\n", "2\n"};
	char directory[] = "/tmp/test_counters-XXXXXX", path[100];
	struct txda_device_status status;

	assert_non_null(mkdtemp(directory));
	for (unsigned i = 0; i < 4; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		file = fopen(path, "w");
		assert_non_null(file);
		fputs(values[i], file);
		fclose(file);
	}
	fake_drm_start(1);
	fake_drm.device = directory;
	open_rig();
	for (unsigned phase = 0; phase < 3; phase++) {
		status = TXDA_INIT(struct txda_device_status);
		ok(context, txda_device_status(device_of(context, 0), &status));
		assert_int_equal(status.busy_ns, 3700000);
		assert_int_equal(status.ecc_corrected, 17);
		assert_int_equal(status.ecc_uncorrected, 2);
		assert_int_equal(status.faults, 3);
		assert_int_equal(status.lost, phase == 2);
		/* Down, then gone. */
		for (unsigned i = 1; i < 4 && !phase; i++) {
			snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
			unlink(path);
		}
		snprintf(path, sizeof(path), "%s/%s", directory, names[0]);
		unlink(path);
		if (phase == 1)
			fake_drm_unplug(0);
	}
	rmdir(directory);
	end();
}

TEST_MAIN
