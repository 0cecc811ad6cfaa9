// SPDX-License-Identifier: MIT
#include "files.h"
#include "owned.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int tool_open_file(int dirfd, const char *name, struct stat *ret_stat, struct tool_error *error)
{
	char err[400];
	int fd = owned_open(dirfd, name, ret_stat, err, sizeof(err));

	return fd < 0 ? tool_fail(error, fd, "%s", err) : fd;
}

int tool_read_file(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
		   struct tool_error *error)
{
	struct stat st;
	char err[400];
	int r = owned_read(dirfd, name, limit, ret, ret_bytes, &st, err, sizeof(err));

	return r ? tool_fail(error, r, "%s", err) : 0;
}

struct file_identity tool_identity(const struct stat *st)
{
	return (struct file_identity){
		.dev = st->st_dev,
		.inode = st->st_ino,
		.owner = st->st_uid,
		.bytes = (uint64_t)st->st_size,
		.mtime_ns =
			(uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
		.ctime_ns =
			(uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec,
	};
}

int tool_plain_name(const char *name)
{
	return name[0] && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}
