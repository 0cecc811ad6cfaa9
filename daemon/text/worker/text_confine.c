// SPDX-License-Identifier: MIT
#include "text_confine.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confine.h"
#include "owned.h"
#include "text_files.h"

#define MAX_FILES 64

/* What may be read for the model: its directory, and files, as links may point outside of it. */
struct files {
	int fds[MAX_FILES + 1]; /* up to a -1 */
	unsigned n;
};

/* Takes over @fd. */
static void add(struct files *f, int fd)
{
	if (f->n == MAX_FILES && fd >= 0)
		close(fd);
	if (f->n < MAX_FILES && fd >= 0)
		f->fds[f->n++] = fd;
	f->fds[f->n] = -1;
}

/* Adds a file if the owner of the model may read it: what is checked here is what is allowed. */
static void add_file(struct files *f, int dir, const char *name, uid_t owner)
{
	int fd = openat(dir, name, O_PATH | O_CLOEXEC);
	char why[400];
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    owned_check(&st, owner, name, why, sizeof(why)))
		close(fd);
	else
		add(f, fd);
}

static void find_files(struct files *f, const char *path)
{
	int dir = open(path, O_PATH | O_CLOEXEC), more;
	const struct dirent *e;
	struct stat own;
	DIR *d;

	add(f, dir);
	if (dir < 0 || fstat(dir, &own))
		return;
	for (const char *const *name = text_files; *name; name++)
		add_file(f, dir, *name, own.st_uid);
	more = openat(dir, TEXT_FILES_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = more < 0 ? NULL : fdopendir(more);
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
	const struct confinement c = {.readable = files.fds, .calls = calls};
	int r;

	find_files(&files, dir);
	r = confine_self(&c, err, errlen);
	while (files.n)
		close(files.fds[--files.n]);
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
