// SPDX-License-Identifier: MIT
#include "cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_sweep.h"

#define MAX_KEY	 64
#define MAX_ARGS 20

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
	else if (given && *given) /* systemd gives a list; the first is ours */
		need = snprintf(path, len, "%.*s", (int)strcspn(given, ":"), given);
	else if (xdg && *xdg == '/')
		need = snprintf(path, len, "%s/txda", xdg);
	else if (home && *home == '/')
		need = snprintf(path, len, "%s/.cache/txda", home);
	else
		need = snprintf(path, len, "/var/cache/txda");
	if (need < 0 || (size_t)need >= len) {
		snprintf(err, errlen, "the cache directory's name has %d bytes, the limit is %zu",
			 need, len - 1);
		return -ENAMETOOLONG;
	}
	error = make_directories(path);
	if (!error && (stat(path, &st) || !S_ISDIR(st.st_mode)))
		error = -ENOTDIR;
	if (error)
		snprintf(err, errlen, "cannot use the cache directory %s: %s", path,
			 strerror(-error));
	else
		cache_sweep(path);
	return error;
}

bool cache_is_case(const char *path)
{
	char info[1200];

	return (size_t)snprintf(info, sizeof(info), "%s/model_info.json", path) < sizeof(info) &&
	       !access(info, R_OK);
}

/* Its options, the same for the key and for the compile. */
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
	return n;
}

/* A key becomes a name in the cache: nothing but letters and digits. */
static int get_key(const struct cache_source *source, const struct child_options *options,
		   char *key, size_t len, char *err, size_t errlen)
{
	char tp[16],
		*argv[MAX_ARGS] = {(char *)source->compiler, (char *)"--key", (char *)source->path};
	size_t n;
	int error;

	add_options(source, tp, sizeof(tp), argv, 3);
	error = child_run(options, argv, key, len, err, errlen);
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

int cache_get(const char *cache, const struct cache_source *source, bool again,
	      const struct child_options *options, char *case_dir, size_t len, char *err,
	      size_t errlen)
{
	char key[MAX_KEY + 2], out[8], tp[16];
	char *argv[MAX_ARGS] = {
		(char *)source->compiler, (char *)source->path, (char *)"-o", case_dir,
		(char *)"--progress",	  (char *)"plain"};
	unsigned n = 6;
	int error = get_key(source, options, key, sizeof(key), err, errlen);

	if (error)
		return error;
	if ((size_t)snprintf(case_dir, len, "%s/%s", cache, key) >= len) {
		snprintf(err, errlen, "the name %s/%s is longer than %zu bytes", cache, key,
			 len - 1);
		return -ENAMETOOLONG;
	}
	if (!again && cache_is_case(case_dir))
		return 0;
	n = add_options(source, tp, sizeof(tp), argv, n);
	if (again)
		argv[n++] = (char *)"--force";
	error = child_run(options, argv, out, sizeof(out), err, errlen);
	/* A compiler that was killed leaves what it had made so far, which can be large. */
	if (error)
		cache_sweep(cache);
	/* Another process may have put it there meanwhile. */
	if (error == -EIO && !again && cache_is_case(case_dir))
		return 0;
	if (!error && !cache_is_case(case_dir)) {
		snprintf(err, errlen, "%s made no %s/model_info.json", source->compiler, case_dir);
		return -EIO;
	}
	return error;
}
