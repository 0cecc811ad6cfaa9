// SPDX-License-Identifier: MIT
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tool_open_file(int dirfd, const char *name, struct stat *ret_stat, struct tool_error *error)
{
	struct stat st;
	int fd, r;

	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		r = -errno;
		return tool_fail(error, r, "%s: %s", name, strerror(-r));
	}
	if (fstat(fd, &st) < 0) {
		r = -errno;
		close(fd);
		return tool_fail(error, r, "%s: %s", name, strerror(-r));
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return tool_fail(error, -EINVAL, "%s: not a regular file", name);
	}
	*ret_stat = st;
	return fd;
}

int tool_read_file(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
		   struct tool_error *error)
{
	size_t bytes, done = 0;
	struct stat st;
	char *text;
	int fd, r = 0;

	fd = tool_open_file(dirfd, name, &st, error);
	if (fd < 0)
		return fd;
	if ((uint64_t)st.st_size > limit) {
		close(fd);
		return tool_fail(error, -EFBIG, "%s: %llu bytes, the limit is %zu", name,
				 (unsigned long long)st.st_size, limit);
	}
	bytes = (size_t)st.st_size;
	text = malloc(bytes + 1);
	if (!text) {
		close(fd);
		return tool_fail(error, -ENOMEM, "%s: no memory for %zu bytes", name, bytes);
	}
	while (done < bytes) {
		ssize_t n = read(fd, text + done, bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			r = n < 0 ? -errno : -EIO;
			break;
		}
		done += (size_t)n;
	}
	close(fd);
	if (r) {
		free(text);
		return tool_fail(error, r, "%s: read %zu of %zu bytes: %s", name, done, bytes,
				 strerror(-r));
	}
	text[bytes] = 0;
	*ret = text;
	*ret_bytes = bytes;
	return 0;
}

int tool_write_all(int fd, const void *data, size_t bytes)
{
	const char *p = data;

	while (bytes) {
		ssize_t n = write(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;
		p += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int tool_plain_name(const char *name)
{
	return name[0] && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}
