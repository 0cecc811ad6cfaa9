// SPDX-License-Identifier: MIT
/* Queues: fences, deadlines, the ring, faults, several threads. */
#include <poll.h>
#include <pthread.h>

#include "libtxda_test.h"
#include "clock.h"
#include "events.h"

static struct txda_context *context;
static struct txda_device *device;
static struct txda_queue *queue;
static struct txda_buffer *buffer; /* a page */
static uint64_t *word;		   /* its host view */

static void begin(const char *spec, enum txda_queue_class queue_class)
{
	void *ptr;

	context = open_context(spec);
	device = device_of(context, 0);
	ok(context, txda_queue_new(device, queue_class, &queue));
	ok(context, txda_buffer_new(device, 4096, TXDA_MEMORY_DEVICE, 0, &buffer));
	ok(context, txda_buffer_map(buffer, &ptr));
	word = ptr;
}

static int end(void **state)
{
	txda_queue_unref(queue);
	txda_buffer_unref(buffer);
	txda_context_unref(context);
	return 0;
}

TEST(test_fences)
{
	struct txda_pkt_fill fill = {.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)},
				     .bytes = 8};
	uint64_t fence, passed = 77;

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	ok(context, txda_queue_passed(queue, &passed));
	assert_int_equal(passed, 0);
	fill.dst = txda_buffer_va(buffer);
	for (unsigned i = 1; i <= 2000; i++) {
		fill.value = i;
		ok(context, txda_queue_submit(queue, &fill, sizeof(fill),
					      i % 2 ? TXDA_SUBMIT_WAIT_SOON : 0, &fence));
		assert_int_equal(fence, i);
		ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
		assert_int_equal(*word, (uint64_t)i << 32 | i);
	}
	/* Nothing will ever pass what was not given out. */
	fails(context, txda_queue_wait(queue, fence + 1, TXDA_FOREVER), -EINVAL,
	      "fence 2001 was not given out; the last one is 2000");
	assert_int_equal(txda_queue_wait(queue, UINT64_MAX, TXDA_FOREVER), -EINVAL);
	ok(context, txda_queue_wait(queue, 1, 0));
	ok(context, txda_queue_passed(queue, &passed));
	assert_int_equal(passed, fence);
	assert_int_equal(txda_queue_fault(queue, NULL, 0), 0);
	/* What makes no stream. */
	assert_int_equal(txda_queue_submit(queue, &fill, 12, 0, &fence), -EINVAL);
	assert_int_equal(txda_queue_submit(queue, &fill, TXDA_STREAM_MAX_BYTES, 0, &fence),
			 -EINVAL);
	assert_int_equal(txda_queue_submit(queue, &fill, sizeof(fill), 8, &fence), -EINVAL);
}

/* A stream that waits until somebody stores the word. */
static void submit_wait(uint64_t value, uint64_t *ret_fence)
{
	struct txda_pkt_fence wait = {.hdr = {.op = TXDA_PKT_WAIT, .bytes = sizeof(wait)},
				      .value = value};

	wait.va = txda_buffer_va(buffer);
	ok(context, txda_queue_submit(queue, &wait, sizeof(wait), 0, ret_fence));
}

/* Another queue of the chip stores the word, so that the machine hears of it. */
static void release(uint64_t value)
{
	struct txda_pkt_fence signal = {.hdr = {.op = TXDA_PKT_SIGNAL, .bytes = sizeof(signal)},
					.value = value};
	struct txda_queue *other;
	uint64_t fence;

	signal.va = txda_buffer_va(buffer);
	ok(context, txda_queue_new(device, TXDA_QUEUE_COPY, &other));
	ok(context, txda_queue_submit(other, &signal, sizeof(signal), 0, &fence));
	ok(context, txda_queue_wait(other, fence, TXDA_FOREVER));
	txda_queue_unref(other);
}

TEST(test_deadlines)
{
	uint64_t fence, start;

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	submit_wait(1, &fence);
	fails(context, txda_queue_wait(queue, fence, 0), -ETIMEDOUT,
	      "fence 1 has not passed (0 has)");
	start = clock_ns();
	assert_int_equal(txda_queue_wait(queue, fence, start + 30000000), -ETIMEDOUT);
	assert_true(clock_ns() - start >= 30000000);
	assert_true(clock_ns() - start < 5000000000ull);
	assert_int_equal(txda_queue_wait(queue, fence + 1, TXDA_FOREVER), -EINVAL);
	release(1);
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	/* A queue may go while its work waits. */
	submit_wait(1000, &fence);
}

TEST(test_ring)
{
	struct txda_pkt_fill *fill = calloc(2000, sizeof(*fill));
	uint64_t fence, last = 0, seed = 5;
	int r;

	assert_non_null(fill);
	begin("mem=64M,cores=2", TXDA_QUEUE_COPY);
	/* Too many streams in flight: the submitter is told, and goes on when some have passed. */
	submit_wait(1, &last);
	do {
		r = txda_queue_submit(queue, NULL, 0, 0, &fence);
		if (r >= 0)
			last = fence;
	} while (r >= 0 && last < 100000);
	fails(context, r, -EAGAIN, "are in flight");
	assert_true(last >= 200);
	release(1);
	ok(context, txda_queue_wait(queue, last, TXDA_FOREVER));

	/* Likewise when the ring has no room for their bytes. */
	for (unsigned i = 0; i < 2000; i++)
		fill[i] = (struct txda_pkt_fill){
			.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill[0])},
			.dst = txda_buffer_va(buffer) + 8,
			.bytes = 4,
			.value = i};
	for (unsigned round = 2; round < 8; round++) {
		unsigned n = 0;

		submit_wait(round, &last);
		while ((r = txda_queue_submit(queue, fill, 2000 * sizeof(fill[0]), 0, &fence)) >=
		       0) {
			last = fence;
			n++;
		}
		assert_int_equal(r, -EAGAIN);
		assert_true(n >= 10 && n < 40);
		release(round);
		ok(context, txda_queue_wait(queue, last, TXDA_FOREVER));
	}

	/* Streams of all sizes around the ring, each checked by what it leaves. */
	for (unsigned round = 0; round < 3000; round++) {
		unsigned n;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		n = (unsigned)(seed >> 33) % (round % 10 ? 20 : 2000) + 1;
		for (unsigned i = 0; i < n; i++)
			fill[i] = (struct txda_pkt_fill){
				.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill[0])},
				.dst = txda_buffer_va(buffer),
				.bytes = 4,
				.value = round * 2000 + i,
			};
		while ((r = txda_queue_submit(queue, fill, n * sizeof(fill[0]), 0, &fence)) ==
		       -EAGAIN)
			ok(context, txda_queue_wait(queue, last - 5, TXDA_FOREVER));
		ok(context, r);
		assert_int_equal(fence, last + 1);
		last = fence;
		if (seed >> 60 == 0) {
			ok(context, txda_queue_wait(queue, last, TXDA_FOREVER));
			assert_int_equal((uint32_t)*word, round * 2000 + n - 1);
		}
	}
	ok(context, txda_queue_wait(queue, last, TXDA_FOREVER));
	free(fill);
}

TEST(test_fd)
{
	struct pollfd poll_fd = {.events = POLLIN};
	uint64_t fence, count;

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	poll_fd.fd = txda_queue_fd(queue);
	assert_true(poll_fd.fd >= 0);
	assert_int_equal(txda_queue_fd(queue), poll_fd.fd);
	assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(poll(&poll_fd, 1, 20), 0);
	for (unsigned i = 0; i < 100; i++) {
		ok(context, txda_queue_submit(queue, NULL, 0, 0, &fence));
		assert_int_equal(poll(&poll_fd, 1, 10000), 1);
		assert_int_equal(read(poll_fd.fd, &count, sizeof(count)), sizeof(count));
		ok(context, txda_queue_wait(queue, fence, 0));
	}
}

TEST(test_copy)
{
	struct txda_buffer *big, *host, *elsewhere;
	uint64_t fence;
	char text[8];

	begin("chips=2,mem=64M,cores=2", TXDA_QUEUE_COPY);
	ok(context, txda_buffer_new(device, 20 << 20, TXDA_MEMORY_DEVICE, 0, &big));
	ok(context,
	   txda_buffer_new(device, 20 << 20, TXDA_MEMORY_HOST, TXDA_BUFFER_READ_ONLY, &host));
	ok(context, txda_buffer_write(host, 1000000, "payload", 8));
	ok(context, txda_queue_copy(queue, big, 3, host, 5, (20 << 20) - 5, &fence));
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	ok(context, txda_buffer_read(big, 1000000 - 2, text, 8));
	assert_string_equal(text, "payload");
	assert_int_equal(txda_queue_copy(queue, big, 20 << 20, host, 0, 1, &fence), -ERANGE);
	assert_int_equal(txda_queue_copy(queue, big, 0, host, 1, UINT64_MAX, &fence), -ERANGE);
	ok(context, txda_buffer_new(device_of(context, 1), 100, TXDA_MEMORY_DEVICE, 0, &elsewhere));
	assert_int_equal(txda_queue_copy(queue, elsewhere, 0, host, 0, 8, &fence), -EXDEV);
	/* The chip copies no overlapping ranges; those that meet are none. */
	assert_int_equal(txda_queue_copy(queue, big, 7, big, 0, 8, &fence), -EINVAL);
	fails(context, txda_queue_copy(queue, big, 0, big, 7, 8, &fence), -EINVAL,
	      "copy of 8 bytes from 7 to 0 of one buffer");
	ok(context, txda_queue_copy(queue, big, 8, big, 0, 8, &fence));
	ok(context, txda_queue_copy(queue, big, 0, big, 8, 8, &fence));
	ok(context, txda_queue_copy(queue, big, 0, big, 0, 0, &fence));
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	/* The chip only reads what is read-only; the queue goes on. */
	fails(context, txda_queue_copy(queue, host, 0, big, 0, 8, &fence), -EACCES,
	      "a buffer that the chip only reads");
	assert_int_equal(txda_queue_copy(queue, host, 0, big, 0, 0, &fence), -EACCES);
	assert_int_equal(txda_queue_copy(queue, host, 0, host, 8, 8, &fence), -EACCES);
	ok(context, txda_queue_copy(queue, big, 0, host, 0, 8, &fence));
	ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
	txda_buffer_unref(big);
	txda_buffer_unref(host);
	txda_buffer_unref(elsewhere);
}

static struct txda_buffer *new_buffer(uint64_t bytes)
{
	struct txda_buffer *ret;

	ok(context, txda_buffer_new(device, bytes, TXDA_MEMORY_DEVICE, 0, &ret));
	return ret;
}

static bool overlap(struct txda_buffer *a, uint64_t va, uint64_t bytes)
{
	return txda_buffer_va(a) < va + bytes && va < txda_buffer_va(a) + txda_buffer_bytes(a);
}

/* Memory that a queued copy uses stays until the copy is done, whoever else has dropped it. */
TEST(test_held)
{
	struct txda_buffer *from, *to, *kept, *fresh;
	uint64_t fence, last, used, to_va, from_va;
	char text[8];

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	used = used_bytes(context, 0);
	for (unsigned round = 1; round <= 20; round++) {
		from = new_buffer(65536);
		to = new_buffer(65536);
		kept = new_buffer(65536);
		from_va = txda_buffer_va(from);
		to_va = txda_buffer_va(to);
		ok(context, txda_buffer_write(from, 100, "payload", 8));
		submit_wait(round, &fence);
		ok(context, txda_queue_copy(queue, to, 0, from, 0, 65536, &fence));
		ok(context, txda_queue_copy(queue, kept, 0, to, 0, 65536, &fence));
		txda_buffer_unref(from);
		txda_buffer_unref(to);
		ok(context, txda_queue_passed(queue, &last));
		assert_true(last < fence);
		assert_int_equal(used_bytes(context, 0), used + 3 * 65536);
		fresh = new_buffer(65536);
		assert_false(overlap(fresh, from_va, 65536) || overlap(fresh, to_va, 65536));
		release(round);
		/* Who waits by other means learns of it, too. */
		if (round % 2)
			ok(context, txda_queue_wait(queue, fence, TXDA_FOREVER));
		while (last < fence)
			ok(context, txda_queue_passed(queue, &last));
		assert_int_equal(used_bytes(context, 0), used + 2 * 65536);
		ok(context, txda_buffer_read(kept, 100, text, 8));
		assert_string_equal(text, "payload");
		ok(context, txda_buffer_read(fresh, 100, text, 8));
		assert_memory_equal(text, "\0\0\0\0\0\0\0", 8);
		txda_buffer_unref(fresh);
		txda_buffer_unref(kept);
		assert_int_equal(used_bytes(context, 0), used);
	}

	/* As many as go; the one that does not go holds nothing, and a fence before says nothing. */
	submit_wait(50, &fence);
	kept = new_buffer(4096);
	for (last = fence;;) {
		int r;

		from = new_buffer(4096);
		r = txda_queue_copy(queue, kept, 0, from, 0, 4096, &last);
		txda_buffer_unref(from);
		if (r < 0) {
			assert_int_equal(r, -EAGAIN);
			break;
		}
		assert_int_equal(txda_queue_wait(queue, fence, 0), -ETIMEDOUT);
		assert_true(last < 100000);
	}
	assert_true(last - fence >= 200);
	assert_int_equal(used_bytes(context, 0), used + (last - fence + 1) * 4096);
	release(50);
	ok(context, txda_queue_wait(queue, last, TXDA_FOREVER));
	assert_int_equal(used_bytes(context, 0), used + 4096);

	/* A queue that goes drops all. */
	submit_wait(1000, &fence);
	from = new_buffer(4096);
	ok(context, txda_queue_copy(queue, kept, 0, from, 0, 4096, &fence));
	txda_buffer_unref(from);
	txda_buffer_unref(kept);
	assert_int_equal(used_bytes(context, 0), used + 2 * 4096);
	queue = txda_queue_unref(queue);
	assert_int_equal(used_bytes(context, 0), used);
}

/* A stream of the caller's own holds nothing: it faults, and changes nobody else's memory. */
TEST(test_not_held)
{
	struct txda_pkt_fill fill = {
		.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)}, .bytes = 4096, .value = 7};
	struct txda_buffer *gone, *fresh[8];
	struct txda_queue *other;
	uint64_t fence, passed;
	char text[4096];

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	ok(context, txda_queue_new(device, TXDA_QUEUE_COPY, &other));
	gone = new_buffer(4096);
	fill.dst = txda_buffer_va(gone);
	submit_wait(1, &fence);
	ok(context, txda_queue_submit(queue, &fill, sizeof(fill), 0, &fence));
	txda_buffer_unref(gone);
	/* What other queues do meanwhile says nothing about this one. */
	for (unsigned i = 0; i < 8; i++) {
		fresh[i] = new_buffer(4096);
		assert_false(overlap(fresh[i], fill.dst, 4096));
		ok(context, txda_queue_submit(other, NULL, 0, 0, &passed));
		ok(context, txda_queue_wait(other, passed, TXDA_FOREVER));
		txda_buffer_unref(new_buffer(4096));
	}
	release(1);
	assert_int_equal(txda_queue_wait(queue, fence, TXDA_FOREVER), -EIO);
	for (unsigned i = 0; i < 8; i++) {
		ok(context, txda_buffer_read(fresh[i], 0, text, sizeof(text)));
		for (unsigned k = 0; k < sizeof(text); k++)
			assert_int_equal(text[k], 0);
		txda_buffer_unref(fresh[i]);
	}
	/* With the queue its addresses are free again. */
	queue = txda_queue_unref(queue);
	gone = new_buffer(4096);
	assert_int_equal(txda_buffer_va(gone), fill.dst);
	txda_buffer_unref(gone);
	txda_queue_unref(other);
}

TEST(test_fault)
{
	struct txda_pkt_fill fill = {
		.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)}, .bytes = 8, .value = 7};
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct pollfd poll_fd = {.events = POLLIN};
	struct txda_buffer *fresh;
	struct txda_queue *second;
	unsigned kept = 0;
	char text[400];
	uint64_t fence, va;
	int len;

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	ok(context, txda_queue_submit(queue, NULL, 0, 0, &fence));
	fill.dst = txda_buffer_va(buffer) + 4096; /* the guard behind the buffer */
	ok(context, txda_queue_submit(queue, &fill, sizeof(fill), 0, &fence));
	fails(context, txda_queue_wait(queue, fence, TXDA_FOREVER), -EIO, "chip 0: ");
	len = txda_queue_fault(queue, text, sizeof(text));
	assert_int_equal(len, strlen(text));
	assert_true(len > 10);
	ok(context, txda_queue_wait(queue, fence - 1, 0)); /* what passed, passed */
	/* Nothing of it runs any more, so that addresses are used again. */
	va = txda_buffer_va(buffer);
	for (unsigned i = 0; i < 100; i++)
		txda_buffer_unref(new_buffer(65536));
	fresh = new_buffer(65536);
	assert_true(txda_buffer_va(fresh) - va < 10 * 65536ull);
	txda_buffer_unref(fresh);
	assert_int_equal(txda_queue_submit(queue, NULL, 0, 0, &fence), -EIO);
	assert_int_equal(txda_queue_wait(queue, fence + 1, TXDA_FOREVER), -EINVAL);

	poll_fd.fd = txda_context_event_fd(context);
	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	ok(context, txda_context_event(context, &event));
	assert_int_equal(event.kind, TXDA_EVENT_FAULT);
	assert_int_equal(event.device, 0);
	assert_says(text, event.text);
	assert_int_equal(txda_context_event(context, &event), -EAGAIN);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);

	/* Of more faults than are kept the oldest go. */
	for (unsigned i = 0; i < 100; i++) {
		ok(context, txda_queue_new(device, TXDA_QUEUE_COMPUTE, &second));
		ok(context, txda_queue_submit(second, &fill, sizeof(fill), 0, &fence));
		assert_int_equal(txda_queue_wait(second, fence, TXDA_FOREVER), -EIO);
		txda_queue_unref(second);
	}
	while (txda_context_event(context, &event) >= 0) {
		/* ... and how many did is told with the oldest of those that are left. */
		assert_int_equal(event.dropped, kept ? 0 : 100 - TXDA__EVENTS);
		kept++;
	}
	assert_int_equal(kept, TXDA__EVENTS);

	/* Other queues go on, also new ones of the same chip. */
	fill.dst -= 4096;
	ok(context, txda_queue_new(device, TXDA_QUEUE_COMPUTE, &second));
	ok(context, txda_queue_submit(second, &fill, sizeof(fill), 0, &fence));
	ok(context, txda_queue_wait(second, fence, TXDA_FOREVER));
	assert_int_equal(*word, 0x700000007ull);
	txda_queue_unref(second);
}

TEST(test_lost)
{
	struct txda_event event = TXDA_INIT(struct txda_event);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_pkt_fill fill = {.hdr = {.op = TXDA_PKT_FILL, .bytes = sizeof(fill)},
				     .bytes = 8};
	struct pollfd poll_fd = {.events = POLLIN};
	bool removed = false;
	uint64_t fence = 0;
	int r = 0;

	begin("chips=2,mem=64M,cores=2,faults=lost:chip=0:after=3", TXDA_QUEUE_COMPUTE);
	fill.dst = txda_buffer_va(buffer);
	for (unsigned i = 0; i < 100 && r >= 0; i++) {
		r = txda_queue_submit(queue, &fill, sizeof(fill), 0, &fence);
		if (r >= 0)
			r = txda_queue_wait(queue, fence, TXDA_FOREVER);
	}
	assert_int_equal(r, -ENODEV);
	assert_int_equal(txda_queue_submit(queue, &fill, sizeof(fill), 0, &fence), -ENODEV);
	ok(context, txda_device_status(device, &status));
	assert_true(status.lost);
	/* It does not answer: 0 would be a value. */
	assert_int_equal(status.power_mw, UINT32_MAX);
	assert_int_equal(status.temp_mc, INT32_MIN);
	assert_int_equal(status.clock_khz, UINT32_MAX);
	poll_fd.fd = txda_context_event_fd(context);
	while (!removed && poll(&poll_fd, 1, 10000) == 1) {
		ok(context, txda_context_event(context, &event));
		removed = event.kind == TXDA_EVENT_DEVICE_REMOVED;
	}
	assert_true(removed);
	assert_says(event.text, "chip 0 is lost");
}

struct waiter {
	uint64_t fence;
	int result;
};

static void *wait_for(void *arg)
{
	struct waiter *w = arg;

	w->result = txda_queue_wait(queue, w->fence, TXDA_FOREVER);
	return NULL;
}

TEST(test_threads)
{
	enum { THREADS = 4 };
	struct waiter waiter[THREADS];
	pthread_t thread[THREADS];
	uint64_t fence;

	begin("mem=64M,cores=2", TXDA_QUEUE_COMPUTE);
	for (unsigned round = 1; round <= 30; round++) {
		submit_wait(round, &fence);
		for (unsigned i = 0; i < THREADS; i++) {
			waiter[i] = (struct waiter){fence, 1};
			assert_int_equal(pthread_create(&thread[i], NULL, wait_for, &waiter[i]), 0);
		}
		release(round);
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(waiter[i].result, 0);
		}
	}
}

TEST_MAIN_EACH(NULL, end)
