// SPDX-License-Identifier: MIT
#include "pack.h"

#include <math.h>
#include <string.h>

#include "floats.h"

#define N TXDA_TILE_N

/*
 * The bodies are compiled twice, for any CPU and for AVX2, and give the same bits: lanes are
 * independent, and fused multiply-add is not used.
 */
#define BODY static inline __attribute__((always_inline))

/* Nearest integer, ties to even, for |x| < 2^22, without a library call. */
BODY float nearest(float x)
{
	return (x + 12582912.0f) - 12582912.0f;
}

BODY float clamp(float x, float low, float high)
{
	x = x < low ? low : x;
	return x > high ? high : x;
}

BODY uint8_t *pack_bf16(const float (*x)[N], unsigned k, uint8_t *out)
{
	unsigned i, c;

	for (i = 0; i < k; i += 2) {
		uint32_t pair[N];

		for (c = 0; c < N; c++)
			pair[c] = (uint32_t)float_to_bf16(x[i][c]) |
				  (uint32_t)float_to_bf16(x[i + 1][c]) << 16;
		memcpy(out, pair, sizeof(pair));
		out += sizeof(pair);
	}
	return out;
}

BODY uint8_t *pack_f16(const float (*x)[N], unsigned k, uint8_t *out)
{
	unsigned i, c;

	for (i = 0; i < k; i++) {
		uint16_t h[N];

		for (c = 0; c < N; c++)
			h[c] = float_to_f16(x[i][c]);
		memcpy(out, h, sizeof(h));
		out += sizeof(h);
	}
	return out;
}

/* The half-precision scale that keeps |extreme| / scale within @steps + 1/2. */
BODY uint16_t half_scale(float extreme, float steps)
{
	float s = extreme / steps;
	uint16_t h = float_to_f16(s);

	if (fabsf(f16_to_float(h)) * (steps + 0.5f) < fabsf(extreme))
		h++;
	return h;
}

BODY void group_extremes(const float (*x)[N], unsigned group, float *extreme)
{
	unsigned i, c;

	memset(extreme, 0, N * sizeof(*extreme));
	for (i = 0; i < group; i++) {
		for (c = 0; c < N; c++)
			extreme[c] = fabsf(x[i][c]) > fabsf(extreme[c]) ? x[i][c] : extreme[c];
	}
}

BODY void scales_and_inverses(const uint16_t *scale, float *inverse)
{
	unsigned c;

	for (c = 0; c < N; c++) {
		float s = f16_to_float(scale[c]);

		inverse[c] = s != 0 ? 1 / s : 0;
	}
}

BODY uint8_t *pack_w8_group(const float (*x)[N], unsigned group, uint8_t *out)
{
	float extreme[N], inverse[N];
	uint16_t scale[N];
	unsigned i, j, c;

	group_extremes(x, group, extreme);
	for (c = 0; c < N; c++)
		scale[c] = half_scale(fabsf(extreme[c]), 127);
	scales_and_inverses(scale, inverse);
	memcpy(out, scale, sizeof(scale));
	out += sizeof(scale);
	for (i = 0; i < group; i += 4) {
		uint32_t quad[N] = {0};

		for (j = 0; j < 4; j++) {
			for (c = 0; c < N; c++) {
				float q = nearest(clamp(x[i + j][c] * inverse[c], -127, 127));

				quad[c] |= (uint32_t)((int)q + 128) << (8 * j);
			}
		}
		memcpy(out, quad, sizeof(quad));
		out += sizeof(quad);
	}
	return out;
}

/*
 * Four lanes at once: the search below takes most of the time of a W4 compile, and compilers do not
 * vectorise it by themselves.
 */
typedef float lanes __attribute__((vector_size(16)));
typedef int32_t lane_mask __attribute__((vector_size(16)));

BODY lanes lanes_select(lane_mask mask, lanes a, lanes b)
{
	return (lanes)((mask & (lane_mask)a) | (~mask & (lane_mask)b));
}

BODY lanes lanes_clamp(lanes x, float low, float high)
{
	lanes l = low - (lanes){0}, h = high - (lanes){0};

	x = lanes_select(x < l, l, x);
	return lanes_select(x > h, h, x);
}

/* The best scale reduces a group's squared error by sum(x q)^2 / sum(q^2): larger is better. */
BODY void w4_try(const float (*x)[N], unsigned group, const float *inverse, float *best_score,
		 float *best_scale)
{
	unsigned i, c;

	for (c = 0; c < N; c += 4) {
		lanes xq = {0}, qq = {0}, inv, v, q;
		unsigned j;

		memcpy(&inv, inverse + c, sizeof(inv));
		for (i = 0; i < group; i++) {
			memcpy(&v, x[i] + c, sizeof(v));
			q = lanes_clamp(v * inv, -8, 7);
			q = (q + 12582912.0f) - 12582912.0f;
			xq += v * q;
			qq += q * q;
		}
		for (j = 0; j < 4; j++) {
			float scale = qq[j] > 0 ? xq[j] / qq[j] : 0, score = scale * xq[j];

			if (score > best_score[c + j]) {
				best_score[c + j] = score;
				best_scale[c + j] = scale;
			}
		}
	}
}

BODY void w4_scales(const float (*x)[N], unsigned group, uint16_t *scale)
{
	static const float steps[] = {-8,    -7.5f, -7,	  -8.5f, -9, -9.75f,
				      -6.5f, 7,	    7.5f, 6.5f,	 8,  8.75f};
	float extreme[N], inverse[N], score[N] = {0}, best[N] = {0};
	unsigned i, c;

	group_extremes(x, group, extreme);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		for (c = 0; c < N; c++)
			inverse[c] = fabsf(extreme[c]) > 0x1p-100f ? steps[i] / extreme[c] : 0;
		w4_try(x, group, inverse, score, best);
	}
	/* Once more, starting from the result of the search. */
	for (c = 0; c < N; c++)
		inverse[c] = fabsf(best[c]) > 0x1p-100f ? 1 / best[c] : 0;
	w4_try(x, group, inverse, score, best);
	for (c = 0; c < N; c++)
		scale[c] = float_to_f16(best[c]);
}

BODY uint8_t *pack_w4_group(const float (*x)[N], unsigned group, uint8_t *out)
{
	uint16_t scale[N];
	float inverse[N];
	unsigned i, j, c;

	w4_scales(x, group, scale);
	scales_and_inverses(scale, inverse);
	memcpy(out, scale, sizeof(scale));
	out += sizeof(scale);
	for (i = 0; i < group; i += 8) {
		uint32_t quad[N] = {0};

		for (j = 0; j < 8; j++) {
			/* Byte j % 4, low nibble for the first four of the eight. */
			unsigned shift = 8 * (j % 4) + (j >= 4 ? 4 : 0);

			for (c = 0; c < N; c++) {
				float q = nearest(clamp(x[i + j][c] * inverse[c], -8, 7));

				quad[c] |= (uint32_t)((int)q + 8) << shift;
			}
		}
		memcpy(out, quad, sizeof(quad));
		out += sizeof(quad);
	}
	return out;
}

BODY uint8_t *pack_body(uint8_t dtype, unsigned group, const float (*x)[N], unsigned k,
			uint8_t *out)
{
	unsigned i;

	switch (dtype) {
	case TXDA_BF16: return pack_bf16(x, k, out);
	case TXDA_F16: return pack_f16(x, k, out);
	case TXDA_W8:
		for (i = 0; i < k; i += group)
			out = pack_w8_group(x + i, group, out);
		return out;
	case TXDA_W4:
		for (i = 0; i < k; i += group)
			out = pack_w4_group(x + i, group, out);
		return out;
	default: memcpy(out, x, (size_t)k * sizeof(*x)); return out + (size_t)k * sizeof(*x);
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint8_t *
pack_avx2(uint8_t dtype, unsigned group, const float (*x)[N], unsigned k, uint8_t *out)
{
	return pack_body(dtype, group, x, k, out);
}
#endif

uint8_t *pack_block(uint8_t dtype, unsigned group, float (*x)[N], unsigned k, uint8_t *out)
{
	unsigned padded = k;

	if (dtype == TXDA_BF16)
		padded = (k + 1) / 2 * 2;
	else if (dtype == TXDA_W8 || dtype == TXDA_W4)
		padded = (k + group - 1) / group * group;
	memset(x + k, 0, (padded - k) * sizeof(*x));
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return pack_avx2(dtype, group, x, k, out);
#endif
	return pack_body(dtype, group, x, k, out);
}

/* Element @k of lane @c: a nibble, or a byte. */
static void put_code(uint8_t dtype, uint8_t *q, unsigned k, unsigned c, uint8_t code)
{
	if (dtype == TXDA_F8)
		q[k / 4 * 128 + c / 4 * 16 + k % 4 / 2 * 8 + c % 4 * 2 + k % 2] = code;
	else if (!txda_is_nibbles(dtype))
		q[k / 4 * 128 + c * 4 + k % 4] = code;
	else
		q[k / 8 * 128 + c * 4 + k % 4] |= (uint8_t)(code << (k & 4));
}

uint8_t *pack_codes(uint8_t dtype, unsigned group, const uint8_t (*codes)[256],
		    const struct pack_scale *scale, uint8_t *out)
{
	uint64_t bytes = txda_tile_group_bytes(dtype, group);
	uint8_t *q = out + txda_tile_group_header(dtype);
	unsigned c, k;

	memset(out, 0, bytes);
	for (c = 0; c < N; c++) {
		uint16_t h = dtype == TXDA_MX4 ? float_to_bf16(scale[c].scale)
					       : float_to_f16(scale[c].scale);

		if (dtype == TXDA_F8)
			memcpy(out + 4 * c, &scale[c].scale, 4);
		else
			memcpy(out + 2 * c, &h, 2);
		if (dtype == TXDA_W8Z || dtype == TXDA_W4Z)
			memcpy(out + 64 + 2 * c, &scale[c].zero, 2);
		for (k = 0; k < group; k++)
			put_code(dtype, q, k, c, codes[c][k]);
	}
	return out + bytes;
}

/* Lane @c of 32 elements. */
static void put_block(uint8_t dtype, unsigned c, const uint8_t *codes, uint8_t *q)
{
	uint8_t *high = q + 512;
	unsigned k;

	for (k = 0; k < 32; k++) {
		unsigned at = c * 4 + k % 4, more = codes[k] >> 4;

		q[k / 8 * 128 + at] |= (uint8_t)((codes[k] & 15) << (k & 4));
		if (dtype == TXDA_W5M)
			high[at] |= (uint8_t)(more << k / 4);
		else if (dtype == TXDA_W6S)
			high[k / 16 * 128 + at] |= (uint8_t)(more << k % 16 / 4 * 2);
	}
}

uint8_t *pack_levels(uint8_t dtype, unsigned group, const uint8_t (*codes)[256],
		     const struct pack_levels *levels, uint8_t *out)
{
	uint64_t bytes = txda_tile_group_bytes(dtype, group);
	unsigned c, k;

	memset(out, 0, bytes);
	for (c = 0; c < N; c++) {
		const struct pack_levels *l = &levels[c];
		uint8_t *block = out + txda_tile_group_header(dtype);

		memcpy(out + 2 * c, &l->d, 2);
		if (dtype != TXDA_W6S)
			memcpy(out + 64 + 2 * c, &l->dmin, 2);
		for (k = 0; k < group; k += 32, block += txda_tile_block_bytes(dtype)) {
			if (dtype == TXDA_W6S) {
				block[c] = l->part[k / 16].s;
				block[32 + c] = l->part[k / 16 + 1].s;
			} else {
				block[c] = l->part[k / 32].s;
				block[32 + c] = l->part[k / 32].m;
			}
			put_block(dtype, c, codes[c] + k, block + 64);
		}
	}
	return out + bytes;
}

bool pack_quantisable(const float (*x)[N], unsigned k)
{
	unsigned bad = 0, i, c;

	for (i = 0; i < k; i++) {
		for (c = 0; c < N; c++)
			bad |= !(fabsf(x[i][c]) <= PACK_MAX_VALUE);
	}
	return !bad;
}

bool pack_halvable(const float (*x)[N], unsigned k)
{
	unsigned bad = 0, i, c;

	for (i = 0; i < k; i++) {
		for (c = 0; c < N; c++)
			bad |= !pack_half_fits(x[i][c]);
	}
	return !bad;
}
