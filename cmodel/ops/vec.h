/* SPDX-License-Identifier: MIT */
/*
 * One vector of floats of the width that the compiler's target flags give: VL lanes.
 *
 * Kernels written with these compile for portable C and NEON (VL 4: what any 64-bit CPU has), AVX2
 * with FMA (8) and AVX-512 (16) from one source. v_fma() is fused where the target has it and never
 * otherwise; nothing is left to the compiler's contraction (-ffp-contract=off), so every instance
 * of a kernel rounds alike.
 */
#ifndef CM_VEC_H
#define CM_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(CM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4)));
typedef int32_t vi_any __attribute__((vector_size(VL * 4), aligned(4)));
typedef uint32_t vu_any __attribute__((vector_size(VL * 4), aligned(4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
typedef int8_t v8 __attribute__((vector_size(VL)));
typedef int8_t v8_any __attribute__((vector_size(VL), aligned(1)));
typedef uint16_t vh_any __attribute__((vector_size(VL * 2), aligned(2)));

#define V_INLINE static inline __attribute__((always_inline))

/* A loop of constant length, unrolled, so that arrays of sums become registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif
#define EACH(i, n) UNROLL for (unsigned i = 0; i < (n); i++)

/*
 * Prefetches the next @lines times @pace bytes. To be called for the headers of groups, too: a few
 * bytes missed in each group would add up to a gap at the end of the panel.
 */
V_INLINE void fetch_ahead(const uint8_t **ahead, size_t pace, const unsigned lines)
{
	EACH(i, lines) {
		__builtin_prefetch(*ahead, 0, 3);
		*ahead += pace;
	}
}

V_INLINE vf v_set1(float x)
{
	return x - (vf){0};
}

V_INLINE vf v_load(const float *p)
{
	return *(const vf_any *)p;
}

V_INLINE void v_store(float *p, vf v)
{
	*(vf_any *)p = v;
}

V_INLINE vf v_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
	return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(CM_NEON)
	return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
	return a * b + c;
#endif
}

V_INLINE vf v_select(vi mask, vf a, vf b)
{
	return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

V_INLINE vf v_max(vf a, vf b)
{
#if defined(__AVX512F__)
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return v_select(a > b, a, b);
#endif
}

/* VL bytes, sign-extended: compilers convert vectors of different widths lane by lane. */
V_INLINE vi v_load_i8(const int8_t *p)
{
#if defined(__AVX512F__)
	return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(__AVX2__)
	return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
	return __builtin_convertvector(*(const v8_any *)p, vi);
#endif
}

V_INLINE vf v_i2f(vi a)
{
	return __builtin_convertvector(a, vf);
}

/* Sums the lanes as a tree: the same order for every caller of one path. */
#if defined(__AVX512F__)
V_INLINE float v_sum(vf v)
{
	__m256 h = _mm256_add_ps(_mm512_castps512_ps256((__m512)v),
				 _mm512_extractf32x8_ps((__m512)v, 1));
	__m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

	q = _mm_add_ps(q, _mm_movehl_ps(q, q));
	return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The largest lane; NaN may be ignored. */
V_INLINE float v_top(vf v)
{
	return _mm512_reduce_max_ps((__m512)v);
}
#else
V_INLINE float v_sum(vf v)
{
	float a[VL];

	v_store(a, v);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] += a[i + n];
	return a[0];
}

V_INLINE float v_top(vf v)
{
	float a[VL];

	v_store(a, v);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] = a[i] > a[i + n] ? a[i] : a[i + n];
	return a[0];
}
#endif

/* The same of integers, where the order does not matter. */
V_INLINE vi v_max_i(vi a, vi b)
{
#if defined(__AVX512F__)
	return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#else
	vi m = a > b;

	return (m & a) | (~m & b);
#endif
}

V_INLINE int32_t v_sum_i(vi v)
{
#if defined(__AVX512F__)
	return _mm512_reduce_add_epi32((__m512i)v);
#else
	int32_t sum = 0;

	for (int i = 0; i < VL; i++)
		sum += v[i];
	return sum;
#endif
}

/* The largest of lanes that are not negative, as the float with the same bits. */
V_INLINE float v_top_i(vi v)
{
	int32_t top = 0;
	float f;

#if defined(__AVX512F__)
	top = _mm512_reduce_max_epi32((__m512i)v);
#else
	for (int i = 0; i < VL; i++)
		top = v[i] > top ? v[i] : top;
#endif
	memcpy(&f, &top, 4);
	return f;
}

/* exp(x) within 2 ulp (Cephes' split of ln 2, degree 6 minimax); exactly 1 at 0 and 0 below -87.3.
 */
V_INLINE vf v_exp(vf x)
{
	const vf magic = v_set1(12582912.0f);
	vf y, t, n, r, p;

	/* NaN stays NaN. */
#if defined(__AVX512F__)
	const __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, (__m512)v_set1(-87.3f), _CMP_NLT_UQ);

	y = v_max(v_set1(-87.3f), (vf)_mm512_min_ps((__m512)v_set1(88.3f), (__m512)x));
#else
	vi tiny = x < v_set1(-87.3f);

	y = v_select(x > v_set1(88.3f), v_set1(88.3f), x);
	y = v_select(tiny, v_set1(-87.3f), y);
#endif
	t = v_fma(y, v_set1(1.44269504f), magic);
	n = t - magic;
	r = v_fma(n, v_set1(-0.693359375f), y);
	r = v_fma(n, v_set1(2.12194440e-4f), r);
	p = v_set1(1.9875691500e-4f);
	p = v_fma(p, r, v_set1(1.3981999507e-3f));
	p = v_fma(p, r, v_set1(8.3334519073e-3f));
	p = v_fma(p, r, v_set1(4.1665795894e-2f));
	p = v_fma(p, r, v_set1(1.6666665459e-1f));
	p = v_fma(p, r, v_set1(5.0000001201e-1f));
	p = v_fma(p * r, r, r) + v_set1(1.0f);
	p = (vf)((vu)p + ((vu)t << 23));
#if defined(__AVX512F__)
	return (vf)_mm512_maskz_mov_ps(normal, (__m512)p);
#else
	return v_select(tiny, v_set1(0.0f), p);
#endif
}

/* bfloat16 pairs: the even element is the low half of each 32-bit lane. */
V_INLINE vf v_pair_even(vu w)
{
	return (vf)(w << 16);
}

V_INLINE vf v_pair_odd(vu w)
{
	return (vf)(w & 0xffff0000u);
}

V_INLINE vf v_load_bf16(const uint16_t *p)
{
	vh h = *(const vh_any *)p;

	return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* float32 to bfloat16 bits, round to nearest even, in the low half of each lane; NaN stays NaN. */
V_INLINE vu v_bf16_bits(vf v)
{
	vu u = (vu)v;
	vu r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
	vu nan = (u >> 16) | 0x40u;
	vi is_nan = v != v;

	return ((vu)is_nan & nan) | (~(vu)is_nan & r);
}

V_INLINE void v_store_bf16(uint16_t *p, vf v)
{
#if defined(__AVX512BF16__)
	/* As v_bf16_bits(), but subnormal numbers become 0, as they are in the products. */
	*(vh_any *)p = (vh)_mm512_cvtneps_pbh((__m512)v);
#else
	*(vh_any *)p = __builtin_convertvector(v_bf16_bits(v), vh);
#endif
}

static inline float cm_bf16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static inline uint16_t cm_f32_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float cm_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff, u;
	float f;

	if (e == 31) {
		u = sign | 0x7f800000u | m << 13;
	} else if (e) {
		u = sign | (e + 112) << 23 | m << 13;
	} else {
		f = (float)m * 0x1p-24f;
		memcpy(&u, &f, 4);
		u |= sign;
	}
	memcpy(&f, &u, 4);
	return f;
}

V_INLINE vf v_load_f16(const uint16_t *p)
{
#if defined(__AVX512F__)
	return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
	return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(CM_NEON)
	return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
	vf v;

	for (int i = 0; i < VL; i++)
		v[i] = cm_f16_to_f32(p[i]);
	return v;
#endif
}

#if defined(CM_NEON)
/* c + the even and the odd bf16 of each lane of w times those of x, by BFDOT. */
#if defined(CM_BF16_DOT)
V_INLINE vf v_dot_bf16(vf c, vu w, uint32_t x)
{
	return (vf)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)w, (bfloat16x8_t)vdupq_n_u32(x));
}
#endif

/* d + the 4 bytes of each lane of w, as signed ones, times those of x. */
V_INLINE vi v_dot_s8(vi d, vu w, uint32_t x)
{
	return (vi)vdotq_s32((int32x4_t)d, (int8x16_t)w, (int8x16_t)vdupq_n_u32(x));
}
#endif

/* tanh(x) within 3 ulp: Cephes' polynomial below 0.625, by exp() beyond. */
V_INLINE vf v_tanh(vf x)
{
	vf a = v_max(x, -x), z = x * x, p, far;
	vi near = a < v_set1(0.625f);

	p = v_set1(-5.70498872745e-3f);
	p = v_fma(p, z, v_set1(2.06390887954e-2f));
	p = v_fma(p, z, v_set1(-5.37397155531e-2f));
	p = v_fma(p, z, v_set1(1.33314422036e-1f));
	p = v_fma(p, z, v_set1(-3.33332819422e-1f));
	p = v_fma(p * z, x, x);
	far = v_set1(1.0f) - v_set1(2.0f) / (v_exp(a + a) + v_set1(1.0f));
	far = v_select(x < v_set1(0.0f), -far, far);
	return v_select(near, p, far);
}

#endif /* CM_VEC_H */
