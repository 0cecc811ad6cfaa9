// SPDX-License-Identifier: MIT
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "cache_room.h"
#include "cache_sweep.h"
#include "priority.h"

#define MAX_KEY	 64
#define MAX_ARGS 20
#define MAX_PATH 1200

static int make_directories(const char *path)
{
	char part[1024];
	size_t n = strlen(path);

	if (n >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0755) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

int cache_find(const char *wanted, char *path, size_t len, char *err, size_t errlen)
{
	const char *given = getenv("CACHE_DIRECTORY"), *xdg = getenv("XDG_CACHE_HOME"),
		   *home = getenv("HOME");
	struct stat st;
	int need, error;

	if (wanted && *wanted)
		need = snprintf(path, len, "%s", wanted);
	else if (given && *given) /* systemd may give a list; the first one is used */
		need = snprintf(path, len, "%.*s", (int)strcspn(given, ":"), given);
	else if (xdg && *xdg == '/')
		need = snprintf(path, len, "%s/txda", xdg);
	else if (home && *home == '/')
		need = snprintf(path, len, "%s/.cache/txda", home);
	else
		need = snprintf(path, len, "/var/cache/txda");
	if (need < 0 || (size_t)need >= len) {
		snprintf(err, errlen, "the cache directory's path has %d bytes; the limit is %zu",
			 need, len - 1);
		return -ENAMETOOLONG;
	}
	error = make_directories(path);
	if (!error && (stat(path, &st) || !S_ISDIR(st.st_mode)))
		error = -ENOTDIR;
	else if (!error && (st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
		error = -EPERM;
	if (error)
		snprintf(err, errlen, "cannot use the cache directory %s: %s", path,
			 error == -EPERM ? "everybody can rename files in it" : strerror(-error));
	else
		cache_sweep(path);
	return error;
}

static bool is_case(const char *path)
{
	char info[1200];

	return (size_t)snprintf(info, sizeof(info), "%s/model_info.json", path) < sizeof(info) &&
	       !access(info, R_OK);
}

/* The compile options, the same for key and compile. */
static unsigned add_options(const struct cache_source *source, char *tp, size_t len, char **argv,
			    unsigned n)
{
	if (source->tp) {
		snprintf(tp, len, "%u", source->tp);
		argv[n++] = (char *)"--tp";
		argv[n++] = tp;
	}
	if (source->weights) {
		argv[n++] = (char *)"--weights";
		argv[n++] = (char *)source->weights;
	}
	if (source->output)
		argv[n++] = (char *)source->output;
	if (source->kv_int8) {
		argv[n++] = (char *)"--kv";
		argv[n++] = (char *)"int8";
	}
	if (source->whole_experts)
		argv[n++] = (char *)"--ep";
	if (source->ignore_unused) {
		argv[n++] = (char *)"--unused-tensors";
		argv[n++] = (char *)"ignore";
	}
	return n;
}

/* The key becomes a file name in the cache, so only letters and digits are allowed. */
static int get_key(const struct cache_source *source, const struct child_options *options,
		   char *key, size_t len, char *err, size_t errlen)
{
	char tp[16],
		*argv[MAX_ARGS] = {(char *)source->compiler, (char *)"--key", (char *)source->path};
	size_t n;
	int error;

	add_options(source, tp, sizeof(tp), argv, 3);
	error = child_run(options, argv, key, len, NULL, err, errlen);
	if (error)
		return error;
	n = strcspn(key, "\r\n");
	key[n] = '\0';
	if (n < 8 ||
	    strspn(key, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != n) {
		snprintf(err, errlen, "%s --key printed no key", source->compiler);
		return -EIO;
	}
	return 0;
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* The directory in which an entry is built. cache_sweep() knows the names. */
struct work {
	char lock[MAX_PATH], dir[MAX_PATH], made[MAX_PATH];
	int lock_fd;
};

/* Only one process at a time builds an entry. */
static int take_lock(struct work *w, const atomic_bool *stop)
{
	const struct timespec pause = {.tv_nsec = 100000000};

	while (!atomic_load(stop)) {
		w->lock_fd = cache_try_lock(AT_FDCWD, w->lock, O_RDWR | O_CREAT, LOCK_EX);
		if (w->lock_fd >= 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return -ECANCELED;
}

static void end_work(struct work *w)
{
	if (w->lock_fd < 0)
		return;
	cache_remove_tree(w->dir);
	unlink(w->lock);
	close(w->lock_fd);
}

static int begin_work(struct work *w, const char *cache, const char *key, const atomic_bool *stop)
{
	int error;

	w->lock_fd = -1;
	if ((size_t)snprintf(w->lock, sizeof(w->lock), "%s/.%s" CACHE_LOCK, cache, key) >=
		    sizeof(w->lock) ||
	    (size_t)snprintf(w->dir, sizeof(w->dir), "%s/.%s" CACHE_NEW, cache, key) >=
		    sizeof(w->dir) ||
	    (size_t)snprintf(w->made, sizeof(w->made), "%s/case", w->dir) >= sizeof(w->made))
		return -ENAMETOOLONG;
	error = take_lock(w, stop);
	if (error)
		return error;
	cache_remove_tree(w->dir);
	return mkdir(w->dir, 0700) ? -errno : 0;
}

/* Also replaces a damaged entry. */
static int put_in_place(const struct work *w, const char *case_dir)
{
	if (chmod(w->made, 0700))
		return -errno;
	if (!rename(w->made, case_dir) ||
	    ((errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) &&
	     !renameat2(AT_FDCWD, w->made, AT_FDCWD, case_dir, RENAME_EXCHANGE)))
		return 0;
	return -errno;
}

/* The largest file that a compile may write: the quota, or what the file system has left. */
static uint64_t file_limit(const char *cache, const struct cache_source *source)
{
	struct statvfs fs;

	if (source->cache_size)
		return source->cache_size;
	return statvfs(cache, &fs) ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Resource limits: what a compile needs, and what a hostile checkpoint may use. */
static struct confine_limits limits_for(const char *cache, const struct cache_source *source,
					unsigned seconds)
{
	const uint64_t least = 4ull << 30;
	uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2,
		 memory = least + source->bytes / 4;

	return (struct confine_limits){
		/* A sanitizer's runtime needs unlimited address space. */
		.memory = !confine_works()		   ? 0
			  : memory <= half || half < least ? memory
							   : half,
		.file_size = file_limit(cache, source),
		.cpu_seconds = seconds * (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
		.processes = 4096,
		.descriptors = 8192,
	};
}

/* What a compile may write in all; each file has the limit of limits_for(). */
struct quota {
	const char *dir;
	uint64_t bytes; /* 0: no limit */
};

static int check_quota(void *arg, char *err, size_t errlen)
{
	const struct quota *q = arg;

	uint64_t bytes = cache_tree_bytes(q->dir);

	if (bytes >= CACHE_ABSURD) {
		snprintf(err, errlen, "its files are not those of a case dir");
		return -EINVAL;
	}
	if (!q->bytes || bytes <= q->bytes)
		return 0;
	snprintf(err, errlen, "its files have more than %.1f MB, the limit of the cache",
		 (double)q->bytes / 1e6);
	return -EFBIG;
}

static int run_compiler(const char *cache, const struct cache_source *source,
			const struct child_options *options, const struct work *w, char *err,
			size_t errlen)
{
	struct quota quota = {w->dir, source->cache_size};
	struct child_options child = *options;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	char out[8], tp[16], jobs[24];
	unsigned n;
	char *argv[MAX_ARGS] = {(char *)source->compiler, (char *)source->path, (char *)"-o",
				(char *)w->made,	  (char *)"--progress", (char *)"plain"};
	int error;

	n = add_options(source, tp, sizeof(tp), argv, 6);
	/* Else it would take as much of each processor as serving. */
	if (!priority_works()) {
		snprintf(jobs, sizeof(jobs), "%ld", processors > 1 ? processors / 2 : 1);
		argv[n++] = (char *)"--jobs";
		argv[n] = jobs;
	}
	/* Room may have been made since the key was asked for. */
	child.limits.file_size = file_limit(cache, source);
	child.check = check_quota;
	child.check_arg = &quota;
	error = child_run(&child, argv, out, sizeof(out), NULL, err, errlen);
	if (!error)
		error = check_quota(&quota, err, errlen);
	if (!error && !is_case(w->made)) {
		snprintf(err, errlen, "%s made no %s/model_info.json", source->compiler, w->made);
		error = -EIO;
	}
	return error;
}

static int compile(const char *cache, const char *key, const struct cache_source *source,
		   bool again, const struct child_options *options, const char *case_dir,
		   struct cache_use **ret, char *err, size_t errlen)
{
	/* Size of 8- or 4-bit weights made from 16-bit ones. */
	unsigned part = !source->weights		 ? 1
			: !strcmp(source->weights, "w8") ? 2
			: !strcmp(source->weights, "w4") ? 4
							 : 1;
	struct work w;
	int error = begin_work(&w, cache, key, options->stop);

	if (error)
		snprintf(err, errlen, "cannot compile into %s: %s", cache, strerror(-error));
	/* Another process may have completed the entry meanwhile. */
	if (!error && !again) {
		*ret = cache_hold(case_dir);
		if (*ret) {
			end_work(&w);
			return 0;
		}
	}
	if (!error)
		error = cache_reserve(cache, w.lock_fd, source->bytes / part, source->cache_size,
				      err, errlen);
	if (!error)
		error = run_compiler(cache, source, options, &w, err, errlen);
	if (!error) {
		error = put_in_place(&w, case_dir);
		*ret = error ? NULL : cache_hold(case_dir);
		if (!error && !*ret)
			error = -EAGAIN;
		if (error)
			snprintf(err, errlen, "cannot put %s in place: %s", case_dir,
				 strerror(-error));
	}
	end_work(&w);
	return error;
}

int cache_get(const char *cache, const struct cache_source *source, bool again,
	      const struct child_options *options, char *case_dir, size_t len,
	      struct cache_use **ret, char *err, size_t errlen)
{
	struct cache_use *use = NULL;
	char key[MAX_KEY + 2];
	struct child_options child = *options;
	int error;

	child.limits = limits_for(cache, source, options->seconds);
	error = get_key(source, &child, key, sizeof(key), err, errlen);
	if (error)
		return error;
	if ((size_t)snprintf(case_dir, len, "%s/%s", cache, key) >= len) {
		snprintf(err, errlen, "the name %s/%s is longer than %zu bytes", cache, key,
			 len - 1);
		return -ENAMETOOLONG;
	}
	if (!again)
		use = cache_hold(case_dir);
	if (!use)
		error = compile(cache, key, source, again, &child, case_dir, &use, err, errlen);
	/* The actual size may differ from the estimate, and so may the limit that applies now. */
	if (!error)
		error = cache_make_room(cache, source->cache_size, err, errlen);
	if (error)
		cache_release(use);
	else
		*ret = use;
	return error;
}
