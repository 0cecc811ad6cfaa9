// SPDX-License-Identifier: MIT
/* The DRM backend on a kernel that is a fake: what it asks for, and what it makes of the answers. */
#include "clock.h"
#include "drm_rig.h"

/* ---- chips ----------------------------------------------------------------------------------- */

TEST(test_chips)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);

	fake_drm_start(3);
	context = open_fake();
	assert_string_equal(txda_context_backend(context), "drm");
	assert_int_equal(txda_context_device_count(context), 3);
	ok(context, txda_device_info(device_of(context, 1), &info));
	assert_string_equal(info.name, "TX8 (fake)");
	assert_string_equal(info.serial, "FAKE-SERIAL-001!");
	assert_string_equal(info.bus, "0000:02:00.0");
	assert_string_equal(info.node, "/fake/accel1");
	assert_string_equal(info.driver, "1.0.7");
	assert_string_equal(info.firmware, "1.2.3");
	assert_int_equal(info.caps, TXDA_CAP_CMODEL | TXDA_CAP_PRECISE | TXDA_CAP_HOST_VISIBLE);
	assert_int_equal(info.mem_bytes, FAKE_CHIP_BYTES);
	assert_int_equal(info.physical, 1);
	ok(context, txda_device_status(device_of(context, 1), &status));
	assert_int_equal(status.mem_used_bytes, 0);
	assert_int_equal(status.faults, 3);
	assert_false(status.lost);
	assert_int_equal(status.temp_mc, INT32_MIN);
	assert_int_equal(txda_device_distance(device_of(context, 0), device_of(context, 2)), 1);
	/* Cards of their own: chip 0 has a port that leads to the card of chip 1, when it is up. */
	fake_drm.no_links = true;
	txda_context_unref(context);
	context = open_fake();
	assert_int_equal(txda_device_distance(device_of(context, 0), device_of(context, 1)), 2);
	fake_drm.no_links = false;
	assert_int_equal(txda_device_distance(device_of(context, 0), device_of(context, 1)), 1);
	assert_int_equal(txda_device_distance(device_of(context, 0), device_of(context, 2)), 2);
	txda_context_unref(context);
	fake_drm_end();
}

TEST(test_open)
{
	context = NULL;
	fake_drm_start(2);
	fake_drm.version_major = DRM_TXDA_MAJOR + 1;
	fails(NULL, try_open(&context), -EPROTO, "driver txda 2.0; libtxda");
	fake_drm.version_major = DRM_TXDA_MAJOR;
	fake_drm.open_error = -EACCES;
	fails(NULL, try_open(&context), -EACCES, "group render");
	assert_null(context);
	fake_drm.open_error = 0;
	/* One chip that does not answer is left out. */
	fake_drm.fail_request = DRM_IOCTL_TXDA_DEV_QUERY;
	fake_drm.fail_error = -EIO;
	fake_drm.fail_after = 1;
	context = open_fake();
	assert_int_equal(txda_context_device_count(context), 1);
	txda_context_unref(context);
	/* A kernel that knows less: what it does not say is zero, or missed. */
	fake_drm.known_bytes = 64;
	context = open_fake();
	assert_int_equal(txda_context_device_count(context), 2);
	txda_context_unref(context);
	fake_drm.known_bytes = 48;
	fails(NULL, try_open(&context), -EPROTO, "instruction set 0.0");
	fake_drm_end();
	assert_int_equal(setenv("TXDA_BACKEND", "auto", 1), 0);
	fake_drm_start(1);
	ok(NULL, txda_context_new(NULL, &context));
	assert_string_equal(txda_context_backend(context), "drm");
	txda_context_unref(context);
	fake_drm_end();
	fake_drm_start(0);
	ok(NULL, txda_context_new(NULL, &context));
	assert_string_equal(txda_context_backend(context), "cmodel");
	txda_context_unref(context);
	assert_int_equal(try_open(&context), -ENODEV);
	fake_drm_end();
	unsetenv("TXDA_BACKEND");
}

/* ---- queues ---------------------------------------------------------------------------------- */

TEST(test_fences)
{
	unsigned long waits, eventfds;
	uint64_t first, second, third;
	int fd;

	begin(1);
	first = submit_wait(1);
	second = submit_wait(2);
	assert_int_equal(first, 1);
	assert_int_equal(second, 2);
	assert_int_equal(txda_queue_wait(queue, first, 0), -ETIMEDOUT);
	fails(context, txda_queue_wait(queue, first, clock_ns() + 1000000), -ETIMEDOUT,
	      "fence 1 has not passed");
	/* Nobody has asked for an fd: no eventfd is armed. */
	eventfds = fake_drm_calls(DRM_IOWR(
		0xCF, struct { uint64_t a[3]; }));
	assert_int_equal(eventfds, 0);
	fd = txda_queue_fd(queue);
	assert_true(readable(fd, 0)); /* once, for what may have been before */
	assert_false(readable(fd, 0));
	release(1);
	assert_true(readable(fd, -1));
	ok(context, txda_queue_wait(queue, first, TXDA_FOREVER));
	assert_int_equal(txda_queue_wait(queue, second, 0), -ETIMEDOUT);
	third = submit_wait(3); /* armed when it is submitted */
	release(2);
	assert_true(readable(fd, -1));
	release(3);
	assert_true(readable(fd, -1));
	waits = fake_drm_calls(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT);
	ok(context, txda_queue_wait(queue, third, TXDA_FOREVER));
	ok(context, txda_queue_wait(queue, first, 0));
	/* What has passed is seen without a call. */
	assert_int_equal(fake_drm_calls(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT), waits);
	end();
}

/* Steady work: one ioctl to submit and at most one to wait. */
TEST(test_calls)
{
	unsigned long before, after, waits;

	begin(1);
	pass(queue);
	before = fake_drm_calls(0);
	waits = fake_drm_calls(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT);
	for (unsigned i = 0; i < 1000; i++) {
		pass(queue);
	}
	after = fake_drm_calls(0);
	waits = fake_drm_calls(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT) - waits;
	assert_true(waits <= 1000);
	assert_int_equal(after - before, 1000 + waits);
	end();
}

TEST(test_busy)
{
	uint64_t fence = 0;

	begin(1);
	fake_drm.submit_depth = 2;
	submit_wait(1);
	submit_wait(1);
	fails(context, txda_queue_submit(queue, NULL, 0, 0, &fence), -EAGAIN,
	      "2 streams are in flight");
	assert_int_equal(fence, 0);
	release(1);
	ok(context, txda_queue_wait(queue, 2, TXDA_FOREVER));
	/* The driver's own count follows a moment later. */
	while (txda_queue_submit(queue, NULL, 0, 0, &fence) == -EAGAIN)
		usleep(100);
	assert_int_equal(fence, 3);
	ok(context, txda_queue_wait(queue, 3, TXDA_FOREVER));
	end();
}

/* A user who has all queues that a user may have takes turns on the shared ones. */
TEST(test_shared)
{
	fake_drm_start(1);
	fake_drm.own_queues = 1;
	open_rig();
	assert_int_equal(fake_drm_calls(DRM_IOCTL_TXDA_QUEUE_CREATE), 2);
	pass(queue);
	close_rig();

	/* Where there are none, the first answer is the one to tell. */
	context = open_fake();
	fake_drm.fail_request = DRM_IOCTL_TXDA_QUEUE_CREATE;
	fake_drm.fail_error = -ENODEV;
	fake_drm.fail_after = 1;
	fails(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COMPUTE, &queue), -EDQUOT,
	      "no queue");
	txda_context_unref(context);
	fake_drm_end();
}

/* A user whom the driver has banned is told so, and may go on with the same queue after that. */
TEST(test_banned)
{
	uint64_t fence;

	begin(1);
	fake_drm.fail_request = DRM_IOCTL_TXDA_QUEUE_SUBMIT;
	fake_drm.fail_error = -EPERM;
	fails(context, txda_queue_submit(queue, NULL, 0, 0, &fence), -EPERM,
	      "banned from it for a while");
	pass(queue);
	end();
}

TEST(test_fault)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_pkt bad = {.op = 99, .bytes = sizeof(bad)};
	struct txda_queue *other;
	uint64_t fence;
	char text[200];
	int fd;

	begin(1);
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COMPUTE, &other));
	fd = txda_queue_fd(queue);
	assert_true(readable(fd, 0));
	ok(context, txda_queue_submit(queue, &bad, sizeof(bad), 0, &fence));
	assert_true(readable(fd, -1));
	fails(context, txda_queue_wait(queue, fence, TXDA_FOREVER), -EIO,
	      "chip 0: bad packet, packet type or size 99");
	assert_true(txda_queue_fault(queue, text, sizeof(text)) > 0);
	assert_says(text, "bad packet");
	assert_int_equal(txda_queue_submit(queue, NULL, 0, 0, &fence), -EIO);
	ok(context, txda_context_event(context, &event));
	assert_int_equal(event.kind, TXDA_EVENT_FAULT);
	assert_says(event.text, "bad packet");
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	pass(other);
	txda_queue_unref(other);
	end();
}

/* ---- models ---------------------------------------------------------------------------------- */

TEST(test_model)
{
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	char *path;

	for (unsigned tp = 1; tp <= 2; tp++) {
		case_write(tp, &path);
		context = open_context("chips=2,mem=64M,cores=1");
		ok(context, run_tiny(tp, path, wanted));
		txda_context_unref(context);
		fake_drm_start(2);
		context = open_fake();
		/* Twice: a group's slot is used again. */
		for (unsigned i = 0; i < 2; i++) {
			memset(got, 0, sizeof(got));
			ok(context, run_tiny(tp, path, got));
			assert_memory_equal(got, wanted, sizeof(got));
		}
		assert_int_equal(used_bytes(context, 0), 0);
		txda_context_unref(context);
		fake_drm_end();
		case_remove(path);
	}
}

/* Chips that cannot work together: why is told. */
TEST(test_join)
{
	float got[CASE_R][CASE_H];
	char *path;

	case_write(2, &path);
	fake_drm_start(2);
	context = open_fake();
	fake_drm.fail_request = DRM_IOCTL_TXDA_VM_SET_GROUP;
	fake_drm.fail_error = -EBUSY;
	fails(context, run_tiny(2, path, got), -EBUSY, "a group of 2 chips: one of them has");
	assert_says(txda_context_error(context), "a compute queue that takes turns");
	txda_context_unref(context);
	fake_drm_end();
	case_remove(path);
}

/*
 * Models that span chips come and go while others work on the same chips; a group that cannot be left
 * then keeps its slot until it can.
 */
TEST(test_busy_groups)
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	struct txda_model *model[17];
	struct txda_group *group;
	unsigned n = 0;
	uint64_t fence;
	char *path;
	int r;

	case_write(2, &path);
	begin(2);
	group_options.tp = 2;
	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	options.kv_blocks = 1;
	ok(context, run_tiny(2, path, wanted));
	ok(context, txda_model_load(group, &options, &model[0]));
	fence = submit_wait(1);
	/* Each of them keeps its slot; model 0 has one. */
	for (unsigned i = 0; i < 15; i++) {
		ok(context, run_tiny(2, path, got));
		assert_memory_equal(got, wanted, sizeof(got));
		ok(context, case_run(model[0], got));
		assert_memory_equal(got, wanted, sizeof(got));
	}
	fails(context, txda_model_load(group, &options, &model[1]), -EBUSY,
	      "the 2 chips have 16 groups for models that span chips; no more fit (15 models");
	release(1);
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	/* The driver's own count follows a moment later. */
	while ((r = txda_model_load(group, &options, &model[1])) == -EBUSY)
		usleep(100);
	ok(context, r);
	for (n = 2; n < 17 && (r = txda_model_load(group, &options, &model[n])) >= 0; n++)
		;
	assert_int_equal(r, -EBUSY);
	assert_int_equal(n, 16);
	for (unsigned i = 0; i < n; i++) {
		ok(context, case_run(model[i], got));
		assert_memory_equal(got, wanted, sizeof(got));
		txda_model_unref(model[i]);
	}
	txda_group_unref(group);
	end();
	case_remove(path);
}

/* A launch that does not reach all chips ends at once on those that have it; the cache can be kept. */
TEST(test_half_launch)
{
	static const int error[] = {-ENOMEM, -EPERM, -EBUSY, -EIO};
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	struct txda_model *model, *second;
	struct txda_group *group;
	char *path;

	case_write(2, &path);
	begin(2);
	group_options.tp = 2;
	ok(context, txda_group_new(context, &group_options, &group));
	options.path = path;
	ok(context, run_tiny(2, path, wanted));
	for (unsigned i = 0; i < ARRAY_SIZE(error); i++) {
		struct txda_step step = TXDA_INIT(struct txda_step);
		uint64_t fence = 77;
		int fd;

		options.kv_blocks = 2;
		options.share_kv = NULL;
		ok(context, txda_model_load(group, &options, &model));
		ok(context, case_run(model, got));
		fd = txda_model_fd(model);
		readable(fd, -1);
		fake_drm.fail_request = DRM_IOCTL_TXDA_QUEUE_SUBMIT;
		fake_drm.fail_error = error[i];
		fake_drm.fail_after = 1;
		step.tokens = step.seqs = 1;
		assert_true(txda_model_run(model, &step, &fence) < 0);
		assert_says(txda_context_error(context),
			    error[i] == -EBUSY ? "are in flight" : "chip 1 did not accept");
		assert_int_equal(fence, 77);
		assert_true(readable(fd, -1));
		/* Without a limit of time: that of the chip does not matter. */
		fails(context, txda_queue_wait(model->rank[0].queue, 2, TXDA_FOREVER), -EIO,
		      "stopped, since rank 1 did not get the launch");
		ok(context, txda_model_sync(model, 1, TXDA_FOREVER));
		fails(context, txda_model_run(model, &step, &fence), -EIO,
		      "a launch reached only some chips");
		options.kv_blocks = 0;
		options.share_kv = model;
		ok(context, txda_model_load(group, &options, &second));
		txda_model_unref(model);
		ok(context, case_run(second, got));
		assert_memory_equal(got, wanted, sizeof(got));
		txda_model_unref(second);
		/* Nobody else's queue was hit. */
		pass(queue);
	}
	txda_group_unref(group);
	end();
	case_remove(path);
}

/*
 * Each ioctl of a model's life fails in turn, with each kind of error: the call that needed it says
 * so, nothing is left behind (fake_drm_end() looks), and the next try works.
 */
TEST(test_failures)
{
	static const int error[] = {-ENOMEM, -EIO, -ENODEV, -EAGAIN};
	float wanted[CASE_R][CASE_H], got[CASE_R][CASE_H];
	unsigned failures = 0;
	char *path;
	int r;

	case_write(2, &path);
	fake_drm_start(2);
	context = open_fake();
	ok(context, run_tiny(2, path, wanted));
	txda_context_unref(context);
	fake_drm_end();
	for (unsigned e = 0; e < ARRAY_SIZE(error); e++) {
		bool hit = true;

		for (unsigned after = 0; hit; after++) {
			fake_drm_start(2);
			context = open_fake();
			fake_drm.fail_after = after;
			fake_drm.fail_error = error[e];
			r = run_tiny(2, path, got);
			hit = !fake_drm.fail_error;
			fake_drm.fail_error = 0;
			if (r < 0) {
				failures++;
				assert_true(txda_context_error(context)[0]);
				memset(got, 0, sizeof(got));
				ok(context, run_tiny(2, path, got));
			}
			assert_memory_equal(got, wanted, sizeof(got));
			txda_context_unref(context);
			assert_int_equal(fake_drm_handles(), 0);
			fake_drm_end();
		}
	}
	assert_true(failures > 100);
	case_remove(path);
}

TEST_MAIN
