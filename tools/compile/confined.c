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
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"
#include "config.h"
#include "gguf_name.h"
#include "json_strict.h"
#include "owned.h"
#include "safetensors.h"

/* Files of a checkpoint that are links: all shards and other files beside them. */
#define MAX_READABLE (SAFETENSORS_MAX_FILES + 64)
#define MAX_WRITABLE 2
#define MAX_LISTABLE 1

struct places {
	char *readable[MAX_READABLE + 1], *writable[MAX_WRITABLE + 1], *listable[MAX_LISTABLE + 1];
	unsigned n_readable, n_writable, n_listable;
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

/*
 * Adds the files of a directory, or with @links the targets of its links, that may be read on
 * behalf of @owner.
 */
static void add_files(struct places *p, const char *dir, uid_t owner, bool links)
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	struct stat st;
	char path[PATH_MAX], why[400];

	while (d && (entry = readdir(d))) {
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
			    sizeof(path) ||
		    (links && (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
			       !S_ISLNK(st.st_mode))) ||
		    fstatat(dirfd(d), entry->d_name, &st, 0) || !S_ISREG(st.st_mode) ||
		    owned_check(&st, owner, path, why, sizeof(why)))
			continue;
		add(p->readable, &p->n_readable, MAX_READABLE, path);
	}
	if (d)
		closedir(d);
}

/* In a separate process: writes the value of param_dir in config.json. */
static void write_param_dir(const struct places *p, const char *config_path, int fd)
{
	const struct confinement c = {.readable = (const char *const *)p->readable, .calls = calls};
	const char *dir = NULL;
	cJSON *config;
	char err[400];

	if (!confine_self(&c, err, sizeof(err)) &&
	    !txda_json_load(config_path, CONFIG_MAX_BYTES, &config, err, sizeof(err)))
		dir = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "param_dir"));
	_exit(dir && write(fd, dir, strlen(dir)) < 0);
}

/*
 * The contents of config.json must be known before the confinement, which cannot be extended later;
 * reading it requires confinement, too.
 */
static void read_param_dir(const struct places *p, const char *config_path, char *ret, size_t len)
{
	size_t used = 0;
	ssize_t n = 1;
	int fds[2];
	pid_t pid;

	*ret = '\0';
	if (pipe2(fds, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid)
		write_param_dir(p, config_path, fds[1]);
	close(fds[1]);
	while (pid > 0 && n > 0 && used < len) {
		n = read(fds[0], ret + used, len - used);
		used += n > 0 ? (size_t)n : 0;
	}
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	ret[used < len ? used : 0] = '\0';
}

/*
 * Adds the directory of weights named by config.json if it belongs to the model's owner: only files
 * directly in it, since it may be a system directory.
 */
static void add_param_dir(struct places *p, const char *model, uid_t owner)
{
	char path[PATH_MAX], dir[PATH_MAX], why[400];
	struct stat st;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", model) >= sizeof(path) ||
	    access(path, R_OK))
		return;
	read_param_dir(p, path, dir, sizeof(dir));
	if (!*dir ||
	    (size_t)snprintf(path, sizeof(path), "%s%s%s", *dir == '/' ? "" : model,
			     *dir == '/' ? "" : "/", dir) >= sizeof(path) ||
	    stat(path, &st) || !S_ISDIR(st.st_mode) ||
	    owned_check(&st, owner, path, why, sizeof(why)))
		return;
	add(p->listable, &p->n_listable, MAX_LISTABLE, path);
	add_files(p, path, owner, false);
}

/* Adds the parts of a GGUF model that belong to the owner of the named part. */
static void add_parts(struct places *p, const char *path, uid_t owner)
{
	unsigned n = gguf_name_parts(path);
	char part[PATH_MAX];
	struct stat st;

	if (!n || (size_t)snprintf(part, sizeof(part), "%s", path) >= sizeof(part))
		return;
	for (unsigned i = 1; i <= n; i++) {
		gguf_name_set_part(part, i);
		if (!stat(part, &st) && S_ISREG(st.st_mode) && st.st_uid == owner)
			add(p->readable, &p->n_readable, MAX_READABLE, part);
	}
}

static void add_model(struct places *p, const char *path)
{
	struct stat own;

	add(p->readable, &p->n_readable, MAX_READABLE, path);
	if (stat(path, &own))
		return;
	if (S_ISREG(own.st_mode)) {
		add_parts(p, path, own.st_uid);
		return;
	}
	add_files(p, path, own.st_uid, true);
	add_param_dir(p, path, own.st_uid);
}

/* A case dir is created in the parent directory, under a temporary name until it is complete. */
static void add_output(struct places *p, const char *output)
{
	char *path = strdup(output);

	if (path)
		add(p->writable, &p->n_writable, MAX_WRITABLE, dirname(path));
	free(path);
}

/* If memory runs out, the compiler is killed rather than the daemon. */
static void raise_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "500", 3) < 0)
		errno = 0; /* then it keeps the default score */
	close(fd);
}

/* All shards of a checkpoint stay open. */
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
		.listable = (const char *const *)p.listable,
		.writable = (const char *const *)p.writable,
		.calls = calls,
	};
	char err[400];
	int r;

	/* For the cache key. */
	add(p.readable, &p.n_readable, MAX_READABLE, "/proc/self/exe");
	if (paths->model)
		add_model(&p, paths->model);
	if (paths->output)
		add_output(&p, paths->output);
	if (paths->share)
		add(p.writable, &p.n_writable, MAX_WRITABLE, paths->share);
	allow_descriptors();
	raise_oom_score();
	r = confine_self(&c, err, sizeof(err));
	return r ? tool_fail(error, r, "%s", err) : 0;
}
