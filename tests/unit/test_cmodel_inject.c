// SPDX-License-Identifier: MIT
/* Injected faults, and the sensors. */
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

static struct fix_stream fill_stream(unsigned chip, unsigned fills, uint64_t bytes)
{
	struct fix_stream s = fix_stream(&f.c[chip]);
	struct txda_pkt_fill p = {.dst = FIX_VA + FIX_DATA, .bytes = bytes, .value = 1};

	while (fills--)
		fix_put(&s, TXDA_PKT_FILL, 0, &p, sizeof(p));
	return s;
}

static uint64_t in_ms(unsigned ms)
{
	return cm_chip_time_ns(f.c[0].chip) + ms * 1000000ull;
}

static void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
}

TEST(test_words)
{
	static const char *const bad[] = {"",
					  "hung",
					  "hang ",
					  "hang:",
					  "hang:ms",
					  "hang:ms=",
					  "hang:ms=x",
					  "hang:ms=1x",
					  "hang:ms=-1",
					  "hang:speed=3",
					  "page,",
					  "page,,ecc",
					  "hang:ms=9999999999999999999"};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(cm_inject(f.m, bad[i]), -EINVAL);
	assert_int_equal(cm_inject(f.m, "hang:chip=2"), -ENODEV);
	/* Nothing of a list that is bad is obeyed. */
	assert_int_equal(cm_inject(f.m, "lost:chip=1,page:chip=9"), -ENODEV);
	assert_int_equal(cm_inject(f.m, "hang:chip=1:after=3:ms=10,clear"), 0);
}

TEST(test_hang)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY),
			*other = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fill_stream(0, 5, 64), t;
	uint64_t progress;

	*fix_word(&f.c[0], 1) = 0;
	assert_int_equal(cm_inject(f.m, "hang:chip=0:after=3"), 0);
	fix_signal(&s, fix_word_va(1), 1);
	assert_int_equal(fix_submit(q, &s), 0);
	assert_int_equal(cm_wait(f.m, q, fix_word(&f.c[0], 1), 1, in_ms(20)), -ETIMEDOUT);
	progress = cm_queue_progress(q);
	assert_int_equal(progress, 3);
	/* Other queues of the chip go on. */
	t = fill_stream(0, 10, 64);
	assert_int_equal(fix_run(&f, other, &t), 0);
	assert_int_equal(cm_queue_progress(q), progress);
	assert_int_equal(cm_queue_state(q), CM_QUEUE_OK);
	assert_int_equal(cm_inject(f.m, "clear"), 0);
	assert_int_equal(fix_wait(&f, q, fix_word(&f.c[0], 1), 1), 0);

	/* For a time only: it goes on by itself, though all cores sleep by then. */
	assert_int_equal(cm_inject(f.m, "hang:ms=50"), 0);
	s = fill_stream(0, 1, 64);
	fix_signal(&s, fix_word_va(1), 2);
	assert_int_equal(fix_submit(q, &s), 0);
	sleep_ms(20);
	assert_int_equal(__atomic_load_n(fix_word(&f.c[0], 1), __ATOMIC_ACQUIRE), 1);
	for (unsigned i = 0;
	     i < 500 && __atomic_load_n(fix_word(&f.c[0], 1), __ATOMIC_ACQUIRE) != 2; i++)
		sleep_ms(10);
	assert_int_equal(__atomic_load_n(fix_word(&f.c[0], 1), __ATOMIC_ACQUIRE), 2);

	/* The same with a thread that waits. */
	assert_int_equal(cm_inject(f.m, "hang:ms=20"), 0);
	s = fill_stream(0, 1, 64);
	assert_int_equal(fix_run(&f, q, &s), 0);

	/* A queue that hangs for good can be freed. */
	assert_int_equal(cm_inject(f.m, "clear,hang"), 0);
	s = fill_stream(0, 1, 64);
	assert_int_equal(fix_submit(q, &s), 0);
	sleep_ms(5);
	cm_queue_free(q);
	assert_int_equal(cm_inject(f.m, "clear"), 0);
	cm_queue_free(other);
}

TEST(test_memory_faults)
{
	struct cm_sensors before, after;
	struct txda_fault fault;
	struct fix_stream s;
	struct cm_queue *q;

	cm_chip_sensors(f.c[1].chip, &before);
	assert_int_equal(cm_inject(f.m, "page:chip=1:after=1,ecc-corrected:chip=1"), 0);
	q = fix_queue(&f, 1, CM_QUEUE_COPY);
	s = fill_stream(1, 2, 64);
	fix_expect_fault(&f, q, &s, TXDA_FAULT_PAGE, &fault);
	assert_int_equal(fault.va, FIX_VA + FIX_DATA);
	cm_queue_free(q);
	q = fix_queue(&f, 1, CM_QUEUE_COPY);
	s = fill_stream(1, 2, 64);
	assert_int_equal(fix_run(&f, q, &s), 0);
	assert_int_equal(cm_inject(f.m, "ecc:chip=1"), 0);
	s = fill_stream(1, 2, 64);
	fix_expect_fault(&f, q, &s, TXDA_FAULT_ECC, NULL);
	cm_queue_free(q);
	cm_chip_sensors(f.c[1].chip, &after);
	assert_int_equal(after.ecc_uncorrected - before.ecc_uncorrected, 1);
	assert_int_equal(after.ecc_corrected - before.ecc_corrected, 1);
	assert_int_equal(after.faults - before.faults, 2);
}

TEST(test_thermal)
{
	struct cm_sensors s;

	cm_chip_sensors(f.c[0].chip, &s);
	assert_in_range(s.temp_mc, 30000, 90000);
	assert_in_range(s.power_mw, 10000, 90000);
	assert_int_equal(cm_inject(f.m, "thermal:chip=0:ms=30"), 0);
	cm_chip_sensors(f.c[0].chip, &s);
	assert_true(s.temp_mc > 100000);
	sleep_ms(40);
	cm_chip_sensors(f.c[0].chip, &s);
	assert_true(s.temp_mc < 90000);
	assert_int_equal(cm_inject(f.m, "thermal"), 0);
	cm_chip_sensors(f.c[1].chip, &s);
	assert_true(s.temp_mc > 100000);
	assert_int_equal(cm_inject(f.m, "clear"), 0);
	cm_chip_sensors(f.c[1].chip, &s);
	assert_true(s.temp_mc < 90000);
}

TEST(test_slow_dma)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fill_stream(0, 3, 64);
	uint64_t from = in_ms(0);

	assert_int_equal(cm_inject(f.m, "slow-dma:chip=0:ms=10"), 0);
	assert_int_equal(fix_run(&f, q, &s), 0);
	assert_true(in_ms(0) - from >= 30000000);
	assert_int_equal(cm_inject(f.m, "clear"), 0);
	cm_queue_free(q);
}

TEST(test_sensors_at_work)
{
	struct cm_queue *q = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct cm_sensors idle, busy;
	uint64_t end = in_ms(300);

	cm_chip_sensors(f.c[0].chip, &idle);
	while (in_ms(0) < end) {
		struct fix_stream s = fill_stream(0, 8, 8 << 20);

		assert_int_equal(fix_run(&f, q, &s), 0);
	}
	cm_chip_sensors(f.c[0].chip, &busy);
	assert_true(busy.power_mw > idle.power_mw);
	assert_true(busy.copy_busy_ns - idle.copy_busy_ns > 100000000);
	assert_int_equal((busy.bytes_written - idle.bytes_written) % (8 << 20), 0);
	cm_queue_free(q);
}

/* Last: the chip does not come back. */
TEST(test_lost_under_way)
{
	struct cm_queue *q = fix_queue(&f, 1, CM_QUEUE_COPY),
			*idle = fix_queue(&f, 1, CM_QUEUE_COMPUTE);
	struct cm_queue *other = fix_queue(&f, 0, CM_QUEUE_COPY);
	struct fix_stream s = fill_stream(1, 50, 4096), t = fill_stream(0, 50, 4096);
	struct txda_fault fault;

	assert_int_equal(cm_inject(f.m, "lost:chip=1:after=20"), 0);
	fix_signal(&s, fix_word_va(4), 1);
	assert_int_equal(fix_submit(q, &s), 0);
	assert_int_equal(fix_wait(&f, q, fix_word(&f.c[1], 4), 1), -EIO);
	assert_int_equal(cm_queue_fault(q, &fault), 0);
	assert_int_equal(fault.code, TXDA_FAULT_LOST);
	assert_int_equal(cm_queue_state(idle), CM_QUEUE_FAULTED);
	assert_int_equal(fix_submit(q, &s), -ENODEV);
	assert_int_equal(cm_inject(f.m, "clear"), 0);
	assert_int_equal(fix_submit(idle, &s), -ENODEV);
	assert_int_equal(fix_run(&f, other, &t), 0);
	cm_queue_free(q);
	cm_queue_free(idle);
	cm_queue_free(other);
}

TEST_MAIN_ALL(setup, teardown)
