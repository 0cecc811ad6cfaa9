// SPDX-License-Identifier: MIT
/* Files of directories that others wrote: what can be read, and what a link must not lead to. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "owned.h"

enum { OWNER = 4321, OTHER = 4322 };

static char top[] = "/tmp/txda-owned-XXXXXX";
static char model[64], secret[64];

static const char *below(const char *dir, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void put(const char *path, const char *text, uid_t owner, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	if (owner)
		assert_int_equal(fchown(fd, owner, owner), 0);
	close(fd);
}

static void expect(const char *name, int wanted, const char *words)
{
	char *text = NULL, err[400] = "";
	size_t bytes = 0;
	int r = owned_read_path(below(model, name), 100, &text, &bytes, err, sizeof(err));

	if (r != wanted || !strstr(err, words))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", name, r, err, wanted, words);
	if (!r)
		assert_int_equal(strlen(text), bytes);
	free(text);
}

static void plain_files(void **state)
{
	(void)state;
	put(below(model, "plain"), "text", 0, 0600);
	expect("plain", 0, "");
	expect("none", -ENOENT, "none: No such file");
	put(below(model, "empty"), "", 0, 0600);
	expect("empty", 0, "");
	put(below(model, "large"),
	    "0123456789012345678901234567890123456789012345678901234567890123456789"
	    "0123456789012345678901234567890",
	    0, 0600);
	expect("large", -EFBIG, "large: 101 bytes, the limit is 100");
}

static void no_files(void **state)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char path[64];

	(void)state;
	/* Nobody writes: an open that waits would wait for ever. */
	assert_int_equal(mkfifo(below(model, "fifo"), 0600), 0);
	expect("fifo", -EINVAL, "fifo is not a regular file");
	assert_int_equal(symlink("fifo", below(model, "to_fifo")), 0);
	expect("to_fifo", -EINVAL, "to_fifo is not a regular file");
	assert_int_equal(symlink("/dev/zero", below(model, "to_device")), 0);
	expect("to_device", -EINVAL, "to_device is not a regular file");
	assert_int_equal(mkdir(below(model, "dir"), 0700), 0);
	expect("dir", -EINVAL, "dir is not a regular file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(symlink(path, below(model, "to_open")), 0);
	expect("to_open", -EINVAL, "to_open is not a regular file");
	assert_int_equal(symlink("loop", below(model, "loop")), 0);
	expect("loop", -ELOOP, "loop: ");
	close(fd);
}

/* The daemon may read what the owner of a model may not: a link in the model must not show it. */
static void others_files(void **state)
{
	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(chown(model, OWNER, OWNER), 0);
	put(below(model, "own"), "own", OWNER, 0600);
	expect("own", 0, "");
	put(secret, "secret", OTHER, 0600);
	assert_int_equal(symlink(secret, below(model, "link")), 0);
	expect("link", -EPERM, "link belongs to user 4322, neither to root nor to user 4321");
	put(below(model, "daemons"), "root's alone", 0, 0640);
	expect("daemons", -EPERM, "daemons is root's and not for everybody to read (mode 0640)");
	put(below(model, "public"), "root's", 0, 0644);
	expect("public", 0, "");
	/* As checkpoint caches are made: links to files of the same owner. */
	put(below(top, "blob"), "blob", OWNER, 0600);
	assert_int_equal(symlink("../blob", below(model, "cached")), 0);
	expect("cached", 0, "");
	/* In root's directory only root's. */
	assert_int_equal(chown(model, 0, 0), 0);
	expect("own", -EPERM, "own belongs to user 4321, neither to root nor to user 0");
}

static void expect_way(const char *path, uid_t owner, int wanted, const char *words)
{
	char err[400] = "";
	int r = owned_links(path, owner, err, sizeof(err));

	if (r != wanted || !strstr(err, words))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", path, r, err, wanted, words);
}

/* A user's link in place of his model must not lead to another's. */
static void links_on_the_way(void **state)
{
	char way[128];

	(void)state;
	expect_way(top, 0, 0, "");
	expect_way("/", 0, 0, "");
	expect_way(".", 0, 0, "");
	expect_way("/nonexistent/model", 0, -ENOENT, "/nonexistent: ");
	assert_int_equal(symlink("circle", below(top, "circle")), 0);
	expect_way(below(top, "circle"), 0, -ELOOP, "circle: ");
	assert_int_equal(symlink("model/../model", below(top, "direct")), 0);
	expect_way(below(top, "direct/plain"), 0, 0, "");
	if (geteuid())
		skip();
	/* root's link leads to the other user's, that one to the model. */
	assert_int_equal(symlink("second", below(top, "first")), 0);
	assert_int_equal(symlink("model", below(top, "second")), 0);
	assert_int_equal(lchown(below(top, "second"), OTHER, OTHER), 0);
	snprintf(way, sizeof(way), "%s/first/", top);
	expect_way(way, OTHER, 0, "");
	expect_way(way, OWNER, -EPERM, "/second belongs to user 4322, neither to root nor to user");
	expect_way(way, 0, -EPERM, "/second belongs to user 4322");
}

static int make(void **state)
{
	*state = NULL;
	assert_non_null(mkdtemp(top));
	snprintf(model, sizeof(model), "%s/model", top);
	snprintf(secret, sizeof(secret), "%s/secret", top);
	return mkdir(model, 0700);
}

static int clear(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_files),
		cmocka_unit_test(no_files),
		cmocka_unit_test(others_files),
		cmocka_unit_test(links_on_the_way),
	};

	return cmocka_run_group_tests(tests, make, clear);
}
