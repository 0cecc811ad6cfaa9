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

static void note(struct pace *p, unsigned decodes, unsigned chunks, uint64_t ns)
{
	pace_note(p, &(struct pace_step){.decodes = decodes, .chunks = chunks, .ns = ns});
}

/* A step for a first token that goes without the many; it is the 1000th millisecond. */
static void note_first(struct pace *p, unsigned chunks, uint64_t ns)
{
	pace_note(p, &(struct pace_step){.chunks = chunks,
					 .left_out = true,
					 .spared = true,
					 .ns = ns,
					 .end_ns = 1000 * MS});
}

static void no_target_no_limit(void **state)
{
	struct pace p = {0};

	(void)state;
	assert_int_equal(pace_limit(&p), 0);
	note(&p, 1, 0, 50 * MS);
	note(&p, 1, 100, 500 * MS);
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
			note(&p, 4, 0, step_ns(&machines[i], 4, 0));
			ns = step_ns(&machines[i], 4, pace_limit(&p));
			note(&p, 4, pace_limit(&p), ns);
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
	note(&p, 4, 0, step_ns(&m, 4, 0));
	note(&p, 4, 0, 5000 * MS);
	for (unsigned k = 0; k < 40; k++) {
		ns = step_ns(&m, 4, pace_limit(&p));
		note(&p, 4, pace_limit(&p), ns);
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
		note(&p, 4, 0, step_ns(&slow, 4, 0));
		note(&p, 4, pace_limit(&p), step_ns(&slow, 4, pace_limit(&p)));
		assert_true(pace_limit(&p) >= PACE_LEAST);
	}
	assert_true(pace_limit(&p) > 270 && pace_limit(&p) < 330);
}

/* Runs limited steps of a machine, with chunks if @with_chunks; the decodes that they come to. */
static unsigned settle(struct pace *p, const struct machine *m, double seq_ms, bool with_chunks)
{
	unsigned decodes = 0, chunks = 0;

	for (unsigned i = 0; i < 40; i++) {
		pace_crowd(p, 1000 * MS, &decodes, &chunks);
		chunks = with_chunks ? PACE_LEAST : 0;
		note(p, decodes, chunks,
		     step_ns(m, decodes, chunks) + (uint64_t)(decodes * seq_ms * MS));
	}
	return decodes;
}

/* Steps of users with many sequences come to be as long as a first token's step of others. */
static void crowds_have_their_part(void **state)
{
	static const struct machine m = {2, 0.5};
	struct pace p = {.crowd_ratio = 1};
	unsigned decodes = 0, chunks = 0;

	(void)state;
	note(&p, 100, 0, 27 * MS);
	note(&p, 0, 100, 50 * MS);
	pace_crowd(&p, 5 * MS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
	note_first(&p, 20, 10 * MS);
	assert_in_range(settle(&p, &m, 0.25, false), 31, 33);
	/* A long prompt of another user does not make short ones wait much longer, short ones help.
	 */
	note_first(&p, 180, 90 * MS);
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(chunks, 20 * MS / p.token_ns);
	for (unsigned i = 0; i < 8; i++)
		note_first(&p, 4, 5 * MS);
	assert_in_range(settle(&p, &m, 0.25, false), 11, 13);
	/* Without company there is no limit, nor for who wants none. */
	pace_crowd(&p, 1001 * MS + PACE_COMPANY_NS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
	p.crowd_ratio = 0;
	pace_crowd(&p, 1000 * MS, &decodes, &chunks);
	assert_int_equal(decodes, 0);
}

/* Where a step takes long by itself, it has as many sequences as make it a little longer. */
static void weights_are_shared(void **state)
{
	static const struct machine m = {60, 1};
	struct pace p = {.crowd_ratio = 1.25};

	(void)state;
	note(&p, 1, 0, 61 * MS);
	note_first(&p, 4, 64 * MS);
	assert_in_range(settle(&p, &m, 1, false), 18, 21);
	assert_in_range(settle(&p, &m, 0.05, false), 300, 410);
}

/* What decodes cost is learned while prompts queue, too, and what their small parts cost is not
 * taken for what tokens cost. */
static void crowds_with_prompts(void **state)
{
	static const struct machine m = {2, 0.1};
	struct pace p = {.crowd_ratio = 1, .target_ns = 200 * MS};

	(void)state;
	note(&p, 1, 0, 3 * MS);
	note_first(&p, 300, 32 * MS);
	assert_in_range(settle(&p, &m, 0.25, true), 110, 140);
	assert_true(p.token_ns < 0.12 * MS);
	assert_true(pace_limit(&p) > 1000);
}

/* A step that goes without the many says nothing of what theirs cost. */
static void first_steps_are_not_theirs(void **state)
{
	static const struct machine m = {60, 1};
	struct pace p = {.crowd_ratio = 1.25};
	unsigned decodes, before;

	(void)state;
	note(&p, 16, 0, 61 * MS);
	note_first(&p, 4, 64 * MS);
	before = settle(&p, &m, 0.05, false);
	for (unsigned i = 0; i < 8; i++) {
		pace_note(&p, &(struct pace_step){.decodes = 2,
						  .chunks = 4,
						  .left_out = true,
						  .spared = i % 2 == 0,
						  .ns = 64 * MS,
						  .end_ns = 1000 * MS});
		pace_crowd(&p, 1000 * MS, &decodes, &(unsigned){0});
		assert_true(decodes > before * 9 / 10);
	}
	/* Of a time without any work nothing is remembered. */
	pace_rest(&p);
	pace_crowd(&p, 1000 * MS, &decodes, &(unsigned){0});
	assert_int_equal(decodes, 0);
}

/* No time of the clock makes a limit of nothing, or none at all. */
static void strange_times(void **state)
{
	static const uint64_t times[] = {0, 1, UINT64_MAX, 3600000 * MS};
	unsigned decodes, chunks;

	(void)state;
	srand(5);
	for (unsigned round = 0; round < 200; round++) {
		struct pace p = {.target_ns = 1 + (uint64_t)rand()};

		for (unsigned k = 0; k < 20; k++) {
			note(&p, (unsigned)rand() % 3, (unsigned)rand() % 40, times[rand() % 4]);
			assert_true(pace_limit(&p) >= PACE_LEAST);
			note_first(&p, (unsigned)rand() % 40, times[rand() % 4]);
			p.crowd_ratio = 1 + rand() % 3;
			pace_crowd(&p, 1000 * MS, &decodes, &chunks);
			assert_true(decodes >= PACE_LEAST_DECODES && chunks >= PACE_LEAST);
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
		cmocka_unit_test(weights_are_shared),
		cmocka_unit_test(crowds_with_prompts),
		cmocka_unit_test(first_steps_are_not_theirs),
		cmocka_unit_test(a_slow_step_is_forgotten),
		cmocka_unit_test(strange_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
