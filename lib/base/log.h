/* SPDX-License-Identifier: MIT */
/*
 * The daemon's log: one line per message on stderr, prefixed with "<N>" if the journal reads it, or
 * in a file, prefixed with the time (UTC).
 *
 * Control characters in messages are replaced, so that no client can forge a line. Any thread may
 * log.
 */
#ifndef TXDA_BASE_LOG_H
#define TXDA_BASE_LOG_H

#include <stddef.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_set_level(enum log_level level);

/*
 * Redirects the log to the file @path; NULL or "": to stderr. The same path again reopens it, for
 * log rotation. A new file has mode 0640, restricted by the umask. Refused: symbolic links,
 * anything but regular files, files owned by others, and files that everybody can write or rename.
 * 0, or -errno with the reason in @err; the log then stays where it was. One thread at a time,
 * while others may log.
 */
int log_to_file(const char *path, char *err, size_t errlen);

void log_message(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...)	 log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
