// SPDX-License-Identifier: MIT
#include "confined.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"
#include "config.h"
#include "json_strict.h"
#include "owned.h"
#include "safetensors.h"

/* Files of a checkpoint that are links: all shards and what lies beside them. */
#define MAX_READABLE (SAFETENSORS_MAX_FILES + 64)
#define MAX_WRITABLE 2

struct places {
	char *readable[MAX_READABLE + 1], *writable[MAX_WRITABLE + 1];
	unsigned n_readable, n_writable;
};

static const char *const calls[] = {
	"faccessat",  "faccessat2", "fadvise64",  "fallocate", "flock",	     "fsync",
	"ftruncate",  "getcwd",	    "getdents64", "linkat",    "lstat",	     "mkdirat",
	"newfstatat", "openat",	    "openat2",	  "readlink",  "readlinkat", "renameat",
	"renameat2",  "stat",	    "statx",	  "umask",     "unlinkat",   NULL,
};

static void add(char **list, unsigned *n, unsigned max, const char *path)
{
	char *real = *n < max ? realpath(path, NULL) : NULL;

	if (real)
		list[(*n)++] = real;
}

/* What links of a directory lead to, if that may be read on its owner's behalf. */
static void add_links(struct places *p, const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	struct stat own, st;
	char path[PATH_MAX], why[400];

	if (!d || fstat(dirfd(d), &own)) {
		if (d)
			closedir(d);
		return;
	}
	while ((entry = readdir(d))) {
		if ((entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) ||
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
			    sizeof(path) ||
		    fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISLNK(st.st_mode) || fstatat(dirfd(d), entry->d_name, &st, 0) ||
		    !S_ISREG(st.st_mode) || owned_check(&st, own.st_uid, path, why, sizeof(why)))
			continue;
		add(p->readable, &p->n_readable, MAX_READABLE, path);
	}
	closedir(d);
}

static void add_model_dir(struct places *p, const char *dir)
{
	add(p->readable, &p->n_readable, MAX_READABLE, dir);
	add_links(p, dir);
}

/* Where config.json says that the weights are, if that is the model's owner's. */
static void add_param_dir(struct places *p, const char *model)
{
	char path[PATH_MAX], why[400];
	struct stat own, st;
	const char *dir;
	cJSON *config;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", model) >= sizeof(path) ||
	    txda_json_load(path, CONFIG_MAX_BYTES, &config, why, sizeof(why)))
		return;
	dir = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "param_dir"));
	if (dir && *dir &&
	    (size_t)snprintf(path, sizeof(path), "%s%s%s", *dir == '/' ? "" : model,
			     *dir == '/' ? "" : "/", dir) < sizeof(path) &&
	    !stat(model, &own) && !stat(path, &st) && S_ISDIR(st.st_mode) &&
	    !owned_check(&st, own.st_uid, path, why, sizeof(why)))
		add_model_dir(p, path);
	cJSON_Delete(config);
}

/* A case dir appears beside others of its directory, under a name of its own until it is whole. */
static void add_output(struct places *p, const char *output)
{
	char *path = strdup(output);

	if (path)
		add(p->writable, &p->n_writable, MAX_WRITABLE, dirname(path));
	free(path);
}

/* When memory runs out a compile goes before what waits for it. */
static void go_first(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "500", 3) < 0)
		errno = 0; /* then it goes as others do */
	close(fd);
}

/* As many shards stay open as a checkpoint has. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int compile_confine(const struct compile_paths *paths, struct tool_error *error)
{
	static struct places p;
	const struct confinement c = {
		.readable = (const char *const *)p.readable,
		.writable = (const char *const *)p.writable,
		.calls = calls,
	};
	char err[400];
	int r;

	/* Of the cache's key. */
	add(p.readable, &p.n_readable, MAX_READABLE, "/proc/self/exe");
	if (paths->model) {
		add_model_dir(&p, paths->model);
		add_param_dir(&p, paths->model);
	}
	if (paths->output)
		add_output(&p, paths->output);
	if (paths->share)
		add(p.writable, &p.n_writable, MAX_WRITABLE, paths->share);
	allow_descriptors();
	go_first();
	r = confine_self(&c, err, sizeof(err));
	return r ? tool_fail(error, r, "%s", err) : 0;
}
