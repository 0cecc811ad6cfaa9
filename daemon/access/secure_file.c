// SPDX-License-Identifier: MIT
#include "secure_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(int error, char *err, size_t errlen, const char *what, const char *path)
{
	snprintf(err, errlen, "cannot %s %s: %s", what, path, strerror(error));
	return -error;
}

/* Whether only root and the daemon's user can change the file described by @st. */
static int check_owner(const struct stat *st, const char *path, char *err, size_t errlen)
{
	if (!st->st_uid || st->st_uid == geteuid())
		return 0;
	snprintf(err, errlen, "%s belongs to user %u; it must be root's or user %u's", path,
		 (unsigned)st->st_uid, (unsigned)geteuid());
	return -EPERM;
}

static int check_directory(int fd, const char *path, char *err, size_t errlen)
{
	struct stat st;
	int r;

	if (fstat(fd, &st))
		return fail(errno, err, errlen, "look at", path);
	r = check_owner(&st, path, err, errlen);
	if (r)
		return r;
	if (st.st_mode & 022 && !(st.st_mode & S_ISVTX)) {
		snprintf(err, errlen,
			 "others can write into %s (mode %04o); files in it can be exchanged", path,
			 (unsigned)st.st_mode & 07777);
		return -EPERM;
	}
	return 0;
}

/* Opens a directory entry that is not a symbolic link; @path is its path, for messages. */
static int open_entry(int dir, const char *name, int flags, const char *path, char *err,
		      size_t errlen)
{
	int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC), error = errno;
	struct stat st;

	if (fd >= 0)
		return fd;
	if ((error == ELOOP || error == ENOTDIR) && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
	    S_ISLNK(st.st_mode)) {
		snprintf(err, errlen, "%s is a symbolic link; give the path that it leads to",
			 path);
		return -ELOOP;
	}
	return fail(error, err, errlen, "open", path);
}

/* Walks the absolute path @path, which is modified, and opens its last component. */
static int open_path(char *path, char *err, size_t errlen)
{
	int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), next, r;
	char *part = path + 1, *slash;

	if (dir < 0)
		return fail(errno, err, errlen, "open", "/");
	r = check_directory(dir, "/", err, errlen);
	while (!r && (slash = strchr(part, '/'))) {
		*slash = 0;
		if (*part) {
			next = open_entry(dir, part, O_PATH | O_DIRECTORY, path, err, errlen);
			close(dir);
			if (next < 0)
				return next;
			dir = next;
			r = check_directory(dir, path, err, errlen);
		}
		*slash = '/';
		part = slash + 1;
	}
	/* Non-blocking: a FIFO must not block the daemon. */
	if (!r)
		r = open_entry(dir, *part ? part : ".", O_RDONLY | O_NONBLOCK | O_NOCTTY, path, err,
			       errlen);
	close(dir);
	return r;
}

/* Whether it is a file in systemd's credentials directory. */
static bool is_credential(const char *path)
{
	const char *dir = getenv("CREDENTIALS_DIRECTORY");
	size_t len = dir ? strlen(dir) : 0;

	return len && *dir == '/' && !strncmp(path, dir, len) && path[len] == '/' &&
	       !strchr(path + len + 1, '/');
}

static int check_file(int fd, const char *path, size_t max, char *err, size_t errlen)
{
	mode_t forbidden = is_credential(path) ? 037 : 077;
	struct stat st;
	int r;

	if (fstat(fd, &st))
		return fail(errno, err, errlen, "look at", path);
	if (!S_ISREG(st.st_mode)) {
		snprintf(err, errlen, "%s is not a regular file", path);
		return -EINVAL;
	}
	r = check_owner(&st, path, err, errlen);
	if (r)
		return r;
	if (st.st_mode & forbidden) {
		snprintf(err, errlen,
			 "group or others have access to %s (mode %04o); it must be 0600 or less",
			 path, (unsigned)st.st_mode & 07777);
		return -EPERM;
	}
	if (st.st_size < 0 || (uintmax_t)st.st_size > max) {
		snprintf(err, errlen, "%s has %lld bytes; the limit is %zu", path,
			 (long long)st.st_size, max);
		return -EFBIG;
	}
	return 0;
}

/* Reads to the end of file: the size may have changed since fstat(). */
static int read_all(int fd, const char *path, size_t max, char **ret, size_t *ret_len, char *err,
		    size_t errlen)
{
	char *text = malloc(max + 1);
	size_t len = 0;
	ssize_t n;

	if (!text)
		return fail(ENOMEM, err, errlen, "read", path);
	while ((n = read(fd, text + len, max + 1 - len)) > 0 || (n < 0 && errno == EINTR)) {
		len += n > 0 ? (size_t)n : 0;
		if (len > max) {
			secure_file_free(text, len);
			snprintf(err, errlen, "%s has more than %zu bytes", path, max);
			return -EFBIG;
		}
	}
	if (n < 0) {
		int error = errno;

		secure_file_free(text, len);
		return fail(error, err, errlen, "read", path);
	}
	text[len] = 0;
	*ret = text;
	*ret_len = len;
	return 0;
}

int secure_file_read(const char *path, size_t max, char **ret, size_t *ret_len, char *err,
		     size_t errlen)
{
	char full[PATH_MAX], cwd[PATH_MAX] = "";
	int fd, r;

	if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
		return fail(errno, err, errlen, "find the directory of", path);
	r = snprintf(full, sizeof(full), "%s%s%s", cwd, *path == '/' ? "" : "/", path);
	if (r < 0 || (size_t)r >= sizeof(full))
		return fail(ENAMETOOLONG, err, errlen, "open", path);
	fd = open_path(full, err, errlen);
	if (fd < 0)
		return fd;
	r = check_file(fd, full, max, err, errlen);
	if (!r)
		r = read_all(fd, full, max, ret, ret_len, err, errlen);
	close(fd);
	return r;
}

void secure_file_free(char *text, size_t len)
{
	if (text)
		explicit_bzero(text, len);
	free(text);
}
