/* SPDX-License-Identifier: MIT */
#ifndef TXDA_BENCH_CLOCK_H
#define TXDA_BENCH_CLOCK_H

#include <time.h>

/* CLOCK_MONOTONIC in seconds. */
static inline double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
