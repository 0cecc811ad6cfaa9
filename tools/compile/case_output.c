// SPDX-License-Identifier: MIT
#include "case_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "io.h"

#define MAX_NAME  200
#define MAX_DEPTH 8
#define MAX_DIRS  16

struct case_output {
	char *path;		 /* as given, for messages */
	char name[MAX_NAME + 1]; /* the target within its parent */
	char temp[MAX_NAME + 32], lock[MAX_NAME + 32];
	int parent_fd, dir_fd, lock_fd;
	bool force, locked;
	char dirs[MAX_DIRS][32]; /* made by case_mkdir() */
	unsigned n_dirs;
};

static int fail_errno(const struct case_output *out, const char *what, struct tool_error *error)
{
	int r = -errno;

	return tool_fail(error, r, "%s: %s: %s", out->path, what, strerror(-r));
}

/* Like rm -r, without following links. */
static int remove_tree(int parent, const char *name, unsigned depth)
{
	struct dirent *entry;
	int fd, r = 0;
	DIR *dir;

	if (!unlinkat(parent, name, 0) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth == MAX_DEPTH)
		return -ELOOP;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	while (!r && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			r = remove_tree(fd, entry->d_name, depth + 1);
	}
	closedir(dir);
	if (!r && unlinkat(parent, name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

/* 1: exists, 0: does not, or -errno if it must not be replaced. */
static int check_target(const struct case_output *out, struct tool_error *error)
{
	struct dirent *entry;
	bool empty = true;
	struct stat st;
	DIR *dir;
	int fd;

	if (fstatat(out->parent_fd, out->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail_errno(out, "stat", error);
	if (!S_ISDIR(st.st_mode))
		return tool_fail(error, -EEXIST, "%s: exists and is not a directory", out->path);
	fd = openat(out->parent_fd, out->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return fail_errno(out, "open", error);
	while ((entry = readdir(dir)))
		empty &= !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	if (!empty && out->force && faccessat(fd, "model_info.json", F_OK, 0) < 0) {
		closedir(dir);
		return tool_fail(error, -EEXIST,
				 "%s: not a case dir (no model_info.json), so it is not replaced",
				 out->path);
	}
	closedir(dir);
	if (!empty && !out->force)
		return tool_fail(error, -EEXIST, "%s: exists (--force replaces it)", out->path);
	return 1;
}

static int take_lock(struct case_output *out, volatile sig_atomic_t *interrupted,
		     void (*waiting)(const char *path), struct tool_error *error)
{
	struct stat here, there;
	bool told = false;

	for (;;) {
		out->lock_fd = openat(out->parent_fd, out->lock,
				      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
		if (out->lock_fd < 0)
			return fail_errno(out, "lock", error);
		while (flock(out->lock_fd, told ? LOCK_EX : LOCK_EX | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK && waiting)
				waiting(out->path);
			else if (errno != EWOULDBLOCK && errno != EINTR)
				return fail_errno(out, "lock", error);
			told = true;
			if (interrupted && *interrupted)
				return tool_fail(error, -EINTR, "interrupted");
		}
		/*
		 * The previous holder removed its lock file at the end: check that the file still
		 * has that name.
		 */
		if (!fstat(out->lock_fd, &here) &&
		    !fstatat(out->parent_fd, out->lock, &there, AT_SYMLINK_NOFOLLOW) &&
		    here.st_ino == there.st_ino && here.st_dev == there.st_dev) {
			out->locked = true;
			return 0;
		}
		close(out->lock_fd);
		out->lock_fd = -1;
	}
}

/* Splits the path into parent and name. */
static int open_parent(struct case_output *out, struct tool_error *error)
{
	char *path = strdup(out->path), *slash;
	const char *parent = ".", *name;
	size_t n;
	int r = 0;

	if (!path)
		return tool_fail(error, -ENOMEM, "no memory");
	for (n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = 0;
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	if (slash) {
		*slash = 0;
		parent = slash == path ? "/" : path;
	}
	if (!tool_plain_name(name) || strlen(name) > MAX_NAME) {
		r = tool_fail(error, -EINVAL,
			      "%s: not a name for a new directory (at most %d bytes)", out->path,
			      MAX_NAME);
	} else {
		strcpy(out->name, name);
		snprintf(out->temp, sizeof(out->temp), ".%s.txda-new", name);
		snprintf(out->lock, sizeof(out->lock), ".%s.txda-lock", name);
		out->parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (out->parent_fd < 0)
			r = fail_errno(out, parent, error);
	}
	free(path);
	return r;
}

int case_begin(const char *path, bool force, volatile sig_atomic_t *interrupted,
	       void (*waiting)(const char *path), struct case_output **ret,
	       struct tool_error *error)
{
	struct case_output *out = calloc(1, sizeof(*out));
	int r;

	if (!out)
		return tool_fail(error, -ENOMEM, "no memory");
	out->parent_fd = out->dir_fd = out->lock_fd = -1;
	out->force = force;
	out->path = strdup(path);
	if (!out->path) {
		free(out);
		return tool_fail(error, -ENOMEM, "no memory");
	}
	r = open_parent(out, error);
	if (!r)
		r = take_lock(out, interrupted, waiting, error);
	if (!r)
		r = check_target(out, error);
	if (r >= 0) {
		r = remove_tree(out->parent_fd, out->temp, 0);
		if (r)
			tool_fail(error, r, "%s: removing %s: %s", path, out->temp, strerror(-r));
	}
	if (!r && mkdirat(out->parent_fd, out->temp, 0777) < 0)
		r = fail_errno(out, "mkdir", error);
	if (!r) {
		out->dir_fd = openat(out->parent_fd, out->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (out->dir_fd < 0)
			r = fail_errno(out, out->temp, error);
	}
	if (r) {
		case_end(out);
		return r;
	}
	*ret = out;
	return 0;
}

int case_mkdir(struct case_output *out, const char *name, struct tool_error *error)
{
	if (out->n_dirs == MAX_DIRS || strlen(name) >= sizeof(out->dirs[0]))
		return tool_fail(error, -E2BIG, "%s: too many directories", out->path);
	if (mkdirat(out->dir_fd, name, 0777) < 0)
		return fail_errno(out, name, error);
	strcpy(out->dirs[out->n_dirs++], name);
	return 0;
}

int case_create(struct case_output *out, const char *name, struct tool_error *error)
{
	int fd = openat(out->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	return fd < 0 ? fail_errno(out, name, error) : fd;
}

int case_close(const struct case_output *out, int fd, const char *name, struct tool_error *error)
{
	int r = fsync(fd) < 0 ? -errno : 0;

	if (close(fd) < 0 && !r)
		r = -errno;
	return r ? tool_fail(error, r, "%s: %s: %s", out->path, name, strerror(-r)) : 0;
}

int case_write(struct case_output *out, const char *name, const void *data, size_t bytes,
	       struct tool_error *error)
{
	int fd = case_create(out, name, error), r;

	if (fd < 0)
		return fd;
	r = io_write_all(fd, data, bytes);
	if (r) {
		close(fd);
		return tool_fail(error, r, "%s: %s: %s", out->path, name, strerror(-r));
	}
	return case_close(out, fd, name, error);
}

/* 1: the same contents, 0: different, or -errno. */
static int compare_files(int a, int b)
{
	enum { PART = 1 << 16 };
	char *part = malloc(2 * PART);
	int r = part ? 1 : -ENOMEM;
	ssize_t n = 1;

	for (off_t at = 0; r == 1 && n > 0; at += n) {
		n = pread(a, part, PART, at);
		if (n < 0 || pread(b, part + PART, PART, at) != n)
			r = n < 0 ? -errno : 0;
		else if (memcmp(part, part + PART, (size_t)n))
			r = 0;
	}
	free(part);
	return r;
}

int case_link(struct case_output *out, const char *name, const char *path, struct tool_error *error)
{
	int mine = openat(out->dir_fd, name, O_RDONLY | O_CLOEXEC),
	    other = open(path, O_RDONLY | O_CLOEXEC), r;

	if (mine < 0 || other < 0)
		r = tool_fail(error, -errno, "%s: %s", other < 0 ? path : name, strerror(errno));
	else
		r = compare_files(mine, other);
	if (r < 0 && mine >= 0 && other >= 0)
		tool_fail(error, r, "%s: %s", path, strerror(-r));
	else if (!r)
		r = tool_fail(error, -EINVAL, "%s: has other weights than this program", path);
	if (mine >= 0)
		close(mine);
	if (other >= 0)
		close(other);
	if (r < 0)
		return r;
	if (unlinkat(out->dir_fd, name, 0) ||
	    linkat(AT_FDCWD, path, out->dir_fd, name, AT_SYMLINK_FOLLOW))
		return fail_errno(out, path, error);
	return 0;
}

static int sync_dir(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		r = -errno;
	close(fd);
	return r;
}

/* Exchanges the new directory and the old one, which then has the temporary name. */
static int replace(struct case_output *out)
{
	char old[MAX_NAME + 32];
	int r;

	if (!renameat2(out->parent_fd, out->temp, out->parent_fd, out->name, RENAME_EXCHANGE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* The file system does not support RENAME_EXCHANGE. */
	snprintf(old, sizeof(old), ".%s.txda-old", out->name);
	r = remove_tree(out->parent_fd, old, 0);
	if (r)
		return r;
	if (renameat(out->parent_fd, out->name, out->parent_fd, old) < 0)
		return -errno;
	if (renameat(out->parent_fd, out->temp, out->parent_fd, out->name) < 0) {
		r = -errno;
		renameat(out->parent_fd, old, out->parent_fd, out->name);
		return r;
	}
	return remove_tree(out->parent_fd, old, 0);
}

int case_commit(struct case_output *out, struct tool_error *error)
{
	unsigned i;
	int r = 0, there;

	for (i = 0; i < out->n_dirs && !r; i++)
		r = sync_dir(out->dir_fd, out->dirs[i]);
	if (!r && fsync(out->dir_fd) < 0)
		r = -errno;
	if (r)
		return tool_fail(error, r, "%s: sync: %s", out->path, strerror(-r));
	there = check_target(out, error);
	if (there < 0)
		return there;
	if (there)
		r = replace(out);
	else if (renameat(out->parent_fd, out->temp, out->parent_fd, out->name) < 0)
		r = -errno;
	if (!r && fsync(out->parent_fd) < 0)
		r = -errno;
	if (r)
		return tool_fail(error, r, "%s: rename: %s", out->path, strerror(-r));
	return 0;
}

void case_end(struct case_output *out)
{
	if (!out)
		return;
	if (out->dir_fd >= 0)
		close(out->dir_fd);
	if (out->locked) {
		/* Removes what was not committed, or what was replaced. */
		remove_tree(out->parent_fd, out->temp, 0);
		unlinkat(out->parent_fd, out->lock, 0);
	}
	if (out->lock_fd >= 0)
		close(out->lock_fd);
	if (out->parent_fd >= 0)
		close(out->parent_fd);
	free(out->path);
	free(out);
}
