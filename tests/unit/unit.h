/* SPDX-License-Identifier: MIT */
/*
 * The frame of a unit test's program: what cmocka.h needs, and tests that enter themselves. Those of
 * one file run in the order of the source, as gcc and clang enter its constructors into .init_array;
 * files come in the order in which they are linked.
 *
 *	TEST(counts)
 *	{
 *		assert_int_equal(1 + 1, 2);
 *	}
 *
 *	TEST_MAIN
 *
 * An argument of the program is a pattern of the tests to be run (fnmatch(3)). A program that has no
 * test, or none of that name, fails.
 */
#ifndef TXDA_TESTS_UNIT_H
#define TXDA_TESTS_UNIT_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define UNIT_MAX_TESTS 64

/*
 * The tests of all source files of a program: each file defines the table, and the linker makes one of
 * them.
 */
__attribute__((weak)) struct CMUnitTest unit_tests[UNIT_MAX_TESTS];
__attribute__((weak)) unsigned n_unit_tests;

static inline void unit_enter(const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
			      CMFixtureFunction tear_down)
{
	if (n_unit_tests == UNIT_MAX_TESTS)
		abort();
	unit_tests[n_unit_tests++] = (struct CMUnitTest){
		.name = name,
		.test_func = test,
		.setup_func = set_up,
		.teardown_func = tear_down,
	};
}

/* A test with a set-up and a tear-down of its own. */
#define TEST_WITH(test, set_up, tear_down)                                                         \
	static void test(void **state);                                                            \
	__attribute__((constructor)) static void enter_##test(void)                                \
	{                                                                                          \
		unit_enter(#test, test, set_up, tear_down);                                        \
	}                                                                                          \
	static void test(void **state)

#define TEST(test) TEST_WITH(test, NULL, NULL)

/* Waits for a condition; fails when it does not hold within half a minute. */
#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		unsigned await_ms = 0;                                                             \
                                                                                                   \
		while (!(condition) && await_ms++ < 30000)                                         \
			usleep(1000);                                                              \
		if (await_ms > 30000)                                                              \
			fail_msg("still false after 30 s: %s", #condition);                        \
	} while (0)

static inline void assert_says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
}

/* For programs whose main() does more: leaves only the tests that match the pattern, if there is one. */
static inline void choose_unit_tests(const char *pattern)
{
	unsigned n = 0;

	for (unsigned i = 0; pattern && i < n_unit_tests; i++)
		if (!fnmatch(pattern, unit_tests[i].name, 0))
			unit_tests[n++] = unit_tests[i];
	if (pattern)
		n_unit_tests = n;
}

/* Runs the tests as a group of that name, with what comes before and after all of them. */
static inline int run_unit_group(const char *name, CMFixtureFunction set_up,
				 CMFixtureFunction tear_down)
{
	if (!n_unit_tests) {
		fprintf(stderr, "%s: no test to run\n", name);
		return 1;
	}
	return _cmocka_run_group_tests(name, unit_tests, n_unit_tests, set_up, tear_down);
}

/* The same with what comes before and after each of them. */
static inline int run_unit_tests(const char *name, CMFixtureFunction set_up,
				 CMFixtureFunction tear_down)
{
	for (unsigned i = 0; i < n_unit_tests; i++) {
		if (set_up)
			unit_tests[i].setup_func = set_up;
		if (tear_down)
			unit_tests[i].teardown_func = tear_down;
	}
	return run_unit_group(name, NULL, NULL);
}

/* What comes before and after each test, or once before and after all. */
#define TEST_MAIN_EACH(set_up, tear_down)                                                          \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		choose_unit_tests(argc > 1 ? argv[1] : NULL);                                      \
		return run_unit_tests(argv[0], set_up, tear_down);                                 \
	}
#define TEST_MAIN_ALL(set_up, tear_down)                                                           \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		choose_unit_tests(argc > 1 ? argv[1] : NULL);                                      \
		return run_unit_group(argv[0], set_up, tear_down);                                 \
	}
#define TEST_MAIN TEST_MAIN_EACH(NULL, NULL)

#endif
