/* SPDX-License-Identifier: MIT */
/*
 * How a thread computes with floats. Ops run in a mode of their own, whatever the calling thread has:
 * rounding to nearest, no traps and, but in precise mode, subnormal operands and results count as 0.
 * Otherwise a recurrent state without input would decay to a few units of the smallest subnormal and
 * stay there, and most CPUs take up to a hundred times as long for those.
 *
 * A signal handler begins with the mode of a new program, which stays if it ends with a jump.
 */
#ifndef CM_FLOAT_MODE_H
#define CM_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#define CM_FLOAT_EXACT 0x1f80u			  /* MXCSR: no traps */
#define CM_FLOAT_FLUSH (CM_FLOAT_EXACT | 0x8040u) /* FTZ, DAZ */
#define CM_FLOAT_FLAGS 0x3fu			  /* exceptions so far */
#elif defined(__aarch64__)
#define CM_FLOAT_EXACT 0u	  /* FPCR */
#define CM_FLOAT_FLUSH (1u << 24) /* FZ */
#define CM_FLOAT_FLAGS 0u
#else
#define CM_FLOAT_EXACT 0u
#define CM_FLOAT_FLUSH 0u
#define CM_FLOAT_FLAGS 0u
#endif

/* The mode of the calling thread, with CM_FLOAT_FLAGS. */
static inline uint32_t cm_float_mode(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
	uint64_t mode;

	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return (uint32_t)mode;
#else
	return 0;
#endif
}

static inline void cm_set_float_mode(uint32_t mode)
{
#if defined(__x86_64__)
	__builtin_ia32_ldmxcsr(mode);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
#else
	(void)mode;
#endif
}

#endif /* CM_FLOAT_MODE_H */
