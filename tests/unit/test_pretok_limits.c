// SPDX-License-Identifier: MIT
/*
 * Expressions of checkpoints without the JIT of PCRE2, which needs memory that is written and run: a confined process
 * has none. What comes out is the same, and a search that goes wrong is given up in bounded memory.
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "confine.h"
#include "pretok_regex.h"

#define HOSTILE_BYTES (8u << 20)
#define MEMORY	      (256ull << 20)

static int find(const char *pattern, const char *text, size_t len, size_t *start, size_t *end)
{
	struct pretok_match match = {0};
	struct pretok_regex *regex;
	char err[160];
	int r = pretok_regex_new(pattern, &regex, err, sizeof(err));

	if (r)
		return r;
	r = pretok_regex_find(regex, &match, text, len, 0, start, end);
	pretok_match_free(&match);
	pretok_regex_free(regex);
	return r;
}

/* How many searches end otherwise than they must. */
static int search(void)
{
	static const struct {
		const char *pattern, *text;
		int result;
		size_t start, end;
	} plain[] = {
		{"\\p{N}{1,3}", "in 2026", 1, 3, 6},
		{"(?i:'s|'t|'re)|\\s?\\p{L}+", " hello", 1, 0, 6},
		{"\\s+(?!\\S)", "a   b", 1, 1, 3},
		{"x", "abc", 0, 0, 0},
	};
	char *hostile = malloc(HOSTILE_BYTES);
	size_t start = 0, end = 0;
	int wrong = 0, r;

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		start = end = 0;
		r = find(plain[i].pattern, plain[i].text, strlen(plain[i].text), &start, &end);
		if (r != plain[i].result || start != plain[i].start || end != plain[i].end) {
			fprintf(stderr, "%s: %d, %zu to %zu\n", plain[i].pattern, r, start, end);
			wrong++;
		}
	}
	for (size_t i = 0; hostile && i < HOSTILE_BYTES; i++)
		hostile[i] = i % 3 ? 'a' : 'b';
	r = hostile ? find("(?:a|b)+c", hostile, HOSTILE_BYTES, &start, &end) : 0;
	if (r != -EOVERFLOW) {
		fprintf(stderr, "the hostile search: %d\n", r);
		wrong++;
	}
	free(hostile);
	return wrong;
}

static int search_confined(void)
{
	const struct confinement c = {0};
	const struct confine_limits limits = {.memory = MEMORY};
	char err[400];

	confine_limit(&limits);
	if (confine_self(&c, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 100;
	}
	return search();
}

/* First: a child would go on using memory that the JIT has already. */
TEST(without_jit)
{
	int status;
	pid_t pid;

	if (!confine_works())
		skip();
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(search_confined());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(with_jit)
{
	assert_int_equal(search(), 0);
}

TEST_MAIN
