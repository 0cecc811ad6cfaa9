/* SPDX-License-Identifier: MIT */
/* What a unit test begins with: cmocka, and the headers that it wants before it. */
#ifndef TXDA_TESTS_CMOCKA_TEST_H
#define TXDA_TESTS_CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/*
 * A test. All of a file are run by the main() of TESTS(), which stands last, in the order of their
 * lines; with an argument, those of that name.
 */
#define TEST(name)                                                                                 \
	static void name(void **state);                                                            \
	__attribute__((constructor)) static void add_##name(void)                                  \
	{                                                                                          \
		add_test(&(struct CMUnitTest)cmocka_unit_test(name), __LINE__);                    \
	}                                                                                          \
	static void name(__attribute__((unused)) void **state)

#define TESTS(set_up, tear_down)                                                                   \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return run_tests_of_file(argc > 1 ? argv[1] : NULL, set_up, tear_down);            \
	}

#define TESTS_MAX 64

static struct CMUnitTest tests_of_file[TESTS_MAX];
static int test_lines[TESTS_MAX];
static size_t n_tests_of_file;

/* Constructors come in no certain order. */
static inline void add_test(const struct CMUnitTest *test, int line)
{
	size_t at = n_tests_of_file;

	if (n_tests_of_file++ == TESTS_MAX)
		abort();
	for (; at && test_lines[at - 1] > line; at--) {
		tests_of_file[at] = tests_of_file[at - 1];
		test_lines[at] = test_lines[at - 1];
	}
	tests_of_file[at] = *test;
	test_lines[at] = line;
}

static inline int run_tests_of_file(const char *only, CMFixtureFunction set_up,
				    CMFixtureFunction tear_down)
{
	if (only)
		cmocka_set_test_filter(only);
	return _cmocka_run_group_tests("tests", tests_of_file, n_tests_of_file, set_up, tear_down);
}

#endif
