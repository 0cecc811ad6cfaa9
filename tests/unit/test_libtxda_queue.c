// SPDX-License-Identifier: MIT
/* Queues: fences, deadlines, the ring, faults, several threads. */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "libtxda_test.h"
#include "clock.h"

struct rig {
	struct txda_context *context;
	struct txda_device *device;
	struct txda_queue *queue;
	struct txda_buffer *buffer; /* a page */
	uint64_t *word;		    /* its host view */
};

static void setup(struct rig *rig, const char *spec, enum txda_queue_class queue_class)
{
	void *ptr;

	rig->context = open_context(spec);
	ok(rig->context, txda_device_get(rig->context, 0, &rig->device));
	ok(rig->context, txda_queue_new(rig->device, queue_class, &rig->queue));
	ok(rig->context, txda_buffer_new(rig->device, 4096, TXDA_MEMORY_DEVICE, 0, &rig->buffer));
	ok(rig->context, txda_buffer_map(rig->buffer, &ptr));
	rig->word = ptr;
}

static void teardown(struct rig *rig)
{
	txda_queue_unref(rig->queue);
	txda_buffer_unref(rig->buffer);
	txda_device_unref(rig->device);
	txda_context_unref(rig->context);
}

static void test_fences(void **state)
{
	struct txda_pkt_fill fill = {.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)},
				     .bytes = 8};
	uint64_t fence;
	struct rig rig;

	(void)state;
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	fill.dst = txda_buffer_va(rig.buffer);
	for (unsigned i = 1; i <= 2000; i++) {
		fill.value = i;
		ok(rig.context, txda_queue_submit(rig.queue, &fill, sizeof(fill),
						  i % 2 ? TXDA_SUBMIT_WAIT_SOON : 0, &fence));
		assert_int_equal(fence, i);
		ok(rig.context, txda_queue_wait(rig.queue, fence, TXDA_FOREVER));
		assert_int_equal(*rig.word, (uint64_t)i << 32 | i);
	}
	assert_int_equal(txda_queue_wait(rig.queue, fence + 1, 0), -ETIMEDOUT);
	ok(rig.context, txda_queue_wait(rig.queue, 1, 0));
	assert_int_equal(txda_queue_fault(rig.queue, NULL, 0), 0);
	/* What makes no stream. */
	assert_int_equal(txda_queue_submit(rig.queue, &fill, 12, 0, &fence), -EINVAL);
	assert_int_equal(txda_queue_submit(rig.queue, &fill, TXDA_STREAM_MAX_BYTES, 0, &fence),
			 -EINVAL);
	assert_int_equal(txda_queue_submit(rig.queue, &fill, sizeof(fill), 8, &fence), -EINVAL);
	teardown(&rig);
}

/* A stream that waits until somebody stores the word. */
static void submit_wait(struct rig *rig, uint64_t value, uint64_t *ret_fence)
{
	struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
				      .value = value};

	wait.va = txda_buffer_va(rig->buffer);
	ok(rig->context, txda_queue_submit(rig->queue, &wait, sizeof(wait), 0, ret_fence));
}

/* Another queue of the chip stores the word, so that the machine hears of it. */
static void release(struct rig *rig, uint64_t value)
{
	struct txda_pkt_fence signal = {.hdr = {.op = TXDA_PKT_SIGNAL, .bytes = sizeof(signal)},
					.value = value};
	struct txda_queue *queue;
	uint64_t fence;

	signal.va = txda_buffer_va(rig->buffer);
	ok(rig->context, txda_queue_new(rig->device, TXDA_QUEUE_COPY, &queue));
	ok(rig->context, txda_queue_submit(queue, &signal, sizeof(signal), 0, &fence));
	ok(rig->context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	txda_queue_unref(queue);
}

static void test_deadlines(void **state)
{
	uint64_t fence, start;
	struct rig rig;

	(void)state;
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	submit_wait(&rig, 1, &fence);
	assert_int_equal(txda_queue_wait(rig.queue, fence, 0), -ETIMEDOUT);
	assert_has(txda_context_error(rig.context), "fence 1 has not passed (0 has)");
	start = clock_ns();
	assert_int_equal(txda_queue_wait(rig.queue, fence, start + 30000000), -ETIMEDOUT);
	assert_true(clock_ns() - start >= 30000000);
	assert_true(clock_ns() - start < 5000000000ull);
	release(&rig, 1);
	ok(rig.context, txda_queue_wait(rig.queue, fence, TXDA_FOREVER));
	/* A queue may go while its work waits. */
	submit_wait(&rig, 1000, &fence);
	teardown(&rig);
}

static void test_ring(void **state)
{
	struct txda_pkt_fill *fill = calloc(2000, sizeof(*fill));
	uint64_t fence, last = 0, seed = 5;
	struct rig rig;
	int r;

	(void)state;
	assert_non_null(fill);
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COPY);
	/* Too many streams in flight: the submitter is told, and goes on when some have passed. */
	submit_wait(&rig, 1, &last);
	do {
		r = txda_queue_submit(rig.queue, NULL, 0, 0, &fence);
		if (r >= 0)
			last = fence;
	} while (r >= 0 && last < 100000);
	assert_int_equal(r, -EAGAIN);
	assert_has(txda_context_error(rig.context), "are in flight");
	assert_true(last >= 200);
	release(&rig, 1);
	ok(rig.context, txda_queue_wait(rig.queue, last, TXDA_FOREVER));

	/* Likewise when the ring has no room for their bytes. */
	for (unsigned i = 0; i < 2000; i++)
		fill[i] = (struct txda_pkt_fill){
			.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill[0])},
			.dst = txda_buffer_va(rig.buffer) + 8,
			.bytes = 4,
			.value = i};
	for (unsigned round = 2; round < 8; round++) {
		unsigned n = 0;

		submit_wait(&rig, round, &last);
		while ((r = txda_queue_submit(rig.queue, fill, 2000 * sizeof(fill[0]), 0,
					      &fence)) >= 0) {
			last = fence;
			n++;
		}
		assert_int_equal(r, -EAGAIN);
		assert_true(n >= 10 && n < 40);
		release(&rig, round);
		ok(rig.context, txda_queue_wait(rig.queue, last, TXDA_FOREVER));
	}

	/* Streams of all sizes around the ring, each checked by what it leaves. */
	for (unsigned round = 0; round < 3000; round++) {
		unsigned n;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		n = (unsigned)(seed >> 33) % (round % 10 ? 20 : 2000) + 1;
		for (unsigned i = 0; i < n; i++)
			fill[i] = (struct txda_pkt_fill){
				.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill[0])},
				.dst = txda_buffer_va(rig.buffer),
				.bytes = 4,
				.value = round * 2000 + i,
			};
		while ((r = txda_queue_submit(rig.queue, fill, n * sizeof(fill[0]), 0, &fence)) ==
		       -EAGAIN)
			ok(rig.context, txda_queue_wait(rig.queue, last - 5, TXDA_FOREVER));
		ok(rig.context, r);
		assert_int_equal(fence, last + 1);
		last = fence;
		if (seed >> 60 == 0) {
			ok(rig.context, txda_queue_wait(rig.queue, last, TXDA_FOREVER));
			assert_int_equal((uint32_t)*rig.word, round * 2000 + n - 1);
		}
	}
	ok(rig.context, txda_queue_wait(rig.queue, last, TXDA_FOREVER));
	teardown(&rig);
	free(fill);
}

static void test_fd(void **state)
{
	struct pollfd poll_fd = {.events = POLLIN};
	uint64_t fence, count;
	struct rig rig;

	(void)state;
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	poll_fd.fd = txda_queue_fd(rig.queue);
	assert_true(poll_fd.fd >= 0);
	assert_int_equal(txda_queue_fd(rig.queue), poll_fd.fd);
	assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(poll(&poll_fd, 1, 20), 0);
	for (unsigned i = 0; i < 100; i++) {
		ok(rig.context, txda_queue_submit(rig.queue, NULL, 0, 0, &fence));
		assert_int_equal(poll(&poll_fd, 1, 10000), 1);
		assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
		ok(rig.context, txda_queue_wait(rig.queue, fence, 0));
	}
	teardown(&rig);
}

static void test_copy(void **state)
{
	struct txda_buffer *big, *host, *elsewhere;
	struct txda_device *other;
	uint64_t fence;
	char text[8];
	struct rig rig;

	(void)state;
	setup(&rig, "chips=2,mem=64M,cores=2", TXDA_QUEUE_COPY);
	ok(rig.context, txda_buffer_new(rig.device, 20 << 20, TXDA_MEMORY_DEVICE, 0, &big));
	ok(rig.context,
	   txda_buffer_new(rig.device, 20 << 20, TXDA_MEMORY_HOST, TXDA_BUFFER_READ_ONLY, &host));
	ok(rig.context, txda_buffer_write(host, 1000000, "payload", 8));
	ok(rig.context, txda_queue_copy(rig.queue, big, 3, host, 5, (20 << 20) - 5, &fence));
	ok(rig.context, txda_queue_wait(rig.queue, fence, TXDA_FOREVER));
	ok(rig.context, txda_buffer_read(big, 1000000 - 2, text, 8));
	assert_string_equal(text, "payload");
	assert_int_equal(txda_queue_copy(rig.queue, big, 20 << 20, host, 0, 1, &fence), -ERANGE);
	assert_int_equal(txda_queue_copy(rig.queue, big, 0, host, 1, UINT64_MAX, &fence), -ERANGE);
	ok(rig.context, txda_device_get(rig.context, 1, &other));
	ok(rig.context, txda_buffer_new(other, 100, TXDA_MEMORY_DEVICE, 0, &elsewhere));
	assert_int_equal(txda_queue_copy(rig.queue, elsewhere, 0, host, 0, 8, &fence), -EXDEV);
	/* The chip copies no overlapping ranges; those that meet are none. */
	assert_int_equal(txda_queue_copy(rig.queue, big, 7, big, 0, 8, &fence), -EINVAL);
	assert_int_equal(txda_queue_copy(rig.queue, big, 0, big, 7, 8, &fence), -EINVAL);
	assert_has(txda_context_error(rig.context), "copy of 8 bytes from 7 to 0 of one buffer");
	ok(rig.context, txda_queue_copy(rig.queue, big, 8, big, 0, 8, &fence));
	ok(rig.context, txda_queue_copy(rig.queue, big, 0, big, 8, 8, &fence));
	ok(rig.context, txda_queue_copy(rig.queue, big, 0, big, 0, 0, &fence));
	ok(rig.context, txda_queue_wait(rig.queue, fence, TXDA_FOREVER));
	/* The chip only reads what is read-only. */
	ok(rig.context, txda_queue_copy(rig.queue, host, 0, big, 0, 8, &fence));
	assert_int_equal(txda_queue_wait(rig.queue, fence, TXDA_FOREVER), -EIO);
	txda_buffer_unref(big);
	txda_buffer_unref(host);
	txda_buffer_unref(elsewhere);
	txda_device_unref(other);
	teardown(&rig);
}

static void test_fault(void **state)
{
	struct txda_pkt_fill fill = {
		.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)}, .bytes = 8, .value = 7};
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct pollfd poll_fd = {.events = POLLIN};
	struct txda_queue *second;
	char text[400];
	uint64_t fence;
	struct rig rig;
	int len;

	(void)state;
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	ok(rig.context, txda_queue_submit(rig.queue, NULL, 0, 0, &fence));
	fill.dst = txda_buffer_va(rig.buffer) + 4096; /* the guard behind the buffer */
	ok(rig.context, txda_queue_submit(rig.queue, &fill, sizeof(fill), 0, &fence));
	assert_int_equal(txda_queue_wait(rig.queue, fence, TXDA_FOREVER), -EIO);
	assert_has(txda_context_error(rig.context), "chip 0: ");
	len = txda_queue_fault(rig.queue, text, sizeof(text));
	assert_int_equal(len, strlen(text));
	assert_true(len > 10);
	ok(rig.context, txda_queue_wait(rig.queue, fence - 1, 0)); /* what passed, passed */
	assert_int_equal(txda_queue_submit(rig.queue, NULL, 0, 0, &fence), -EIO);

	poll_fd.fd = txda_context_event_fd(rig.context);
	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	ok(rig.context, txda_context_event(rig.context, &event));
	assert_int_equal(event.kind, TXDA_EVENT_FAULT);
	assert_int_equal(event.device, 0);
	assert_has(text, event.text);
	assert_int_equal(txda_context_event(rig.context, &event), -EAGAIN);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);

	/* Other queues go on, also new ones of the same chip. */
	fill.dst -= 4096;
	ok(rig.context, txda_queue_new(rig.device, TXDA_QUEUE_COMPUTE, &second));
	ok(rig.context, txda_queue_submit(second, &fill, sizeof(fill), 0, &fence));
	ok(rig.context, txda_queue_wait(second, fence, TXDA_FOREVER));
	assert_int_equal(*rig.word, 0x700000007ull);
	txda_queue_unref(second);
	teardown(&rig);
}

static void test_lost(void **state)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_pkt_fill fill = {.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)},
				     .bytes = 8};
	struct pollfd poll_fd = {.events = POLLIN};
	bool removed = false;
	uint64_t fence = 0;
	struct rig rig;
	int r = 0;

	(void)state;
	setup(&rig, "chips=2,mem=64M,cores=2,faults=lost:chip=0:after=3", TXDA_QUEUE_COMPUTE);
	fill.dst = txda_buffer_va(rig.buffer);
	for (unsigned i = 0; i < 100 && r >= 0; i++) {
		r = txda_queue_submit(rig.queue, &fill, sizeof(fill), 0, &fence);
		if (r >= 0)
			r = txda_queue_wait(rig.queue, fence, TXDA_FOREVER);
	}
	assert_int_equal(r, -ENODEV);
	assert_int_equal(txda_queue_submit(rig.queue, &fill, sizeof(fill), 0, &fence), -ENODEV);
	ok(rig.context, txda_device_status(rig.device, &status));
	assert_true(status.lost);
	/* It does not answer: 0 would be a value. */
	assert_int_equal(status.power_mw, UINT32_MAX);
	assert_int_equal(status.temp_mc, INT32_MIN);
	assert_int_equal(status.clock_khz, UINT32_MAX);
	poll_fd.fd = txda_context_event_fd(rig.context);
	while (!removed && poll(&poll_fd, 1, 10000) == 1) {
		ok(rig.context, txda_context_event(rig.context, &event));
		removed = event.kind == TXDA_EVENT_DEVICE_REMOVED;
	}
	assert_true(removed);
	assert_has(event.text, "chip 0 is lost");
	teardown(&rig);
}

struct waiter {
	struct rig *rig;
	uint64_t fence;
	int result;
};

static void *wait_for(void *arg)
{
	struct waiter *w = arg;

	w->result = txda_queue_wait(w->rig->queue, w->fence, TXDA_FOREVER);
	return NULL;
}

static void test_threads(void **state)
{
	enum { THREADS = 4 };
	struct waiter waiter[THREADS];
	pthread_t thread[THREADS];
	uint64_t fence;
	struct rig rig;

	(void)state;
	setup(&rig, "mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	for (unsigned round = 1; round <= 30; round++) {
		submit_wait(&rig, round, &fence);
		for (unsigned i = 0; i < THREADS; i++) {
			waiter[i] = (struct waiter){&rig, fence, 1};
			assert_int_equal(pthread_create(&thread[i], NULL, wait_for, &waiter[i]), 0);
		}
		release(&rig, round);
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(waiter[i].result, 0);
		}
	}
	teardown(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fences), cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_ring),   cmocka_unit_test(test_fd),
		cmocka_unit_test(test_copy),   cmocka_unit_test(test_fault),
		cmocka_unit_test(test_lost),   cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
