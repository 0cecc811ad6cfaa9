/* SPDX-License-Identifier: MIT */
/* Monotonic time (CLOCK_MONOTONIC) for deadlines and durations. Threads: any. */
#ifndef TXDA_BASE_CLOCK_H
#define TXDA_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ull

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

static inline double clock_s(void)
{
	return (double)clock_ns() * 1e-9;
}

#endif /* TXDA_BASE_CLOCK_H */
