/* SPDX-License-Identifier: MIT */
/* What the parts of txda-bench measure and read alike. */
#ifndef TXDA_BENCH_STATS_H
#define TXDA_BENCH_STATS_H

#include <stdbool.h>

/* The upper one of two in the middle. Sorts @v; @n is not 0. */
double stats_median(double *v, unsigned n);

/* A whole number of the command line; false: not from @min to @max, which was reported. */
bool stats_number(const char *text, unsigned min, unsigned max, unsigned *ret);

#endif
