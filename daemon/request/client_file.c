// SPDX-License-Identifier: MIT
#include "client_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "io.h"
#include "set_error.h"

#define MAY_READ   4u
#define MAY_SEARCH 1u

/* ---- permissions ----------------------------------------------------------------------------- */

static bool has_group(const struct identity *who, gid_t gid)
{
	bool found = who->gid == gid;

	for (unsigned i = 0; i < who->n_groups; i++)
		found |= who->groups[i] == gid;
	return found;
}

/* Whether there is an access control list; the mode shows only its mask. */
static bool has_acl(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return getxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
	       (errno != ENODATA && errno != EOPNOTSUPP);
}

static bool may(const struct identity *who, int fd, const struct stat *st, unsigned want)
{
	unsigned bits = st->st_mode;

	if (who->uid == 0)
		return true;
	if (st->st_uid == who->uid)
		return bits >> 6 & want;
	if (has_acl(fd))
		return false;
	if (has_group(who, st->st_gid))
		return bits >> 3 & want;
	/*
	 * The kernel checks one class only: a process that may be in the group must be permitted by
	 * both.
	 */
	return (who->more_groups ? bits >> 3 & bits : bits) & want;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Opens @name in @dir with O_PATH, which has no effect on devices and FIFOs. */
static int open_beneath(int dir, const char *name, uint64_t resolve, int *ret)
{
	const struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | resolve,
	};

	*ret = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	return *ret < 0 ? -errno : 0;
}

/* Replaces *fd by @name in it, for which the client must have search permission. */
static int go(int *fd, const char *name, const struct identity *who, uint64_t resolve)
{
	struct stat st;
	int next, error;

	if (fstat(*fd, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (!may(who, *fd, &st, MAY_SEARCH))
		return -EACCES;
	error = open_beneath(*fd, name, resolve, &next);
	if (error)
		return error;
	close(*fd);
	*fd = next;
	return 0;
}

/* The number of bytes of @path that are @dir and the slash after it; 0: @path is not below @dir. */
static size_t below(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	return !strncmp(dir, path, n) && path[n] == '/' ? n + 1 : 0;
}

/* Walks @path, whose first @listed bytes are a listed directory. */
static int walk(const char *path, size_t listed, const struct identity *who, int *ret_fd)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), error = fd < 0 ? -errno : 0;
	const char *at = path + 1;

	while (!error && *at) {
		size_t n = strcspn(at, "/");
		bool inside = (size_t)(at - path) >= listed;
		char name[NAME_MAX + 1];

		if (n > NAME_MAX) {
			error = -ENAMETOOLONG;
			break;
		}
		memcpy(name, at, n);
		name[n] = 0;
		if (!strcmp(name, ".."))
			error = -EACCES;
		else if (n && strcmp(name, ".") != 0)
			error = go(&fd, name, who, inside ? RESOLVE_BENEATH | RESOLVE_NO_XDEV : 0);
		at += n + (at[n] == '/');
	}
	if (error && fd >= 0)
		close(fd);
	*ret_fd = fd;
	return error;
}

static int check_size(const struct stat *st, uint64_t max_bytes, uint64_t *ret_bytes, char *err,
		      size_t errlen)
{
	if (st->st_size < 1)
		return set_error(-EINVAL, err, errlen, "the file is empty");
	if ((uint64_t)st->st_size > max_bytes)
		return set_error(-E2BIG, err, errlen, "the file has %lld bytes; the limit is %llu",
				 (long long)st->st_size, (unsigned long long)max_bytes);
	*ret_bytes = (uint64_t)st->st_size;
	return 0;
}

/* Opens the file of an O_PATH descriptor for reading. */
static int open_file(int fd, const struct identity *who, uint64_t max_bytes, int *ret_fd,
		     uint64_t *ret_bytes, char *err, size_t errlen)
{
	char path[64];
	struct stat st;
	int error;

	if (fstat(fd, &st))
		return set_error(-errno, err, errlen, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return set_error(-EINVAL, err, errlen, "it is not a regular file");
	if (!may(who, fd, &st, MAY_READ))
		return set_error(-EACCES, err, errlen, "permission denied");
	error = check_size(&st, max_bytes, ret_bytes, err, errlen);
	if (error)
		return error;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	return *ret_fd < 0 ? set_error(-errno, err, errlen, "the daemon cannot open it: %s",
				       strerror(errno))
			   : 0;
}

int client_file_open(char *const *dirs, unsigned n_dirs, const char *path,
		     const struct identity *who, uint64_t max_bytes, int *ret_fd,
		     uint64_t *ret_bytes, char *err, size_t errlen)
{
	size_t listed = 0;
	int fd, error;

	if (path[0] != '/')
		return set_error(-EINVAL, err, errlen, "the path must begin with /");
	for (unsigned i = 0; i < n_dirs && !listed; i++)
		listed = below(dirs[i], path);
	if (!listed)
		return set_error(-EACCES, err, errlen,
				 "it is not below an allowed directory (--image-dir)");
	error = walk(path, listed, who, &fd);
	if (error)
		return set_error(error, err, errlen, "%s",
				 error == -ELOOP   ? "symbolic links are not followed"
				 : error == -EXDEV ? "it is on another file system"
						   : strerror(-error));
	error = open_file(fd, who, max_bytes, ret_fd, ret_bytes, err, errlen);
	close(fd);
	return error;
}

int client_file_check(int fd, uint64_t max_bytes, uint64_t *ret_bytes, char *err, size_t errlen)
{
	struct stat st;

	/* Does not call into the file system. */
	if (fcntl(fd, F_GET_SEALS) < 0)
		return set_error(
			-EINVAL, err, errlen,
			"the descriptor is not memory that can be used: it must be a memfd or a "
			"file of a tmpfs");
	if (fstat(fd, &st))
		return set_error(-errno, err, errlen, "%s", strerror(errno));
	return check_size(&st, max_bytes, ret_bytes, err, errlen);
}

int client_file_read(int fd, void *to, uint64_t bytes, char *err, size_t errlen)
{
	struct stat before, after;
	int64_t n;

	if (fstat(fd, &before))
		return set_error(-errno, err, errlen, "%s", strerror(errno));
	n = io_pread(fd, to, bytes, 0);
	if (n < 0)
		return set_error((int)n, err, errlen, "it cannot be read: %s", strerror((int)-n));
	if ((uint64_t)n < bytes || fstat(fd, &after) || (uint64_t)after.st_size != bytes ||
	    memcmp(&before.st_mtim, &after.st_mtim, sizeof(after.st_mtim)))
		return set_error(-EINVAL, err, errlen, "the file changed while it was read");
	return 0;
}
