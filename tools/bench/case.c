// SPDX-License-Identifier: MIT
#include "case.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <txda.h>
#include <unistd.h>

extern char **environ;

/* Runs txda-compile; @out gets its standard output (a line), which is inherited if @out is NULL. */
static int run_compiler(const char *const argv[], char *out, size_t len)
{
	char self[4096], path[4200];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	posix_spawn_file_actions_t actions;
	int status, err, pipe_fd[2];
	pid_t pid;

	if (n < 0)
		return -errno;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	snprintf(path, sizeof(path), "%s/txda-compile", self);
	if (access(path, X_OK))
		snprintf(path, sizeof(path), "%s/../compile/txda-compile", self);
	if (access(path, X_OK))
		snprintf(path, sizeof(path), "txda-compile");
	if (pipe2(pipe_fd, O_CLOEXEC))
		return -errno;
	posix_spawn_file_actions_init(&actions);
	if (out)
		posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 1);
	err = posix_spawnp(&pid, path, &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fd[1]);
	if (!err && out) {
		size_t at = 0;

		while (at + 1 < len && (n = read(pipe_fd[0], out + at, len - 1 - at)) > 0)
			at += (size_t)n;
		out[at] = 0;
		out[strcspn(out, "\n")] = 0;
	}
	close(pipe_fd[0]);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int make_dirs(char *path)
{
	for (char *p = path + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			if (mkdir(path, 0755) && errno != EEXIST)
				return -errno;
			*p = '/';
		}
	return mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
}

static int find_base(const struct case_options *o, char *base, size_t len)
{
	const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
	int err;

	if (o->dir)
		snprintf(base, len, "%s", o->dir);
	else if (cache && cache[0] == '/')
		snprintf(base, len, "%s/txda/bench", cache);
	else if (home && home[0] == '/')
		snprintf(base, len, "%s/.cache/txda/bench", home);
	else {
		fprintf(stderr,
			"txda-bench: neither $XDG_CACHE_HOME nor $HOME is set; give --dir\n");
		return -ENOENT;
	}
	err = make_dirs(base);
	if (err)
		fprintf(stderr, "txda-bench: %s: %s\n", base, strerror(-err));
	return err;
}

int case_find(const char *model, const struct case_options *o, char *ret_dir)
{
	char base[2048], path[CASE_PATH], key[256] = "";
	bool checkpoint;
	int err;

	snprintf(path, sizeof(path), "%s/model_info.json", model);
	if (!access(path, F_OK)) {
		snprintf(ret_dir, CASE_PATH, "%s", model);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/config.json", model);
	checkpoint = !access(path, F_OK);
	err = find_base(o, base, sizeof(base));
	if (!err && checkpoint) {
		const char *const argv[] = {"txda-compile", "--key", model, "--weights",
					    o->weights,	    "--tp",  o->tp, NULL};

		err = run_compiler(argv, key, sizeof(key));
	}
	if (!err) {
		snprintf(ret_dir, CASE_PATH, "%s/%s-%s-tp%s-%s", base, checkpoint ? key : model,
			 o->weights, o->tp, txda_version());
		if (!access(ret_dir, F_OK))
			return 0;
	}
	if (!err) {
		const char *const argv[] = {"txda-compile",
					    checkpoint ? model : "--synthetic",
					    checkpoint ? "-q" : model,
					    "--weights",
					    o->weights,
					    "--tp",
					    o->tp,
					    "-q",
					    "-o",
					    ret_dir,
					    NULL};

		fprintf(stderr, "txda-bench: making %s\n", ret_dir);
		err = run_compiler(argv, NULL, 0);
	}
	if (err)
		fprintf(stderr, "txda-bench: txda-compile failed: %s\n", strerror(-err));
	return err;
}
