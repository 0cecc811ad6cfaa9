// SPDX-License-Identifier: MIT
#include "number.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool number_read(const char **pos, uint64_t max, uint64_t *ret)
{
	const char *s = *pos;
	uint64_t value = 0;

	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value) || value > max)
			return false;
	*pos = s;
	*ret = value;
	return true;
}

bool number_parse(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t value;

	if (!number_read(&text, max, &value) || *text)
		return false;
	*ret = value;
	return true;
}

bool number_parse_size(const char *text, uint64_t max, uint64_t *ret)
{
	static const char units[] = "kmgt";
	uint64_t value, factor = 1;
	const char *unit;

	if (!number_read(&text, max, &value))
		return false;
	unit = *text ? strchr(units, *text | 0x20) : NULL;
	if (unit && *unit) {
		factor = 1ull << 10 * (unit - units + 1);
		text++;
		if (!strcasecmp(text, "b") || !strcasecmp(text, "ib"))
			text = "";
	}
	if (*text || value > max / factor)
		return false;
	*ret = value * factor;
	return true;
}

const char *number_format_size(double bytes, char *buf)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(buf, NUMBER_SIZE_TEXT, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
	return buf;
}
