// SPDX-License-Identifier: MIT
#include "stats.h"
#include "number.h"

#include <stdio.h>
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

bool stats_number(const char *text, unsigned min, unsigned max, unsigned *ret)
{
	uint64_t v;

	if (!number_parse(text, max, &v) || v < min) {
		fprintf(stderr, "txda-bench: \"%s\" is not a number from %u to %u\n", text, min,
			max);
		return false;
	}
	*ret = (unsigned)v;
	return true;
}
