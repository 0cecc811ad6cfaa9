/* SPDX-License-Identifier: MIT */
/*
 * The daemon's log: one line a message on stderr, "<N>" in front where the journal reads it, or in a
 * file, with the time (UTC) in front.
 *
 * What comes from outside is logged with control characters replaced, so that no client can forge a
 * line. Any thread may log.
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
 * From now on into the file @path; NULL or "": to stderr. The same path again opens it anew, for
 * those who rotate logs. A new file has mode 0640, or less by the umask. Refused: links, what is no
 * regular file, what others own or everybody may write or rename. 0, or -errno with the reason in
 * @err; the log then stays where it was. One thread at a time, while others may log.
 */
int log_to_file(const char *path, char *err, size_t errlen);

void log_message(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...)	 log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
