// SPDX-License-Identifier: MIT
#include "text_confine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "confine.h"
#include "owned.h"

#define MAX_FILES 64

/* Files that may be read for the model: links may point outside its directory. */
struct files {
	char *paths[MAX_FILES + 1];
	unsigned n;
};

static void add_path(struct files *f, const char *path)
{
	if (f->n < MAX_FILES)
		f->paths[f->n] = realpath(path, NULL);
	f->n += f->n < MAX_FILES && f->paths[f->n];
}

/* Adds a file if the owner of the model may read it. */
static void add_file(struct files *f, const char *dir, const char *name, uid_t owner)
{
	char path[4096], why[400];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	    !stat(path, &st) && S_ISREG(st.st_mode) &&
	    !owned_check(&st, owner, path, why, sizeof(why)))
		add_path(f, path);
}

static void find_files(struct files *f, const char *dir)
{
	static const char *const names[] = {
		"tokenizer.json",
		"tokenizer_config.json",
		"tokenizer.model",
		"tiktoken.model",
		"special_tokens_map.json",
		"generation_config.json",
		"config.json",
		"chat_template.jinja",
		"chat_template.json",
		"preprocessor_config.json",
		"processor_config.json",
	};
	char more[4096];
	const struct dirent *e;
	struct stat own;
	DIR *d = NULL;

	add_path(f, dir);
	if (stat(dir, &own))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		add_file(f, dir, names[i], own.st_uid);
	if (snprintf(more, sizeof(more), "%s/additional_chat_templates", dir) < (int)sizeof(more))
		d = opendir(more);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			add_file(f, more, e->d_name, own.st_uid);
	if (d)
		closedir(d);
}

/* Confinement while reading the model, with a time limit. */
#define READING_CALLS "openat", "openat2", "newfstatat", "statx", "getdents64", "alarm", "setitimer"
/* Confinement for starting lanes, and for lanes to confine themselves. */
#define LANE_CALLS                                                                                 \
	"recvmsg", "clone", "wait4", "pidfd_send_signal", "getppid", "dup2", "dup3",               \
		"close_range", "prctl", "seccomp", "landlock_create_ruleset",                      \
		"landlock_restrict_self"

int text_confine_reader(const char *dir, char *err, size_t errlen)
{
	static const char *const calls[] = {READING_CALLS, LANE_CALLS, NULL};
	struct files files = {.n = 0};
	struct confinement c = {.calls = calls};
	int r;

	find_files(&files, dir);
	c.readable = (const char *const *)files.paths;
	r = confine_self(&c, err, errlen);
	while (files.n)
		free(files.paths[--files.n]);
	return r;
}

int text_confine_server(char *err, size_t errlen)
{
	static const char *const calls[] = {LANE_CALLS, NULL};
	const struct confinement c = {.calls = calls};

	return confine_self(&c, err, errlen);
}

int text_confine_lane(char *err, size_t errlen)
{
	return confine_self(&(struct confinement){0}, err, errlen);
}
