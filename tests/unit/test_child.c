// SPDX-License-Identifier: MIT
/* A compiler's process from the daemon's side. */
#include <errno.h>

#include "unit.h"
#include "child.h"

static atomic_bool stop;

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	assert_int_equal(done, 1);
	assert_int_equal(total, 2);
	atomic_store(&stop, true);
}

static int run(const char *script, char *out, size_t outlen, char *err, size_t errlen)
{
	char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
	const struct child_options options = {
		.seconds = 600, .stop = &stop, .progress = on_progress};

	atomic_store(&stop, false);
	return child_run(&options, argv, out, outlen, NULL, err, errlen);
}

TEST(test_says)
{
	char out[64], err[256];

	assert_int_equal(run("echo a key", out, sizeof(out), err, sizeof(err)), 0);
	assert_string_equal(out, "a key\n");
	assert_int_equal(
		run("echo first >&2; echo last >&2; exit 3", out, sizeof(out), err, sizeof(err)),
		-EIO);
	assert_string_equal(err, "first; last");
	/* What lies in a pipe when it ends is read to the end. */
	assert_int_equal(run("head -c 60000 /dev/zero | tr '\\0' '\\n' >&2; echo end >&2; exit 1",
			     out, sizeof(out), err, sizeof(err)),
			 -EIO);
	assert_string_equal(err, "end");
}

static void on_note(void *arg, const char *text)
{
	size_t at = strlen(arg);

	snprintf((char *)arg + at, 64 - at, "%s;", text);
}

/* Notes are not part of what went wrong. */
TEST(test_notes)
{
	char script[] = "echo note: one >&2; echo wrong >&2; echo note: two >&2; exit 1",
	     *const argv[] = {(char *)"/bin/sh", (char *)"-c", script, NULL}, notes[64] = "";
	const struct child_options options = {
		.seconds = 600, .stop = &stop, .note = on_note, .note_arg = notes};
	char out[64], err[256];

	atomic_store(&stop, false);
	assert_int_equal(child_run(&options, argv, out, sizeof(out), NULL, err, sizeof(err)), -EIO);
	assert_string_equal(notes, "one;two;");
	assert_string_equal(err, "wrong");
}

/* It writes faster than anybody reads: the stop is seen all the same. */
TEST(test_floods)
{
	char out[64], err[256];

	assert_int_equal(run("exec yes 'progress 1 2' >&2", out, sizeof(out), err, sizeof(err)),
			 -ECANCELED);
	assert_int_equal(run("yes & exec yes "
			     "'progress 1 2' >&2",
			     out, sizeof(out), err, sizeof(err)),
			 -ECANCELED);
}

TEST_MAIN
