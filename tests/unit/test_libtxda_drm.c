// SPDX-License-Identifier: MIT
/* The DRM backend on a kernel that is a fake: what it asks for, and what it makes of the answers.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

#include "clock.h"
#include "drm_context.h"
#include "libtxda_case.h"
#include "model.h"

static struct txda_context *context;
static struct txda_queue *queue;
static struct txda_buffer *word; /* host memory that streams wait for */
static uint64_t *value;

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

/* A context with a queue of its first chip. */
static void open_rig(void)
{
	void *view;

	context = open_fake();
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COMPUTE, &queue));
	ok(context, txda_buffer_new(device_of(context, 0), 4096, TXDA_MEMORY_HOST, 0, &word));
	ok(context, txda_buffer_map(word, &view));
	value = view;
}

static void begin(unsigned chips)
{
	fake_drm_start(chips);
	open_rig();
}

static void close_rig(void)
{
	txda_queue_unref(queue);
	txda_buffer_unref(word);
	txda_context_unref(context);
}

static void end(void)
{
	close_rig();
	fake_drm_end();
}

/* A stream that waits until the host has stored @value. */
static uint64_t submit_wait(uint64_t until)
{
	struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
				      .va = txda_buffer_va(word),
				      .value = until};
	uint64_t fence;

	ok(context, txda_queue_submit(queue, &wait, sizeof(wait), 0, &fence));
	return fence;
}

/* An empty stream passes. */
static void pass(struct txda_queue *of)
{
	uint64_t fence;

	ok(context, txda_queue_submit(of, NULL, 0, 0, &fence));
	ok(context, txda_queue_wait(of, fence, TXDA_FOREVER));
}

/* Lets go of those that wait for up to @value: something must look at the word again. */
static void release(uint64_t until)
{
	struct txda_queue *other;

	__atomic_store_n(value, until, __ATOMIC_RELEASE);
	ok(context, txda_queue_new(device_of(context, 0), TXDA_QUEUE_COPY, &other));
	pass(other);
	txda_queue_unref(other);
}

static bool readable(int fd, int ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint64_t drained;
	bool is = poll(&poll_fd, 1, ms) == 1;

	if (is)
		assert_int_equal(read(fd, &drained, sizeof(drained)), sizeof(drained));
	return is;
}

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

/* Everything that can be asked of the tiny model, once; 0 or the first error. */
static int run_tiny(unsigned tp, const char *path, float y[CASE_R][CASE_H])
{
	struct txda_group_options group_options = TXDA_INIT(struct txda_group_options);
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model = NULL;
	struct txda_group *group = NULL;
	int r;

	group_options.tp = tp;
	options.path = path;
	options.verify_weights = true;
	r = txda_group_new(context, &group_options, &group);
	if (r >= 0)
		r = txda_model_load(group, &options, &model);
	if (r >= 0)
		r = case_run(model, y);
	txda_model_unref(model);
	txda_group_unref(group);
	return r;
}

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

/* ---- chips that come and go ------------------------------------------------------------------ */

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
