// SPDX-License-Identifier: MIT
/* Contexts, options, devices, groups, messages, events. */
#include <poll.h>
#include <pthread.h>

#include "libtxda_test.h"

TEST(test_version)
{
	assert_string_equal(txda_version(), "0.1.0");
}

static int try_open(struct txda_context_options *options)
{
	struct txda_context *context = (void *)1;
	int r = txda_context_new(options, &context);

	if (r < 0)
		assert_ptr_equal(context, (void *)1);
	else
		txda_context_unref(context);
	return r;
}

TEST(test_options)
{
	struct {
		struct txda_context_options known;
		uint64_t later;
	} newer = {
		.known = {.size = sizeof(newer), .backend = "cmodel", .cmodel = "mem=64M,cores=1"}};
	struct txda_context_options options = {.backend = "cmodel"};

	fails(NULL, try_open(&options), -EINVAL, "TXDA_INIT");
	assert_int_equal(try_open(&newer.known), 0);
	newer.later = 1;
	fails(NULL, try_open(&newer.known), -E2BIG, "does not know");
	/* An older caller: the struct ends after the backend. */
	options.size = offsetof(struct txda_context_options, cmodel);
	setenv("TXDA_CMODEL", "mem=64M,cores=1", 1);
	assert_int_equal(try_open(&options), 0);
	setenv("TXDA_CMODEL", "chips=2,mem=sometimes", 1);
	fails(NULL, try_open(&options), -EINVAL, "TXDA_CMODEL: mem=sometimes");
	setenv("TXDA_CMODEL", "faults=gremlin", 1);
	assert_true(try_open(&options) < 0);
	assert_says(txda_context_error(NULL), "faults=gremlin: the device model does not know it");
	setenv("TXDA_CMODEL", "chips=2,faults=hang:chip=2", 1);
	fails(NULL, try_open(&options), -ENODEV, "faults=hang:chip=2: there is no such chip");
	setenv("TXDA_CMODEL", "isa=z80", 1);
	assert_true(try_open(&options) < 0);
	assert_says(txda_context_error(NULL), "isa=z80");
	unsetenv("TXDA_CMODEL");
}

/* The kernels of all contexts are the same, so a second one cannot change those of the first. */
TEST(test_one_path)
{
	struct txda_context *first = open_context("mem=64M,cores=1"), *second;
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device *device;
	bool only;

	ok(first, txda_device_get(first, 0, &device));
	ok(first, txda_device_info(device, &info));
	txda_device_unref(device);
	only = strstr(info.name, ", c)");
	second = open_context("mem=64M,cores=1,isa=auto");
	options.backend = "cmodel";
	options.cmodel = "mem=64M,cores=1,isa=c";
	for (unsigned contexts = 2; contexts && !only; contexts--) {
		fails(NULL, try_open(&options), -EBUSY, "isa=c: another context");
		txda_context_unref(contexts == 2 ? second : first);
	}
	assert_int_equal(try_open(&options), 0);
	if (only) {
		txda_context_unref(second);
		txda_context_unref(first);
	}
}

TEST(test_backends)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_context *context;

	options.cmodel = "mem=64M,cores=1";
	setenv("TXDA_BACKEND", "vapour", 1);
	fails(NULL, try_open(&options), -EINVAL, "TXDA_BACKEND=vapour");
	setenv("TXDA_BACKEND", "drm", 1);
	if (access("/dev/accel", F_OK) < 0) {
		fails(NULL, try_open(&options), -ENODEV, "no TX8 device nodes");
		setenv("TXDA_BACKEND", "auto", 1);
		ok(NULL, txda_context_new(&options, &context));
		assert_string_equal(txda_context_backend(context), "cmodel");
		txda_context_unref(context);
	}
	unsetenv("TXDA_BACKEND");
}

TEST(test_devices)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_context *context;
	struct txda_device *a, *b;

	options.backend = "cmodel";
	options.cmodel = "chips=4,mem=64M,cores=1";
	options.visible_devices = "3,1";
	ok(NULL, txda_context_new(&options, &context));
	assert_int_equal(txda_context_device_count(context), 2);
	ok(context, txda_device_get(context, 0, &a));
	ok(context, txda_device_get(context, 1, &b));
	txda_context_unref(context); /* the devices keep it */
	ok(context, txda_device_info(a, &info));
	assert_int_equal(info.index, 0);
	assert_int_equal(info.physical, 3);
	assert_int_equal(info.mem_bytes, 64 << 20);
	assert_int_equal(info.cores, 1);
	assert_true(info.caps & TXDA_CAP_CMODEL);
	assert_says(info.name, "TX8 (cmodel, ");
	assert_says(info.bus, "cmodel:");
	ok(context, txda_device_status(b, &status));
	assert_int_equal(status.mem_used_bytes, 0);
	assert_false(status.lost);
	assert_int_equal(txda_device_distance(a, a), 0);
	assert_int_equal(txda_device_distance(a, b), 1);
	/* A caller that knows only the first members. */
	info.size = offsetof(struct txda_device_info, name);
	memset(info.name, 'x', sizeof(info.name));
	ok(context, txda_device_info(b, &info));
	assert_int_equal(info.physical, 1);
	assert_int_equal(info.name[0], 'x');
	info.size = 0;
	assert_int_equal(txda_device_info(b, &info), -EINVAL);
	txda_device_unref(a);
	txda_device_unref(b);

	options.visible_devices = "4";
	fails(NULL, try_open(&options), -EINVAL,
	      "TXDA_VISIBLE_DEVICES=4: \"4\" is not a chip; there are 4");
	options.visible_devices = NULL;
	options.chip_map = "0,0";
	fails(NULL, try_open(&options), -EINVAL, "CHIP_MAP=0,0");
}

TEST(test_groups)
{
	struct txda_context_options options = TXDA_INIT(struct txda_context_options);
	struct txda_group_options go = TXDA_INIT(struct txda_group_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_group *group = NULL;
	const unsigned devices[2] = {2, 0}, twice[2] = {1, 1};
	struct txda_context *context;
	char text[2048], small[8];
	int len;

	options.backend = "cmodel";
	options.cmodel = "chips=4,mem=64M,cores=1";
	options.chip_map = "3,2,1,0";
	ok(NULL, txda_context_new(&options, &context));

	go.map = "C4TP2";
	go.replica = 1;
	ok(context, txda_group_new(context, &go, &group));
	assert_int_equal(txda_group_size(group), 2);
	ok(context, txda_device_info(txda_group_device(group, 0), &info));
	assert_int_equal(info.index, 1);
	assert_null(txda_group_device(group, 2));
	len = txda_group_explain(group, text, sizeof(text));
	assert_int_equal(len, strlen(text));
	assert_says(text, "Map C4TP2: 2 groups.");
	assert_says(text, "CHIP_MAP makes logical chip 2 chip 1.");
	assert_says(text, "Rank 1 is chip 0");
	assert_says(text, "a direct link from rank 0");
	assert_int_equal(txda_group_explain(group, small, sizeof(small)), len);
	assert_int_equal(strlen(small), 7);
	assert_int_equal(txda_group_explain(group, NULL, 0), len);
	group = txda_group_unref(group);
	assert_null(group);

	go.tp = 3;
	fails(context, txda_group_new(context, &go, &group), -EINVAL,
	      "has 2 chips; 3 were requested");
	go.tp = 0;
	go.replica = 2;
	fails(context, txda_group_new(context, &go, &group), -ENODEV,
	      "group 2 was requested; the map has 2");
	go = TXDA_INIT(struct txda_group_options);
	go.tp = 5;
	assert_int_equal(txda_group_new(context, &go, &group), -ENODEV);
	go.tp = 9;
	assert_int_equal(txda_group_new(context, &go, &group), -EINVAL);
	go.tp = 2;
	go.devices = twice;
	fails(context, txda_group_new(context, &go, &group), -EINVAL, "both rank 0 and rank 1");
	go.devices = devices;
	ok(context, txda_group_new(context, &go, &group));
	ok(context, txda_device_info(txda_group_device(group, 0), &info));
	assert_int_equal(info.index, 2); /* named devices are not renamed */
	txda_context_unref(context);
	txda_group_unref(group);
	assert_null(txda_group_unref(NULL));
}

static void *fail_elsewhere(void *arg)
{
	struct txda_device *device;

	assert_string_equal(txda_context_error(arg), "");
	fails(arg, txda_device_get(arg, 9, &device), -ENODEV, "chip 9 does not exist");
	return NULL;
}

/* What a later version may put behind the last member is refused by this one, byte for byte. */
TEST(test_reserved)
{
	struct txda_context *context = open_context("mem=64M,cores=1");
	struct txda_model_options mo = TXDA_INIT(struct txda_model_options);
	struct txda_group_options go = TXDA_INIT(struct txda_group_options);
	struct txda_group *group = NULL;
	struct txda_model *model = NULL;

	ok(context, txda_group_new(context, &go, &group));
	go.reserved = 1u << 31;
	fails(context, txda_group_new(context, &go, &group), -E2BIG,
	      "txda_group_options has options that libtxda");
	mo.path = "/nowhere";
	mo.map_weights = true;
	assert_int_equal(txda_model_load(group, &mo, &model), -ENOENT);
	for (unsigned i = 0; i < sizeof(mo.reserved); i++) {
		mo.reserved[i] = 1;
		fails(context, txda_model_load(group, &mo, &model), -E2BIG,
		      "txda_model_options has options that libtxda");
		mo.reserved[i] = 0;
	}
	txda_group_unref(group);
	txda_context_unref(context);
}

TEST(test_messages)
{
	struct txda_context *context[6];
	struct txda_device *device;
	pthread_t thread;

	for (unsigned i = 0; i < 6; i++)
		context[i] = open_context("mem=64M,cores=1");
	assert_string_equal(txda_context_error(context[0]), "");
	txda_device_get(context[0], 7, &device);
	txda_device_get(context[1], 8, &device);
	assert_says(txda_context_error(context[0]), "chip 7 does not exist");
	assert_says(txda_context_error(context[1]), "chip 8 does not exist");
	pthread_create(&thread, NULL, fail_elsewhere, context[0]);
	pthread_join(thread, NULL);
	assert_says(txda_context_error(context[0]), "chip 7 does not exist");
	for (unsigned i = 0; i < 6; i++)
		txda_device_get(context[i], 10 + i, &device);
	for (unsigned i = 2; i < 6; i++) {
		char text[32];

		snprintf(text, sizeof(text), "chip %u does not exist", 10 + i);
		assert_says(txda_context_error(context[i]), text);
	}
	assert_string_equal(txda_context_error(context[1]), "");
	for (unsigned i = 0; i < 6; i++)
		txda_context_unref(context[i]);
}

TEST(test_no_events)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_context *context = open_context("mem=64M,cores=1");
	struct pollfd poll_fd = {.fd = txda_context_event_fd(context), .events = POLLIN};

	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	txda_context_unref(context);
}

TEST_MAIN
