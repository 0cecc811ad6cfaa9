// SPDX-License-Identifier: MIT
#include "cache_sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Directories that are open at a time. */
#define MAX_DEPTH 8

static DIR *open_below(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

/* A tree that is being removed. */
struct removal {
	int root;
	unsigned n_names; /* tried for directories that are moved up to the root */
	unsigned n_moved; /* of them have been moved: the root has to be read again */
};

static void remove_below(struct removal *r, int parent, const char *name, unsigned depth);

static void empty(struct removal *r, DIR *dir, unsigned depth)
{
	const struct dirent *entry;

	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			remove_below(r, dirfd(dir), entry->d_name, depth);
	}
}

/* A directory that is too deep to be opened from here. */
static void move_up(struct removal *r, int parent, const char *name)
{
	char to[64];
	int error;

	do {
		snprintf(to, sizeof(to), "moved-%u", r->n_names++);
		error = renameat2(parent, name, r->root, to, RENAME_NOREPLACE);
	} while (error && errno == EEXIST);
	/* On a file system that cannot do it the directory stays. */
	r->n_moved += !error;
}

static void remove_below(struct removal *r, int parent, const char *name, unsigned depth)
{
	DIR *dir;

	if (!unlinkat(parent, name, 0) || (errno != EISDIR && errno != EPERM))
		return;
	/* A compiler that a checkpoint has taken over may have made it with any mode. */
	if (fchmodat(parent, name, 0700, 0))
		return;
	if (depth == MAX_DEPTH) {
		move_up(r, parent, name);
		return;
	}
	dir = open_below(parent, name);
	if (!dir)
		return;
	empty(r, dir, depth + 1);
	closedir(dir);
	unlinkat(parent, name, AT_REMOVEDIR);
}

/* Like rm -r, without following links; errors are ignored. Nobody else may change the tree. */
static void remove_tree(int parent, const char *name)
{
	struct removal r = {.root = -1};
	unsigned before;
	DIR *dir;

	if (!unlinkat(parent, name, 0) || (errno != EISDIR && errno != EPERM))
		return;
	do {
		dir = open_below(parent, name);
		if (!dir)
			return;
		r.root = dirfd(dir);
		before = r.n_moved;
		empty(&r, dir, 1);
		closedir(dir);
	} while (r.n_moved != before);
	unlinkat(parent, name, AT_REMOVEDIR);
}

int cache_try_lock(int dirfd, const char *name, int flags, int lock)
{
	struct stat here, there;
	int fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

	if (fd < 0)
		return -1;
	if (!flock(fd, lock | LOCK_NB) && !fstat(fd, &here) &&
	    !fstatat(dirfd, name, &there, AT_SYMLINK_NOFOLLOW) && here.st_ino == there.st_ino &&
	    here.st_dev == there.st_dev)
		return fd;
	close(fd);
	errno = EWOULDBLOCK;
	return -1;
}

static void sweep_one(int cache, const char *name)
{
	static const char *const ends[] = {CACHE_NEW, ".txda-old", CACHE_LOCK};
	char lock[NAME_MAX + 1], left[NAME_MAX + 1];
	size_t n = strlen(name);
	int fd;

	for (unsigned i = 0; i < 3; i++) {
		size_t end = strlen(ends[i]);

		if (*name != '.' || n <= end + 1 || strcmp(name + n - end, ends[i]))
			continue;
		n -= end;
		if ((size_t)snprintf(lock, sizeof(lock), "%.*s" CACHE_LOCK, (int)n, name) >=
		    sizeof(lock))
			return;
		fd = cache_try_lock(cache, lock, O_RDWR | O_CREAT, LOCK_EX);
		if (fd < 0)
			return;
		for (unsigned j = 0; j < 2; j++) {
			snprintf(left, sizeof(left), "%.*s%s", (int)n, name, ends[j]);
			remove_tree(cache, left);
		}
		unlinkat(cache, lock, 0);
		close(fd);
		return;
	}
}

static void sweep_private(int cache, const char *name)
{
	int fd = cache_try_lock(cache, name, O_RDONLY | O_DIRECTORY, LOCK_EX);

	if (fd < 0)
		return;
	remove_tree(cache, name);
	close(fd);
}

void cache_remove_tree(const char *path)
{
	remove_tree(AT_FDCWD, path);
}

void cache_sweep(const char *cache)
{
	DIR *dir = open_below(AT_FDCWD, cache);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (!strncmp(entry->d_name, CACHE_PRIVATE, strlen(CACHE_PRIVATE)))
			sweep_private(dirfd(dir), entry->d_name);
		else
			sweep_one(dirfd(dir), entry->d_name);
	}
	closedir(dir);
}
