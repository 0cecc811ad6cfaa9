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
#include "text_files.h"

/* Files of a checkpoint that are links: all shards and other files beside them. */
#define MAX_READABLE (SAFETENSORS_MAX_FILES + 64)
#define MAX_WRITABLE 2
#define MAX_LISTABLE 1

/* Descriptors, up to a -1. */
struct places {
	int readable[MAX_READABLE + 1], writable[MAX_WRITABLE + 1], listable[MAX_LISTABLE + 1];
	unsigned n_readable, n_writable, n_listable;
};

static const char *const calls[] = {
	"faccessat",  "faccessat2", "fadvise64",  "fallocate", "flock",	     "fsync",
	"ftruncate",  "getcwd",	    "getdents64", "linkat",    "lstat",	     "mkdirat",
	"newfstatat", "openat",	    "openat2",	  "readlink",  "readlinkat", "renameat",
	"renameat2",  "stat",	    "statx",	  "umask",     "unlinkat",   NULL,
};

/* Takes over @fd; beyond the list's end, and without a descriptor, nothing is added. */
static void add(int *list, unsigned *n, unsigned max, int fd)
{
	if (fd >= 0 && *n == max)
		close(fd);
	else if (fd >= 0)
		list[(*n)++] = fd;
	list[*n] = -1;
}

static void close_places(struct places *p)
{
	while (p->n_readable)
		close(p->readable[--p->n_readable]);
	while (p->n_writable)
		close(p->writable[--p->n_writable]);
	while (p->n_listable)
		close(p->listable[--p->n_listable]);
}

/*
 * The file or directory (by @type) that may be read on behalf of @owner: what is checked is what
 * becomes accessible. -1: there is none.
 */
static int open_checked(int dir, const char *name, mode_t type, uid_t owner)
{
	int fd = openat(dir, name, O_PATH | O_CLOEXEC);
	char why[400];
	struct stat st;

	if (fd < 0 || (!fstat(fd, &st) && (st.st_mode & S_IFMT) == type &&
		       !owned_check(&st, owner, name, why, sizeof(why))))
		return fd;
	close(fd);
	return -1;
}

/*
 * Adds the files of the directory @fd, or with @links the targets of its links, that may be read on
 * behalf of @owner.
 */
static void add_files(struct places *p, int fd, uid_t owner, bool links)
{
	int list = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list < 0 ? NULL : fdopendir(list);
	const struct dirent *entry;
	struct stat st;

	if (!d && list >= 0)
		close(list);
	while (d && (entry = readdir(d))) {
		if (links && (fstatat(list, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
			      !S_ISLNK(st.st_mode)))
			continue;
		add(p->readable, &p->n_readable, MAX_READABLE,
		    open_checked(list, entry->d_name, S_IFREG, owner));
	}
	if (d)
		closedir(d);
}

/* In a separate process: writes the value of param_dir in config.json. */
static void write_param_dir(const struct places *p, const char *config_path, int fd)
{
	const struct confinement c = {.readable = p->readable, .calls = calls};
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
static void add_param_dir(struct places *p, int model, const char *model_path, uid_t owner)
{
	char path[PATH_MAX], name[PATH_MAX];
	int dir;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", model_path) >= sizeof(path) ||
	    access(path, R_OK))
		return;
	read_param_dir(p, path, name, sizeof(name));
	dir = *name ? open_checked(model, name, S_IFDIR, owner) : -1;
	if (dir < 0)
		return;
	add_files(p, dir, owner, false);
	add(p->listable, &p->n_listable, MAX_LISTABLE, dir);
}

/* Adds the parts of a GGUF model that may be read on behalf of the owner of the named part. */
static void add_parts(struct places *p, const char *path, uid_t owner)
{
	unsigned n = gguf_name_parts(path);
	char part[PATH_MAX];

	if (!n || (size_t)snprintf(part, sizeof(part), "%s", path) >= sizeof(part))
		return;
	for (unsigned i = 1; i <= n; i++) {
		gguf_name_set_part(part, i);
		add(p->readable, &p->n_readable, MAX_READABLE,
		    open_checked(AT_FDCWD, part, S_IFREG, owner));
	}
}

/* The targets of links in the subdirectories that a model may have, as in the hub's cache. */
static void add_below(struct places *p, int model, uid_t owner)
{
	static const char *const names[] = {TEXT_FILES_FOLDER, "1_Pooling"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int dir = open_checked(model, names[i], S_IFDIR, owner);

		if (dir < 0)
			continue;
		add_files(p, dir, owner, true);
		close(dir);
	}
}

static void add_model(struct places *p, const char *path)
{
	int model = open(path, O_PATH | O_CLOEXEC);
	struct stat own;

	if (model < 0 || fstat(model, &own)) {
		add(p->readable, &p->n_readable, MAX_READABLE, model);
		return;
	}
	add(p->readable, &p->n_readable, MAX_READABLE, model);
	if (S_ISREG(own.st_mode)) {
		add_parts(p, path, own.st_uid);
		return;
	}
	add_files(p, model, own.st_uid, true);
	add_below(p, model, own.st_uid);
	add_param_dir(p, model, path, own.st_uid);
}

/* A case dir is created in the parent directory, under a temporary name until it is complete. */
static void add_output(struct places *p, const char *output)
{
	char *path = strdup(output);

	if (path)
		add(p->writable, &p->n_writable, MAX_WRITABLE,
		    open(dirname(path), O_PATH | O_CLOEXEC));
	free(path);
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
		.readable = p.readable,
		.listable = p.listable,
		.writable = p.writable,
		.calls = calls,
	};
	char err[400];
	int r;

	allow_descriptors();
	p.readable[0] = p.writable[0] = p.listable[0] = -1;
	/* For the cache key. */
	add(p.readable, &p.n_readable, MAX_READABLE, open("/proc/self/exe", O_PATH | O_CLOEXEC));
	if (paths->model)
		add_model(&p, paths->model);
	if (paths->output)
		add_output(&p, paths->output);
	if (paths->share)
		add(p.writable, &p.n_writable, MAX_WRITABLE,
		    open(paths->share, O_PATH | O_CLOEXEC));
	r = confine_self(&c, err, sizeof(err));
	close_places(&p);
	return r ? tool_fail(error, r, "%s", err) : 0;
}
