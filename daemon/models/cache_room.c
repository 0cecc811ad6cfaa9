// SPDX-License-Identifier: MIT
#include "cache_room.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache_sweep.h"
#include "log.h"

#define KEY_LEN	  32
#define MAX_DEPTH 2  /* entry/chipN/file */
#define RESERVE	  50 /* one part of so many of the file system stays free */

/* ---- entries in use -------------------------------------------------------------------------- */

struct use {
	struct use *next;
	char *user;
	int fd;
};

static struct use *uses; /* the loader thread's */

static struct use *find_use(const char *user)
{
	struct use *u = uses;

	while (u && strcmp(u->user, user) != 0)
		u = u->next;
	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->fd = -1;
	u->user = strdup(user);
	if (!u->user) {
		free(u);
		return NULL;
	}
	u->next = uses;
	uses = u;
	return u;
}

bool cache_hold(const char *entry, const char *user)
{
	int fd = cache_try_lock(AT_FDCWD, entry, O_RDONLY | O_DIRECTORY, LOCK_SH);
	struct use *u = fd < 0 ? NULL : find_use(user);
	struct stat st;

	if (!u || fstat(fd, &st) || (st.st_uid && st.st_uid != geteuid()) ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)) || faccessat(fd, "model_info.json", R_OK, 0)) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	futimens(fd, NULL);
	if (u->fd >= 0)
		close(u->fd);
	u->fd = fd;
	return true;
}

/* ---- entries that may go --------------------------------------------------------------------- */

struct entry {
	char name[KEY_LEN + 1];
	uint64_t bytes;
	struct timespec used;
};

struct entries {
	struct entry *all;
	size_t n;
	uint64_t bytes;
};

static uint64_t tree_bytes(int parent, const char *name, unsigned depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((entry = readdir(dir))) {
		if (*entry->d_name == '.' || fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
			bytes += tree_bytes(fd, entry->d_name, depth + 1);
		else
			bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return bytes;
}

static int compare_use(const void *a, const void *b)
{
	const struct timespec *x = &((const struct entry *)a)->used,
			      *y = &((const struct entry *)b)->used;

	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec ? -1 : 1;
	return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static int list_entries(int cache, struct entries *ret)
{
	int fd = openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	struct stat st;

	if (!dir) {
		int r = -errno;

		if (fd >= 0)
			close(fd);
		return r;
	}
	while ((entry = readdir(dir))) {
		struct entry *all;

		if (strspn(entry->d_name, "0123456789abcdef") != KEY_LEN ||
		    entry->d_name[KEY_LEN] || fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		all = realloc(ret->all, (ret->n + 1) * sizeof(*all));
		if (!all)
			break;
		ret->all = all;
		all += ret->n++;
		memcpy(all->name, entry->d_name, sizeof(all->name));
		all->used = st.st_mtim;
		all->bytes = tree_bytes(fd, all->name, 0);
		ret->bytes += all->bytes;
	}
	closedir(dir);
	if (ret->n)
		qsort(ret->all, ret->n, sizeof(*ret->all), compare_use);
	return 0;
}

/* False: it is in use. */
static bool remove_entry(const char *cache, int cache_fd, const struct entry *e)
{
	int fd = cache_try_lock(cache_fd, e->name, O_RDONLY | O_DIRECTORY, LOCK_EX);
	char path[PATH_MAX];

	if (fd < 0)
		return false;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", cache, e->name) < sizeof(path)) {
		log_info("cache: %s goes to make room: %.1f MB", e->name, (double)e->bytes / 1e6);
		cache_remove_tree(path);
	}
	close(fd);
	return true;
}

/* What is missing: bytes that still have to go. */
static uint64_t missing(int cache_fd, uint64_t used, uint64_t need, uint64_t limit)
{
	uint64_t over = limit && used + need > limit ? used + need - limit : 0, room, reserve;
	struct statvfs fs;

	if (!need || fstatvfs(cache_fd, &fs))
		return over;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	reserve = (uint64_t)fs.f_blocks * fs.f_frsize / RESERVE;
	if (room < need + reserve && need + reserve - room > over)
		over = need + reserve - room;
	return over;
}

int cache_make_room(const char *cache, uint64_t need, uint64_t limit, char *err, size_t errlen)
{
	struct entries e = {0};
	int fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	uint64_t over;

	r = fd < 0 ? -errno : list_entries(fd, &e);
	if (r) {
		snprintf(err, errlen, "the cache directory %s: %s", cache, strerror(-r));
		if (fd >= 0)
			close(fd);
		return r;
	}
	over = missing(fd, e.bytes, need, limit);
	for (size_t i = 0; i < e.n && over; i++) {
		if (!remove_entry(cache, fd, &e.all[i]))
			continue;
		e.bytes -= e.all[i].bytes;
		over = missing(fd, e.bytes, need, limit);
	}
	if (over) {
		char why[96] = "on its file system";

		if (limit)
			snprintf(why, sizeof(why),
				 "of --cache-size %.1f MB or on its file system, and %.1f MB are "
				 "in use",
				 (double)limit / 1e6, (double)e.bytes / 1e6);
		snprintf(err, errlen,
			 "the cache %s has no room for a model of about %.1f MB: %.1f MB are "
			 "missing %s",
			 cache, (double)need / 1e6, (double)over / 1e6, why);
		r = -ENOSPC;
	}
	free(e.all);
	close(fd);
	return r;
}
