// SPDX-License-Identifier: MIT
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MESSAGES 1000
#define MAX_FILE     (1 << 20) /* bytes; a longer file loses its older half */
#define MAX_MESSAGE  65536     /* longer ones are not kept */

static void give_up(struct past *p, const char *what, int error)
{
	fprintf(stderr, "txda-run: the history is not saved: %s %s: %s\n", what, p->path,
		strerror(error));
	free(p->path);
	p->path = NULL;
}

static bool make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = 0;
		r = mkdir(path, 0700);
		*slash = '/';
		if (r && errno != EEXIST)
			return false;
	}
	return true;
}

static char *find_path(void)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int r = -1;

	if (state && *state == '/')
		r = asprintf(&path, "%s/txda/history", state);
	else if (home && *home == '/')
		r = asprintf(&path, "%s/.local/state/txda/history", home);
	return r < 0 ? NULL : path;
}

/* The file, locked. Links, pipes and other users' files are refused. */
static FILE *open_file(struct past *p)
{
	struct stat st;
	FILE *file;
	int fd;

	if (!make_directories(p->path)) {
		give_up(p, "cannot make the directory of", errno);
		return NULL;
	}
	fd = open(p->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st)) {
		give_up(p, "cannot open", errno);
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		give_up(p, "not a file of this user:", EPERM);
		close(fd);
		return NULL;
	}
	if (st.st_mode & 077)
		fchmod(fd, 0600);
	file = fdopen(fd, "r+");
	if (!file)
		close(fd);
	return file;
}

/* Replaces a file that has grown too long by the newest half of the list, in one write. */
static void shorten(const struct past *p, FILE *file)
{
	char *text = NULL;
	size_t len = 0;
	FILE *memory = open_memstream(&text, &len);
	int fd = fileno(file);
	HistEvent event;
	bool whole;

	if (!memory)
		return;
	history(p->list, &event, H_NSAVE_FP, (size_t)MAX_MESSAGES / 2, memory);
	fclose(memory);
	/* O_APPEND writes nowhere else. */
	fcntl(fd, F_SETFL, 0);
	whole = len && len < MAX_FILE && pwrite(fd, text, len, 0) == (ssize_t)len;
	/* If the file cannot be truncated, some lines remain twice. */
	(void)!ftruncate(fd, whole ? (off_t)len : 0);
	free(text);
}

void past_open(struct past *p)
{
	HistEvent event;
	struct stat st;
	FILE *file;

	*p = (struct past){.list = history_init()};
	if (!p->list)
		return;
	history(p->list, &event, H_SETSIZE, MAX_MESSAGES);
	history(p->list, &event, H_SETUNIQUE, 1);
	p->path = find_path();
	file = p->path ? open_file(p) : NULL;
	if (!file)
		return;
	/* A malformed file loads as empty. */
	history(p->list, &event, H_LOAD, p->path);
	if (!fstat(fileno(file), &st) && st.st_size > MAX_FILE)
		shorten(p, file);
	fclose(file);
}

/* Appends a message to the file in libedit's form, with the header if the file is empty. */
static bool write_one(FILE *file, const char *message)
{
	History *one = history_init();
	HistEvent event;
	bool ok;

	if (!one)
		return false;
	history(one, &event, H_SETSIZE, 1);
	history(one, &event, H_ENTER, message);
	ok = !fseek(file, 0, SEEK_END) && history(one, &event, H_SAVE_FP, file) >= 0;
	history_end(one);
	return ok && !fflush(file);
}

void past_add(struct past *p, const char *message)
{
	HistEvent event;
	FILE *file;

	if (!p->list || strlen(message) > MAX_MESSAGE)
		return;
	history(p->list, &event, H_ENTER, message);
	file = p->path ? open_file(p) : NULL;
	if (!file)
		return;
	if (!write_one(file, message))
		give_up(p, "cannot write", errno);
	fclose(file);
}

void past_close(struct past *p)
{
	if (p->list)
		history_end(p->list);
	free(p->path);
	*p = (struct past){0};
}
