// SPDX-License-Identifier: MIT
/* How many cores compute: the decision on simulated machines, and what a thread measures. */
#include "core/active.h"
#include "clock.h"
#include "unit.h"

#include <time.h>

/* A machine of which @free CPUs have nothing else to do: what is missing on average of @n cores. */
static double missing_of(unsigned n, unsigned free, double always)
{
	return always + (n > free ? (double)(n - free) / n / 2 : 0);
}

/* The numbers of cores between which decisions settle. */
static void settle(unsigned cores, unsigned free, double always, unsigned *least, unsigned *most)
{
	unsigned n = cores, calm = 0;

	for (unsigned i = 0; i < 400; i++) {
		if (i == 200)
			*least = *most = n;
		n = cm_active_next(n, cores, missing_of(n, free, always), &calm);
		assert_in_range(n, cores < CM_ACTIVE_LEAST ? cores : CM_ACTIVE_LEAST, cores);
		if (i >= 200) {
			*least = n < *least ? n : *least;
			*most = n > *most ? n : *most;
		}
	}
}

TEST(test_decisions)
{
	unsigned least, most;

	/* Nothing else runs, or a little of everything is missing: all. */
	for (unsigned cores = 1; cores <= 64; cores++) {
		settle(cores, cores, 0.003, &least, &most);
		assert_int_equal(least, cores);
	}
	/* Others have some CPUs: about what they leave. */
	for (unsigned cores = 8; cores <= 64; cores++)
		for (unsigned free = cores / 4; free < cores; free++) {
			settle(cores, free, 0.001, &least, &most);
			if (least * 4 < free * 3 - 4 || most > free + free / 8 + 2)
				fail_msg("%u cores, %u free: %u to %u", cores, free, least, most);
		}
	/* Each lacks a tenth of the time, alone or not: 1 / 0.1 is best, and not all leave. */
	settle(64, 64, 0.1, &least, &most);
	assert_in_range(least, 4, 8);
	/* Two stay, whatever is missing. */
	settle(16, 0, 1, &least, &most);
	assert_int_equal(most, CM_ACTIVE_LEAST);
}

TEST(test_calm_takes_time)
{
	unsigned n = 8, calm = 0, decisions = 0;

	for (; n == 8; decisions++)
		n = cm_active_next(n, 16, 0, &calm);
	assert_in_range(decisions, 5, 20);
	assert_in_range(n, 9, 10);
	/* A disturbance in between starts over. */
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(cm_active_next(8, 16, i % 5 ? 0 : 0.06, &calm), 8);
}

static void measure_all(struct cm_active *a)
{
	for (unsigned i = 0; i < 16; i++)
		for (unsigned core = 0; core < a->cores; core++)
			cm_active_measure(a, core);
}

/* Threads that do not run when they want to are missing, as these that sleep. */
TEST(test_measures)
{
	uint64_t end = clock_ns() + 20000000000ull;
	struct cm_active a;

	assert_int_equal(cm_active_init(&a, 6, false), 0);
	assert_true(cm_is_active(&a, 5));
	while (a.n == 6 && clock_ns() < end) {
		measure_all(&a);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
	assert_int_equal(a.n, 4);
	assert_false(cm_is_active(&a, 5));
	cm_active_fini(&a);
}

/* Sleep that a core has announced is none that is missing, and a fixed number stays. */
TEST(test_rests)
{
	struct cm_active a[2];

	for (unsigned fixed = 0; fixed < 2; fixed++) {
		assert_int_equal(cm_active_init(&a[fixed], 6, fixed), 0);
		measure_all(&a[fixed]);
		for (unsigned core = 0; core < 6 && !fixed; core++)
			cm_active_rest(&a[fixed], core);
		nanosleep(&(struct timespec){0, 200000000}, NULL);
		measure_all(&a[fixed]);
		assert_int_equal(a[fixed].n, 6);
		cm_active_fini(&a[fixed]);
	}
}

TEST_MAIN
