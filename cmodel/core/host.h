/* SPDX-License-Identifier: MIT */
/*
 * Host facilities that every layer of the machine uses: page sizes, the clock (clock_ns()), a pause
 * for spin loops, and counters that one thread writes and any thread reads.
 */
#ifndef CM_HOST_H
#define CM_HOST_H

#include <stdatomic.h>
#include <stdint.h>

#include "clock.h"

#define CM_PAGE	      4096ull
#define CM_HUGE_PAGE  (2ull << 20)
#define CM_CACHE_LINE 64

/* One iteration of a spin loop. */
static inline void cm_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Adds to a counter that only the calling thread writes. */
static inline void cm_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void cm_count32(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

#endif /* CM_HOST_H */
