// SPDX-License-Identifier: MIT
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"error", "warning", "info", "debug"};
static const int journal_priorities[] = {3, 4, 6, 7};
static atomic_int current = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&current, (int)level);
}

enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load(&current);
}

void log_message(enum log_level level, const char *format, ...)
{
	char line[1024];
	va_list args;
	size_t len;
	int n;

	if ((int)level > atomic_load(&current))
		return;
	if (getenv("JOURNAL_STREAM"))
		n = snprintf(line, sizeof(line), "<%d>", journal_priorities[level]);
	else
		n = snprintf(line, sizeof(line), "txdad: %s%s",
			     level < LOG_LEVEL_INFO ? names[level] : "",
			     level < LOG_LEVEL_INFO ? ": " : "");
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	len = strlen(line);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F)
			line[i] = '?';
	line[len++] = '\n';
	/* One write, so that lines of several threads do not mix; a closed stderr is nobody's loss.
	 */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}
