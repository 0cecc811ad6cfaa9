// SPDX-License-Identifier: MIT
#include "cache_room.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache_sweep.h"
#include "log.h"

#define KEY_LEN	   32
#define MAX_DEPTH  3		/* entry/chipN/file, new/case/chipN/file */
#define MAX_FILES  65536	/* of a tree */
#define FILE_LEAST 4096		/* bytes that a file counts for: it takes an inode, too */
#define RESERVE	   50		/* this fraction of the file system stays free */
#define MOST	   CACHE_ABSURD /* bytes: the sizes of sparse files can add up to anything */

/* ---- entries in use -------------------------------------------------------------------------- */

struct cache_use {
	int fd; /* with a shared lock */
};

struct cache_use *cache_hold(const char *entry)
{
	int fd = cache_try_lock(AT_FDCWD, entry, O_RDONLY | O_DIRECTORY, LOCK_SH);
	struct cache_use *u = fd < 0 ? NULL : malloc(sizeof(*u));
	struct stat st;

	if (!u || fstat(fd, &st) || (st.st_uid && st.st_uid != geteuid()) ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)) || faccessat(fd, "model_info.json", R_OK, 0)) {
		if (fd >= 0)
			close(fd);
		free(u);
		return NULL;
	}
	futimens(fd, NULL);
	u->fd = fd;
	return u;
}

void cache_release(struct cache_use *use)
{
	if (use)
		close(use->fd);
	free(use);
}

/* ---- entries that may be evicted ------------------------------------------------------------- */

struct entry {
	char name[KEY_LEN + 1];
	uint64_t bytes;
	struct timespec used;
	int lock; /* lock of an entry to be evicted; -1: in use, or not needed */
};

struct entries {
	struct entry *all;
	size_t n;
	uint64_t bytes;
};

/*
 * What a compiler has made may be anything if a checkpoint has taken it over. A tree of more files or
 * more depth than a case dir has, or that this user may not read, counts for MOST.
 */
static uint64_t bytes_below(int parent, const char *name, unsigned depth, unsigned *n_files)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint64_t bytes = 0, more;
	struct stat st;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return errno == EACCES ? MOST : 0;
	}
	while (bytes < MOST && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		more = (uint64_t)st.st_blocks * 512;
		if (S_ISDIR(st.st_mode))
			more = depth < MAX_DEPTH
				       ? bytes_below(fd, entry->d_name, depth + 1, n_files)
				       : MOST;
		bytes += more < FILE_LEAST ? FILE_LEAST : more;
		if (++*n_files > MAX_FILES)
			bytes = MOST;
	}
	closedir(dir);
	return bytes < MOST ? bytes : MOST;
}

static uint64_t tree_bytes(int parent, const char *name)
{
	unsigned n_files = 0;

	return bytes_below(parent, name, 0, &n_files);
}

uint64_t cache_tree_bytes(const char *path)
{
	return tree_bytes(AT_FDCWD, path);
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
		all->bytes = tree_bytes(fd, all->name);
		all->lock = -1;
		ret->bytes += all->bytes;
		if (ret->bytes > MOST)
			ret->bytes = MOST;
	}
	closedir(dir);
	if (ret->n)
		qsort(ret->all, ret->n, sizeof(*ret->all), compare_use);
	return 0;
}

/*
 * Locks the least recently used entries whose eviction frees @over bytes. Returns whether that is
 * enough.
 */
static bool choose_entries(int cache, const struct entries *e, uint64_t over)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < e->n && bytes < over; i++) {
		e->all[i].lock =
			cache_try_lock(cache, e->all[i].name, O_RDONLY | O_DIRECTORY, LOCK_EX);
		if (e->all[i].lock >= 0)
			bytes += e->all[i].bytes;
	}
	return bytes >= over;
}

/* Releases the locks; with @remove the entries are removed first. */
static void end_choice(const char *cache, const struct entries *e, bool remove)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < e->n; i++) {
		const struct entry *one = &e->all[i];

		if (one->lock < 0)
			continue;
		if (remove && (size_t)snprintf(path, sizeof(path), "%s/%s", cache, one->name) <
				      sizeof(path)) {
			log_info("cache: evicting %s to make room: %.1f MB", one->name,
				 (double)one->bytes / 1e6);
			cache_remove_tree(path);
		}
		close(one->lock);
	}
}

/* ---- compiles that run ----------------------------------------------------------------------- */

/* Held while room is looked for and reserved, so that not two threads find the same. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What compiles have and will have. */
struct running {
	uint64_t bytes;	  /* reserved or, if that is more, written */
	uint64_t pending; /* reserved and not written yet */
};

static int write_reserved(int lock_fd, uint64_t bytes)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);

	if (ftruncate(lock_fd, 0) || pwrite(lock_fd, text, (size_t)n, 0) != n)
		return errno ? -errno : -EIO;
	return 0;
}

static uint64_t read_reserved(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	uint64_t bytes;

	text[n > 0 ? n : 0] = '\0';
	bytes = strtoull(text, NULL, 10);
	return bytes < MOST ? bytes : MOST;
}

/* Adds the compile whose lock file that is, unless it has ended. */
static void add_running(int cache, const char *name, const struct stat *own, struct running *ret)
{
	int stem = (int)(strlen(name) - strlen(CACHE_LOCK)), fd;
	uint64_t reserved, written;
	char made[NAME_MAX + 1];
	struct stat st;
	bool is_own;

	fd = cache_try_lock(cache, name, O_RDONLY, LOCK_SH);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 || errno != EWOULDBLOCK)
		return;
	fd = openat(cache, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	reserved = read_reserved(fd);
	is_own = fstat(fd, &st) || (own && st.st_dev == own->st_dev && st.st_ino == own->st_ino);
	close(fd);
	if (is_own ||
	    snprintf(made, sizeof(made), "%.*s" CACHE_NEW, stem, name) >= (int)sizeof(made))
		return;
	written = tree_bytes(cache, made);
	ret->bytes += reserved > written ? reserved : written;
	ret->pending += reserved > written ? reserved - written : 0;
	if (ret->bytes > MOST)
		*ret = (struct running){MOST, MOST};
}

/* All but the one of @lock_fd. */
static struct running find_running(int cache, int lock_fd)
{
	int fd = openat(cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct running found = {0};
	const struct dirent *entry;
	struct stat own;
	bool has_own = !fstat(lock_fd, &own);

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return found;
	}
	while ((entry = readdir(dir))) {
		size_t n = strlen(entry->d_name), end = strlen(CACHE_LOCK);

		if (*entry->d_name == '.' && n > end + 1 &&
		    !strcmp(entry->d_name + n - end, CACHE_LOCK))
			add_running(fd, entry->d_name, has_own ? &own : NULL, &found);
	}
	closedir(dir);
	return found;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Bytes that still have to be freed. */
static uint64_t missing(int cache_fd, uint64_t used, uint64_t need, uint64_t limit,
			const struct running *running)
{
	uint64_t over, room, reserve, all;
	struct statvfs fs;

	if (need > MOST)
		need = MOST;
	all = used + need + running->bytes;
	over = limit && all > limit ? all - limit : 0;
	if (!need || fstatvfs(cache_fd, &fs))
		return over;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	reserve = (uint64_t)fs.f_blocks * fs.f_frsize / RESERVE + running->pending;
	if (room < need + reserve && need + reserve - room > over)
		over = need + reserve - room;
	return over;
}

/* @lock_fd: of the compile that needs it; -1: there is none, and those that run do not count. */
static int make_room(const char *cache, int lock_fd, uint64_t need, uint64_t limit, char *err,
		     size_t errlen)
{
	struct running running = {0};
	struct entries e = {0};
	int fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	uint64_t over;
	bool enough;

	r = fd < 0 ? -errno : list_entries(fd, &e);
	if (r) {
		snprintf(err, errlen, "the cache directory %s: %s", cache, strerror(-r));
		if (fd >= 0)
			close(fd);
		return r;
	}
	if (lock_fd >= 0)
		running = find_running(fd, lock_fd);
	over = missing(fd, e.bytes, need, limit, &running);
	/* Evicts nothing if that is not enough. */
	enough = choose_entries(fd, &e, over);
	end_choice(cache, &e, enough);
	if (!enough) {
		char why[96] = "on its file system";

		if (limit)
			snprintf(why, sizeof(why),
				 "of --cache-size %.1f MB or on its file system, and %.1f MB are "
				 "in use",
				 (double)limit / 1e6, (double)(e.bytes + running.bytes) / 1e6);
		snprintf(err, errlen,
			 "the cache %s has no room for a model of about %.1f MB: %.1f MB are "
			 "missing %s",
			 cache, (double)need / 1e6, (double)over / 1e6, why);
		/* -EFBIG: it would not fit if nothing else were there, so others need not go. */
		r = over > e.bytes + running.bytes ? -EFBIG : -ENOSPC;
	}
	free(e.all);
	close(fd);
	return r;
}

int cache_reserve(const char *cache, int lock_fd, uint64_t need, uint64_t limit, char *err,
		  size_t errlen)
{
	int r;

	pthread_mutex_lock(&lock);
	r = make_room(cache, lock_fd, need, limit, err, errlen);
	if (!r) {
		r = write_reserved(lock_fd, need);
		if (r)
			snprintf(err, errlen, "cannot write a lock file in %s: %s", cache,
				 strerror(-r));
	}
	pthread_mutex_unlock(&lock);
	return r;
}

int cache_make_room(const char *cache, uint64_t limit, char *err, size_t errlen)
{
	return make_room(cache, -1, 0, limit, err, errlen);
}
