// SPDX-License-Identifier: MIT
/* Packets of each type, good and bad; queues; waits across queues. */
#include "cm_fixture.h"

#include <errno.h>
#include <time.h>

static struct fix f;

static int setup(void **state)
{
	fix_new(&f, 2, 2);
	return 0;
}

static int teardown(void **state)
{
	fix_free(&f);
	return 0;
}

static void fill_random(uint8_t *p, size_t n)
{
	uint32_t x = 12345;

	for (size_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
}

/* Runs one packet on the first chip. */
static void run_packet(struct cm_queue *q, uint16_t op, void *packet, size_t bytes)
{
	struct fix_stream s = fix_stream(&f.c[0]);

	fix_put(&s, op, 0, packet, bytes);
	assert_int_equal(fix_run(&f, q, &s), 0);
}

TEST(test_empty)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fix_stream(&f.c[0]);
	struct txda_pkt nop[4];

	assert_int_equal(cm_queue_submit(q, FIX_VA, 0, false), 0);
	fix_put(&s, TXDA_PKT_NOP, 0, nop, sizeof(nop[0]));
	fix_put(&s, TXDA_PKT_NOP, 0, nop, sizeof(nop));
	assert_int_equal(fix_run(&f, q, &s), 0);
	assert_int_equal(cm_queue_state(q), CM_QUEUE_OK);
	assert_int_equal(cm_queue_fault(q, &(struct txda_fault){0}), -ENOENT);
	assert_true(cm_queue_progress(q) >= 3);
	cm_queue_free(q);
}

TEST(test_copy)
{
	static const uint64_t sizes[] = {0, 1, 7, 4096, 300000, 2500000};
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	uint8_t *src = f.c[0].mem + FIX_DATA, *dst = src + (4 << 20);
	struct cm_sensors before, after;

	fill_random(src, 3 << 20);
	cm_chip_sensors(f.c[0].chip, &before);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct txda_pkt_copy p = {
			.dst = FIX_VA + FIX_DATA + (4 << 20) + 3,
			.src = FIX_RO + FIX_DATA + 1,
			.bytes = sizes[i],
		};

		memset(dst, 0xee, 3 << 20);
		run_packet(q, TXDA_PKT_COPY, &p, sizeof(p));
		assert_memory_equal(dst + 3, src + 1, sizes[i]);
		assert_int_equal(dst[2], 0xee);
		assert_int_equal(dst[3 + sizes[i]], 0xee);
	}
	cm_chip_sensors(f.c[0].chip, &after);
	assert_int_equal(after.bytes_written - before.bytes_written, 8 + 4096 + 300000 + 2500000);
	assert_true(after.copy_busy_ns > before.copy_busy_ns);
	cm_queue_free(q);
}

TEST(test_copy_2d)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	uint8_t *src = f.c[0].mem + FIX_DATA, *dst = src + (4 << 20);
	struct txda_pkt_copy_2d p = {
		.dst = FIX_VA + FIX_DATA + (4 << 20),
		.src = FIX_VA + FIX_DATA,
		.dst_pitch = 700,
		.src_pitch = 1000,
		.row_bytes = 613,
		.rows = 2000,
	};

	fill_random(src, 3 << 20);
	memset(dst, 0xee, 3 << 20);
	run_packet(q, TXDA_PKT_COPY_2D, &p, sizeof(p));
	for (unsigned row = 0; row < 2000; row++) {
		assert_memory_equal(dst + row * 700, src + row * 1000, 613);
		assert_int_equal(dst[row * 700 + 613], 0xee);
	}
	/* One row many times. */
	p.src_pitch = 0;
	run_packet(q, TXDA_PKT_COPY_2D, &p, sizeof(p));
	p.rows = 0;
	p.dst = 0;
	run_packet(q, TXDA_PKT_COPY_2D, &p, sizeof(p));
	assert_memory_equal(dst + 1999 * 700, src, 613);
	cm_queue_free(q);
}

/* A piece is limited in rows, too: a queue can be stopped only between pieces. */
TEST(test_copy_2d_of_tiny_rows)
{
	enum { ROWS = 300000 };
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	uint8_t *src = f.c[0].mem + FIX_DATA, *dst = src + (4 << 20);
	struct txda_pkt_copy_2d p = {
		.dst = FIX_VA + FIX_DATA + (4 << 20),
		.src = FIX_VA + FIX_DATA,
		.dst_pitch = 3,
		.src_pitch = 2,
		.row_bytes = 1,
		.rows = ROWS,
	};

	fill_random(src, 2 * ROWS);
	memset(dst, 0xee, 3 * ROWS);
	run_packet(q, TXDA_PKT_COPY_2D, &p, sizeof(p));
	for (unsigned row = 0; row < ROWS; row++) {
		assert_int_equal(dst[3 * row], src[2 * row]);
		assert_int_equal(dst[3 * row + 1], 0xee);
	}
	assert_true(cm_queue_progress(q) > ROWS >> 16);
	cm_queue_free(q);
}

TEST(test_fill)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct txda_pkt_fill p = {
		.dst = FIX_VA + FIX_DATA + 4,
		.bytes = 1000000,
		.value = 0x12345678,
	};
	uint32_t *word = (uint32_t *)(f.c[0].mem + FIX_DATA);

	word[0] = word[250001] = 7;
	run_packet(q, TXDA_PKT_FILL, &p, sizeof(p));
	for (unsigned i = 1; i <= 250000; i++)
		assert_int_equal(word[i], 0x12345678);
	assert_int_equal(word[0], 7);
	assert_int_equal(word[250001], 7);
	cm_queue_free(q);
}

TEST(test_timestamp)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct txda_pkt_timestamp p = {.va = fix_word_va(3)};
	uint64_t before = cm_chip_time_ns(f.c[0].chip);

	run_packet(q, TXDA_PKT_TIMESTAMP, &p, sizeof(p));
	assert_true(*fix_word(&f.c[0], 3) >= before);
	assert_true(*fix_word(&f.c[0], 3) <= cm_chip_time_ns(f.c[0].chip));
	cm_queue_free(q);
}

/* Runs one packet on a new queue; it must fault with this code. */
static struct txda_fault fault_of(enum cm_queue_class class, uint16_t op, uint16_t flags,
				  void *packet, size_t bytes, uint32_t code)
{
	struct cm_queue *q = fix_queue(&f, 0, class);
	struct fix_stream s = fix_stream(&f.c[0]);
	struct txda_fault fault;

	fix_put(&s, op, flags, packet, bytes);
	fix_expect_fault(&f, q, &s, code, &fault);
	assert_int_equal(fault.packet_va, FIX_VA + s.off);
	cm_queue_free(q);
	return fault;
}

/* Submits a stream on a new queue; its fault has this code. */
static struct txda_fault stream_fault(uint64_t va, uint64_t bytes, uint32_t code)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct txda_fault fault;

	assert_int_equal(cm_queue_submit(q, va, bytes, false), 0);
	assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 9), 1), -EIO);
	assert_int_equal(cm_queue_fault(q, &fault), 0);
	assert_int_equal(fault.code, code);
	cm_queue_free(q);
	return fault;
}

TEST(test_bad_frames)
{
	static const uint32_t sizes[] = {0, 1, 7, 12, 16, 4096, 0x7ffffff8, 0xffffffff};
	static const struct {
		enum cm_queue_class class;
		uint16_t op, flags;
		size_t bytes;
	} bad[] = {
		{CM_QUEUE_COMPUTE, 0xffff, 0, 8},
		{CM_QUEUE_COMPUTE, TXDA_PKT_NOP, 1, 8},
		{CM_QUEUE_COMPUTE, TXDA_PKT_SIGNAL, 2, sizeof(struct txda_pkt_fence)},
		{CM_QUEUE_COMPUTE, TXDA_PKT_EXEC, 8, sizeof(struct txda_pkt_exec)},
		/* Sizes that are not those of the type. */
		{CM_QUEUE_COMPUTE, TXDA_PKT_COPY, 0, sizeof(struct txda_pkt_copy) - 8},
		{CM_QUEUE_COMPUTE, TXDA_PKT_EXEC, 0, sizeof(struct txda_pkt_exec) + 8},
		/* Not for copy queues. */
		{CM_QUEUE_COPY, TXDA_PKT_EXEC, 0, sizeof(struct txda_pkt_exec)},
		{CM_QUEUE_COPY, TXDA_PKT_ALL_REDUCE, 0, sizeof(struct txda_pkt_collective)},
	};
	uint64_t big[16] = {0};
	struct txda_fault fault;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct txda_pkt nop = {TXDA_PKT_NOP, 0, sizes[i]};

		/* A stream of 8 bytes: none of these sizes fits. */
		memcpy(f.c[0].mem, &nop, sizeof(nop));
		assert_int_equal(stream_fault(FIX_VA, 8, TXDA_FAULT_PACKET).detail, sizes[i]);
	}
	fault = fault_of(CM_QUEUE_COMPUTE, TXDA_PKT_COUNT, 0, big, 8, TXDA_FAULT_PACKET);
	assert_int_equal(fault.detail, TXDA_PKT_COUNT);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		fault_of(bad[i].class, bad[i].op, bad[i].flags, big, bad[i].bytes,
			 TXDA_FAULT_PACKET);
}

TEST(test_bad_streams)
{
	static const struct {
		uint64_t va, bytes;
		uint32_t code;
	} bad[] = {
		{FIX_VA + 4, 8, TXDA_FAULT_PACKET},
		{FIX_VA, 12, TXDA_FAULT_PACKET},
		{FIX_VA, TXDA_STREAM_MAX_BYTES + 8, TXDA_FAULT_PACKET},
		{FIX_VA, UINT64_MAX - 7, TXDA_FAULT_PACKET},
		{0, 8, TXDA_FAULT_PAGE},
		{FIX_VA + FIX_MEM - 8, 16, TXDA_FAULT_PAGE},
		{UINT64_MAX - 7, 8, TXDA_FAULT_PAGE},
		{CM_VA_BYTES - 8, 16, TXDA_FAULT_PAGE},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(stream_fault(bad[i].va, bad[i].bytes, bad[i].code).packet_va,
				 bad[i].va);
}

TEST(test_bad_transfers)
{
	const uint64_t data = FIX_VA + FIX_DATA, end = FIX_VA + FIX_MEM;
	struct txda_pkt_copy copies[] = {
		{{0, 0, 0}, data, data + 63, 64}, /* overlap */
		{{0, 0, 0}, data + 63, data, 64},
		{{0, 0, 0}, FIX_RO + FIX_DATA, data, 64}, /* read-only */
		{{0, 0, 0}, data, end - 63, 64},	  /* over the end */
		{{0, 0, 0}, data, UINT64_MAX - 10, 64},
		{{0, 0, 0}, UINT64_MAX - 63, data, 64},
		{{0, 0, 0}, data, FIX_RO, UINT64_MAX},
		{{0, 0, 0}, 0, data, 1},
	};
	struct txda_pkt_copy_2d planes[] = {
		{{0, 0, 0}, data, data + 8192, 64, 64, 128, 2},		   /* rows overlap */
		{{0, 0, 0}, data, data + 8192, UINT64_MAX / 2, 64, 64, 4}, /* overflow */
		{{0, 0, 0}, data, data + 8192, 64, UINT64_MAX, 64, 2},
		{{0, 0, 0}, data, data + 8192, 1, 0, 1, UINT64_MAX},
		{{0, 0, 0}, data, data + 8192, FIX_MEM, 64, 64, 2},
		{{0, 0, 0}, data, data + 8192, 64, FIX_MEM, 64, 2},
	};
	struct txda_pkt_fill fills[] = {
		{{0, 0, 0}, data + 2, 4, 0, 0}, {{0, 0, 0}, data, 5, 0, 0},
		{{0, 0, 0}, data, 4, 0, 1},	{{0, 0, 0}, end - 4, 8, 0, 0},
		{{0, 0, 0}, FIX_RO, 8, 0, 0},	{{0, 0, 0}, data, UINT64_MAX - 3, 0, 0},
	};
	struct txda_fault fault;

	for (unsigned i = 0; i < 8; i++) {
		fault = fault_of(CM_QUEUE_COPY, TXDA_PKT_COPY, 0, &copies[i], sizeof(copies[i]),
				 i < 2 || i == 6 ? TXDA_FAULT_PACKET : TXDA_FAULT_PAGE);
		if (i == 3)
			assert_int_equal(fault.va, end);
		if (i == 2)
			assert_int_equal(fault.va, FIX_RO + FIX_DATA);
	}
	for (unsigned i = 0; i < 6; i++)
		fault_of(CM_QUEUE_COPY, TXDA_PKT_COPY_2D, 0, &planes[i], sizeof(planes[i]),
			 i < 3 ? TXDA_FAULT_PACKET : TXDA_FAULT_PAGE);
	for (unsigned i = 0; i < 6; i++)
		fault_of(CM_QUEUE_COPY, TXDA_PKT_FILL, 0, &fills[i], sizeof(fills[i]),
			 i < 3 ? TXDA_FAULT_PACKET : TXDA_FAULT_PAGE);
}

TEST(test_bad_fences)
{
	struct txda_pkt_fence fences[] = {
		{{0, 0, 0}, fix_word_va(0) + 4, 1},
		{{0, 0, 0}, 0, 1},
		{{0, 0, 0}, UINT64_MAX - 7, 1},
		{{0, 0, 0}, FIX_RO, 1},
	};
	struct txda_pkt_timestamp stamp = {.va = fix_word_va(0) + 1};

	for (unsigned i = 0; i < 4; i++) {
		fault_of(CM_QUEUE_COPY, TXDA_PKT_SIGNAL, 0, &fences[i], sizeof(fences[i]),
			 i ? TXDA_FAULT_PAGE : TXDA_FAULT_PACKET);
		if (i < 3)
			fault_of(CM_QUEUE_COPY, TXDA_PKT_WAIT, 0, &fences[i], sizeof(fences[i]),
				 i ? TXDA_FAULT_PAGE : TXDA_FAULT_PACKET);
	}
	fault_of(CM_QUEUE_COPY, TXDA_PKT_TIMESTAMP, 0, &stamp, sizeof(stamp), TXDA_FAULT_PACKET);
}

/* What follows a bad packet does not run, and other queues do. */
TEST(test_fault_stops_one_queue)
{
	struct cm_queue *bad = fix_queue(&f, 0, CM_QUEUE_COPY),
			*good = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fix_stream(&f.c[0]), t = fix_stream(&f.c[0]);
	struct txda_pkt_fill p = {.dst = FIX_VA + FIX_DATA, .bytes = 3};

	*fix_word(&f.c[0], 5) = 0;
	fix_put(&s, TXDA_PKT_FILL, 0, &p, sizeof(p));
	fix_signal(&s, fix_word_va(5), 1);
	fix_expect_fault(&f, bad, &s, TXDA_FAULT_PACKET, NULL);
	assert_int_equal(fix_run(&f, good, &t), 0);
	assert_int_equal(*fix_word(&f.c[0], 5), 0);
	cm_queue_free(bad);
	cm_queue_free(good);
}

/* Queues of two chips that wait for each other's words: a ring that starts when the host lets it.
 */
TEST(test_waits_across_queues)
{
	struct cm_queue *q[4];
	uint64_t *start = fix_word(&f.c[0], 20);

	/* Chip 1's memory in chip 0's space and the other way round. */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(cm_vm_map(f.c[i].vm, 0x40000000, cm_chip_dram_fd(f.c[!i].chip), 0,
					   FIX_MEM, CM_MAP_READ | CM_MAP_WRITE),
				 0);
	memset(fix_word(&f.c[0], 0), 0, 64 * 64);
	memset(fix_word(&f.c[1], 0), 0, 64 * 64);
	for (unsigned i = 0; i < 4; i++)
		q[i] = fix_queue(&f, i % 2, i < 2 ? CM_QUEUE_COPY : CM_QUEUE_COMPUTE);
	for (unsigned i = 0; i < 4; i++) {
		struct fix_stream s = fix_stream(&f.c[i % 2]);

		/* Queue i waits for word i of its chip, round by round, and sets that of the next.
		 */
		for (unsigned round = 1; round <= 20; round++) {
			fix_wait_packet(&s, i ? fix_word_va(i) : fix_word_va(round == 1 ? 20 : 4),
					i || round == 1 ? round : round - 1);
			fix_signal(&s,
				   i == 3 ? 0x40000000 + FIX_FENCES + 4 * 64
					  : 0x40000000 + FIX_FENCES + (i + 1) * 64,
				   round);
		}
		assert_int_equal(fix_submit(q[i], &s), 0);
	}
	for (volatile int i = 0; i < 1000000; i++)
		;
	assert_int_equal(*fix_word(&f.c[0], 4), 0);
	__atomic_store_n(start, 1, __ATOMIC_RELEASE);
	cm_kick(f.m);
	assert_int_equal(fix_wait(&f, NULL, fix_word(&f.c[0], 4), 20), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(cm_queue_state(q[i]), CM_QUEUE_OK);
		cm_queue_free(q[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(cm_vm_unmap(f.c[i].vm, 0x40000000, FIX_MEM), 0);
}

TEST(test_depth)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fix_stream(&f.c[0]), e = fix_stream(&f.c[0]);
	unsigned n = 1;

	*fix_word(&f.c[0], 6) = 0;
	*fix_word(&f.c[0], 7) = 0;
	fix_wait_packet(&s, fix_word_va(6), 1);
	fix_signal(&e, fix_word_va(7), 1);
	assert_int_equal(fix_submit(q, &s), 0);
	while (!fix_submit(q, &e))
		n++;
	assert_int_equal(fix_submit(q, &e), -EAGAIN);
	assert_int_equal(n, CM_QUEUE_DEPTH);
	assert_int_equal(cm_wait(f.m, q, fix_word(&f.c[0], 7), 1, 0), -ETIMEDOUT);
	assert_int_equal(
		cm_wait(f.m, q, fix_word(&f.c[0], 7), 1, cm_chip_time_ns(f.c[0].chip) + 2000000),
		-ETIMEDOUT);
	__atomic_store_n(fix_word(&f.c[0], 6), 1, __ATOMIC_RELEASE);
	cm_kick(f.m);
	assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 7), 1), 0);
	cm_queue_free(q);
}

struct calls {
	unsigned signals, faults;
	uint64_t va, value;
	struct txda_fault fault;
};

static void on_signal(void *arg, uint64_t va, uint64_t value)
{
	struct calls *c = arg;

	c->signals++;
	c->va = va;
	c->value = value;
}

static void on_fault(void *arg, const struct txda_fault *fault)
{
	struct calls *c = arg;

	c->faults++;
	c->fault = *fault;
}

TEST(test_callbacks)
{
	static const struct cm_queue_ops ops = {on_signal, on_fault};
	struct fix_stream s = fix_stream(&f.c[0]), t = fix_stream(&f.c[0]);
	struct txda_pkt_fence p = {.va = fix_word_va(8), .value = 77};
	struct txda_pkt bad;
	struct calls calls = {0};
	struct cm_queue *q;

	assert_int_equal(cm_queue_new(f.c[0].vm, CM_QUEUE_COPY, &ops, &calls, &q), 0);
	fix_put(&s, TXDA_PKT_SIGNAL, TXDA_SIGNAL_IRQ, &p, sizeof(p));
	assert_int_equal(fix_run(&f, q, &s), 0);
	fix_put(&t, 99, 0, &bad, sizeof(bad));
	fix_expect_fault(&f, q, &t, TXDA_FAULT_PACKET, NULL);
	/* A call may come a moment after a waiter sees fence or fault, but not after this. */
	cm_queue_free(q);
	assert_int_equal(calls.signals, 1);
	assert_int_equal(calls.va, p.va);
	assert_int_equal(calls.value, 77);
	assert_int_equal(calls.faults, 1);
	assert_int_equal(calls.fault.detail, 99);
}

TEST_MAIN_ALL(setup, teardown)
