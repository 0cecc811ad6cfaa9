/* SPDX-License-Identifier: MIT */
/*
 * bfloat16, IEEE half precision and 8 and 4 bits against float32. Conversions to the narrow types round to
 * nearest, ties to even; NaN stays NaN; half overflows to infinity. Pure integer code: the same
 * bits on every machine.
 */
#ifndef TXDA_TOOLS_FLOATS_H
#define TXDA_TOOLS_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float float_from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline float bf16_to_float(uint16_t h)
{
	return float_from_bits((uint32_t)h << 16);
}

static inline uint16_t float_to_bf16(float f)
{
	uint32_t u = float_bits(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float f16_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f,
		 mantissa = h & 0x3ff;

	if (exponent == 0x1f)
		return float_from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent == 0) {
		/* Zero or subnormal: mantissa * 2^-24, exact in float32. */
		float f = (float)mantissa * 0x1p-24f;

		return float_from_bits(float_bits(f) | sign);
	}
	return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t float_to_f16(float f)
{
	uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 0x47800000) /* 65536 */
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x38800000) {
		/* Below 2^-14: adding 0.5 lines the result's unit, 2^-24, up with the last bit. */
		float r = float_from_bits(a) + 0.5f;

		return (uint16_t)(sign | (float_bits(r) - 0x3f000000));
	}
	a += 0xfff + (a >> 13 & 1);
	return (uint16_t)(sign | (a - 0x38000000) >> 13);
}

/* E4M3: what would be infinity is NaN. */
static inline float f8_to_float(uint8_t v)
{
	unsigned e = v >> 3 & 15, m = v & 7;
	float f;

	if ((v & 0x7f) == 0x7f)
		return NAN;
	f = e ? ldexpf((float)(8 + m), (int)e - 10) : ldexpf((float)m, -9);
	return v & 0x80 ? -f : f;
}

/* E2M1, the elements of MXFP4. */
static inline float mx4_to_float(uint8_t code)
{
	static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

	return code & 8 ? -value[code & 7] : value[code & 7];
}

/* E8M0: 8 bits of exponent, a scale. */
static inline float exponent_to_float(uint8_t e)
{
	return ldexpf(1, e - 127);
}

#endif /* TXDA_TOOLS_FLOATS_H */
