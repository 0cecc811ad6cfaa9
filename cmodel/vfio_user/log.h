/* SPDX-License-Identifier: MIT */
/*
 * Messages of the server on its standard error, one line each, prefixed with the chip. Any thread;
 * a message below the level costs one load.
 */
#ifndef VU_LOG_H
#define VU_LOG_H

enum vu_log_level {
	VU_LOG_ERROR = 0,
	VU_LOG_WARNING = 1,
	VU_LOG_INFO = 2,
	VU_LOG_DEBUG = 3, /* each message of the protocol */
	VU_LOG_LEVELS
};

#define VU_LOG_NO_CHIP (-1)

void vu_log_set_level(enum vu_log_level level);
enum vu_log_level vu_log_get_level(void);
/* The level of that name; -EINVAL. */
int vu_log_level_named(const char *name, enum vu_log_level *ret);
void vu_log(enum vu_log_level level, int chip, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* VU_LOG_H */
