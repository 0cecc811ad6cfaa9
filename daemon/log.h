/* SPDX-License-Identifier: MIT */
/*
 * The daemon's log: one line a message on stderr, "<N>" in front where the journal reads it.
 *
 * What comes from outside is logged with control characters replaced, so that no client can forge a
 * line. Any thread may log.
 */
#ifndef TXDA_DAEMON_LOG_H
#define TXDA_DAEMON_LOG_H

#include <stdbool.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

void log_message(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...)	 log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_message(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_message(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
