/* SPDX-License-Identifier: MIT */
/* Row kernels: normalisation, packing, conversions, scans. Included by path.c; see simd.h. */

static void rmsnorm(float *out, const float *x, const float *w, size_t n, float eps)
{
	vf s[4] = {{0}, {0}, {0}, {0}}, r;
	float sum;
	size_t i = 0;

	for (; i + 4 * VL <= n; i += 4 * VL)
		for (int j = 0; j < 4; j++) {
			vf v = v_load(x + i + j * VL);

			s[j] = v_fma(v, v, s[j]);
		}
	sum = v_sum((s[0] + s[1]) + (s[2] + s[3]));
	for (; i < n; i++)
		sum += x[i] * x[i];
	sum = 1.0f / sqrtf(sum / (float)n + eps);
	r = v_set1(sum);
	for (i = 0; i + VL <= n; i += VL)
		v_store(out + i, v_load(x + i) * r * v_load(w + i));
	for (; i < n; i++)
		out[i] = x[i] * sum * w[i];
}

static void from_bf16(float *out, const uint16_t *x, size_t n)
{
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(out + i, v_load_bf16(x + i));
	for (; i < n; i++)
		out[i] = cm_bf16_to_f32(x[i]);
}

__attribute__((unused)) static void from_f16(float *out, const uint16_t *x, size_t n)
{
	for (size_t i = 0; i < n; i += VL)
		v_store(out + i, v_load_f16(x + i));
}

static void to_bf16(uint16_t *out, const float *x, size_t n)
{
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store_bf16(out + i, v_load(x + i));
	for (; i < n; i++)
		out[i] = cm_f32_to_bf16(x[i]);
}

#if defined(CM_BF16_DOT)
/* Pairs of K, rounded to bf16; wide: also the remainders, rounded to bf16. */
static void pack_bf16(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k, bool wide)
{
	size_t step = wide ? 2 * mr : mr, i = 0;

	for (; i < k; i += 2 * VL) {
		float left[2 * VL], tail[2 * VL] = {0};
		const float *in = x + i;
		size_t pairs = i + 2 * VL <= k ? VL : (k - i + 1) / 2;
		uint16_t h[2 * VL];
		uint32_t u[VL];

		if (i + 2 * VL > k) {
			memcpy(tail, in, (k - i) * sizeof(float));
			in = tail;
		}
		v_store_bf16(h, v_load(in));
		v_store_bf16(h + VL, v_load(in + VL));
		memcpy(u, h, sizeof(u));
		if (step == 1 && pairs == VL) {
			memcpy(block + i / 2, u, sizeof(u));
			continue;
		}
		for (size_t j = 0; j < pairs; j++)
			block[(i / 2 + j) * step + m] = u[j];
		if (!wide)
			continue;
		v_store(left, v_load(in) - v_load_bf16(h));
		v_store(left + VL, v_load(in + VL) - v_load_bf16(h + VL));
		v_store_bf16(h, v_load(left));
		v_store_bf16(h + VL, v_load(left + VL));
		memcpy(u, h, sizeof(u));
		for (size_t j = 0; j < pairs; j++)
			block[(i / 2 + j) * step + mr + m] = u[j];
	}
}
#else
static void pack_bf16(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k, bool wide)
{
	float *f = (float *)block;
	size_t i = 0;

	for (; i + VL <= k; i += VL) {
		vf v = v_load(x + i);

		if (!wide)
			v = (vf)(v_bf16_bits(v) << 16);
		for (size_t j = 0; j < VL; j++)
			f[(i + j) * mr + m] = v[j];
	}
	for (; i < k; i++)
		f[i * mr + m] = wide ? x[i] : cm_bf16_to_f32(cm_f32_to_bf16(x[i]));
	if (k & 1)
		f[k * mr + m] = 0;
}
#endif

static void pack_f32(float *block, unsigned mr, unsigned m, const float *x, size_t k)
{
	for (size_t i = 0; i < k; i++)
		block[i * mr + m] = x[i];
}

/* The largest of |x[n]|, n a multiple of VL; NaN above all: as integers they have that order. */
V_INLINE float top_of(const float *x, size_t n)
{
	vi top = {0};

	for (size_t i = 0; i < n; i += VL)
		top = v_max_i(top, (vi)v_load(x + i) & 0x7fffffff);
	return v_top_i(top);
}

/* Quantises 32 values of a group whose largest is @max: q[32], and their sum; returns the scale. */
V_INLINE float quant_block(int8_t q[32], int32_t *sum, const float *x, float max)
{
	vi s = {0};
	vf inv;

	/* An infinity or NaN has no int8 form: with a scale of NaN all sums of the row become
	 * NaN. */
	if (!(max <= 3e38f)) {
		memset(q, 0, 32);
		*sum = 0;
		return NAN;
	}
	inv = v_set1(max > 1e-36f ? 127.0f / max : 0.0f);
	for (int i = 0; i < 32; i += VL) {
		const vf magic = v_set1(12582912.0f);
		vi r = (vi)(v_load(x + i) * inv + magic) - (vi)magic;

		*(v8_any *)(q + i) = __builtin_convertvector(r, v8);
		s += r;
	}
	*sum = v_sum_i(s);
	return max / 127.0f;
}

/* Group @i of a row of @k values, zeros past the end: in place or at @tmp. */
V_INLINE const float *i8_group(const float *x, size_t i, size_t k, float tmp[TXDA_I8_GROUP])
{
	if (i + TXDA_I8_GROUP <= k)
		return x + i;
	memset(tmp, 0, TXDA_I8_GROUP * sizeof(float));
	memcpy(tmp, x + i, (k - i) * sizeof(float));
	return tmp;
}

/* Without an instruction for bytes that holds the products of W8: w8_words. */
#if VL == 8 && !defined(CM_VNNI)
#define W8_AS_WORDS true
#else
#define W8_AS_WORDS false
#endif

/* Quads of int8 of a row in its block. */
V_INLINE void put_quads(uint32_t *block, unsigned mr, const int8_t q[32], const bool words)
{
	for (unsigned j = 0; j < 8; j++, q += 4) {
		if (words) {
			block[2 * j * mr] = (uint16_t)q[0] | (uint32_t)(uint16_t)q[2] << 16;
			block[(2 * j + 1) * mr] = (uint16_t)q[1] | (uint32_t)(uint16_t)q[3] << 16;
		} else {
			memcpy(&block[j * mr], q, 4);
		}
	}
}

static void pack_i8(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
		    unsigned zero, unsigned group)
{
	const bool words = W8_AS_WORDS && zero == 128; /* W8 */
	const unsigned scale_at = words ? 16 : 8;

	(void)group;
	for (size_t i = 0; i < k; i += TXDA_I8_GROUP) {
		float tmp[TXDA_I8_GROUP];
		const float *in = i8_group(x, i, k, tmp);
		const float max = top_of(in, TXDA_I8_GROUP);

		for (size_t b = i; b < i + TXDA_I8_GROUP && b < k; b += 32) {
			float scale;
			int8_t q[32];
			int32_t sum;

			scale = quant_block(q, &sum, in + (b - i), max);
			put_quads(block + m, mr, q, words);
			block += scale_at * mr;
			memcpy(&block[m], &scale, 4);
			block[mr + m] = (uint32_t)(-(int)zero * sum);
			block += 2 * mr;
		}
	}
}

#if VL == 16
/* v[i][j] = v[j][i] */
V_INLINE void transpose(__m512i v[16])
{
	__m512i t[16];

	EACH(i, 8) {
		t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
		t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
	}
	EACH(i, 4)
		EACH(j, 2) {
			v[4 * i + 2 * j] = _mm512_unpacklo_epi64(t[4 * i + j], t[4 * i + j + 2]);
			v[4 * i + 2 * j + 1] =
				_mm512_unpackhi_epi64(t[4 * i + j], t[4 * i + j + 2]);
		}
	/* v[4 i + j]: column j of each 4 x 4 words of rows 4 i to 4 i + 3 */
	EACH(j, 4) {
		t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
		t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
		t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
		t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
	}
	EACH(j, 4) {
		v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
		v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
		v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
		v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
	}
}

static void interleave(uint32_t *to, unsigned mr, const uint32_t *const *rows, unsigned n_rows,
		       size_t n)
{
	for (unsigned r0 = 0; r0 < n_rows; r0 += 16) {
		const unsigned some = n_rows - r0 < 16 ? n_rows - r0 : 16;
		const __mmask16 store = (__mmask16)((1u << some) - 1);

		for (size_t i = 0; i < n; i += 16) {
			const unsigned words = n - i < 16 ? (unsigned)(n - i) : 16;
			const __mmask16 load = (__mmask16)((1u << words) - 1);
			__m512i v[16];

			EACH(r, 16)
				v[r] = r < some ? _mm512_maskz_loadu_epi32(load, rows[r0 + r] + i)
						: _mm512_setzero_si512();
			transpose(v);
			EACH(j, 16)
				if (j < words)
					_mm512_mask_storeu_epi32(to + (i + j) * mr + r0, store,
								 v[j]);
		}
	}
}
#else
static void interleave(uint32_t *to, unsigned mr, const uint32_t *const *rows, unsigned n_rows,
		       size_t n)
{
	/* Few words at a time, so that their cache lines stay cached until all rows are written. */
	for (size_t i = 0; i < n; i += 64)
		for (unsigned r = 0; r < n_rows; r++)
			for (size_t j = i; j < n && j < i + 64; j++)
				to[j * mr + r] = rows[r][j];
}
#endif

/* to[2 i] = h[i]; the elements between are not accessed. */
static void put_every_other(uint16_t *to, const uint16_t *h, size_t n)
{
	size_t i = 0;

#if VL == 16
	for (; i + 16 <= n; i += 16)
		_mm512_mask_storeu_epi16(
			to + 2 * i, 0x55555555u,
			_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(h + i))));
#endif
	for (; i < n; i++)
		to[2 * i] = h[i];
}

static void rotate(float *y, const float *x, const float *cs, const float *sn, unsigned pairs)
{
	unsigned i = 0;

	for (; i + VL <= pairs; i += VL) {
		vf a = v_load(x + i), b = v_load(x + pairs + i), c = v_load(cs + i),
		   s = v_load(sn + i);

		v_store(y + i, a * c - b * s);
		v_store(y + pairs + i, b * c + a * s);
	}
#if VL == 16
	if (i < pairs) { /* heads of 80 elements have 40 */
		const __mmask16 rest = (__mmask16)((1u << (pairs - i)) - 1);
		vf a = (vf)_mm512_maskz_loadu_ps(rest, x + i),
		   b = (vf)_mm512_maskz_loadu_ps(rest, x + pairs + i),
		   c = (vf)_mm512_maskz_loadu_ps(rest, cs + i),
		   s = (vf)_mm512_maskz_loadu_ps(rest, sn + i);

		_mm512_mask_storeu_ps(y + i, rest, (__m512)(a * c - b * s));
		_mm512_mask_storeu_ps(y + pairs + i, rest, (__m512)(b * c + a * s));
	}
#else
	for (; i < pairs; i++) {
		float a = x[i], b = x[pairs + i];

		y[i] = a * cs[i] - b * sn[i];
		y[pairs + i] = b * cs[i] + a * sn[i];
	}
#endif
}

static float row_max(const float *x, size_t n)
{
	vf top = v_set1(-INFINITY);
	float m;
	size_t i = 0;

	for (; i + VL <= n; i += VL) {
		vf v = v_load(x + i);

		top = v_select(v > top, v, top);
	}
	m = v_top(top);
	for (; i < n; i++)
		m = x[i] > m ? x[i] : m;
	return m;
}

static float sum_exp(const float *x, size_t n, float max)
{
	vf s[2] = {{0}, {0}}, top = v_set1(max);
	float tail[2 * VL];
	size_t i = 0;

	for (; i + 2 * VL <= n; i += 2 * VL)
		for (int j = 0; j < 2; j++)
			s[j] += v_exp(v_load(x + i + j * VL) - top);
	if (i < n) {
		for (size_t j = 0; j < 2 * VL; j++)
			tail[j] = i + j < n ? x[i + j] : -INFINITY;
		for (int j = 0; j < 2; j++)
			s[j] += v_exp(v_load(tail + j * VL) - top);
	}
	return v_sum(s[0] + s[1]);
}

static void add_rows(float *out, const float *a, const float *b, size_t n)
{
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(out + i, v_load(a + i) + v_load(b + i));
	for (; i < n; i++)
		out[i] = a[i] + b[i];
}

static void blend(float *out, float a, const float *x, float b, const float *y, size_t n)
{
	vf va = v_set1(a), vb = v_set1(b);
	size_t i = 0;

	for (; i + VL <= n; i += VL)
		v_store(out + i, va * v_load(x + i) + vb * v_load(y + i));
	for (; i < n; i++)
		out[i] = a * x[i] + b * y[i];
}

static size_t next_above(const float *x, size_t i, size_t n, float than)
{
	vf t = v_set1(than);

	for (; i + 4 * VL <= n; i += 4 * VL) {
		vf top = v_load(x + i);

		for (int j = 1; j < 4; j++) {
			vf v = v_load(x + i + j * VL);

			top = v_select((top > t) | ~(v > t), top, v);
		}
#if defined(__AVX512F__)
		if (_mm512_cmp_ps_mask((__m512)top, (__m512)t, _CMP_GT_OQ))
			break;
#elif defined(__AVX2__)
		if (_mm256_movemask_ps(_mm256_cmp_ps((__m256)top, (__m256)t, _CMP_GT_OQ)))
			break;
#else
		vi m = top > t;

		if (m[0] | m[1] | m[2] | m[3])
			break;
#endif
	}
	for (; i < n; i++)
		if (x[i] > than)
			return i;
	return n;
}
