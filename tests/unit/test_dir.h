/* SPDX-License-Identifier: MIT */
/* A directory of the test's own, with the files in it. Names are below it unless they begin with /. */
#ifndef TXDA_TESTS_TEST_DIR_H
#define TXDA_TESTS_TEST_DIR_H

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char test_dir[64];

/* The path of the file, until eight more have been asked for. */
static inline char *at(const char *name)
{
	static char paths[8][sizeof(test_dir) + 512];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s%s%s", *name == '/' ? "" : test_dir,
		 *name == '/' ? "" : "/", name);
	return path;
}

/* The same of a file in the directory @dir. */
static inline char *in(const char *dir, const char *name)
{
	char both[512];

	snprintf(both, sizeof(both), "%s/%s", dir, name);
	return at(both);
}

/* Writes the file, which has that mode then, whatever the umask. */
static inline void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static inline int test_dir_make(void **state)
{
	strcpy(test_dir, "/tmp/txda-test-XXXXXX");
	return mkdtemp(test_dir) ? 0 : -1;
}

static inline int test_dir_unlink(const char *path, const struct stat *st, int type,
				  struct FTW *ftw)
{
	return remove(path);
}

static inline int test_dir_remove(void **state)
{
	return nftw(test_dir, test_dir_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
