/* SPDX-License-Identifier: MIT */
/* Functions shared by the parts of txda-bench. */
#ifndef TXDA_BENCH_STATS_H
#define TXDA_BENCH_STATS_H

#include <stdbool.h>

/* The median, or the upper one of two middle values. Sorts @v; @n is not 0. */
double stats_median(double *v, unsigned n);

/*
 * Parses a whole number of the command line; false: it is not in [@min, @max], which is reported.
 */
bool stats_number(const char *text, unsigned min, unsigned max, unsigned *ret);

#endif
