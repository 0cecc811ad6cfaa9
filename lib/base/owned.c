// SPDX-License-Identifier: MIT
#include "owned.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io.h"
#include "sha256.h"

/* The kernel's limit. */
#define MAX_LINKS 40

int owned_check(const struct stat *st, uid_t owner, const char *what, char *err, size_t errlen)
{
	mode_t others = S_ISDIR(st->st_mode) ? S_IXOTH : S_IROTH;

	/* Root's models may be ones that this process has compiled itself. */
	if (st->st_uid == owner || (!owner && st->st_uid == geteuid()))
		return 0;
	if (st->st_uid) {
		snprintf(err, errlen,
			 "%.300s belongs to user %u, neither to root nor to user %u, who owns the "
			 "model's directory",
			 what, (unsigned)st->st_uid, (unsigned)owner);
		return -EPERM;
	}
	if (!(st->st_mode & others)) {
		snprintf(err, errlen,
			 "%.300s is root's and not for everybody to read (mode %04o), but in a "
			 "model of user %u",
			 what, st->st_mode & 07777u, (unsigned)owner);
		return -EPERM;
	}
	return 0;
}

/* Not through the links in /proc, which lead to open files of any process. */
static int open_plainly(int dirfd, const char *name)
{
	static const struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof(how));

	/* Older kernels, and filters that do not know the call. */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(dirfd, name, (int)how.flags);
	return fd;
}

static int fail_with(int error, const char *name, char *err, size_t errlen)
{
	snprintf(err, errlen, "%.300s: %s", name, strerror(-error));
	return error;
}

static int check_file(int dirfd, const char *name, const struct stat *st, char *err, size_t errlen)
{
	struct stat dir;

	if (!S_ISREG(st->st_mode)) {
		snprintf(err, errlen, "%.300s is not a regular file", name);
		return -EINVAL;
	}
	if (dirfd == AT_FDCWD)
		return 0;
	if (fstat(dirfd, &dir))
		return fail_with(-errno, name, err, errlen);
	return owned_check(st, dir.st_uid, name, err, errlen);
}

/* Git's stand-in for a file that it has not downloaded; the size is the limit of its format. */
static int check_contents(int fd, const char *name, const struct stat *st, char *err, size_t errlen)
{
	static const char pointer[] = "version https://git-lfs";
	char text[sizeof(pointer) - 1];

	if (st->st_size > 1024 || pread(fd, text, sizeof(text), 0) != sizeof(text) ||
	    memcmp(text, pointer, sizeof(text)) != 0)
		return 0;
	snprintf(err, errlen,
		 "%.300s is a Git LFS pointer: the file itself was not downloaded (git lfs pull)",
		 name);
	return -EINVAL;
}

int owned_open(int dirfd, const char *name, struct stat *ret_stat, char *err, size_t errlen)
{
	struct stat st;
	int fd, r;

	/* Also before it is opened, since opening a device can have effects. */
	if (fstatat(dirfd, name, &st, 0))
		return fail_with(-errno, name, err, errlen);
	r = check_file(dirfd, name, &st, err, errlen);
	if (r)
		return r;
	fd = open_plainly(dirfd, name);
	if (fd < 0)
		return fail_with(-errno, name, err, errlen);
	r = fstat(fd, &st) ? fail_with(-errno, name, err, errlen)
			   : check_file(dirfd, name, &st, err, errlen);
	if (!r)
		r = check_contents(fd, name, &st, err, errlen);
	if (r) {
		close(fd);
		return r;
	}
	*ret_stat = st;
	return fd;
}

static struct sha256 *watch;

void owned_watch(struct sha256 *h)
{
	watch = h;
}

int owned_read(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
	       struct stat *ret_stat, char *err, size_t errlen)
{
	int fd = owned_open(dirfd, name, ret_stat, err, errlen), r;
	char *text;

	if (fd < 0)
		return fd;
	if ((uint64_t)ret_stat->st_size > limit) {
		close(fd);
		snprintf(err, errlen, "%.300s: %llu bytes, the limit is %zu", name,
			 (unsigned long long)ret_stat->st_size, limit);
		return -EFBIG;
	}
	text = malloc((size_t)ret_stat->st_size + 1);
	r = text ? io_read_all(fd, text, (size_t)ret_stat->st_size) : -ENOMEM;
	close(fd);
	if (r) {
		free(text);
		return fail_with(r == -EPIPE ? -EIO : r, name, err, errlen);
	}
	text[ret_stat->st_size] = '\0';
	if (watch) {
		sha256_u64(watch, (uint64_t)ret_stat->st_size);
		sha256_update(watch, text, (size_t)ret_stat->st_size);
	}
	*ret = text;
	*ret_bytes = (size_t)ret_stat->st_size;
	return 0;
}

int owned_read_path(const char *path, size_t limit, char **ret, size_t *ret_bytes, char *err,
		    size_t errlen)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int n = slash ? (int)(slash - path) + 1 : 0, dirfd, r;
	char dir[PATH_MAX] = ".", why[400];
	struct stat st;

	if (slash && (size_t)snprintf(dir, sizeof(dir), "%.*s", n, path) >= sizeof(dir))
		return fail_with(-ENAMETOOLONG, path, err, errlen);
	dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return fail_with(-errno, path, err, errlen);
	r = owned_read(dirfd, *name ? name : ".", limit, ret, ret_bytes, &st, why, sizeof(why));
	if (r)
		snprintf(err, errlen, "%.*s%s", n, path, why);
	close(dirfd);
	return r;
}

int owned_find(const char *dir, const char *name, char *err, size_t errlen)
{
	char path[PATH_MAX];
	struct stat st;
	int error;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return fail_with(-ENAMETOOLONG, dir, err, errlen);
	if (!access(path, R_OK))
		return 1;
	error = errno;
	if (error != ENOENT)
		return fail_with(-error, path, err, errlen);
	if (lstat(path, &st))
		return 0;
	snprintf(err, errlen, "%.300s is a link to a file that does not exist", path);
	return -ENOENT;
}

/* Replaces the link path[0, n) by its target, keeping the rest of the path. */
static int follow(char *path, size_t len, size_t n)
{
	char target[PATH_MAX], rest[PATH_MAX];
	size_t dir = n;
	ssize_t got;

	snprintf(rest, sizeof(rest), "%s", path + n);
	path[n] = '\0';
	got = readlink(path, target, sizeof(target) - 1);
	if (got < 0)
		return -errno;
	target[got] = '\0';
	while (dir && path[dir - 1] != '/')
		dir--;
	if (*target == '/')
		dir = 0;
	return (size_t)snprintf(path + dir, len - dir, "%s%s", target, rest) < len - dir
		       ? 0
		       : -ENAMETOOLONG;
}

int owned_links(const char *path, uid_t owner, char *err, size_t errlen)
{
	char way[PATH_MAX], part[PATH_MAX];
	unsigned links = 0;
	struct stat st;
	int r = 0;

	if ((size_t)snprintf(way, sizeof(way), "%s", path) >= sizeof(way))
		return fail_with(-ENAMETOOLONG, path, err, errlen);
	for (size_t n = 1; n <= strlen(way) && !r; n++) {
		if (way[n] && way[n] != '/')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)n, way);
		if (lstat(part, &st))
			return fail_with(-errno, part, err, errlen);
		if (!S_ISLNK(st.st_mode))
			continue;
		r = owned_check(&st, owner, part, err, errlen);
		if (r)
			return r;
		r = ++links > MAX_LINKS ? -ELOOP : follow(way, sizeof(way), n);
		n = 0;
	}
	return r ? fail_with(r, path, err, errlen) : 0;
}
