// SPDX-License-Identifier: MIT
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

int tool_fail(struct tool_error *error, int code, const char *format, ...)
{
	va_list args;

	if (!error)
		return code;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	utf8_tame(error->text, '?');
	return code;
}

int tool_fail_within(struct tool_error *error, int code, const char *format, ...)
{
	char inner[sizeof(error->text)];
	va_list args;
	size_t room;
	int n;

	if (!error)
		return code;
	memcpy(inner, error->text, sizeof(inner));
	va_start(args, format);
	n = vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	utf8_tame(error->text, '?');
	if (n < 0 || (size_t)n >= sizeof(error->text) - 3)
		return code;
	room = sizeof(error->text) - (size_t)n - 3;
	snprintf(error->text + n, sizeof(error->text) - (size_t)n, ": %.*s", (int)room, inner);
	return code;
}
