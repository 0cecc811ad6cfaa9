// SPDX-License-Identifier: MIT
/* How much of prompts a step gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "pace.h"

#define MS 1000000ull

/* A machine: what a step takes. */
struct machine {
	double decode_ms, token_ms;
};

static uint64_t step_ns(const struct machine *m, unsigned decodes, unsigned chunks)
{
	return (uint64_t)((m->decode_ms * (decodes != 0) + m->token_ms * chunks) * MS);
}

static void no_target_no_limit(void **state)
{
	struct pace p = {0};

	(void)state;
	assert_int_equal(pace_limit(&p), 0);
	pace_note(&p, 1, 0, 50 * MS);
	pace_note(&p, 1, 100, 500 * MS);
	assert_int_equal(pace_limit(&p), 0);
}

/* Steps come to take what they may, on fast machines and slow ones, and follow changes. */
static void steps_reach_the_target(void **state)
{
	static const struct machine machines[] = {{1, 0.05}, {20, 2}, {100, 0.5}, {0.01, 1}};
	struct pace p = {.target_ns = 200 * MS};

	(void)state;
	assert_int_equal(pace_limit(&p), PACE_LEAST);
	for (unsigned i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		uint64_t ns = 0;

		for (unsigned k = 0; k < 40; k++) {
			pace_note(&p, 4, 0, step_ns(&machines[i], 4, 0));
			ns = step_ns(&machines[i], 4, pace_limit(&p));
			pace_note(&p, 4, pace_limit(&p), ns);
		}
		assert_true(ns > 170 * MS && ns < 230 * MS);
	}
}

/* One slow step without prompts is forgotten while prompts queue. */
static void a_slow_step_is_forgotten(void **state)
{
	static const struct machine m = {10, 0.2};
	struct pace p = {.target_ns = 200 * MS};
	uint64_t ns = 0;

	(void)state;
	pace_note(&p, 4, 0, step_ns(&m, 4, 0));
	pace_note(&p, 4, 0, 5000 * MS);
	for (unsigned k = 0; k < 40; k++) {
		ns = step_ns(&m, 4, pace_limit(&p));
		pace_note(&p, 4, pace_limit(&p), ns);
	}
	assert_true(ns < 230 * MS);
}

/* Where decoding alone takes longer than that, prompts get as much time. */
static void prompts_get_on(void **state)
{
	static const struct machine slow = {300, 1};
	struct pace p = {.target_ns = 200 * MS};

	(void)state;
	for (unsigned k = 0; k < 20; k++) {
		pace_note(&p, 4, 0, step_ns(&slow, 4, 0));
		pace_note(&p, 4, pace_limit(&p), step_ns(&slow, 4, pace_limit(&p)));
		assert_true(pace_limit(&p) >= PACE_LEAST);
	}
	assert_true(pace_limit(&p) > 270 && pace_limit(&p) < 330);
}

/* Steps of users with many sequences come to be as long as a first token's step of others. */
static void crowds_have_their_part(void **state)
{
	struct pace p = {.crowd_ratio = 1};
	unsigned decodes = 0, chunks = 0;

	(void)state;
	pace_note(&p, 100, 0, 50 * MS);
	pace_note(&p, 0, 100, 40 * MS);
	pace_crowd(&p, 5 * MS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
	pace_note_first(&p, 10 * MS, 1000 * MS);
	for (unsigned i = 0; i < 20; i++) {
		/* A quarter of a millisecond each, and two for the step. */
		pace_crowd(&p, 1000 * MS, &decodes, &chunks);
		pace_note(&p, decodes, 0, 2 * MS + decodes * MS / 4);
	}
	assert_in_range(decodes, 31, 33);
	assert_int_equal(chunks, 25);
	/* A long prompt of another user does not make short ones wait much longer, a short one
	 * helps. */
	pace_note_first(&p, 90 * MS, 1000 * MS);
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(chunks, 50);
	pace_note_first(&p, 2 * MS, 1000 * MS);
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(chunks, PACE_LEAST);
	/* Even where a step takes long by itself, it has a few; without company, all. */
	pace_note(&p, 1, 0, 500 * MS);
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(decodes, PACE_LEAST_DECODES);
	pace_crowd(&p, 1001 * MS + PACE_COMPANY_NS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
	p.crowd_ratio = 0;
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
}

/* No time of the clock makes a limit of nothing, or none at all. */
static void strange_times(void **state)
{
	static const uint64_t times[] = {0, 1, UINT64_MAX, 3600000 * MS};

	(void)state;
	srand(5);
	for (unsigned round = 0; round < 200; round++) {
		struct pace p = {.target_ns = 1 + (uint64_t)rand()};

		for (unsigned k = 0; k < 20; k++) {
			pace_note(&p, (unsigned)rand() % 3, (unsigned)rand() % 40,
				  times[rand() % 4]);
			assert_true(pace_limit(&p) >= PACE_LEAST);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_target_no_limit),
		cmocka_unit_test(steps_reach_the_target),
		cmocka_unit_test(prompts_get_on),
		cmocka_unit_test(crowds_have_their_part),
		cmocka_unit_test(a_slow_step_is_forgotten),
		cmocka_unit_test(strange_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
