/* SPDX-License-Identifier: MIT */
/*
 * Packs rows of float32 into the chip's weight tiles (txda_layouts.h).
 *
 * A panel is packed in blocks of PACK_K elements of K: the caller passes the 32 lanes side by side,
 * x[k][32], as in the tiles, so that rounding and quantising are vectorised and give the same bits
 * on every machine.
 *
 * Quantising. W8: scale = max|x| / 127, rounded to half. W4: q in [-8, 7]; for each group several
 * scales are tried around both signs of the extreme value, each with its least-squares optimum, and
 * the one with the smallest squared error is taken.
 */
#ifndef TXDA_COMPILE_PACK_H
#define TXDA_COMPILE_PACK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "txda_isa.h"

#define PACK_K	       512	 /* a multiple of every group and of 2 */
#define PACK_MAX_VALUE 458528.0f /* 7 * 65504: the largest weight that can be quantised */

/*
 * Packs x[k][32], 1 <= k <= PACK_K, to @out and returns the end. All blocks of a panel but the last
 * have k = PACK_K. @x has room for PACK_K rows; rows from k on are overwritten. @dtype: F32, BF16,
 * F16, W8 or W4.
 */
uint8_t *pack_block(uint8_t dtype, unsigned group, float (*x)[TXDA_TILE_N], unsigned k,
		    uint8_t *out);

/*
 * For weights that are already quantised: one group of @group elements of 32 lanes, their codes and
 * scales. @dtype: W8, W4 (zero is 0), W8Z, W4Z (zero relative to the middle code), F8 or MX4.
 */
struct pack_scale {
	float scale;
	int16_t zero;
};
uint8_t *pack_codes(uint8_t dtype, unsigned group, const uint8_t (*codes)[256],
		    const struct pack_scale *scale, uint8_t *out);

/*
 * The same for groups with two levels; @dtype: W4M, W5M or W6S. @part: by 32 elements, or by 16
 * (W6S, which has no minimums).
 */
struct pack_levels {
	uint16_t d, dmin;
	struct {
		uint8_t s, m;
	} part[16];
};
uint8_t *pack_levels(uint8_t dtype, unsigned group, const uint8_t (*codes)[256],
		     const struct pack_levels *levels, uint8_t *out);

/* The code that means 0 when the zero point is 0. */
static inline uint8_t pack_middle(uint8_t dtype)
{
	if (dtype == TXDA_F8 || dtype == TXDA_MX4)
		return 0;
	return txda_is_nibbles(dtype) ? 8 : 128;
}

/* Whether x[k][32] can be quantised: all finite and at most PACK_MAX_VALUE. */
bool pack_quantisable(const float (*x)[TXDA_TILE_N], unsigned k);
/* Whether none of x[k][32] becomes infinite in half precision. */
bool pack_halvable(const float (*x)[TXDA_TILE_N], unsigned k);
static inline bool pack_half_fits(float x)
{
	return !(fabsf(x) >= 65520) || isinf(x);
}

#endif /* TXDA_COMPILE_PACK_H */
