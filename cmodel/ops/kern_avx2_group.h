/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels with AVX2 for weights in groups with float activations: F8 and MX4. Included by
 * kern_group.h.
 *
 * One or two rows use weights as they convert them; more take what unpack_group() has made of them.
 * Both multiply the same values in the same order, of nibbles that of the codes, so that a row has
 * the same bits in either.
 */

#define WORDS_PER_BLOCK 32

static const uint32_t f8_bits[8] __attribute__((aligned(32))) = TIMES_8(0x87f00000);
static const uint32_t mx4_bits[8] __attribute__((aligned(32))) = TIMES_8(0x81c00000);
static const uint32_t f8_magnitude[8] __attribute__((aligned(32))) = TIMES_8(0x7f7f7f7f);
static const float f8_exponent[8] __attribute__((aligned(32))) = TIMES_8(0x1p120f);
static const float mx4_exponent[8] __attribute__((aligned(32))) = TIMES_8(0x1p126f);

V_INLINE unsigned codes_per_word(const unsigned type)
{
	return type == TXDA_MX4 ? 8 : 4;
}

/* K, within that of a word, of its n-th code. */
V_INLINE unsigned code_k(const unsigned type, const unsigned n)
{
	return type == TXDA_MX4 ? n / 2 + (n & 1) * 4 : n;
}

/* Code @i of 8 columns at the top of each lane; what is below it varies. F8 has the first two of 4 columns
 * before the last two. */
V_INLINE __m256i code_on_top(const unsigned type, __m256i v, const unsigned i)
{
	if (type == TXDA_MX4)
		return i < 7 ? _mm256_slli_epi32(v, 28 - 4 * (int)i) : v;
	v = i < 2 ? _mm256_unpacklo_epi16(v, v) : _mm256_unpackhi_epi16(v, v);
	return i % 2 ? v : _mm256_slli_epi32(v, 8);
}

/*
 * The same as float, but for NaN: sign, exponent and mantissa move to their places; the multiplication
 * corrects the exponent, also of subnormals, which are subnormal floats before it.
 */
V_INLINE vf code_float(const unsigned type, __m256i v, const unsigned i)
{
	vf f;

	v = _mm256_srai_epi32(code_on_top(type, v, i), type == TXDA_MX4 ? 6 : 4);
	f = (vf)masked(v, type == TXDA_MX4 ? mx4_bits : f8_bits);
	__asm__("vmulps %1, %0, %0"
		: "+x"(f)
		: "m"(*(const vf *)(type == TXDA_MX4 ? mx4_exponent : f8_exponent)));
	return f;
}

/* The bytes that are NaN in F8 are all ones, the others 0. */
V_INLINE __m256i f8_nan(__m256i v)
{
	v = masked(v, f8_magnitude);
	__asm__("vpcmpeqb %1, %0, %0" : "+x"(v) : "m"(*(const __m256i *)f8_magnitude));
	return v;
}

/* acc += s x sum */
V_INLINE void add_scaled(const unsigned rows, const unsigned nv, float *acc, vf d[][4],
			 const vf s[4])
{
	EACH(m, rows)
		EACH(v, nv) {
			float *to = acc + m * 32 + v * VL;

			v_store(to, v_fma(s[v], d[m][v], v_load(to)));
		}
}

/* Of 8 columns, sets the sums of those to NaN that have a weight of NaN in the block at @w. */
V_INLINE void spoil(const unsigned rows, vf d[][4], const unsigned v, const uint8_t *w)
{
	__m256i nan = _mm256_setzero_si256();
	vi spoiled;

	for (unsigned j = 0; j < 8; j++)
		nan = _mm256_or_si256(nan, f8_nan(load_codes(w + j * 128)));
	nan = _mm256_or_si256(_mm256_unpacklo_epi16(nan, nan), _mm256_unpackhi_epi16(nan, nan));
	spoiled = (vi)nan != 0;
	EACH(m, rows)
		d[m][v] = (vf)((vi)d[m][v] | spoiled);
}

/* ---- one or two rows ---- */

#define CODES_ROWS 2

V_INLINE void code_block(const unsigned rows, const unsigned nv, const unsigned column,
			 const unsigned type, const struct int_block *b)
{
	const unsigned per = codes_per_word(type), mr = b->mr;
	const uint8_t *q = b->w + column * 4;
	const float *x = (const float *)b->a;
	__m256i nan = _mm256_setzero_si256();
	vf d[AVX2_ROWS][4], s[4];

	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = (vf){0};
	ROLLED
	for (unsigned j = 0; j < 32 / per; j++, q += 128, x += per * mr)
		EACH(i, per) {
			vf u[4], xm;

			AGAIN(q);
			EACH(v, nv) {
				__m256i words = load_codes(q + v * 32);

				if (type == TXDA_F8 && i == 0)
					nan = _mm256_or_si256(nan, f8_nan(words));
				u[v] = code_float(type, words, i);
			}
			EACH(m, rows) {
				BROADCAST(xm, x[code_k(type, i) * mr + m]);
				EACH(v, nv)
					FMA(d[m][v], u[v], xm);
			}
		}
	if (type == TXDA_F8 && !_mm256_testz_si256(nan, nan))
		EACH(v, nv)
			spoil(rows, d, v, b->w + (column + v * VL) * 4);
	EACH(v, nv)
		s[v] = group_scale((struct group_kind){.dtype = type}, b->header, column + v * VL);
	add_scaled(rows, nv, b->acc + column, d, s);
}

/* ---- more rows ---- */

/* @nan: f8_nan() of @v. */
V_INLINE vf code_float_or_nan(const unsigned type, __m256i v, const unsigned i, __m256i nan)
{
	return (vf)((vi)code_float(type, v, i) | (vi)code_on_top(type, nan, i) >> 31);
}

/* Codes @i and @i + 1 as a pair of bf16. */
V_INLINE __m256i code_pair(const unsigned type, __m256i v, const unsigned i)
{
	__m256i even = (__m256i)code_float(type, v, i), odd = (__m256i)code_float(type, v, i + 1);
	__m256i nan = f8_nan(v);

	if (type == TXDA_F8 && !_mm256_testz_si256(nan, nan)) {
		even = (__m256i)code_float_or_nan(type, v, i, nan);
		odd = (__m256i)code_float_or_nan(type, v, i + 1, nan);
	}
	return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
}

V_INLINE void unpack_panel(const unsigned type, uint8_t *to, const struct cm_panel *p)
{
	const unsigned per = codes_per_word(type);
	const uint8_t *w = p->w, *header = w;

	for (size_t n = p->n, left = 0; n; n--, left--, to += 128) {
		if (!left) {
			header = w;
			w += txda_tile_group_header(type);
			left = p->group / 32;
		}
		for (unsigned k = 0; k < 32; k += per, w += 128, to += 64 * per)
			for (unsigned v = 0; v < 4; v++)
				EACH(i, per / 2)
					_mm256_store_si256(
						(__m256i *)(to + i * 128 + v * 32),
						code_pair(type, load_codes(w + v * 32), 2 * i));
		EACH(v, 4)
			v_store((float *)to + v * VL,
				group_scale((struct group_kind){.dtype = type}, header, v * VL));
	}
}

static void unpack_group(uint8_t *to, const struct cm_panel *p)
{
	if (p->dtype == TXDA_MX4)
		unpack_panel(TXDA_MX4, to, p);
	else
		unpack_panel(TXDA_F8, to, p);
}

V_INLINE void pair_block(const unsigned rows, const unsigned nv, const unsigned column,
			 const unsigned type, const struct int_block *b)
{
	const uint8_t *q = b->w;
	const float *x = (const float *)b->a;
	const unsigned mr = b->mr;
	vf d[AVX2_ROWS][4], s[4];

	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = (vf){0};
	ROLLED
	for (unsigned k = 0; k < 32; k += 8, q += 4 * 128, x += 8 * mr)
		EACH(i, 8) {
			vf u[4], xm;

			AGAIN(q);
			EACH(v, nv)
				u[v] = float_weights(FLOAT_BF16, q + i / 2 * 128, column + v * VL,
						     i % 2);
			EACH(m, rows) {
				BROADCAST(xm, x[code_k(type, i) * mr + m]);
				EACH(v, nv)
					FMA(d[m][v], u[v], xm);
			}
		}
	EACH(v, nv)
		s[v] = v_load((const float *)q + column + v * VL);
	add_scaled(rows, nv, b->acc + column, d, s);
}

V_INLINE void codes_panel(const unsigned type, const bool unpacked, const struct cm_panel *p)
{
	struct int_block b = {
		.w = unpacked ? p->unpacked : p->w, .a = p->a, .mr = p->mr, .acc = p->acc};
	const unsigned header = txda_tile_group_header(type), bytes = txda_tile_block_bytes(type);
	const uint8_t *ahead = p->ahead;

	if (p->first)
		memset(b.acc, 0, b.mr * 32 * sizeof(float));
	for (size_t n = p->n, left = 0; n; n--, left--) {
		if (!left) {
			b.header = b.w;
			b.w += unpacked ? 0 : header;
			left = p->group / 32;
			fetch_ahead(&ahead, p->pace, header / 64);
		}
		fetch_ahead(&ahead, p->pace, bytes / 64);
		/* Up to CODES_ROWS rows: see cm_simd.unpack_rows. */
		if (!unpacked && b.mr == 1)
			code_block(1, 4, 0, type, &b);
		else if (!unpacked)
			code_block(2, 4, 0, type, &b);
		else
			switch (b.mr) {
				AVX2_CASES(pair_block, type, &b);
			}
		b.w += unpacked ? CM_UNPACKED_BYTES : bytes;
		b.a += WORDS_PER_BLOCK * b.mr;
	}
}

/* One function per type and form, to limit stack frames. */
#define CODES_PANEL(name, type, unpacked)                                                          \
	static void name(const struct cm_panel *p)                                                 \
	{                                                                                          \
		codes_panel(type, unpacked, p);                                                    \
	}
CODES_PANEL(codes_f8, TXDA_F8, false)
CODES_PANEL(codes_mx4, TXDA_MX4, false)
CODES_PANEL(unpacked_f8, TXDA_F8, true)
CODES_PANEL(unpacked_mx4, TXDA_MX4, true)

static void panel_group(const struct cm_panel *p)
{
	if (p->dtype == TXDA_MX4)
		(p->unpacked ? unpacked_mx4 : codes_mx4)(p);
	else
		(p->unpacked ? unpacked_f8 : codes_f8)(p);
}
