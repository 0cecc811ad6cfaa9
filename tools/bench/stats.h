/* SPDX-License-Identifier: MIT */
/* Functions shared by the parts of txda-bench. */
#ifndef TXDA_BENCH_STATS_H
#define TXDA_BENCH_STATS_H

#include <stdbool.h>

#include "tool_line.h"

/* The median, or the upper one of two middle values. Sorts @v; @n is not 0. */
double stats_median(double *v, unsigned n);

/*
 * Parses @text, a whole number of the last option; false: it is not in [@min, @max], which is
 * reported.
 */
bool stats_number(struct tool_line *line, const char *text, unsigned min, unsigned max,
		  unsigned *ret);

#endif
