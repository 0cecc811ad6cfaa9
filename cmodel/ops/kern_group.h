/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels for weights in groups with float activations: F8, MX4 and, without AVX2 or AVX-512
 * (others have int16 there, kern_two_level.h), W8, W4 and their kin with zero points (tile layouts in
 * txda_layouts.h, packed activations in simd.h). Included by path.c.
 *
 * A block of 32 of K is summed by itself and then scaled into the sums of the panel: the blocks are
 * short chains of additions that the CPU can overlap, and the order is the same for any number of
 * rows. A zero point uses the sum of the block's activations, which is stored behind them (without
 * AVX2): the sum of the block starts at the negative product of both.
 */

/* The parameters of an instance, all of which are constants. */
struct group_kind {
	uint8_t dtype;
	bool wide; /* only with CM_GROUP_DOT */
};

/* VL scales of columns [c, c + VL) from a group's header. */
V_INLINE vf group_scale(const struct group_kind t, const uint8_t *header, unsigned c)
{
	if (t.dtype == TXDA_MX4)
		return v_load_bf16((const uint16_t *)header + c);
#if !defined(CM_GROUPS_I16)
	if (t.dtype != TXDA_F8)
		return v_load_f16((const uint16_t *)header + c);
#endif
	return v_load((const float *)header + c);
}

#if defined(CM_GROUP_DOT)
/* ---- pairs of bf16 ---- */

#define GROUP_MR    CM_MR_GROUP
#define UNPACK_ROWS 15

/* MX4 as bf16: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and these negated, twice: only the low 5 bits of an index
 * count. */
#define MX4_VALUES                                                                                 \
	0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,    \
		0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0
static const uint16_t mx4_table[32] __attribute__((aligned(64))) = {MX4_VALUES, MX4_VALUES};

/* E4M3 without its sign as the low and the high bytes of bf16. Exponent 0: m * 2^-9. */
#define F8_LOW(e)                                                                                  \
	((e)&1) << 7, (((e)&1) << 7) + 16, (((e)&1) << 7) + 32, (((e)&1) << 7) + 48,               \
		(((e)&1) << 7) + 64, (((e)&1) << 7) + 80, (((e)&1) << 7) + 96,                     \
		(((e)&1) << 7) + 112
#define F8_HIGH(e)                                                                                 \
	((e) + 120) >> 1, ((e) + 120) >> 1, ((e) + 120) >> 1, ((e) + 120) >> 1, ((e) + 120) >> 1,  \
		((e) + 120) >> 1, ((e) + 120) >> 1, ((e) + 120) >> 1
static const uint8_t f8_low[128] __attribute__((aligned(64))) = {
	0,	   0,	       0x80,	   0xc0,       0,	   0x20,       0x40,	  0x60,
	F8_LOW(1), F8_LOW(2),  F8_LOW(3),  F8_LOW(4),  F8_LOW(5),  F8_LOW(6),  F8_LOW(7), F8_LOW(8),
	F8_LOW(9), F8_LOW(10), F8_LOW(11), F8_LOW(12), F8_LOW(13), F8_LOW(14), 0x80,	  0x90,
	0xa0,	   0xb0,       0xc0,	   0xd0,       0xe0,	   0xc0};
static const uint8_t f8_high[128] __attribute__((aligned(64))) = {
	0,	     0x3b,	  0x3b,	       0x3b,	    0x3c,	0x3c,
	0x3c,	     0x3c,	  F8_HIGH(1),  F8_HIGH(2),  F8_HIGH(3), F8_HIGH(4),
	F8_HIGH(5),  F8_HIGH(6),  F8_HIGH(7),  F8_HIGH(8),  F8_HIGH(9), F8_HIGH(10),
	F8_HIGH(11), F8_HIGH(12), F8_HIGH(13), F8_HIGH(14), 0x43,	0x43,
	0x43,	     0x43,	  0x43,	       0x43,	    0x43,	0x7f};

/* The pairs of one load of 16 columns, as many as it holds of each column: 4 of nibbles, 2 of
 * bytes. */
V_INLINE void mx4_pairs(__m512i v, __m512i p[4])
{
	const __m512i table = _mm512_load_si512(mx4_table);

	p[0] = _mm512_permutexvar_epi16(v, table);
	p[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 4), table);
	p[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 8), table);
	p[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 12), table);
}

V_INLINE void f8_pairs(__m512i v, __m512i p[4])
{
	const __m512i l0 = _mm512_load_si512(f8_low), l1 = _mm512_load_si512(f8_low + 64),
		      h0 = _mm512_load_si512(f8_high), h1 = _mm512_load_si512(f8_high + 64);
	__m512i lo = _mm512_permutex2var_epi8(l0, v, l1), hi = _mm512_permutex2var_epi8(h0, v, h1);

	/* the sign of v, the rest of hi */
	hi = _mm512_ternarylogic_epi32(hi, v, _mm512_set1_epi8((char)0x80), 0xf8);
	p[0] = _mm512_unpacklo_epi8(lo, hi);
	p[1] = _mm512_unpackhi_epi8(lo, hi);
}

V_INLINE void group_block(const struct group_kind t, const unsigned rows, __m512 d[CM_MR_GROUP][2],
			  const uint8_t *w, const uint32_t *a)
{
	const bool nibbles = txda_is_nibbles(t.dtype);
	const unsigned pairs = nibbles ? 4 : 2, terms = t.wide ? 2 : 1;

	for (unsigned j = 0; j < 16 / pairs; j++, w += 128) {
		__m512i v0 = _mm512_load_si512(w), v1 = _mm512_load_si512(w + 64), p0[4], p1[4];

		if (nibbles) {
			mx4_pairs(v0, p0);
			mx4_pairs(v1, p1);
		} else {
			f8_pairs(v0, p0);
			f8_pairs(v1, p1);
		}
		EACH(i, pairs * terms) {
			EACH(m, rows) {
				__m512bh x = (__m512bh)_mm512_set1_epi32((int)a[m]);

				d[m][0] = _mm512_dpbf16_ps(d[m][0], (__m512bh)p0[i / terms], x);
				d[m][1] = _mm512_dpbf16_ps(d[m][1], (__m512bh)p1[i / terms], x);
			}
			a += rows;
		}
	}
}

V_INLINE void group_rows(const struct group_kind t, const unsigned rows, const struct cm_panel *p)
{
	const unsigned words = t.wide ? 32 : 16, block = txda_tile_block_bytes(t.dtype);
	const uint8_t *w = p->w, *ahead = p->ahead;
	const uint32_t *a = p->a;
	const size_t pace = p->pace;
	float *acc = p->acc;
	__m512 d[CM_MR_GROUP][2], s[2];

	for (unsigned m = 0; p->first && m < 2 * rows; m++)
		_mm512_storeu_ps(acc + m * 16, _mm512_setzero_ps());
	for (size_t n = p->n; n;) {
		size_t blocks = p->group / 32 < n ? p->group / 32 : n;

		EACH(v, 2)
			s[v] = (__m512)group_scale(t, w, v * 16);
		w += txda_tile_group_header(t.dtype);
		n -= blocks;
		fetch_ahead(&ahead, pace, txda_tile_group_header(t.dtype) / 64);
		for (; blocks; blocks--, w += block, a += words * rows) {
			fetch_ahead(&ahead, pace, block / 64);
			EACH(m, rows)
				EACH(v, 2)
					d[m][v] = _mm512_setzero_ps();
			group_block(t, rows, d, w, a);
			EACH(m, rows)
				EACH(v, 2) {
					float *to = acc + m * 32 + v * 16;

					_mm512_storeu_ps(to, _mm512_fmadd_ps(s[v], d[m][v],
									     _mm512_loadu_ps(to)));
				}
		}
	}
}

#define GROUP_ROWS(rows, t, p) group_rows(t, rows, p)
#define GROUP_CASES(t, p)                                                                          \
	switch ((p)->mr) {                                                                         \
		ROW_CASES_8(GROUP_ROWS, t, p);                                                     \
	}

/* The pairs of 16 columns at @w, in the order of the kernel. */
V_INLINE void code_pairs(const struct group_kind t, const uint8_t *w, __m512i pair[4])
{
	__m512i codes = _mm512_load_si512(w);

	if (t.dtype == TXDA_MX4)
		mx4_pairs(codes, pair);
	else
		f8_pairs(codes, pair);
}

/* As group_rows(), with the weights that unpack_group() has made: so the sums of blocks and of the
 * panel both stay in registers. */
V_INLINE void unpacked_rows(const unsigned rows, const bool wide, const struct cm_panel *p,
			    const unsigned m0)
{
	const unsigned mr = p->mr;
	const uint8_t *w = p->unpacked, *ahead = p->ahead;
	const uint32_t *a = p->a + m0;
	float *acc = p->acc + m0 * 32;
	__m512 c[6][2], d[6][2], s[2];

	EACH(m, rows)
		EACH(v, 2)
			c[m][v] = p->first ? _mm512_setzero_ps()
					   : _mm512_loadu_ps(acc + m * 32 + v * 16);
	for (size_t n = p->n, left = 0; n; n--, left--, w += 128) {
		unsigned lines = txda_tile_block_bytes(p->dtype) / 64;

		if (!left) {
			lines += txda_tile_group_header(p->dtype) / 64;
			left = p->group / 32;
		}
		for (unsigned i = 0; i < lines && !m0; i++)
			fetch_ahead(&ahead, p->pace, 1);
		EACH(m, rows)
			d[m][0] = d[m][1] = _mm512_setzero_ps();
		for (unsigned i = 0; i < 16; i++, w += 128, a += PAIR_WORDS(wide) * mr) {
			__m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);

			KEEP(w0);
			KEEP(w1);
			bf16_pair(rows, false, d, w0, w1, a);
			if (wide)
				bf16_pair(rows, false, d, w0, w1, a + mr);
		}
		EACH(v, 2)
			s[v] = _mm512_load_ps((const float *)w + v * 16);
		EACH(m, rows)
			EACH(v, 2) {
				c[m][v] = _mm512_fmadd_ps(s[v], d[m][v], c[m][v]);
				KEEP(c[m][v]);
			}
	}
	EACH(m, rows)
		EACH(v, 2)
			_mm512_storeu_ps(acc + m * 32 + v * 16, c[m][v]);
}

/* Registers hold the sums of 6 rows. */
V_INLINE void unpacked_panel(const bool wide, const struct cm_panel *p)
{
	switch (p->mr) {
		ROW_CASES_6(unpacked_rows, wide, p, 0);
	case 7:
		unpacked_rows(4, wide, p, 0);
		unpacked_rows(3, wide, p, 4);
		break;
	case 8:
		unpacked_rows(4, wide, p, 0);
		unpacked_rows(4, wide, p, 4);
		break;
	}
}

static void panel_unpacked(const struct cm_panel *p)
{
	if (p->wide)
		unpacked_panel(true, p);
	else
		unpacked_panel(false, p);
}
#elif VL == 8
#include "kern_avx2_group.h"
#else
/* ---- floats ---- */

/* Rows whose sums stay in registers. */
#if VL == 16 || defined(CM_NEON)
#define GROUP_STEP	8
#define GROUP_EACH(...) ROW_CASES_8(group_rows, __VA_ARGS__)
#else
#define GROUP_STEP	4
#define GROUP_EACH(...) ROW_CASES_4(group_rows, __VA_ARGS__)
#endif

/* And those of a block: with AVX-512 more than GROUP_STEP rows take unpacked weights. */
#if VL == 16
#define GROUP_MR    CM_MR
#define UNPACK_ROWS GROUP_STEP
#else
#define GROUP_MR CM_MR_GROUP
#endif

/* Position in a load, of 8 nibbles or 4 bytes of each column, of its K @k: of nibbles the first 4 K are low. */
V_INLINE unsigned code_at(const struct group_kind t, const unsigned k)
{
	if (!txda_is_nibbles(t.dtype))
		return k;
	return k < 4 ? 2 * k : 2 * k - 7;
}

#if defined(CM_GROUPS_I16)
#define WORDS_PER_BLOCK 32
#else
#define WORDS_PER_BLOCK 33 /* and the sum */

/* What a block's sums for VL columns start at, by the sum of its activations. */
V_INLINE vf block_start(const struct group_kind t, const uint8_t *header, unsigned c, float sum)
{
	typedef int16_t vs __attribute__((vector_size(VL * 2), aligned(2)));
	const vs *zero = (const vs *)((const int16_t *)(header + 64) + c);

	if (t.dtype != TXDA_W4Z && t.dtype != TXDA_W8Z)
		return (vf){0};
	return v_set1(-sum) * v_i2f(__builtin_convertvector(*zero, vi));
}
#endif

#if defined(__AVX512F__)
/*
 * The values of 16 columns at position @i of a load: F8 by the conversion of float16, MX4 from a table.
 * A product that corrects the exponent of a subnormal float, as below, takes Intel's processors a
 * hundred cycles.
 */
V_INLINE vf f8_value(const uint8_t *w, unsigned c, const unsigned i)
{
	/* Of 4 columns, the first two K stand before the last two. */
	const __m512i halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	const __m256i magnitude = _mm256_set1_epi16(0x3f80);
	__m512i row = _mm512_permutexvar_epi64(halves, _mm512_load_si512(w + c * 4));
	__m256i v = i < 2 ? _mm512_castsi512_si256(row) : _mm512_extracti64x4_epi64(row, 1);

	v = _mm256_srai_epi16(i % 2 ? v : _mm256_slli_epi16(v, 8), 1);
	v = _mm256_and_si256(v, _mm256_set1_epi16((short)0xbf80));
	v = _mm256_mask_mov_epi16(
		v, _mm256_cmpeq_epi16_mask(_mm256_and_si256(v, magnitude), magnitude),
		_mm256_set1_epi16(0x7e00)); /* NaN */
	return (vf)_mm512_cvtph_ps(v) * v_set1(256);
}

static const float mx4_table[16] __attribute__((aligned(64))) = {
	0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

V_INLINE vf mx4_value(const uint8_t *w, unsigned c, const unsigned i)
{
	__m512i v = _mm512_load_si512(w + c * 4);

	/* The index is the low nibble. */
	return (vf)_mm512_permutexvar_ps(_mm512_srli_epi32(v, 4 * i), _mm512_load_ps(mx4_table));
}
#else
/*
 * Floats of @codes, magnitudes whose lowest bit is bit @at of a float's mantissa, with @exponent added.
 * Codes below @normal, E4M3's and E2M1's subnormals, have the exponent of the next ones without their
 * leading 1, which is subtracted. No step has subnormal floats, which count as 0 here.
 */
V_INLINE vf code_floats(vu codes, const unsigned at, const unsigned exponent, const uint32_t normal)
{
	vu tiny = (vu)(codes < normal), up = tiny & 1u << 23;

	return (vf)((codes << at) + (exponent << 23) + up) - (vf)(tiny & (exponent + 1) << 23);
}

/* The low byte of each lane. */
V_INLINE vf f8_value(const uint8_t *w, unsigned c, const unsigned i)
{
	/* pairs of K, the first of 4 columns before the second */
	vu v = __builtin_convertvector(*(const vh_any *)(w + c * 4 + i / 2 * 8), vu) >> i % 2 * 8;
	vf f = code_floats(v & 0x7fu, 20, 120, 8);
	vi nan = (v & 0x7fu) == 0x7fu;

	return (vf)((vu)f | (v & 0x80u) << 24 | ((vu)nan & 0x7fc00000u));
}

/* The nibbles of each lane, likewise. */
V_INLINE vf mx4_value(const uint8_t *w, unsigned c, const unsigned i)
{
	vu v = *(const vu_any *)(w + c * 4) >> 4 * i;

	return (vf)((vu)code_floats(v & 7u, 22, 126, 2) | (v & 8u) << 28);
}
#endif

/* The values of VL columns at position @i of a load: 8 of nibbles, 4 of bytes. */
V_INLINE vf group_value(const struct group_kind t, const uint8_t *w, unsigned c, const unsigned i)
{
	if (t.dtype == TXDA_F8)
		return f8_value(w, c, i);
#if !defined(CM_GROUPS_I16)
	if (t.dtype != TXDA_MX4) {
		vu v = *(const vu_any *)(w + c * 4);

		return txda_is_nibbles(t.dtype) ? v_i2f((vi)(v >> 4 * i & 15u) - 8)
						: v_i2f((vi)(v >> 8 * i & 255u) - 128);
	}
#endif
	return mx4_value(w, c, i);
}

/* One block of @rows rows (of @mr packed ones), two vectors of columns from c on. */
V_INLINE void group_step(const struct group_kind t, const unsigned rows, float *acc,
			 const uint8_t *header, const uint8_t *w, const float *x, unsigned mr,
			 unsigned c)
{
	const unsigned per = txda_is_nibbles(t.dtype) ? 8 : 4;
	vf d[GROUP_STEP][2];

	EACH(m, rows)
		EACH(v, 2)
#if defined(CM_GROUPS_I16)
			d[m][v] = (vf){0};
#else
			d[m][v] = block_start(t, header, c + v * VL, x[32 * mr + m]);
#endif
	for (unsigned j = 0; j < 32 / per; j++, w += 128)
		EACH(i, per) {
			const float *xk = x + (j * per + i) * mr;
			const unsigned at = code_at(t, i);
			vf w0 = group_value(t, w, c, at), w1 = group_value(t, w, c + VL, at);

			EACH(m, rows) {
				d[m][0] = v_fma(w0, v_set1(xk[m]), d[m][0]);
				d[m][1] = v_fma(w1, v_set1(xk[m]), d[m][1]);
			}
		}
	EACH(v, 2) {
		vf s = group_scale(t, header, c + v * VL);

		EACH(m, rows) {
			float *to = acc + m * 32 + c + v * VL;

			v_store(to, v_fma(s, d[m][v], v_load(to)));
		}
	}
}

/* Rows [m0, m0 + rows) of the packed ones. */
V_INLINE void group_rows(const unsigned rows, const struct group_kind t, const struct cm_panel *p,
			 unsigned m0)
{
	const float *x = (const float *)p->a + m0;
	const uint8_t *w = p->w;
	const unsigned mr = p->mr;
	float *acc = p->acc + m0 * 32;
	const uint8_t *ahead = p->ahead;
	const unsigned header_bytes = txda_tile_group_header(t.dtype),
		       bytes = txda_tile_block_bytes(t.dtype);

	for (size_t n = p->n; n;) {
		size_t blocks = p->group / 32 < n ? p->group / 32 : n;
		const uint8_t *header = w;

		w += header_bytes;
		n -= blocks;
		if (!m0)
			fetch_ahead(&ahead, p->pace, header_bytes / 64);
		for (; blocks; blocks--, w += bytes, x += WORDS_PER_BLOCK * mr) {
			if (!m0)
				fetch_ahead(&ahead, p->pace, bytes / 64);
			for (unsigned c = 0; c < 32; c += 2 * VL)
				group_step(t, rows, acc, header, w, x, mr, c);
		}
	}
}

V_INLINE void group_panel(const struct group_kind t, const struct cm_panel *p)
{
	if (p->first)
		memset(p->acc, 0, p->mr * 32 * sizeof(float));
	for (unsigned m = 0; m < p->mr; m += GROUP_STEP)
		switch (p->mr - m < GROUP_STEP ? p->mr - m : GROUP_STEP) {
			GROUP_EACH(t, p, m);
		}
}

#define GROUP_CASES(t, p) group_panel(t, p)

#if VL == 16
/* The pairs of 16 columns at @w, in the order of K. */
V_INLINE void code_pairs(const struct group_kind t, const uint8_t *w, __m512i pair[4])
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000);
	const unsigned pairs = txda_is_nibbles(t.dtype) ? 4 : 2;

	EACH(i, pairs) {
		__m512i even = (__m512i)group_value(t, w, 0, code_at(t, 2 * i));
		__m512i odd = (__m512i)group_value(t, w, 0, code_at(t, 2 * i + 1));

		pair[i] = _mm512_or_si512(_mm512_srli_epi32(even, 16), _mm512_and_si512(odd, high));
	}
}

/* As group_rows(), with the weights that unpack_group() has made. */
V_INLINE void unpacked_rows(const unsigned rows, const struct cm_panel *p)
{
	const uint8_t *w = p->unpacked, *ahead = p->ahead;
	const uint32_t *a = p->a;
	__m512 d[GROUP_MR][2], s[2];

	for (size_t n = p->n, left = 0; n; n--, left--, w += 128) {
		unsigned lines = txda_tile_block_bytes(p->dtype) / 64;

		if (!left) {
			lines += txda_tile_group_header(p->dtype) / 64;
			left = p->group / 32;
		}
		for (unsigned i = 0; i < lines; i++)
			fetch_ahead(&ahead, p->pace, 1);
		EACH(m, rows)
			d[m][0] = d[m][1] = _mm512_setzero_ps();
		for (unsigned i = 0; i < 16; i++, w += 128, a += 2 * rows) {
			__m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);

			KEEP(w0);
			KEEP(w1);
			bf16_pair(rows, false, d, w0, w1, a);
		}
		EACH(v, 2)
			s[v] = _mm512_load_ps((const float *)w + v * 16);
		EACH(m, rows)
			EACH(v, 2) {
				float *to = p->acc + m * 32 + v * 16;

				_mm512_storeu_ps(
					to, _mm512_fmadd_ps(s[v], d[m][v], _mm512_loadu_ps(to)));
			}
	}
}

static void panel_unpacked(const struct cm_panel *p)
{
	if (p->first)
		memset(p->acc, 0, p->mr * 32 * sizeof(float));
	switch (p->mr) {
		ROW_CASES_12(unpacked_rows, p);
	}
}
#endif
#endif

#if VL == 16
/* Pairs in the order of code_pairs(), with which panel_unpacked() is to multiply them. */
V_INLINE void unpack_panel(const struct group_kind t, uint8_t *to, const struct cm_panel *p)
{
	const unsigned pairs = txda_is_nibbles(t.dtype) ? 4 : 2;
	const uint8_t *w = p->w, *header = w;

	for (size_t n = p->n, left = 0; n; n--, left--, to += 128) {
		if (!left) {
			header = w;
			w += txda_tile_group_header(t.dtype);
			left = p->group / 32;
		}
		for (unsigned i = 0; i < 16; i += pairs, w += 128, to += pairs * 128)
			EACH(v, 2) {
				__m512i pair[4];

				code_pairs(t, w + v * 64, pair);
				EACH(j, pairs)
					_mm512_store_si512(to + j * 128 + v * 64, pair[j]);
			}
		EACH(v, 2)
			v_store((float *)to + v * 16, group_scale(t, header, v * 16));
	}
}

static void unpack_group(uint8_t *to, const struct cm_panel *p)
{
	if (p->dtype == TXDA_MX4)
		unpack_panel((struct group_kind){TXDA_MX4, false}, to, p);
	else
		unpack_panel((struct group_kind){TXDA_F8, false}, to, p);
}
#endif

#if VL != 8
/* One function per type, to limit stack frames and compile time. */
#define GROUP_FUNCTION(name, type)                                                                 \
	static void name(const struct cm_panel *p)                                                 \
	{                                                                                          \
		GROUP_BODY(type)                                                                   \
	}
#if defined(CM_GROUP_DOT)
#define GROUP_BODY(type)                                                                           \
	if (p->wide) {                                                                             \
		GROUP_CASES(((struct group_kind){type, true}), p)                                  \
	} else {                                                                                   \
		GROUP_CASES(((struct group_kind){type, false}), p)                                 \
	}
#else
#define GROUP_BODY(type) GROUP_CASES(((struct group_kind){type, false}), p);
#endif

#if !defined(CM_GROUPS_I16)
GROUP_FUNCTION(group_w8, TXDA_W8)
GROUP_FUNCTION(group_w4, TXDA_W4)
GROUP_FUNCTION(group_w8z, TXDA_W8Z)
GROUP_FUNCTION(group_w4z, TXDA_W4Z)
#endif
GROUP_FUNCTION(group_f8, TXDA_F8)
GROUP_FUNCTION(group_mx4, TXDA_MX4)

static void panel_group(const struct cm_panel *p)
{
#if VL == 16
	if (p->unpacked) {
		panel_unpacked(p);
		return;
	}
#endif
	switch (p->dtype) {
#if !defined(CM_GROUPS_I16)
	case TXDA_W8: group_w8(p); break;
	case TXDA_W4: group_w4(p); break;
	case TXDA_W8Z: group_w8z(p); break;
	case TXDA_W4Z: group_w4z(p); break;
#endif
	case TXDA_F8: group_f8(p); break;
	case TXDA_MX4: group_mx4(p); break;
	}
}
#endif

/* Packs one row of whole blocks; pairs for nibbles are in the order in which the kernel reads them. */
static void pack_group(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
		       bool nibbles, bool wide)
{
#if defined(CM_GROUP_DOT)
	static const uint8_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
	const unsigned terms = wide ? 2 : 1;

	for (; k; k -= 32, x += 32, block += 16 * terms * mr) {
		uint16_t h[32];
		float v[32], left[32];

		for (unsigned i = 0; i < 32; i++)
			v[i] = x[nibbles ? i / 8 * 8 + order[i % 8] : i];
		for (unsigned term = 0; term < terms; term++) {
			for (unsigned i = 0; i < 32; i += VL) {
				vf f = v_load(v + i);

				v_store_bf16(h + i, f);
				v_store(left + i, f - v_load_bf16(h + i));
			}
			for (unsigned i = 0; i < 16; i++)
				memcpy(&block[(i * terms + term) * mr + m], h + 2 * i, 4);
			memcpy(v, left, sizeof(v));
		}
	}
#else
	(void)wide;
	(void)nibbles;
	for (; k; k -= 32, x += 32, block += WORDS_PER_BLOCK * mr) {
#if !defined(CM_GROUPS_I16)
		float sum = 0;

		for (unsigned i = 0; i < 32; i++)
			sum += x[i];
		memcpy(&block[32 * mr + m], &sum, 4);
#endif
		for (unsigned i = 0; i < 32; i++)
			memcpy(&block[i * mr + m], &x[i], 4);
	}
#endif
}
