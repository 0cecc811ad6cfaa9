/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels for weights with int16 activations: with scales of two levels, W4M, W5M and W6S, and,
 * with AVX-512 and AVX2, those of one level whose activations are not int8: W8, W4, W8Z and W4Z (tile
 * layouts in txda_layouts.h, packed activations in simd.h). Included by path.c.
 *
 * The codes of a block are expanded to bytes before the products. A run of K that shares a scale
 * (32 elements, 16 of W6S) is summed in int32, which holds 32 * 63 * 32512. Then, per row and column:
 *   W4M, W5M:  c += x (s sum - m xsum)    x: scale of the activations, xsum: sum of their integers
 *   W6S:       c += x s sum               sum begins at -32 xsum of the half
 *   W8, W4:    c += x s sum               sum begins at -128 xsum or -8 xsum
 *   W8Z, W4Z:  c += x s (sum - z xsum)    likewise
 */

/* Words of a block of packed rows, and where the scales and the sums are. */
#define I16_WORDS(rows) (19 * (rows))
#define I16_SCALE(rows) (16 * (rows))
#define I16_SUM(rows)	(17 * (rows))

/* The fifth bits, or the fifth and sixth, of quad @t of a block (K elements 4 t to 4 t + 3):
 * their bytes, the distance to shift them left (right when negative), and the bits where they
 * then are. */
#define HIGH_BYTES(type, t) (512 + ((type) == TXDA_W6S ? (t) / 4 * 128 : 0))
#define HIGH_LEFT(type, t)  (4 - (int)((type) == TXDA_W6S ? (t) % 4 * 2 : (t)))
#define HIGH_MASK(type)	    ((type) == TXDA_W6S ? 0x30 : 0x10)

/* Quantises 32 values to r[32]; returns the scale. As quant_block(). */
V_INLINE float quant_block_i16(int32_t r[32], const float *x)
{
	const vf magic = v_set1(12582912.0f);
	vi top = {0};
	float max;
	vf inv;

	for (int i = 0; i < 32; i += VL)
		top = v_max_i(top, (vi)v_load(x + i) & 0x7fffffff);
	max = v_top_i(top);
	if (!(max <= 3e38f)) {
		memset(r, 0, 32 * sizeof(*r));
		return NAN;
	}
	inv = v_set1(max > 1e-33f ? 32512.0f / max : 0.0f);
	for (int i = 0; i < 32; i += VL)
		*(vi_any *)(r + i) = (vi)(v_load(x + i) * inv + magic) - (vi)magic;
	return max / 32512.0f;
}

/* Words of a block's integers, two for each quad: high and low bytes for products of u8 and s8, or
 * even and odd elements for products of int16. Also returns the sums of the halves. */
V_INLINE void split_block(const int32_t r[32], uint32_t words[16], int32_t sum[2])
{
#if VL == 16 || defined(CM_NEON)
	int8_t high[32], low[32];

	sum[0] = sum[1] = 0;
	EACH(i, 32 / VL) {
		vi v = *(const vi_any *)(r + i * VL), h = (v + 128) >> 8;

		*(v8_any *)(high + i * VL) = __builtin_convertvector(h, v8);
		*(v8_any *)(low + i * VL) = __builtin_convertvector(v - (h << 8), v8);
		sum[i * VL / 16] += v_sum_i(v);
	}
	for (unsigned t = 0; t < 8; t++) {
		memcpy(&words[2 * t], high + 4 * t, 4);
		memcpy(&words[2 * t + 1], low + 4 * t, 4);
	}
#else
	sum[0] = sum[1] = 0;
	for (unsigned t = 0; t < 8; t++, r += 4) {
		words[2 * t] = (uint16_t)r[0] | (uint32_t)r[2] << 16;
		words[2 * t + 1] = (uint16_t)r[1] | (uint32_t)r[3] << 16;
		sum[t / 4] += r[0] + r[1] + r[2] + r[3];
	}
#endif
}

static void pack_i16(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k)
{
	for (size_t i = 0; i < k; i += 32, block += I16_WORDS(mr)) {
		float in[32] = {0}, scale;
		int32_t r[32], sum[2];
		uint32_t words[16];

		memcpy(in, x + i, (k - i < 32 ? k - i : 32) * sizeof(float));
		scale = quant_block_i16(r, in);
		split_block(r, words, sum);
		for (unsigned j = 0; j < 16; j++)
			block[j * mr + m] = words[j];
		memcpy(&block[I16_SCALE(mr) + m], &scale, 4);
		block[I16_SUM(mr) + m] = (uint32_t)sum[0];
		block[I16_SUM(mr) + mr + m] = (uint32_t)sum[1];
	}
}

#if VL == 16
/* Quad @t of 16 columns. */
V_INLINE __m512i i16_codes(const unsigned type, const uint8_t *q, const unsigned t)
{
	const int left = HIGH_LEFT(type, t);
	__m512i v, high;

	if (txda_tile_block_bytes(type) == 1024)
		return _mm512_load_si512(q + t * 128);
	v = _mm512_load_si512(q + t / 2 * 128);
	if (t % 2)
		v = _mm512_srli_epi16(v, 4);
	v = _mm512_and_si512(v, _mm512_set1_epi8(15));
	if (type != TXDA_W5M && type != TXDA_W6S)
		return v;
	high = _mm512_load_si512(q + HIGH_BYTES(type, t));
	high = left > 0 ? _mm512_slli_epi16(high, (unsigned)left)
			: _mm512_srli_epi16(high, (unsigned)-left);
	/* v | (high & mask) */
	return _mm512_ternarylogic_epi32(v, high, _mm512_set1_epi8(HIGH_MASK(type)), 0xf8);
}

/* sum[m][v] += quads [first, first + n) of a block times the rows. */
V_INLINE void i16_dots(const unsigned type, const unsigned rows, __m512i sum[][2], const uint8_t *q,
		       const uint32_t *a, const unsigned first, const unsigned n)
{
	__m512i high[CM_MR_I16][2];

	EACH(m, rows)
		high[m][0] = high[m][1] = _mm512_setzero_si512();
	EACH(i, n) {
		const unsigned t = first + i;
		__m512i w0 = i16_codes(type, q, t), w1 = i16_codes(type, q + 64, t);

		i8_quad(rows, high, w0, w1, a + 2 * t * rows);
		i8_quad(rows, sum, w0, w1, a + (2 * t + 1) * rows);
	}
	EACH(m, rows)
		EACH(v, 2)
			sum[m][v] = _mm512_add_epi32(sum[m][v], _mm512_slli_epi32(high[m][v], 8));
}

/* 16 scales of both levels. */
V_INLINE __m512 two_level_scale(const uint8_t *d, const uint8_t *s, const bool is_signed)
{
	__m128i b = _mm_load_si128((const __m128i *)s);

	return _mm512_mul_ps(
		(__m512)v_load_f16((const uint16_t *)d),
		_mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b)));
}

V_INLINE void two_level_minimums(const unsigned type, const unsigned rows, __m512 c[][2],
				 const uint8_t *header, const uint8_t *w, const uint32_t *a)
{
	__m512i d[CM_MR_I16][2];
	__m512 s[2], min[2];

	EACH(m, rows)
		d[m][0] = d[m][1] = _mm512_setzero_si512();
	i16_dots(type, rows, d, w + 64, a, 0, 8);
	EACH(v, 2) {
		s[v] = two_level_scale(header + v * 32, w + v * 16, false);
		min[v] = two_level_scale(header + 64 + v * 32, w + 32 + v * 16, false);
	}
	EACH(m, rows) {
		const int32_t *xsum = (const int32_t *)a + I16_SUM(rows) + m;
		__m512 sum = _mm512_set1_ps((float)(xsum[0] + xsum[rows]));
		__m512 x = _mm512_set1_ps(((const float *)a)[I16_SCALE(rows) + m]);

		EACH(v, 2)
			c[m][v] = _mm512_fmadd_ps(_mm512_fmsub_ps(_mm512_cvtepi32_ps(d[m][v]), s[v],
								  _mm512_mul_ps(sum, min[v])),
						  x, c[m][v]);
	}
}

V_INLINE void two_level_halves(const unsigned type, const unsigned rows, __m512 c[][2],
			       const uint8_t *header, const uint8_t *w, const uint32_t *a)
{
	EACH(half, 2) {
		__m512i d[CM_MR_I16][2];
		__m512 s[2];

		EACH(m, rows)
			d[m][0] = d[m][1] =
				_mm512_set1_epi32(-32 * (int)a[I16_SUM(rows) + half * rows + m]);
		i16_dots(type, rows, d, w + 64, a, half * 4, 4);
		EACH(v, 2)
			s[v] = two_level_scale(header + v * 32, w + half * 32 + v * 16, true);
		EACH(m, rows) {
			__m512 x = _mm512_set1_ps(((const float *)a)[I16_SCALE(rows) + m]);

			EACH(v, 2)
				c[m][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[m][v]),
							  _mm512_mul_ps(s[v], x), c[m][v]);
		}
	}
}

/* Groups of one level. */
V_INLINE void one_level_block(const unsigned type, const unsigned rows, __m512 c[][2],
			      const uint8_t *header, const uint8_t *w, const uint32_t *a)
{
	const int zero = txda_is_nibbles(type) ? 8 : 128;
	__m512i d[CM_MR_I16][2];

	EACH(m, rows) {
		const int32_t *xsum = (const int32_t *)a + I16_SUM(rows) + m;

		d[m][0] = d[m][1] = _mm512_set1_epi32(-zero * (xsum[0] + xsum[rows]));
	}
	i16_dots(type, rows, d, w, a, 0, 8);
	EACH(v, 2) {
		__m512 s = (__m512)v_load_f16((const uint16_t *)header + v * 16), z;

		if (txda_tile_group_header(type) == 128)
			z = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(
				_mm256_load_si256((const __m256i *)(header + 64 + v * 32))));
		EACH(m, rows) {
			const int32_t *xsum = (const int32_t *)a + I16_SUM(rows) + m;
			__m512 x = _mm512_set1_ps(((const float *)a)[I16_SCALE(rows) + m]);
			__m512 sum = _mm512_cvtepi32_ps(d[m][v]);

			if (txda_tile_group_header(type) == 128)
				sum = _mm512_fnmadd_ps(
					z, _mm512_set1_ps((float)(xsum[0] + xsum[rows])), sum);
			c[m][v] = _mm512_fmadd_ps(sum, _mm512_mul_ps(s, x), c[m][v]);
		}
	}
}

V_INLINE void i16_rows(const unsigned rows, const unsigned type, const struct cm_panel *p)
{
	const unsigned bytes = txda_tile_block_bytes(type);
	const uint8_t *w = p->w, *header = w, *ahead = p->ahead;
	const uint32_t *a = p->a;
	const size_t pace = p->pace;
	float *acc = p->acc;
	__m512 c[CM_MR_I16][2];

	EACH(m, rows)
		EACH(v, 2)
			c[m][v] = p->first ? _mm512_setzero_ps()
					   : _mm512_loadu_ps(acc + m * 32 + v * 16);
	for (size_t n = p->n, left = 0; n; n--, left--, w += bytes, a += I16_WORDS(rows)) {
		if (!left) {
			header = w;
			w += txda_tile_group_header(type);
			left = p->group / 32;
			fetch_ahead(&ahead, pace, txda_tile_group_header(type) / 64);
		}
		if (!txda_is_two_level(type))
			one_level_block(type, rows, c, header, w, a);
		else if (type == TXDA_W6S)
			two_level_halves(type, rows, c, header, w, a);
		else
			two_level_minimums(type, rows, c, header, w, a);
		fetch_ahead(&ahead, pace, bytes / 64);
		EACH(m, rows)
			EACH(v, 2)
				KEEP(c[m][v]);
	}
	EACH(m, rows)
		EACH(v, 2)
			_mm512_storeu_ps(acc + m * 32 + v * 16, c[m][v]);
}

#define I16_PANEL(name, type)                                                                      \
	static void name(const struct cm_panel *p)                                                 \
	{                                                                                          \
		switch (p->mr) {                                                                   \
		case 1: i16_rows(1, type, p); break;                                               \
		case 2: i16_rows(2, type, p); break;                                               \
		case 3: i16_rows(3, type, p); break;                                               \
		}                                                                                  \
	}
#else
/* ---- portable C and NEON; AVX2 has what follows the scales in a file of its own ---- */

V_INLINE vf two_level_scale(const uint8_t *d, const uint8_t *s, const bool is_signed)
{
	typedef uint8_t vb_any __attribute__((vector_size(VL), aligned(1)));

	return v_load_f16((const uint16_t *)d) *
	       v_i2f(is_signed ? __builtin_convertvector(*(const v8_any *)s, vi)
			       : __builtin_convertvector(*(const vb_any *)s, vi));
}

#if defined(__AVX2__)
#include "kern_avx2_i16.h"
#else
/* Quad @t of VL columns. */
V_INLINE vu i16_codes(const unsigned type, const uint8_t *q, const unsigned t)
{
	const int left = HIGH_LEFT(type, t);
	vu v = *(const vu_any *)(q + t / 2 * 128), high;

	v = (t % 2 ? v >> 4 : v) & 0x0f0f0f0fu;
	if (type == TXDA_W4M)
		return v;
	high = *(const vu_any *)(q + HIGH_BYTES(type, t));
	high = left > 0 ? high << left : high >> -left;
	return v | (high & HIGH_MASK(type) * 0x01010101u);
}

#if defined(CM_NEON)
/* With the high and the low bytes of the int16 separately. */
V_INLINE vi i16_dots(const unsigned type, vi d, const uint8_t *q, const uint32_t *a, unsigned mr,
		     const unsigned first, const unsigned n)
{
	vi high = {0};

	EACH(i, n) {
		const unsigned t = first + i;
		vu w = i16_codes(type, q, t);

		high = v_dot_s8(high, w, a[2 * t * mr]);
		d = v_dot_s8(d, w, a[(2 * t + 1) * mr]);
	}
	return d + (high << 8);
}
#else
/* d plus 4 codes a lane times as many int16: the even ones, the odd ones. */
V_INLINE vi i16_quad(vi d, vu w, uint32_t even, uint32_t odd)
{
	return d + (vi)(w & 255u) * (int16_t)even + (vi)(w >> 8 & 255u) * (int16_t)odd +
	       (vi)(w >> 16 & 255u) * ((int32_t)even >> 16) + (vi)(w >> 24) * ((int32_t)odd >> 16);
}

V_INLINE vi i16_dots(const unsigned type, vi d, const uint8_t *q, const uint32_t *a, unsigned mr,
		     const unsigned first, const unsigned n)
{
	EACH(i, n) {
		const unsigned t = first + i;

		d = i16_quad(d, i16_codes(type, q, t), a[2 * t * mr], a[(2 * t + 1) * mr]);
	}
	return d;
}
#endif

/* One block of one row, VL columns from c on. */
V_INLINE vf two_level_block(const unsigned type, vf sums, const uint8_t *header, const uint8_t *w,
			    const uint32_t *a, unsigned mr, unsigned c)
{
	const int xsum[2] = {(int)a[I16_SUM(mr)], (int)a[I16_SUM(mr) + mr]};
	const uint8_t *q = w + 64 + c * 4;
	vi zero = {0}, d;
	vf s, min;
	float x;

	memcpy(&x, &a[I16_SCALE(mr)], 4);
	if (type == TXDA_W6S) {
		EACH(half, 2) {
			d = i16_dots(type, zero - 32 * xsum[half], q, a, mr, half * 4, 4);
			s = two_level_scale(header + 2 * c, w + half * 32 + c, true);
			sums = v_fma(v_i2f(d), s * v_set1(x), sums);
		}
		return sums;
	}
	d = i16_dots(type, zero, q, a, mr, 0, 8);
	s = two_level_scale(header + 2 * c, w + c, false);
	min = two_level_scale(header + 64 + 2 * c, w + 32 + c, false);
	return v_fma(v_fma(v_i2f(d), s, -(v_set1((float)(xsum[0] + xsum[1])) * min)), v_set1(x),
		     sums);
}

V_INLINE void two_level_panel(const unsigned type, const struct cm_panel *p)
{
	const unsigned bytes = txda_tile_block_bytes(type), mr = p->mr;
	const uint8_t *w = p->w, *header = w;
	const uint32_t *a = p->a;
	float *acc = p->acc;

	if (p->first)
		memset(acc, 0, mr * 32 * sizeof(float));
	for (size_t n = p->n, left = 0; n; n--, left--, w += bytes, a += I16_WORDS(mr)) {
		if (!left) {
			header = w;
			w += txda_tile_group_header(type);
			left = p->group / 32;
		}
		for (unsigned m = 0; m < mr; m++)
			for (unsigned c = 0; c < 32; c += VL)
				v_store(acc + m * 32 + c,
					two_level_block(type, v_load(acc + m * 32 + c), header, w,
							a + m, mr, c));
	}
}

#define I16_PANEL(name, type)                                                                      \
	static void name(const struct cm_panel *p)                                                 \
	{                                                                                          \
		two_level_panel(type, p);                                                          \
	}
#endif
#endif

I16_PANEL(panel_w4m, TXDA_W4M)
I16_PANEL(panel_w5m, TXDA_W5M)
I16_PANEL(panel_w6s, TXDA_W6S)

#if defined(CM_GROUPS_I16)
I16_PANEL(panel_w8_i16, TXDA_W8)
I16_PANEL(panel_w4_i16, TXDA_W4)
I16_PANEL(panel_w8z_i16, TXDA_W8Z)
I16_PANEL(panel_w4z_i16, TXDA_W4Z)
#endif

static void panel_i16(const struct cm_panel *p)
{
	switch (p->dtype) {
#if defined(CM_GROUPS_I16)
	case TXDA_W8: panel_w8_i16(p); break;
	case TXDA_W4: panel_w4_i16(p); break;
	case TXDA_W8Z: panel_w8z_i16(p); break;
	case TXDA_W4Z: panel_w4z_i16(p); break;
#endif
	case TXDA_W4M: panel_w4m(p); break;
	case TXDA_W5M: panel_w5m(p); break;
	case TXDA_W6S: panel_w6s(p); break;
	}
}
