/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels with AVX2 for weights in groups with float activations: F8 and MX4. Included by
 * kern_group.h.
 *
 * One or two rows use weights as they convert them; more take what unpack_group() has made of them.
 * Both multiply the same values in the same order, so that a row has the same bits in either.
 */

#define WORDS_PER_BLOCK 32
#define GROUP_MR	AVX2_ROWS

static const uint32_t f8_bits[8] __attribute__((aligned(32))) = TIMES_8(0xbf80bf80);
static const uint32_t f8_magnitude[8] __attribute__((aligned(32))) = TIMES_8(0x7f7f7f7f);

/* MX4 times 2, which are integers; in both halves, as VPSHUFB wants it. */
#define MX4_TWICE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
static const int8_t mx4_twice[32] __attribute__((aligned(32))) = {MX4_TWICE, MX4_TWICE};

/* Rows of q of a block: they have 4 K of F8, or 8 of MX4, the first 4 in the low nibbles. */
V_INLINE unsigned rows_of_codes(const unsigned type)
{
	return type == TXDA_MX4 ? 4 : 8;
}

/*
 * 4 K of 8 columns, in both types times a power of 2. No step has subnormal floats: Intel's processors
 * take a hundred cycles for a product of one.
 *   MX4: twice the values as int8
 *   F8:  2^-8 times the values as float16, K 0 of all columns and then K 2 in words[0], K 1 and 3 in
 *        words[1]
 */
struct code_words {
	__m256i words[2];
};

V_INLINE struct code_words code_words(const unsigned type, __m256i v, const unsigned half)
{
	struct code_words c;

	if (type == TXDA_MX4) {
		v = masked(half ? _mm256_srli_epi16(v, 4) : v, low_nibbles);
		c.words[0] = _mm256_shuffle_epi8(load_codes((const uint8_t *)mx4_twice), v);
		return c;
	}
	/* Of 4 columns, the first two K stand before the last two. */
	v = _mm256_permute4x64_epi64(v, 0xd8);
	c.words[0] = masked(_mm256_srai_epi16(_mm256_slli_epi16(v, 8), 1), f8_bits);
	c.words[1] = masked(_mm256_srai_epi16(v, 1), f8_bits);
	return c;
}

/* K @i of these 4, but for NaN. */
V_INLINE vf code_float(const unsigned type, const struct code_words c, const unsigned i)
{
	__m256i v = c.words[0];

	if (type == TXDA_MX4) {
		v = i < 3 ? _mm256_slli_epi32(v, 24 - 8 * (int)i) : v;
		return (vf)_mm256_cvtepi32_ps(_mm256_srai_epi32(v, 24));
	}
	v = c.words[i % 2];
	return (vf)_mm256_cvtph_ps(i < 2 ? _mm256_castsi256_si128(v)
					 : _mm256_extracti128_si256(v, 1));
}

/* What these values, or sums of products with them, are to be multiplied by. */
V_INLINE vf code_factor(const unsigned type)
{
	return v_set1(type == TXDA_MX4 ? 0.5f : 256);
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

#define UNPACK_ROWS 2

V_INLINE void code_block(const unsigned rows, const unsigned nv, const unsigned column,
			 const unsigned type, const struct int_block *b)
{
	const unsigned n = rows_of_codes(type), mr = b->mr;
	const uint8_t *q = b->w + column * 4;
	const float *x = (const float *)b->a;
	__m256i top = _mm256_setzero_si256(); /* the largest magnitudes */
	vf d[AVX2_ROWS][4], s[4];

	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = (vf){0};
	ROLLED
	for (unsigned j = 0; j < n; j++, q += 128)
		EACH(half, 8 / n) {
			struct code_words c[4];

			AGAIN(q);
			EACH(v, nv) {
				__m256i row = load_codes(q + v * 32);

				c[v] = code_words(type, row, half);
				if (type == TXDA_F8)
					top = _mm256_max_epu8(top, masked(row, f8_magnitude));
			}
			EACH(i, 4) {
				vf xm[UNPACK_ROWS];

				EACH(m, rows)
					BROADCAST(xm[m], x[i * mr + m]);
				EACH(v, nv) {
					vf u = code_float(type, c[v], i);

					EACH(m, rows)
						FMA(d[m][v], u, xm[m]);
				}
			}
			x += 4 * mr;
		}
	top = f8_nan(top);
	if (type == TXDA_F8 && !_mm256_testz_si256(top, top))
		EACH(v, nv)
			spoil(rows, d, v, b->w + (column + v * VL) * 4);
	EACH(v, nv)
		s[v] = group_scale((struct group_kind){.dtype = type}, b->header, column + v * VL);
	EACH(m, rows)
		EACH(v, nv)
			d[m][v] *= code_factor(type);
	add_scaled(rows, nv, b->acc + column, d, s);
}

/* ---- more rows ---- */

/* K @i and @i + 1 of @c as a pair of bf16; @nan: their f8_nan(). */
V_INLINE __m256i code_pair(const unsigned type, const struct code_words c, const unsigned i,
			   __m256i nan)
{
	__m256i even = (__m256i)(code_float(type, c, i) * code_factor(type));
	__m256i odd = (__m256i)(code_float(type, c, i + 1) * code_factor(type));
	__m256i pair = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);

	if (type == TXDA_MX4)
		return pair;
	/* each byte of @nan to the two of its element */
	nan = i ? _mm256_unpackhi_epi8(nan, nan) : _mm256_unpacklo_epi8(nan, nan);
	return _mm256_or_si256(pair, nan);
}

V_INLINE void unpack_panel(const unsigned type, uint8_t *to, const struct cm_panel *p)
{
	const unsigned rows = rows_of_codes(type);
	const uint8_t *w = p->w, *header = w;

	for (size_t n = p->n, left = 0; n; n--, left--, to += 128) {
		if (!left) {
			header = w;
			w += txda_tile_group_header(type);
			left = p->group / 32;
		}
		for (unsigned j = 0; j < rows; j++, w += 128)
			EACH(half, 8 / rows) {
				for (unsigned v = 0; v < 4; v++) {
					__m256i row = load_codes(w + v * 32);
					struct code_words c = code_words(type, row, half);

					EACH(i, 2)
						_mm256_store_si256(
							(__m256i *)(to + i * 128 + v * 32),
							code_pair(type, c, 2 * i, f8_nan(row)));
				}
				to += 256;
			}
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
			 const struct int_block *b)
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
				BROADCAST(xm, x[i * mr + m]);
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
		/* Up to UNPACK_ROWS rows: see cm_simd.unpack_rows. */
		if (!unpacked && b.mr == 1)
			code_block(1, 4, 0, type, &b);
		else if (!unpacked)
			AVX2_HALVES(2, code_block, type, &b);
		else
			switch (b.mr) {
				AVX2_CASES(pair_block, &b);
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
