// SPDX-License-Identifier: MIT
/* Files of directories that others wrote: what can be read, and what a link must not lead to. */
#include <errno.h>

#include "test_dir.h"
#include "owned.h"

enum { OWNER = 4321, OTHER = 4322 };

static char model[64], secret[64];

static void put_as(const char *path, const char *text, uid_t owner, mode_t mode)
{
	put(path, text, mode);
	assert_int_equal(chown(path, owner, owner), 0);
}

static void expect(const char *name, int wanted, const char *words)
{
	char *text = NULL, err[400] = "";
	size_t bytes = 0;
	int r = owned_read_path(in(model, name), 100, &text, &bytes, err, sizeof(err));

	if (r != wanted || !strstr(err, words))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", name, r, err, wanted, words);
	if (!r)
		assert_int_equal(strlen(text), bytes);
	free(text);
}

TEST(plain_files)
{
	put(in(model, "plain"), "text", 0600);
	expect("plain", 0, "");
	expect("none", -ENOENT, "none: No such file");
	put(in(model, "empty"), "", 0600);
	expect("empty", 0, "");
	put(in(model, "large"),
	    "0123456789012345678901234567890123456789012345678901234567890123456789"
	    "0123456789012345678901234567890",
	    0600);
	expect("large", -EFBIG, "large: 101 bytes, the limit is 100");
}

TEST(no_files)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char path[64];

	/* Nobody writes: an open that waits would wait for ever. */
	assert_int_equal(mkfifo(in(model, "fifo"), 0600), 0);
	expect("fifo", -EINVAL, "fifo is not a regular file");
	assert_int_equal(symlink("fifo", in(model, "to_fifo")), 0);
	expect("to_fifo", -EINVAL, "to_fifo is not a regular file");
	assert_int_equal(symlink("/dev/zero", in(model, "to_device")), 0);
	expect("to_device", -EINVAL, "to_device is not a regular file");
	assert_int_equal(mkdir(in(model, "dir"), 0700), 0);
	expect("dir", -EINVAL, "dir is not a regular file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(symlink(path, in(model, "to_open")), 0);
	expect("to_open", -EINVAL, "to_open is not a regular file");
	assert_int_equal(symlink("loop", in(model, "loop")), 0);
	expect("loop", -ELOOP, "loop: ");
	close(fd);
}

/* The daemon may read what the owner of a model may not: a link in the model must not show it. */
TEST(others_files)
{
	if (geteuid())
		skip();
	assert_int_equal(chown(model, OWNER, OWNER), 0);
	put_as(in(model, "own"), "own", OWNER, 0600);
	expect("own", 0, "");
	put_as(secret, "secret", OTHER, 0600);
	assert_int_equal(symlink(secret, in(model, "link")), 0);
	expect("link", -EPERM, "link belongs to user 4322, neither to root nor to user 4321");
	put(in(model, "daemons"), "root's alone", 0640);
	expect("daemons", -EPERM, "daemons is root's and not for everybody to read (mode 0640)");
	put(in(model, "public"), "root's", 0644);
	expect("public", 0, "");
	/* As checkpoint caches are made: links to files of the same owner. */
	put_as(in(test_dir, "blob"), "blob", OWNER, 0600);
	assert_int_equal(symlink("../blob", in(model, "cached")), 0);
	expect("cached", 0, "");
	/* In root's directory only root's. */
	assert_int_equal(chown(model, 0, 0), 0);
	expect("own", -EPERM, "own belongs to user 4321, neither to root nor to user 0");
}

/* What git checks out for a large file that it has not downloaded. */
TEST(pointers_to_files)
{
	static const char pointer[] =
		"version https://git-lfs.github.com/spec/v1\n"
		"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
		"size 12345\n";
	char large[2000];
	struct stat st;
	char err[400];
	int fd = open(model, O_PATH | O_DIRECTORY | O_CLOEXEC);

	put("model/model.safetensors", pointer, 0600);
	assert_int_equal(owned_open(fd, "model.safetensors", &st, err, sizeof(err)), -EINVAL);
	assert_says(err, "model.safetensors is a Git LFS pointer: the file itself was not");
	memset(large, ' ', sizeof(large));
	memcpy(large, pointer, sizeof(pointer) - 1);
	large[sizeof(large) - 1] = 0;
	put("model/text", large, 0600);
	close(owned_open(fd, "text", &st, err, sizeof(err)));
	assert_int_equal(st.st_size, sizeof(large) - 1);
	close(fd);
}

/* Only a file that is not there is missing. */
TEST(finds_files)
{
	char err[400] = "";

	assert_int_equal(owned_find(model, "plain", err, sizeof(err)), 1);
	assert_int_equal(owned_find(model, "none", err, sizeof(err)), 0);
	assert_int_equal(owned_find(at("none"), "none", err, sizeof(err)), 0);
	assert_string_equal(err, "");
	assert_int_equal(symlink("none", in(model, "dangling")), 0);
	assert_int_equal(owned_find(model, "dangling", err, sizeof(err)), -ENOENT);
	assert_says(err, "model/dangling is a link to a file that does not exist");
	assert_int_equal(owned_find(model, "loop", err, sizeof(err)), -ELOOP);
	assert_int_equal(owned_find(in(model, "plain"), "none", err, sizeof(err)), -ENOTDIR);
	assert_says(err, "model/plain/none: Not a directory");
}

static void expect_way(const char *path, uid_t owner, int wanted, const char *words)
{
	char err[400] = "";
	int r = owned_links(path, owner, err, sizeof(err));

	if (r != wanted || !strstr(err, words))
		fail_msg("%s: %d \"%s\", not %d \"%s\"", path, r, err, wanted, words);
}

/* A user's link in place of his model must not lead to another's. */
TEST(links_on_the_way)
{
	char way[128];

	expect_way(test_dir, 0, 0, "");
	expect_way("/", 0, 0, "");
	expect_way(".", 0, 0, "");
	expect_way("/nonexistent/model", 0, -ENOENT, "/nonexistent: ");
	assert_int_equal(symlink("circle", in(test_dir, "circle")), 0);
	expect_way(in(test_dir, "circle"), 0, -ELOOP, "circle: ");
	assert_int_equal(symlink("model/../model", in(test_dir, "direct")), 0);
	expect_way(in(test_dir, "direct/plain"), 0, 0, "");
	if (geteuid())
		skip();
	/* root's link leads to the other user's, that one to the model. */
	assert_int_equal(symlink("second", in(test_dir, "first")), 0);
	assert_int_equal(symlink("model", in(test_dir, "second")), 0);
	assert_int_equal(lchown(in(test_dir, "second"), OTHER, OTHER), 0);
	snprintf(way, sizeof(way), "%s/first/", test_dir);
	expect_way(way, OTHER, 0, "");
	expect_way(way, OWNER, -EPERM, "/second belongs to user 4322, neither to root nor to user");
	expect_way(way, 0, -EPERM, "/second belongs to user 4322");
}

static int make(void **state)
{
	assert_int_equal(test_dir_make(state), 0);
	strcpy(model, at("model"));
	strcpy(secret, at("secret"));
	return mkdir(model, 0700);
}

TEST_MAIN_ALL(make, test_dir_remove)
