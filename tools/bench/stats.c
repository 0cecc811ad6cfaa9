// SPDX-License-Identifier: MIT
#include "stats.h"
#include "number.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

bool stats_number(struct tool_line *line, const char *text, unsigned min, unsigned max,
		  unsigned *ret)
{
	uint64_t v;

	if (!number_parse(text, max, &v) || v < min) {
		tool_refuse(line, "--%s: \"%s\" is not a number from %u to %u", line->name, text,
			    min, max);
		return false;
	}
	*ret = (unsigned)v;
	return true;
}
