// SPDX-License-Identifier: MIT
#include "duration.h"

#include <string.h>

static int64_t unit(const char *text)
{
	if (!*text || !strcmp(text, "s"))
		return 1;
	if (!strcmp(text, "m"))
		return 60;
	return strcmp(text, "h") ? 0 : 3600;
}

bool duration_parse(const char *text, int64_t *ret)
{
	int64_t value = 0, factor;

	if (!strcmp(text, "-1")) {
		*ret = -1;
		return true;
	}
	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++) {
		value = value * 10 + (*text - '0');
		if (value > DURATION_MAX)
			return false;
	}
	factor = unit(text);
	if (!factor || value > DURATION_MAX / factor)
		return false;
	*ret = value * factor;
	return true;
}
