// SPDX-License-Identifier: MIT
/* Collectives: members meet, disagree, get lost; and injected faults. */
#include "cm_fixture.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#define GROUP 3u /* the slot that the tests use */
#define COUNT 40000u
#define DATA  (FIX_VA + FIX_DATA)

static struct fix f;
static struct cm_queue *q[FIX_CHIPS];
static uint64_t next_id = 100;

/* A new machine whose chips are one group of @size. */
static void start(unsigned size)
{
	fix_new(&f, size, 2);
	next_id++;
	for (unsigned i = 0; i < size; i++) {
		assert_int_equal(cm_vm_set_group(f.c[i].vm, GROUP, next_id, i, size), 0);
		q[i] = fix_queue(&f, i, CM_QUEUE_COMPUTE);
	}
}

static int end(void **state)
{
	fix_free(&f);
	return 0;
}

static void submit_collective(unsigned chip, struct cm_queue *queue, uint16_t op, uint64_t dst,
			      uint64_t src, uint64_t count, uint32_t dtype, uint64_t fence)
{
	struct fix_stream s = fix_stream(&f.c[chip]);
	struct txda_pkt_collective p = {
		.dst = dst, .src = src, .count = count, .dtype = dtype, .group = GROUP};

	fix_put(&s, op, 0, &p, sizeof(p));
	fix_signal(&s, fix_word_va(0), fence);
	assert_int_equal(fix_submit(queue, &s), 0);
}

/* The member's part of a sum, from FIX_DATA to @dst beyond it. */
static void submit_sum(unsigned chip, uint64_t dst, uint64_t count, uint64_t fence)
{
	submit_collective(chip, q[chip], TXDA_PKT_ALL_REDUCE, DATA + dst, DATA, count, TXDA_F32,
			  fence);
}

/* Not within a few milliseconds. */
static void expect_waits(unsigned chip, uint64_t value)
{
	uint64_t until = cm_chip_time_ns(f.c[chip].chip) + 3000000;

	assert_int_equal(cm_wait(f.m, q[chip], fix_word(&f.c[chip], 0), value, until), -ETIMEDOUT);
}

static int wait_chip(unsigned chip, uint64_t value)
{
	return fix_wait(&f, q[chip], fix_word(&f.c[chip], 0), value);
}

static float *floats(unsigned chip, uint64_t off)
{
	return (float *)(f.c[chip].mem + FIX_DATA + off);
}

static float source(unsigned chip, unsigned i)
{
	return (float)((int)(i * 31 + chip * 977) % 1000) / 7;
}

TEST_WITH(test_reduce_f32, NULL, end)
{
	start(4);
	for (unsigned i = 0; i < 4 * COUNT; i++)
		floats(i % 4, 0)[i / 4] = source(i % 4, i / 4);
	/* Twice, the second time in place. */
	for (unsigned round = 1; round <= 2; round++) {
		uint64_t dst = DATA + (round == 1 ? 4 << 20 : 0);

		for (unsigned c = 4; c-- > 0;)
			submit_collective(c, q[c], TXDA_PKT_ALL_REDUCE, dst, DATA, COUNT, TXDA_F32,
					  round);
		for (unsigned c = 0; c < 4; c++) {
			float *out = (float *)(f.c[c].mem + (dst - FIX_VA));

			assert_int_equal(wait_chip(c, round), 0);
			for (unsigned i = 0; i < COUNT; i++)
				assert_true(out[i] == source(0, i) + source(1, i) + source(2, i) +
							      source(3, i));
		}
	}
}

static float from_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float x;

	memcpy(&x, &bits, 4);
	return x;
}

TEST_WITH(test_reduce_bf16, NULL, end)
{
	start(2);
	for (unsigned c = 0; c < 2; c++) {
		uint16_t *x = (uint16_t *)(f.c[c].mem + FIX_DATA);

		for (unsigned i = 0; i < 65536; i++)
			x[i] = c ? 0x3f80 : (uint16_t)i; /* every value, plus one */
	}
	for (unsigned c = 0; c < 2; c++)
		submit_collective(c, q[c], TXDA_PKT_ALL_REDUCE, DATA + (4 << 20), DATA, 65536,
				  TXDA_BF16, 1);
	assert_int_equal(wait_chip(0, 1), 0);
	assert_int_equal(wait_chip(1, 1), 0);
	for (unsigned i = 0; i < 65536; i++) {
		float want = from_bf16((uint16_t)i) + 1,
		      got = from_bf16(((uint16_t *)(f.c[1].mem + FIX_DATA + (4 << 20)))[i]);

		if (isnan(want))
			assert_true(isnan(got));
		else if (isinf(want))
			assert_true(got == want);
		else /* half a unit in the last place of 8 bits */
			assert_true(fabsf(got - want) <= fabsf(want) / 256 || isinf(got));
	}
}

TEST_WITH(test_gather, NULL, end)
{
	start(3);
	for (unsigned c = 0; c < 3; c++) {
		float *x = floats(c, 0);

		for (unsigned i = 0; i < COUNT; i++)
			x[i] = source(c, i);
		/* Rank 2 has its share in place already. */
		memcpy(f.c[c].mem + FIX_DATA + (4 << 20) + c * COUNT * 4, x, COUNT * 4);
	}
	for (unsigned c = 0; c < 3; c++)
		submit_collective(c, q[c], TXDA_PKT_ALL_GATHER, DATA + (4 << 20),
				  c == 2 ? DATA + (4 << 20) + 2 * COUNT * 4 : DATA, COUNT, TXDA_F32,
				  1);
	for (unsigned c = 0; c < 3; c++) {
		float *out = (float *)(f.c[c].mem + FIX_DATA + (4 << 20));

		assert_int_equal(wait_chip(c, 1), 0);
		for (unsigned i = 0; i < 3 * COUNT; i++)
			assert_true(out[i] == source(i / COUNT, i % COUNT));
	}
}

/* Each member has two queues; the i-th collectives of the members belong together all the same. */
TEST_WITH(test_order, NULL, end)
{
	struct cm_queue *second[2];

	start(2);
	for (unsigned c = 0; c < 2; c++)
		second[c] = fix_queue(&f, c, CM_QUEUE_COMPUTE);
	for (unsigned c = 0; c < 2; c++) {
		float *x = floats(c, 0);

		for (unsigned i = 0; i < 8; i++)
			x[i] = (float)(i + 1);
	}
	/* Chip 0 waits with both of its queues, in this order, before chip 1 comes. */
	submit_sum(0, 4096, 4, 1);
	expect_waits(0, 1);
	submit_collective(0, second[0], TXDA_PKT_ALL_REDUCE, DATA + 8192, DATA, 8, TXDA_F32, 2);
	expect_waits(0, 1);
	submit_collective(1, second[1], TXDA_PKT_ALL_REDUCE, DATA + 4096, DATA, 4, TXDA_F32, 1);
	/* Both queues of a chip store into its word, in any order unless one waits for the other. */
	assert_int_equal(wait_chip(0, 1), 0);
	assert_int_equal(wait_chip(1, 1), 0);
	submit_sum(1, 8192, 8, 2);
	assert_int_equal(wait_chip(1, 2), 0);
	assert_int_equal(wait_chip(0, 2), 0);
	assert_true(floats(0, 4096)[3] == 8);
	assert_true(floats(0, 8192)[7] == 16);
}

static void expect_code(struct cm_queue *queue, unsigned chip, uint32_t code)
{
	struct txda_fault fault;

	assert_int_equal(fix_wait(&f, queue, fix_word(&f.c[chip], 9), 1), -EIO);
	assert_int_equal(cm_queue_fault(queue, &fault), 0);
	assert_int_equal(fault.code, code);
}

TEST_WITH(test_disagreement, NULL, end)
{
	static const struct {
		uint16_t op;
		uint64_t count;
		uint32_t dtype;
	} other[] = {
		{TXDA_PKT_ALL_GATHER, 8, TXDA_F32},
		{TXDA_PKT_ALL_REDUCE, 9, TXDA_F32},
		{TXDA_PKT_ALL_REDUCE, 8, TXDA_BF16},
	};

	start(2);
	for (unsigned i = 0; i < 3; i++) {
		submit_sum(0, 4096, 8, 1);
		submit_collective(1, q[1], other[i].op, DATA + 4096, DATA, other[i].count,
				  other[i].dtype, 1);
		expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
		expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
		/* With new queues the group works again. */
		for (unsigned c = 0; c < 2; c++)
			cm_queue_free(q[c]);
		for (unsigned c = 0; c < 2; c++)
			q[c] = fix_queue(&f, c, CM_QUEUE_COMPUTE);
	}
	submit_sum(0, 4096, 8, 1);
	submit_sum(1, 4096, 8, 1);
	assert_int_equal(wait_chip(0, 1), 0);
	assert_int_equal(wait_chip(1, 1), 0);
}

TEST_WITH(test_bad_packets, NULL, end)
{
	struct {
		uint64_t dst, src, count;
		uint32_t dtype, code;
	} bad[] = {
		{DATA + 4096, DATA, 8, TXDA_I32, TXDA_FAULT_PACKET},
		{DATA + 4096, DATA, 8, 77, TXDA_FAULT_PACKET},
		{DATA + 4098, DATA, 8, TXDA_F32, TXDA_FAULT_PACKET},
		{DATA + 16, DATA, 8, TXDA_F32, TXDA_FAULT_PACKET},
		{DATA + 4096, DATA, UINT64_MAX, TXDA_F32, TXDA_FAULT_PACKET},
		{DATA + 4096, DATA, UINT64_MAX / 4 + 2, TXDA_F32, TXDA_FAULT_PACKET},
		{0, DATA, 8, TXDA_F32, TXDA_FAULT_PAGE},
		{FIX_RO, DATA, 8, TXDA_F32, TXDA_FAULT_PAGE},
		{DATA, UINT64_MAX - 3, 8, TXDA_F32, TXDA_FAULT_PAGE},
	};

	start(1);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		submit_collective(0, q[0], TXDA_PKT_ALL_REDUCE, bad[i].dst, bad[i].src,
				  bad[i].count, bad[i].dtype, 1);
		expect_code(q[0], 0, bad[i].code);
		cm_queue_free(q[0]);
		q[0] = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
	}
	assert_int_equal(cm_vm_set_group(f.c[0].vm, GROUP, 0, 0, 0), 0);
	submit_sum(0, 0, 8, 1);
	expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
}

TEST_WITH(test_set_group, NULL, end)
{
	start(2);
	assert_int_equal(cm_vm_set_group(f.c[0].vm, 16, 7, 0, 2), -EINVAL);
	assert_int_equal(cm_vm_set_group(f.c[0].vm, 0, 7, 2, 2), -EINVAL);
	assert_int_equal(cm_vm_set_group(f.c[0].vm, 0, 7, 0, 9), -EINVAL);
	assert_int_equal(cm_vm_set_group(f.c[0].vm, 0, 7, 0, 2), 0);
	assert_int_equal(cm_vm_set_group(f.c[1].vm, 0, 7, 0, 2), -EEXIST);
	assert_int_equal(cm_vm_set_group(f.c[1].vm, 0, 7, 1, 3), -EINVAL);
	assert_int_equal(cm_vm_set_group(f.c[1].vm, 0, 7, 1, 2), 0);
	assert_int_equal(cm_vm_set_group(f.c[1].vm, 0, 8, 1, 2), 0);
}

/* A member that others wait for is freed, faults, leaves the group or loses its chip. */
TEST(test_lost_members)
{
	for (unsigned how = 0; how < 6; how++) {
		struct txda_pkt bad;
		struct fix_stream s;

		start(3);
		/* All have used the group. */
		for (unsigned c = 0; c < 3; c++)
			submit_sum(c, 0, 8, 1);
		for (unsigned c = 0; c < 3; c++)
			assert_int_equal(wait_chip(c, 1), 0);
		for (unsigned c = 0; c < 2; c++)
			submit_sum(c, 0, 8, 2);
		expect_waits(0, 2);
		s = fix_stream(&f.c[2]);
		switch (how) {
		case 0:
			fix_wait_packet(&s, fix_word_va(50), 1);
			assert_int_equal(fix_submit(q[2], &s), 0);
			cm_queue_free(q[2]);
			break;
		case 1:
			fix_put(&s, 99, 0, &bad, sizeof(bad));
			assert_int_equal(fix_submit(q[2], &s), 0);
			break;
		case 2: assert_int_equal(cm_vm_set_group(f.c[2].vm, GROUP, 0, 0, 0), 0); break;
		case 3: assert_int_equal(cm_inject(f.m, "lost:chip=2"), 0); break;
		case 4:
			assert_int_equal(cm_inject(f.m, "link-down:chip=2"), 0);
			submit_sum(2, 0, 8, 2);
			break;
		case 5: cm_queue_free(q[0]); break;
		}
		expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
		if (how != 5)
			expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
		if (how == 3) {
			struct fix_stream e = fix_stream(&f.c[2]);
			struct cm_sensors sensors;
			struct cm_queue *more;
			struct cm_vm *vm;

			expect_code(q[2], 2, TXDA_FAULT_LOST);
			assert_int_equal(fix_submit(q[2], &e), -ENODEV);
			assert_int_equal(cm_queue_new(f.c[2].vm, CM_QUEUE_COPY, NULL, NULL, &more),
					 -ENODEV);
			assert_int_equal(cm_vm_new(f.c[2].chip, &vm), -ENODEV);
			cm_chip_sensors(f.c[2].chip, &sensors);
			assert_int_equal(sensors.lost, 1);
			/* Even after all of its queues are gone nobody waits for it. */
			for (unsigned c = 0; c < 3; c++)
				cm_queue_free(q[c]);
			q[0] = fix_queue(&f, 0, CM_QUEUE_COMPUTE);
			submit_sum(0, 0, 8, 3);
			expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
		}
		if (how == 4)
			expect_code(q[2], 2, TXDA_FAULT_COLLECTIVE);
		fix_free(&f);
	}
}

/* The third member ends before its first collective; the others wait for it already. */
TEST(test_newcomers)
{
	for (unsigned how = 0; how < 3; how++) {
		struct txda_pkt_exec launch = {.program_va = FIX_VA, .group = GROUP};
		struct fix_stream s;

		start(3);
		for (unsigned c = 0; c < 2; c++)
			submit_sum(c, 0, 8, 1);
		expect_waits(0, 1);
		if (how == 2) {
			assert_int_equal(cm_inject(f.m, "lost:chip=2"), 0);
			expect_code(q[2], 2, TXDA_FAULT_LOST);
		} else {
			/* A launch that is malformed, or whose program is. */
			launch.n_ops = !how;
			s = fix_stream(&f.c[2]);
			fix_put(&s, TXDA_PKT_EXEC, 0, &launch, sizeof(launch));
			assert_int_equal(fix_submit(q[2], &s), 0);
			expect_code(q[2], 2, how ? TXDA_FAULT_PROGRAM : TXDA_FAULT_PACKET);
		}
		expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
		expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
		fix_free(&f);
	}
}

/* ---- collectives as ops of a program --------------------------------------------------------- */

static struct fix_program prog[2];
static struct txda_pkt_exec exec[2];

/* out = sum of x over the group, three times over. */
static void make_programs(void)
{
	for (unsigned r = 0; r < 2; r++) {
		uint32_t in, out;

		fix_program_init(&prog[r], 2, r);
		in = fix_slot(&prog[r], "in", TXDA_SLOT_INPUT, 64 * 16 * 4);
		out = fix_slot(&prog[r], "out", TXDA_SLOT_OUTPUT, 64 * 16 * 4);
		fix_tensor(&prog[r], "x", in, TXDA_F32, 0, FIX_SYM(TXDA_SYM_T, 1), FIX_CONST(16));
		fix_tensor(&prog[r], "y", out, TXDA_F32, 0, FIX_SYM(TXDA_SYM_T, 1), FIX_CONST(16));
		for (unsigned i = 0; i < 3; i++) {
			struct txda_op *op = fix_op(&prog[r], "sum", TXDA_OP_ALL_REDUCE);

			op->in[0] = i ? 1 : 0;
			op->out[0] = 1;
		}
		fix_seal(&prog[r]);
		fix_place(&prog[r], &f.c[r], 0, &exec[r]);
		fix_bind(&f.c[r], &exec[r], 0, DATA, 64 * 16 * 4);
		fix_bind(&f.c[r], &exec[r], 1, DATA + 65536, 64 * 16 * 4);
		exec[r].group = GROUP;
		exec[r].sym[TXDA_SYM_T] = 64;
		for (unsigned i = 0; i < 64 * 16; i++)
			floats(r, 0)[i] = (float)(i % 100 + r);
	}
}

static void submit_exec(unsigned r, uint64_t fence)
{
	struct fix_stream s = fix_stream(&f.c[r]);

	fix_put(&s, TXDA_PKT_EXEC, 0, &exec[r], sizeof(exec[r]));
	fix_signal(&s, fix_word_va(0), fence);
	assert_int_equal(fix_submit(q[r], &s), 0);
}

/* One of two members goes in the middle of their op: the other one is lost, not wrong. */
TEST(test_cancelled_op)
{
	fix_interrupt();
	for (unsigned goes = 0; goes < 2; goes++) {
		start(2);
		make_programs();
		fake_endless(FAKE_RUN);
		submit_exec(0, 1);
		submit_exec(1, 1);
		while (!fake_stuck())
			nanosleep(&(struct timespec){0, 10000}, NULL);
		cm_queue_free(q[goes]);
		fake_endless(FAKE_NOWHERE);
		expect_code(q[!goes], !goes, TXDA_FAULT_COLLECTIVE);
		assert_true(cm_queue_is_innocent(q[!goes]));
		assert_int_equal(*fix_word(&f.c[!goes], 0), 0);
		fix_free(&f);
	}
}

TEST_WITH(test_ops, NULL, end)
{
	start(2);
	make_programs();
	for (unsigned round = 1; round <= 50; round++) {
		submit_exec(round % 2, round);
		submit_exec(!(round % 2), round);
		assert_int_equal(wait_chip(0, round), 0);
		assert_int_equal(wait_chip(1, round), 0);
		for (unsigned i = 0; i < 64 * 16; i++) {
			float want = 4 * ((float)(i % 100) * 2 + 1);

			assert_true(floats(0, 65536)[i] == want);
			assert_true(floats(1, 65536)[i] == want);
		}
	}
	/* Sizes that differ: the op's check says so, for both. */
	exec[1].sym[TXDA_SYM_T] = 63;
	submit_exec(0, 100);
	submit_exec(1, 100);
	expect_code(q[0], 0, TXDA_FAULT_SHAPE);
	expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
}

/* The memory of a member that waits is unmapped. */
TEST_WITH(test_unmapped_member, NULL, end)
{
	struct txda_fault fault;

	start(2);
	make_programs();
	assert_int_equal(cm_vm_map(f.c[0].vm, 0x50000000, cm_chip_dram_fd(f.c[0].chip), 0, 65536,
				   CM_MAP_READ | CM_MAP_WRITE),
			 0);
	fix_bind(&f.c[0], &exec[0], 1, 0x50000000, 64 * 16 * 4);
	submit_exec(0, 1);
	expect_waits(0, 1);
	assert_int_equal(cm_vm_unmap(f.c[0].vm, 0x50000000, 65536), 0);
	submit_exec(1, 1);
	expect_code(q[0], 0, TXDA_FAULT_PAGE);
	assert_int_equal(cm_queue_fault(q[0], &fault), 0);
	assert_int_equal(fault.va, 0x50000000);
	expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
}

/* The program of the last member wants more scratch than there was when the first came. */
TEST_WITH(test_scratch_moves, NULL, end)
{
	enum { WIDTH = 300000 };
	struct txda_op *op;
	uint32_t slot, wide;

	start(2);
	make_programs();
	slot = fix_slot(&prog[1], "wide", TXDA_SLOT_SCRATCH, WIDTH * 4);
	wide = fix_tensor(&prog[1], "z", slot, TXDA_F32, 0, FIX_CONST(1), FIX_CONST(WIDTH));
	fix_tensor(&prog[1], "w", slot, TXDA_F32, 0, FIX_CONST(WIDTH), FIX_NO_DIM);
	op = fix_op(&prog[1], "add", TXDA_OP_RMSNORM);
	op->in[0] = op->out[0] = wide;
	op->in[1] = wide + 1;
	fix_seal(&prog[1]);
	fix_place(&prog[1], &f.c[1], 0, &exec[1]);
	fix_bind(&f.c[1], &exec[1], slot, DATA + (4 << 20), WIDTH * 4);
	exec[1].group = GROUP;
	exec[1].sym[TXDA_SYM_T] = 64;
	submit_exec(0, 1);
	expect_waits(0, 1);
	submit_exec(1, 1);
	assert_int_equal(wait_chip(0, 1), 0);
	assert_int_equal(wait_chip(1, 1), 0);
	for (unsigned i = 0; i < 64 * 16; i++)
		assert_true(floats(0, 65536)[i] == 4 * ((float)(i % 100) * 2 + 1));
}

/* A program for a group needs its group. */
TEST_WITH(test_wrong_group, NULL, end)
{
	start(2);
	make_programs();
	exec[0].group = TXDA_NONE;
	submit_exec(0, 1);
	expect_code(q[0], 0, TXDA_FAULT_COLLECTIVE);
	exec[1] = exec[0];
	exec[1].group = GROUP; /* rank 0's program on rank 1: */
	memcpy(f.c[1].mem + FIX_PROGRAM, f.c[0].mem + FIX_PROGRAM, FIX_PROG_BYTES);
	submit_exec(1, 1);
	expect_code(q[1], 1, TXDA_FAULT_COLLECTIVE);
}

TEST_MAIN
