/* SPDX-License-Identifier: MIT */
/*
 * What all files of libtxda share: reference counts, messages, struct versioning, small arithmetic.
 *
 * Names: exported symbols are txda_*, symbols shared by the library's files txda__*, so that the
 * static library can be linked with anything.
 */
#ifndef TXDA_INTERNAL_H
#define TXDA_INTERNAL_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "txda.h"

#define TXDA__PAGE	  4096ull
#define TXDA__ERROR_BYTES 512

#define ARRAY_SIZE(a)	   (sizeof(a) / sizeof((a)[0]))
#define TXDA__PRINTF(f, a) __attribute__((format(printf, f, a)))

/* ---- reference counts ------------------------------------------------------------------------ */

static inline void txda__ref(atomic_uint *refs)
{
	atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}

/* True when this was the last reference; the caller then frees. */
static inline bool txda__unref(atomic_uint *refs)
{
	return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

/* ---- messages (error.c) ---------------------------------------------------------------------- */

/*
 * Records why a call on @context (or on a child of it) fails in this thread; @context NULL for a
 * failed txda_context_new(). The value is @error, so that a failing path is one statement (a macro,
 * so that the compiler sees which error it is).
 */
#define txda__fail(context, error, ...)                                                            \
	__extension__({                                                                            \
		int txda__error = (error);                                                         \
		txda__note(context, __VA_ARGS__);                                                  \
		txda__error;                                                                       \
	})
/* Puts "PREFIX: " before the last recorded message. */
#define txda__fail_prefix(context, error, ...)                                                     \
	__extension__({                                                                            \
		int txda__error = (error);                                                         \
		txda__note_prefix(context, __VA_ARGS__);                                           \
		txda__error;                                                                       \
	})
void txda__note(struct txda_context *context, const char *format, ...) TXDA__PRINTF(2, 3);
void txda__note_prefix(struct txda_context *context, const char *format, ...) TXDA__PRINTF(2, 3);
/* Formats as "1.5 GiB" into @buf; returns @buf. */
const char *txda__bytes(uint64_t bytes, char buf[24]);

/* ---- versioned structs (error.c) ------------------------------------------------------------- */

/*
 * Copies an option struct whose first member is its size_t size: the part that this version knows
 * (@known bytes, up to a reserved member if there is one) to @dst, the rest zeroed. NULL means all
 * zero. -E2BIG if a newer caller set a field that this version does not know.
 */
int txda__copy_in(struct txda_context *context, void *dst, size_t known, const void *src,
		  const char *what);
/* -E2BIG unless the @bytes at @reserved, a member in the middle of such a struct, are 0. */
int txda__check_reserved(struct txda_context *context, const void *reserved, size_t bytes,
			 const char *what);
/*
 * Copies a result struct to the caller, as much as its size allows. The caller's size member is
 * kept.
 */
int txda__copy_out(struct txda_context *context, void *dst, const void *src, size_t known,
		   const char *what);

/* ---- arithmetic ------------------------------------------------------------------------------ */

static inline bool txda__mul(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}

/* [offset, offset + bytes) lies in [0, size). */
static inline bool txda__range_ok(uint64_t offset, uint64_t bytes, uint64_t size)
{
	return offset <= size && bytes <= size - offset;
}

/* Rounds up to a power of two; @value at most 2^63. */
static inline uint64_t txda__align(uint64_t value, uint64_t to)
{
	return (value + to - 1) & ~(to - 1);
}

#endif /* TXDA_INTERNAL_H */
