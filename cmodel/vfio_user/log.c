// SPDX-License-Identifier: MIT
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const names[VU_LOG_LEVELS] = {"error", "warning", "info", "debug"};
static _Atomic unsigned current = VU_LOG_WARNING;

void vu_log_set_level(enum vu_log_level level)
{
	atomic_store_explicit(&current, level, memory_order_relaxed);
}

enum vu_log_level vu_log_get_level(void)
{
	return (enum vu_log_level)atomic_load_explicit(&current, memory_order_relaxed);
}

int vu_log_level_named(const char *name, enum vu_log_level *ret)
{
	for (unsigned i = 0; i < VU_LOG_LEVELS; i++) {
		if (!strcmp(name, names[i])) {
			*ret = (enum vu_log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void vu_log(enum vu_log_level level, int chip, const char *format, ...)
{
	char line[512];
	va_list args;
	int n = 0;

	if (level > vu_log_get_level())
		return;
	if (chip != VU_LOG_NO_CHIP)
		n = snprintf(line, sizeof(line), "chip%d: ", chip);
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n, format, args);
	va_end(args);
	/* One call, so that lines of several threads do not mix. */
	fprintf(stderr, "txda-cmodel: %s: %s\n", names[level], line);
}
