// SPDX-License-Identifier: MIT
#include "log.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {"error", "warning", "info", "debug"};
static const int journal_priorities[] = {3, 4, 6, 7};
static atomic_int current = LOG_LEVEL_INFO;
/*
 * The descriptor of the log file, once one was opened. It is never closed but replaced by dup2(): a
 * thread that is about to write must not use a descriptor number that was reused meanwhile.
 */
static atomic_int file = -1;
static atomic_bool in_file;

void log_set_level(enum log_level level)
{
	atomic_store(&current, (int)level);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The reason why the file is not acceptable as a log: others could redirect or read it. */
static const char *what_is_wrong(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is not a regular file";
	if (st->st_uid && st->st_uid != geteuid())
		return "it belongs to another user";
	if (st->st_mode & S_IWOTH)
		return "everybody may write to it";
	return st->st_nlink > 1 ? "it has more than one hard link" : NULL;
}

/* A descriptor, or -errno with *ret_why set if errno does not say enough. */
static int open_below(int dir, const char *name, const char **ret_why)
{
	struct stat st;
	int fd;

	if (fstat(dir, &st))
		return -errno;
	if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) {
		*ret_why = "everybody may rename files in its directory";
		return -EPERM;
	}
	/* Non-blocking, in case it is a pipe. */
	fd = openat(dir, name,
		    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC,
		    0640);
	if (fd < 0) {
		*ret_why = errno == ELOOP ? "it is a symbolic link" : NULL;
		return -errno;
	}
	*ret_why = fstat(fd, &st) ? "its owner is unknown" : what_is_wrong(&st);
	if (!*ret_why)
		return fd;
	close(fd);
	return -EPERM;
}

static int open_file(const char *path, const char **ret_why)
{
	const char *slash = strrchr(path, '/');
	char name[1024];
	int dir, fd;

	if ((size_t)snprintf(name, sizeof(name), "%.*s", slash ? (int)(slash - path) + 1 : 1,
			     slash ? path : ".") >= sizeof(name))
		return -ENAMETOOLONG;
	dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = open_below(dir, slash ? slash + 1 : path, ret_why);
	close(dir);
	return fd;
}

/* Makes the log's descriptor refer to the file of @fd. */
static int take_over(int fd)
{
	int old = atomic_load(&file);

	if (old < 0) {
		atomic_store(&file, fd);
		return 0;
	}
	return dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
}

int log_to_file(const char *path, char *err, size_t errlen)
{
	const char *why = NULL;
	int fd, error;

	if (!path || !*path) {
		atomic_store(&in_file, false);
		return atomic_load(&file) < 0 ? 0 : take_over(STDERR_FILENO);
	}
	fd = open_file(path, &why);
	error = fd < 0 ? fd : take_over(fd);
	if (error) {
		snprintf(err, errlen, "cannot log into %.500s: %s", path,
			 why ? why : strerror(-error));
	} else {
		atomic_store(&in_file, true);
	}
	if (fd >= 0 && fd != atomic_load(&file))
		close(fd);
	return error;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes the prefix that the journal, a terminal or a file gets before a message. */
static int put_head(enum log_level level, bool to_file, char *line, size_t len)
{
	struct timespec now;
	struct tm tm;
	char time[32] = "";

	if (!to_file && getenv("JOURNAL_STREAM"))
		return snprintf(line, len, "<%d>", journal_priorities[level]);
	if (to_file && !clock_gettime(CLOCK_REALTIME, &now) && gmtime_r(&now.tv_sec, &tm)) {
		size_t n = strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);

		snprintf(time + n, sizeof(time) - n, ".%03dZ ", (int)(now.tv_nsec / 1000000));
	}
	return snprintf(line, len, "%stxdad: %s%s", time,
			level < LOG_LEVEL_INFO ? names[level] : "",
			level < LOG_LEVEL_INFO ? ": " : "");
}

void log_message(enum log_level level, const char *format, ...)
{
	bool to_file = atomic_load(&in_file);
	char line[1024];
	va_list args;
	size_t len;
	int n;

	if ((int)level > atomic_load(&current))
		return;
	n = put_head(level, to_file, line, sizeof(line));
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	utf8_tame(line, '?');
	len = strlen(line);
	line[len++] = '\n';
	/*
	 * One write, so that lines of several threads do not mix. Errors such as a full disk or a
	 * closed stderr are ignored.
	 */
	if (write(to_file ? atomic_load(&file) : STDERR_FILENO, line, len) < 0)
		return;
}
