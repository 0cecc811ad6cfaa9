// SPDX-License-Identifier: MIT
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

static int fail_at(struct tool_error *error, const char *path)
{
	int r = -errno;

	return tool_fail(error, r, "%s: %s", path, strerror(-r));
}

/* Syncs the directory, too, so that the file survives a crash. */
static int sync_directory(const char *directory, struct tool_error *error)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0 || fsync(fd) < 0)
		r = fail_at(error, directory);
	if (fd >= 0)
		close(fd);
	return r;
}

/* The new name does not end in ".json", so no runtime reads it. */
static int replace(const char *path, const char *directory, const char *text,
		   struct tool_error *error)
{
	char temporary[PATH_MAX];
	int fd, r;

	if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
		return tool_fail(error, -ENAMETOOLONG, "%.100s...: %s", path,
				 strerror(ENAMETOOLONG));
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return fail_at(error, temporary);
	r = io_write_all(fd, text, strlen(text));
	if (r < 0)
		r = tool_fail(error, r, "%s: %s", temporary, strerror(-r));
	else if (fchmod(fd, 0644) < 0 || fsync(fd) < 0)
		r = fail_at(error, temporary);
	close(fd);
	if (r >= 0 && rename(temporary, path) < 0)
		r = fail_at(error, path);
	if (r < 0)
		unlink(temporary);
	return r < 0 ? r : sync_directory(directory, error);
}

static int put(const char *path, const char *directory, const char *text, struct tool_error *error)
{
	if (text && mkdir(directory, 0755) < 0 && errno != EEXIST)
		return fail_at(error, directory);
	if (text)
		return replace(path, directory, text, error);
	if (unlink(path) == 0)
		return sync_directory(directory, error);
	return errno == ENOENT ? 0 : fail_at(error, path);
}

static bool is_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

int cdi_store(const char *path, cdi_take take, void *data, struct tool_error *error)
{
	const char *slash = strrchr(path, '/');
	char directory[PATH_MAX];
	char *text, *then = NULL;
	int r;

	snprintf(directory, sizeof(directory), "%.*s",
		 !slash		? 1
		 : slash > path ? (int)(slash - path)
				: 1,
		 slash ? path : ".");
	r = take(data, &text, error);
	if (r < 0)
		return r;
	for (;;) {
		r = put(path, directory, text, error);
		if (r >= 0)
			r = take(data, &then, error);
		if (r < 0 || is_same(text, then))
			break;
		free(text);
		text = then;
	}
	if (r >= 0) {
		r = text != NULL;
		free(then);
	}
	free(text);
	return r;
}
