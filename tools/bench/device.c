// SPDX-License-Identifier: MIT
#include "device.h"

#include <drm/txda_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"
#include "model.h"
#include "stats.h"
#include "txda_isa.h"
#include "tool_line.h"

static const char usage[] =
	"Usage: txda-bench device [options]\n"
	"\n"
	"Cost of a submission and of a copy on one chip, as ratios to primitives measured in the "
	"same run: an\n"
	"empty ioctl, the wake-up of a thread by an eventfd, memcpy.\n"
	"\n"
	"  --chip N      the chip (0)\n"
	"  --rounds N    repetitions of each measurement (2000); the figures are medians\n"
	"  --json        one JSON document on standard output\n"
	"  -h, --help\n"
	"  -V, --version\n";

static const struct option options[] = {
	{"chip", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"json", no_argument, NULL, 'j'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-bench device", usage, options, "");

#define MAX_ROUNDS 100000
#define COPY_BYTES (16u << 20)

struct figures {
	double ioctl_us;  /* an ioctl that does nothing */
	double wake_us;	  /* from write() of an eventfd until the thread that reads it runs */
	double submit_us; /* txda_queue_submit() alone */
	double fence_us;  /* from submission until the thread that waits runs */
	double stream_us; /* of each of many streams in flight */
	double memcpy_gbs, to_device_gbs, from_device_gbs, on_device_gbs;
};

/* ---- what the system costs ---- */

/* Of the chip's node, or of a pipe when the chip is a library's. */
static int bare_ioctl(const char *node, double *v, unsigned rounds, double *ret_us)
{
	struct drm_get_cap cap = {.capability = DRM_CAP_TIMESTAMP_MONOTONIC};
	int fd = -1, pipes[2] = {-1, -1}, waiting, err = 0;

	if (node[0])
		fd = open(node, O_RDWR | O_CLOEXEC);
	else if (!pipe2(pipes, O_CLOEXEC))
		fd = pipes[0];
	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < rounds && !err; i++) {
		v[i] = clock_s();
		if (node[0] ? ioctl(fd, DRM_IOCTL_GET_CAP, &cap) : ioctl(fd, FIONREAD, &waiting))
			err = -errno;
		v[i] = clock_s() - v[i];
	}
	if (!err)
		*ret_us = stats_median(v, rounds) * 1e6;
	close(fd);
	if (pipes[1] >= 0)
		close(pipes[1]);
	return err;
}

struct echo {
	int there, back;
	unsigned rounds;
};

static void *answer(void *arg)
{
	const struct echo *e = arg;
	uint64_t n = 1;

	for (unsigned i = 0; i < e->rounds; i++)
		if (read(e->there, &n, sizeof(n)) != sizeof(n) ||
		    write(e->back, &n, sizeof(n)) != sizeof(n))
			break;
	return NULL;
}

/* Half the round trip to another thread. */
static int eventfd_wake(double *v, unsigned rounds, double *ret_us)
{
	struct echo e = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), rounds};
	uint64_t n = 1;
	pthread_t thread;
	int err = e.there < 0 || e.back < 0 ? -errno : 0;

	if (!err)
		err = -pthread_create(&thread, NULL, answer, &e);
	if (!err) {
		for (unsigned i = 0; i < rounds; i++) {
			v[i] = clock_s();
			if (write(e.there, &n, sizeof(n)) != sizeof(n) ||
			    read(e.back, &n, sizeof(n)) != sizeof(n))
				abort(); /* an eventfd of our own below its limit cannot fail */
			v[i] = (clock_s() - v[i]) / 2;
		}
		pthread_join(thread, NULL);
		*ret_us = stats_median(v, rounds) * 1e6;
	}
	if (e.there >= 0)
		close(e.there);
	if (e.back >= 0)
		close(e.back);
	return err;
}

/* ---- submission ---- */

/*
 * Medians of submission alone (@ret_submit may be NULL) and of the time from submission to fence.
 */
static int submit_to_fence(struct txda_queue *queue, unsigned flags, double *v, double *submits,
			   unsigned rounds, double *ret_submit, double *ret_fence)
{
	const struct txda_pkt nop = {.op = TXDA_PKT_NOP, .bytes = sizeof(nop)};
	uint64_t fence;
	int err = 0;

	for (unsigned i = 0; i < rounds && !err; i++) {
		v[i] = clock_s();
		err = txda_queue_submit(queue, &nop, sizeof(nop), flags, &fence);
		if (submits)
			submits[i] = clock_s() - v[i];
		if (!err)
			err = txda_queue_wait(queue, fence, TXDA_FOREVER);
		v[i] = clock_s() - v[i];
	}
	if (err)
		return err;
	if (ret_submit)
		*ret_submit = stats_median(submits, rounds) * 1e6;
	*ret_fence = stats_median(v, rounds) * 1e6;
	return 0;
}

double device_round_trip_us(struct txda_context *context)
{
	enum { N = 2001 };
	struct txda_device *device;
	struct txda_queue *queue;
	double v[N], us = -1;

	if (txda_device_get(context, 0, &device))
		return -1;
	if (!txda_queue_new(device, TXDA_QUEUE_COMPUTE, &queue)) {
		submit_to_fence(queue, TXDA_SUBMIT_WAIT_SOON, v, NULL, N, NULL, &us);
		txda_queue_unref(queue);
	}
	txda_device_unref(device);
	return us;
}

/* Many in flight: the cost of a stream without waiting for each one. */
static int streams(struct txda_queue *queue, unsigned rounds, double *ret_us)
{
	const struct txda_pkt nop = {.op = TXDA_PKT_NOP, .bytes = sizeof(nop)};
	uint64_t fence = 0;
	double start = clock_s();
	int err = 0;

	for (unsigned i = 0; i < rounds && !err; i++) {
		err = txda_queue_submit(queue, &nop, sizeof(nop), 0, &fence);
		if (err == -EAGAIN && fence > 8)
			err = txda_queue_wait(queue, fence - 8, TXDA_FOREVER), i--;
	}
	if (!err)
		err = txda_queue_wait(queue, fence, TXDA_FOREVER);
	*ret_us = (clock_s() - start) / rounds * 1e6;
	return err;
}

static int measure_queue(struct txda_device *device, unsigned rounds, double *v,
			 struct figures *ret)
{
	double *submits = calloc(rounds, sizeof(*submits));
	struct txda_queue *queue;
	int err = submits ? txda_queue_new(device, TXDA_QUEUE_COMPUTE, &queue) : -ENOMEM;

	if (!err) {
		err = submit_to_fence(queue, 0, v, submits, rounds, &ret->submit_us,
				      &ret->fence_us);
		if (!err)
			err = streams(queue, rounds, &ret->stream_us);
		txda_queue_unref(queue);
	}
	free(submits);
	return err;
}

/* ---- copies ---- */

#define COPIES 9

static int copy_rate(struct txda_queue *queue, struct txda_buffer *dst, struct txda_buffer *src,
		     double *ret_gbs)
{
	double v[COPIES];
	uint64_t fence;

	for (unsigned i = 0; i < COPIES; i++) {
		int err;

		v[i] = clock_s();
		err = txda_queue_copy(queue, dst, 0, src, 0, COPY_BYTES, &fence);
		if (!err)
			err = txda_queue_wait(queue, fence, TXDA_FOREVER);
		if (err)
			return err;
		v[i] = clock_s() - v[i];
	}
	*ret_gbs = COPY_BYTES / stats_median(v, COPIES) * 1e-9;
	return 0;
}

/* One thread, resident memory. */
static int memcpy_rate(struct txda_buffer *dst, struct txda_buffer *src, double *ret_gbs)
{
	double v[COPIES];
	void *to, *from;
	int err = txda_buffer_map(dst, &to);

	if (!err)
		err = txda_buffer_map(src, &from);
	if (err)
		return err;
	memset(to, 1, COPY_BYTES);
	memset(from, 2, COPY_BYTES);
	for (unsigned i = 0; i < COPIES; i++) {
		v[i] = clock_s();
		memcpy(to, from, COPY_BYTES);
		v[i] = clock_s() - v[i];
	}
	*ret_gbs = COPY_BYTES / stats_median(v, COPIES) * 1e-9;
	return 0;
}

static int measure_copies(struct txda_device *device, struct figures *ret)
{
	struct txda_buffer *b[4] = {0}; /* two of the host, two of the chip */
	struct txda_queue *queue = NULL;
	int err = txda_queue_new(device, TXDA_QUEUE_COPY, &queue);

	for (unsigned i = 0; i < 4 && !err; i++)
		err = txda_buffer_new(device, COPY_BYTES,
				      i < 2 ? TXDA_MEMORY_HOST : TXDA_MEMORY_DEVICE, 0, &b[i]);
	if (!err)
		err = memcpy_rate(b[1], b[0], &ret->memcpy_gbs);
	if (!err)
		err = copy_rate(queue, b[2], b[0], &ret->to_device_gbs);
	if (!err)
		err = copy_rate(queue, b[1], b[2], &ret->from_device_gbs);
	if (!err)
		err = copy_rate(queue, b[3], b[2], &ret->on_device_gbs);
	for (unsigned i = 0; i < 4; i++)
		txda_buffer_unref(b[i]);
	txda_queue_unref(queue);
	return err;
}

/* ---- the whole ---- */

static int measure(struct txda_device *device, const char *node, unsigned rounds,
		   struct figures *ret)
{
	double *v = calloc(rounds, sizeof(*v));
	int err = v ? 0 : -ENOMEM;

	if (!err)
		err = bare_ioctl(node, v, rounds, &ret->ioctl_us);
	if (!err)
		err = eventfd_wake(v, rounds, &ret->wake_us);
	if (!err)
		err = measure_queue(device, rounds, v, ret);
	if (!err)
		err = measure_copies(device, ret);
	free(v);
	return err;
}

static void print(const struct txda_device_info *info, const struct figures *f, bool json)
{
	if (json) {
		printf("{\"schema_version\":1,\"device\":\"%s\",\"bus\":\"%s\",\"ioctl_us\":%.3f,"
		       "\"eventfd_wake_us\":%.3f,\"submit_us\":%.3f,\"submit_to_fence_us\":%.3f,"
		       "\"stream_us\":%.3f,\n\"memcpy_gb_per_s\":%.2f,\"to_device_gb_per_s\":%.2f,"
		       "\"from_device_gb_per_s\":%.2f,\"on_device_gb_per_s\":%.2f}\n",
		       info->name, info->bus, f->ioctl_us, f->wake_us, f->submit_us, f->fence_us,
		       f->stream_us, f->memcpy_gbs, f->to_device_gbs, f->from_device_gbs,
		       f->on_device_gbs);
		return;
	}
	printf("%s at %s%s%s\n", info->name, info->bus, info->node[0] ? ", " : "", info->node);
	printf("  an ioctl that does nothing   %9.2f us\n", f->ioctl_us);
	printf("  wake of a thread by eventfd  %9.2f us\n", f->wake_us);
	printf("  submission alone             %9.2f us  = %5.1f ioctls\n", f->submit_us,
	       f->submit_us / f->ioctl_us);
	printf("  submission to fence          %9.2f us  = %5.1f ioctls = %.1f wakes\n",
	       f->fence_us, f->fence_us / f->ioctl_us, f->fence_us / f->wake_us);
	printf("  a stream, many in flight     %9.2f us\n", f->stream_us);
	printf("  memcpy of %u MiB             %9.2f GB/s\n", COPY_BYTES >> 20, f->memcpy_gbs);
	printf("  copy queue, host to chip     %9.2f GB/s = %.2f of memcpy\n", f->to_device_gbs,
	       f->to_device_gbs / f->memcpy_gbs);
	printf("  copy queue, chip to host     %9.2f GB/s = %.2f of memcpy\n", f->from_device_gbs,
	       f->from_device_gbs / f->memcpy_gbs);
	printf("  copy queue, on the chip      %9.2f GB/s = %.2f of memcpy\n", f->on_device_gbs,
	       f->on_device_gbs / f->memcpy_gbs);
}

static int run(unsigned chip, unsigned rounds, bool json)
{
	struct txda_context_options co = TXDA_INIT(struct txda_context_options);
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_context *context = NULL;
	struct txda_device *device;
	struct figures f = {0};
	int err;

	co.name = "benchmark";
	err = txda_context_new(&co, &context);
	if (!err)
		err = txda_device_get(context, chip, &device);
	if (err) {
		fprintf(stderr, "txda-bench: chip %u: %s\n", chip, txda_context_error(context));
		txda_context_unref(context);
		return err;
	}
	txda_device_info(device, &info);
	err = measure(device, info.node, rounds, &f);
	if (err)
		fprintf(stderr, "txda-bench: chip %u (%s): %s\n", chip, info.bus, strerror(-err));
	else
		print(&info, &f, json);
	txda_device_unref(device);
	txda_context_unref(context);
	return err;
}

int device_main(int argc, char **argv)
{
	unsigned chip = 0, rounds = 2000;
	bool json = false;
	int c;

	while ((c = tool_option(&line, argc, argv)) > 0) {
		bool ok = true;

		switch (c) {
		case 'c': ok = tool_number(&line, 0, 255, &chip); break;
		case 'r': ok = tool_number(&line, 1, MAX_ROUNDS, &rounds); break;
		default: json = true; break;
		}
		if (!ok)
			return line.status;
	}
	if (c < 0)
		return line.status;
	if (line.n_words)
		return tool_refuse(&line, "unexpected argument '%s'", line.words[0]);
	own_autogroup();
	return run(chip, rounds, json) ? 1 : 0;
}
