/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels of LINEAR: a block of packed rows times (part of) one panel of 32 columns. Included
 * by path.c for all paths but AVX2 (kern_avx2.h); see simd.h and the tile layouts of txda_layouts.h.
 *
 * Each is an inline function of a constant number of rows, so that the accumulators live in
 * registers, and a switch that picks the instance. All instances do the same operations in the same
 * order for each row.
 */

#define NV (32 / VL) /* vectors of a panel's width */

#if VL == 16
/* ---- AVX-512 ------------------------------------------------------------------------------------
 */

/*
 * As fetch_ahead(), but into the second-level cache if several rows take the first. For kernels of
 * dot instructions: those of FMA compute for longer and gain nothing.
 */
V_INLINE void fetch_ahead_of_rows(const unsigned rows, const uint8_t **ahead, size_t pace,
				  const unsigned lines)
{
	if (rows == 1) {
		fetch_ahead(ahead, pace, lines);
		return;
	}
	EACH(i, lines) {
		_mm_prefetch((const char *)*ahead, _MM_HINT_T1);
		*ahead += pace;
	}
}

/* Keeps a value in its register: compilers would load it again for each use, which costs more than
 * the use. */
#define KEEP(v) __asm__("" : "+v"(v))

#if defined(CM_BF16_DOT)
/* VDPBF16PS: a pair of K per lane and step. Wide: the low halves of the activations follow the high
 * ones. */
V_INLINE void bf16_pair(const unsigned rows, const bool wide, __m512 c[][2], __m512i w0, __m512i w1,
			const uint32_t *a)
{
	EACH(term, 1u + wide) {
		EACH(m, rows) {
			__m512bh x = (__m512bh)_mm512_set1_epi32((int)a[m]);

			c[m][0] = _mm512_dpbf16_ps(c[m][0], (__m512bh)w0, x);
			c[m][1] = _mm512_dpbf16_ps(c[m][1], (__m512bh)w1, x);
		}
		a += rows;
	}
}

#define PAIR_WORDS(wide)	       ((wide) ? 2 : 1) /* 32-bit words of a packed pair and row */
#define FETCH_PAIRS(rows, ahead, pace) fetch_ahead_of_rows(rows, ahead, pace, 2)
#else
/* FMA on the pair's two elements as float32: faster where VDPBF16PS is microcode. */
V_INLINE void bf16_pair(const unsigned rows, const bool wide, __m512 c[][2], __m512i w0, __m512i w1,
			const uint32_t *a)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000);
	__m512 e0 = (__m512)_mm512_slli_epi32(w0, 16), e1 = (__m512)_mm512_slli_epi32(w1, 16);
	__m512 o0 = (__m512)_mm512_and_si512(w0, high), o1 = (__m512)_mm512_and_si512(w1, high);
	const float *x = (const float *)a;

	(void)wide;
	EACH(m, rows) {
		c[m][0] = _mm512_fmadd_ps(e0, _mm512_set1_ps(x[m]), c[m][0]);
		c[m][1] = _mm512_fmadd_ps(e1, _mm512_set1_ps(x[m]), c[m][1]);
	}
	x += rows;
	EACH(m, rows) {
		c[m][0] = _mm512_fmadd_ps(o0, _mm512_set1_ps(x[m]), c[m][0]);
		c[m][1] = _mm512_fmadd_ps(o1, _mm512_set1_ps(x[m]), c[m][1]);
	}
}

#define PAIR_WORDS(wide)	       2
#define FETCH_PAIRS(rows, ahead, pace) fetch_ahead(ahead, pace, 2)
#endif

V_INLINE void bf16_rows(const unsigned rows, const bool wide, const struct cm_panel *p)
{
	const uint8_t *w = p->w, *ahead = p->ahead;
	const uint32_t *a = p->a;
	const size_t pace = p->pace;
	float *acc = p->acc;
	__m512 c[12][2];

	EACH(m, rows)
		EACH(v, 2)
			c[m][v] = p->first ? _mm512_setzero_ps()
					   : _mm512_loadu_ps(acc + m * 32 + v * 16);
	for (size_t n = p->n; n; n--, w += 128, a += PAIR_WORDS(wide) * rows) {
		__m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);

		FETCH_PAIRS(rows, &ahead, pace);
		KEEP(w0);
		KEEP(w1);
		bf16_pair(rows, wide, c, w0, w1, a);
	}
	EACH(m, rows)
		EACH(v, 2)
			_mm512_storeu_ps(acc + m * 32 + v * 16, c[m][v]);
}

static void panel_bf16(const struct cm_panel *p)
{
#if defined(CM_BF16_DOT)
	if (p->wide) {
		switch (p->mr) {
			ROW_CASES_12(bf16_rows, true, p);
		}
		return;
	}
#endif
	switch (p->mr) {
		ROW_CASES_12(bf16_rows, false, p);
	}
}

/*
 * VPDPBUSD as assembly: for the intrinsic, compilers copy the sums and load broadcast values again
 * for each use.
 */
#define DOT_I8(d, w, x)	      __asm__("vpdpbusd %2, %1, %0" : "+v"(d) : "v"(w), "v"(x))
#define BROADCAST_32(v, word) __asm__("vpbroadcastd %1, %0" : "=v"(v) : "m"(word))

/* 4 K of 32 columns as u8, times x[rows] of 4 int8 each. */
V_INLINE void i8_quad(const unsigned rows, __m512i d[][2], __m512i w0, __m512i w1,
		      const uint32_t *x)
{
	KEEP(w0);
	KEEP(w1);
	EACH(m, rows) {
		__m512i xm;

		BROADCAST_32(xm, x[m]);
		DOT_I8(d[m][0], w0, xm);
		DOT_I8(d[m][1], w1, xm);
	}
}

/* Adds the products of one block of 32 of K. */
V_INLINE void i8_block(const int bits, const unsigned rows, __m512i d[CM_MR_I8][2],
		       const uint8_t *w, const uint32_t *a)
{
	const __m512i low = _mm512_set1_epi8(15);

	for (unsigned j = 0; j < 8; j += 2, a += 2 * rows, w += bits * 32) {
		__m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64), h0, h1;

		if (bits == 8) {
			h0 = _mm512_load_si512(w + 128);
			h1 = _mm512_load_si512(w + 192);
		} else {
			h0 = _mm512_and_si512(_mm512_srli_epi16(w0, 4), low);
			h1 = _mm512_and_si512(_mm512_srli_epi16(w1, 4), low);
			w0 = _mm512_and_si512(w0, low);
			w1 = _mm512_and_si512(w1, low);
		}
		i8_quad(rows, d, w0, w1, a);
		i8_quad(rows, d, h0, h1, a + rows);
	}
}

/* The initial sums of @blocks blocks of packed rows: what the zero point of the weights
 * subtracts. */
V_INLINE void i8_start(const unsigned rows, __m512i d[CM_MR_I8][2], const uint32_t *a,
		       size_t blocks)
{
	EACH(m, rows) {
		uint32_t zero = a[9 * rows + m];

		for (size_t b = 1; b < blocks; b++)
			zero += a[(10 * b + 9) * rows + m];
		d[m][0] = d[m][1] = _mm512_set1_epi32((int)zero);
	}
}

/* Scales the int32 sums into the float32 ones. */
V_INLINE void i8_scale(const unsigned rows, __m512 c[CM_MR_I8][2], __m512i d[CM_MR_I8][2],
		       const uint8_t *header, const float *a)
{
	__m512 s0 = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)header));
	__m512 s1 = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(header + 32)));

	EACH(m, rows) {
		__m512 x = _mm512_set1_ps(a[m]);

		c[m][0] =
			_mm512_fmadd_ps(_mm512_cvtepi32_ps(d[m][0]), _mm512_mul_ps(s0, x), c[m][0]);
		c[m][1] =
			_mm512_fmadd_ps(_mm512_cvtepi32_ps(d[m][1]), _mm512_mul_ps(s1, x), c[m][1]);
		KEEP(c[m][0]);
		KEEP(c[m][1]);
	}
}

/*
 * The int32 sums of @run blocks, which have one scale, are scaled into the float32 ones; both stay in
 * registers.
 */
V_INLINE void i8_rows(const int bits, const unsigned rows, const unsigned run,
		      const struct cm_panel *p)
{
	const unsigned block_bytes = (unsigned)bits * 128;
	const uint8_t *w = p->w, *header = w, *ahead = p->ahead;
	const uint32_t *a = p->a;
	const size_t pace = p->pace;
	float *acc = p->acc;
	__m512i d[CM_MR_I8][2];
	__m512 c[CM_MR_I8][2];

	EACH(m, rows)
		EACH(v, 2)
			c[m][v] = p->first ? _mm512_setzero_ps()
					   : _mm512_loadu_ps(acc + m * 32 + v * 16);
	for (size_t n = p->n, left = 0; n;) {
		const size_t blocks = run == 1 ? 1 : n < run ? n : run;
		const float *scale = (const float *)a + 8 * rows;

		if (!left) {
			header = w;
			w += 64;
			left = p->group / 32;
			fetch_ahead_of_rows(rows, &ahead, pace, 1);
		}
		left -= run;
		n -= blocks;
		i8_start(rows, d, a, blocks);
		for (size_t b = 0; b < blocks; b++, w += block_bytes, a += 10 * rows) {
			i8_block(bits, rows, d, w, a);
			fetch_ahead_of_rows(rows, &ahead, pace, block_bytes / 64);
		}
		i8_scale(rows, c, d, header, scale);
	}
	EACH(m, rows)
		EACH(v, 2)
			_mm512_storeu_ps(acc + m * 32 + v * 16, c[m][v]);
}

/* Blocks that are summed before scaling: those that share a scale of the activations, if they also
 * share those of the weights. */
#define I8_RUN (TXDA_I8_GROUP / TXDA_QUANT_BLOCK)

#define I8_ROWS(rows, bits, run, p) i8_rows(bits, rows, run, p)

V_INLINE void i8_panel(const int bits, const struct cm_panel *p)
{
	if (p->group >= TXDA_I8_GROUP) {
		switch (p->mr) {
			ROW_CASES_6(I8_ROWS, bits, I8_RUN, p);
		}
		return;
	}
	switch (p->mr) {
		ROW_CASES_6(I8_ROWS, bits, 1, p);
	}
}

static void panel_w8(const struct cm_panel *p)
{
	i8_panel(8, p);
}

static void panel_w4(const struct cm_panel *p)
{
	i8_panel(4, p);
}

#else
/* ---- portable C and NEON: half a panel at a time or less, as fits registers ------------------- */

#if defined(CM_NEON)
#define NV_STEP		4 /* vectors of columns */
#define ROWS_STEP	6 /* rows: 24 of 32 registers are sums */
#define BF16_CASES(...) ROW_CASES_6(bf16_rows, __VA_ARGS__)
#define I8_VECTORS	4
#define I8_STEP		6
#else
#define NV_STEP		2
#define ROWS_STEP	4
#define BF16_CASES(...) ROW_CASES_4(bf16_rows, __VA_ARGS__)
#define I8_VECTORS	NV
#define I8_STEP		1
#endif

/* There are only products of s8 and s8: 128 is subtracted from the bytes of W8, not from the
 * sums. */
#if defined(CM_NEON) && !defined(__ARM_FEATURE_MATMUL_INT8)
#define I8_SIGNED 1
#else
#define I8_SIGNED 0
#endif

/* c[rows][NV_STEP] += the pairs at w times those of the rows at x, in blocks of @mr rows. */
#if defined(CM_BF16_DOT)
#define PAIR_WORDS(wide) ((wide) ? 2 : 1)

V_INLINE void bf16_pair(const unsigned rows, const bool wide, vf c[][NV_STEP], const uint32_t *w,
			const uint32_t *x, unsigned mr)
{
	EACH(v, NV_STEP) {
		vu u = *(const vu_any *)(w + v * VL);

		EACH(term, 1u + wide)
			EACH(m, rows)
				c[m][v] = v_dot_bf16(c[m][v], u, x[term * mr + m]);
	}
}
#else
#define PAIR_WORDS(wide) 2

V_INLINE void bf16_pair(const unsigned rows, const bool wide, vf c[][NV_STEP], const uint32_t *w,
			const uint32_t *x, unsigned mr)
{
	const float *f = (const float *)x;

	(void)wide;
	EACH(v, NV_STEP) {
		vu u = *(const vu_any *)(w + v * VL);
		vf even = v_pair_even(u), odd = v_pair_odd(u);

		EACH(m, rows)
			c[m][v] = v_fma(odd, v_set1(f[mr + m]), v_fma(even, v_set1(f[m]), c[m][v]));
	}
}
#endif

/* Rows [m0, m0 + rows) of the packed ones. */
V_INLINE void bf16_rows(const unsigned rows, const bool wide, const struct cm_panel *p, unsigned m0)
{
	const unsigned mr = p->mr;
	float *acc = p->acc + m0 * 32;

	for (unsigned v0 = 0; v0 < NV; v0 += NV_STEP) {
		const uint32_t *w = (const uint32_t *)p->w + v0 * VL, *x = p->a + m0;
		vf c[ROWS_STEP][NV_STEP];

		EACH(m, rows)
			EACH(v, NV_STEP)
				c[m][v] = p->first ? (vf){0} : v_load(acc + m * 32 + (v0 + v) * VL);
		for (size_t n = p->n; n; n--, w += 32, x += PAIR_WORDS(wide) * mr)
			bf16_pair(rows, wide, c, w, x, mr);
		EACH(m, rows)
			EACH(v, NV_STEP)
				v_store(acc + m * 32 + (v0 + v) * VL, c[m][v]);
	}
}

V_INLINE void bf16_panel(const bool wide, const struct cm_panel *p)
{
	for (unsigned m = 0; m < p->mr; m += ROWS_STEP)
		switch (p->mr - m < ROWS_STEP ? p->mr - m : ROWS_STEP) {
			BF16_CASES(wide, p, m);
		}
}

static void panel_bf16(const struct cm_panel *p)
{
#if defined(CM_BF16_DOT)
	if (p->wide) {
		bf16_panel(true, p);
		return;
	}
#endif
	bf16_panel(false, p);
}

/*
 * The dot products of one block of 32 of K for VL columns: 8 quads of u8 weights (as vectors of
 * 32-bit lanes with 4 bytes each) with int8 activations, exact in int32.
 */
V_INLINE vi i8_quad(vi d, vu w, uint32_t x)
{
#if defined(__ARM_FEATURE_MATMUL_INT8)
	return (vi)vusdotq_s32((int32x4_t)d, (uint8x16_t)w, (int8x16_t)vdupq_n_u32(x));
#elif defined(CM_NEON)
	return v_dot_s8(d, w, x);
#else
	for (int i = 0; i < 4; i++) {
		int32_t s = (int8_t)(x >> 8 * i);

		d += (vi)(w >> 8 * i & 255u) * s;
	}
	return d;
#endif
}

/* A block of 32 of K: the int32 sums of each row, scaled into acc. */
V_INLINE void i8_block(const int bits, const unsigned rows, float *acc, const uint16_t *scale,
		       const uint8_t *w, const uint32_t *a, unsigned mr)
{
	const float *as = (const float *)a + 8 * mr;

	for (unsigned v0 = 0; v0 < NV; v0 += I8_VECTORS) {
		vi d[I8_STEP][I8_VECTORS];

		EACH(m, rows)
			EACH(v, I8_VECTORS)
				d[m][v] = (bits == 8 && I8_SIGNED ? 0 : (int32_t)a[9 * mr + m]) -
					  (vi){0};
		for (unsigned j = 0; j < 8; j++) {
			const uint8_t *q = w + (bits == 8 ? j : j / 2) * 128 + v0 * VL * 4;

			EACH(v, I8_VECTORS) {
				vu u = *(const vu_any *)(q + v * VL * 4);

				if (bits == 4)
					u = (j & 1 ? u >> 4 : u) & 0x0f0f0f0fu;
				else if (I8_SIGNED)
					u ^= 0x80808080u;
				EACH(m, rows)
					d[m][v] = i8_quad(d[m][v], u, a[j * mr + m]);
			}
		}
		EACH(v, I8_VECTORS) {
			vf s = v_load_f16(scale + (v0 + v) * VL);

			EACH(m, rows) {
				float *c = acc + m * 32 + (v0 + v) * VL;

				v_store(c, v_fma(v_i2f(d[m][v]), s * v_set1(as[m]), v_load(c)));
			}
		}
	}
}

/* Rows [m0, m0 + rows) of the packed ones. */
V_INLINE void i8_rows(const int bits, const unsigned rows, const struct cm_panel *p, unsigned m0)
{
	const unsigned mr = p->mr;
	const uint8_t *w = p->w;
	const uint32_t *a = p->a + m0;
	float *acc = p->acc + m0 * 32;

	for (size_t n = p->n; n;) {
		size_t blocks = p->group / 32 < n ? p->group / 32 : n;
		const uint16_t *scale = (const uint16_t *)w;

		w += 64;
		n -= blocks;
		for (; blocks; blocks--, w += bits * 128, a += 10 * mr)
			i8_block(bits, rows, acc, scale, w, a, mr);
	}
}

V_INLINE void i8_panel(const int bits, const struct cm_panel *p)
{
	if (p->first)
		memset(p->acc, 0, p->mr * 32 * sizeof(float));
#if I8_STEP == 1
	for (unsigned m = 0; m < p->mr; m++)
		i8_rows(bits, 1, p, m);
#else
#define I8_ROWS(rows, bits, p) i8_rows(bits, rows, p, 0)
	switch (p->mr) {
		ROW_CASES_6(I8_ROWS, bits, p);
	}
#endif
}

static void panel_w8(const struct cm_panel *p)
{
	i8_panel(8, p);
}

static void panel_w4(const struct cm_panel *p)
{
	i8_panel(4, p);
}
#endif

/* ---- float16 and float32 weights with float32 activations ------------------------------------ */

/* Rows [m0, m0 + rows) of the packed ones. */
V_INLINE void f_rows(const unsigned rows, const bool half, const struct cm_panel *p, unsigned m0)
{
	const unsigned bytes = half ? 64 : 128, mr = p->mr;
	const float *a = (const float *)p->a + m0;
	float *acc = p->acc + m0 * 32;
	const uint8_t *w = p->w;
	vf c[CM_MR][NV];

#if VL == 16
	const uint8_t *ahead = p->ahead;
	const size_t pace = p->pace;
#endif
	EACH(m, rows)
		EACH(v, NV)
			c[m][v] = p->first ? (vf){0} : v_load(acc + m * 32 + v * VL);
	for (size_t n = p->n; n; n--, w += bytes, a += mr) {
		vf u[NV];

#if VL == 16
		fetch_ahead(&ahead, pace, bytes / 64);
#endif
		EACH(v, NV)
			u[v] = half ? v_load_f16((const uint16_t *)w + v * VL)
				    : v_load((const float *)w + v * VL);
		EACH(m, rows)
			EACH(v, NV)
				c[m][v] = v_fma(u[v], v_set1(a[m]), c[m][v]);
	}
	EACH(m, rows)
		EACH(v, NV)
			v_store(acc + m * 32 + v * VL, c[m][v]);
}

V_INLINE void f_panel(const bool half, const struct cm_panel *p)
{
#if VL == 16
	switch (p->mr) {
		ROW_CASES_12(f_rows, half, p, 0);
	}
#else
	unsigned m = 0;

	/* The sums of more than two rows do not fit into the registers. */
	for (; m + 2 <= p->mr; m += 2)
		f_rows(2, half, p, m);
	if (m < p->mr)
		f_rows(1, half, p, m);
#endif
}

static void panel_f16(const struct cm_panel *p)
{
	f_panel(true, p);
}

static void panel_f32(const struct cm_panel *p)
{
	f_panel(false, p);
}
