/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels with AVX2 for activations as words, pairs of int16: int16 ones (see kern_two_level.h
 * for the sums) and the int8 ones of W8, since VPMADDUBSW does not hold the sum of two products of
 * bytes. Included by kern_two_level.h.
 */

/* Words of a row in a block of int8 activations, and where its scale is and what its sums begin with. */
#ifdef CM_VNNI
#define I8_WORDS 10
#else
#define I8_WORDS 18 /* as with int16, but one sum */
#endif
#define I8_SCALE (I8_WORDS - 2)
#define I8_ZERO	 (I8_WORDS - 1)

/* Quads of an unrolled step, which share loads: of nibbles two, and of the codes' upper bits as many as
 * one byte of them holds. */
V_INLINE unsigned quads_per_step(const unsigned type)
{
	return type == TXDA_W5M ? 8 : type == TXDA_W6S ? 4 : 2;
}

/* Quad @t of 8 columns. */
V_INLINE __m256i codes(const unsigned type, const uint8_t *q, const unsigned t)
{
	const int left = HIGH_LEFT(type, t);
	__m256i v, high;

	if (txda_tile_block_bytes(type) == 1024)
		return load_codes(q + t * 128);
	v = load_codes(q + t / 2 * 128);
	v = masked(t % 2 ? _mm256_srli_epi16(v, 4) : v, low_nibbles);
	if (type != TXDA_W5M && type != TXDA_W6S)
		return v;
	high = load_codes(q + HIGH_BYTES(type, t));
	high = left > 0 ? _mm256_slli_epi16(high, left) : _mm256_srli_epi16(high, -left);
	return _mm256_or_si256(v, masked(high, type == TXDA_W6S ? bits_4_and_5 : bit_4));
}

/* d += quads [first, first + n) of a block times words of the rows: even elements, then odd ones. */
V_INLINE void word_dots(const unsigned rows, const unsigned nv, const unsigned type, vi d[][4],
			const uint8_t *q, const struct int_block *b, const unsigned first,
			const unsigned n)
{
	const unsigned step = quads_per_step(type), mr = b->mr;
	const unsigned bytes = txda_tile_block_bytes(type) == 1024 ? 128 : 64; /* of a quad */
	const uint32_t *x = b->a + 2 * first * mr;

	ROLLED
	for (unsigned t = 0; t < n; t += step, q += step * bytes)
		EACH(i, 2 * step) {
			__m256i u[4];

			AGAIN(q);
			EACH(v, nv) {
				u[v] = codes(type, q + v * 32, first + i / 2);
				u[v] = i % 2 ? _mm256_srli_epi16(u[v], 8)
					     : masked(u[v], even_bytes);
			}
			EACH(m, rows)
				MADD_WORDS(nv, d[m], u, x[m]);
			x += mr;
		}
}

/* Sum of the integers of row @m, or of its half. */
V_INLINE int32_t half_sum(const struct int_block *b, unsigned m, unsigned half)
{
	return (int32_t)b->a[I16_SUM(b->mr) + half * b->mr + m];
}

V_INLINE int32_t row_sum(const struct int_block *b, unsigned m)
{
	return half_sum(b, m, 0) + half_sum(b, m, 1);
}

V_INLINE void two_level_minimums(const unsigned rows, const unsigned nv, const unsigned column,
				 const unsigned type, const struct int_block *b)
{
	const float *x = (const float *)b->a + I16_SCALE(b->mr);
	vi d[AVX2_ROWS][4];

	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = (vi){0};
	word_dots(rows, nv, type, d, b->w + 64 + column * 4, b, 0, 8);
	EACH(v, nv) {
		const unsigned c = column + v * VL;
		vf s = two_level_scale(b->header + 2 * c, b->w + c, false),
		   min = two_level_scale(b->header + 64 + 2 * c, b->w + 32 + c, false);

		EACH(m, rows) {
			vf sum = v_fma(v_i2f(d[m][v]), s, -(v_set1((float)row_sum(b, m)) * min));
			float *to = b->acc + m * 32 + c;

			v_store(to, v_fma(sum, v_set1(x[m]), v_load(to)));
		}
	}
}

V_INLINE void two_level_halves(const unsigned rows, const unsigned nv, const unsigned column,
			       const unsigned type, const struct int_block *b)
{
	EACH(part, 2) {
		vi d[AVX2_ROWS][4];
		vf s[4];

		EACH(m, rows)
			EACH(v, nv)
				d[m][v] = (vi)_mm256_set1_epi32(-32 * half_sum(b, m, part));
		word_dots(rows, nv, type, d, b->w + 64 + column * 4, b, part * 4, 4);
		EACH(v, nv)
			s[v] = two_level_scale(b->header + 2 * (column + v * VL),
					       b->w + part * 32 + column + v * VL, true);
		scale_sums(rows, nv, column, b, d, s, (const float *)b->a + I16_SCALE(b->mr));
	}
}

/* W8 and W4, and with a zero point for each column W8Z and W4Z. */
V_INLINE void one_level_block(const unsigned rows, const unsigned nv, const unsigned column,
			      const unsigned type, const struct int_block *b)
{
	typedef int16_t vs __attribute__((vector_size(VL * 2), aligned(2)));
	const bool zeros = txda_tile_group_header(type) == 128;
	const float *x = (const float *)b->a + I16_SCALE(b->mr);
	vi d[AVX2_ROWS][4];

	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = (vi)_mm256_set1_epi32((txda_is_nibbles(type) ? -8 : -128) *
							row_sum(b, m));
	word_dots(rows, nv, type, d, b->w + column * 4, b, 0, 8);
	EACH(v, nv) {
		const unsigned c = column + v * VL;
		vf s = v_load_f16((const uint16_t *)b->header + c), z = {0};

		if (zeros)
			z = v_i2f(__builtin_convertvector(
				*(const vs *)((const int16_t *)(b->header + 64) + c), vi));
		EACH(m, rows) {
			float *to = b->acc + m * 32 + c;
			vf sum = v_i2f(d[m][v]);

			if (zeros)
				sum = v_fma(-z, v_set1((float)row_sum(b, m)), sum);
			v_store(to, v_fma(sum, s * v_set1(x[m]), v_load(to)));
		}
	}
}

#define I16_PANEL(name, type)                                                                      \
	static void name(const struct cm_panel *p)                                                 \
	{                                                                                          \
		if (type == TXDA_W6S) {                                                            \
			INT_PANEL(two_level_halves, 19, p, type, 1u);                              \
		} else if (txda_is_two_level(type)) {                                              \
			INT_PANEL(two_level_minimums, 19, p, type, 1u);                            \
		} else {                                                                           \
			INT_PANEL(one_level_block, 19, p, type, 1u);                               \
		}                                                                                  \
	}

/*
 * W8 with int8 activations, and W4 with AVX-VNNI: the sums of @b->run blocks, which have one scale, are
 * scaled together.
 */
V_INLINE void i8_block(const unsigned rows, const unsigned nv, const unsigned column,
		       const unsigned type, const struct int_block *b)
{
	struct int_block at = *b;
	vi d[AVX2_ROWS][4];

	EACH(m, rows) {
		uint32_t zero = 0;

		for (unsigned i = 0; i < b->run; i++)
			zero += b->a[(I8_WORDS * i + I8_ZERO) * b->mr + m];
		EACH(v, nv)
			d[m][v] = (vi)_mm256_set1_epi32((int)zero);
	}
	for (unsigned i = 0; i < b->run; i++) {
#ifdef CM_VNNI
		byte_dots(rows, nv, type, d, at.w + column * 4, at.a, b->mr);
#else
		word_dots(rows, nv, type, d, at.w + column * 4, &at, 0, 8);
#endif
		at.w += txda_tile_block_bytes(type);
		at.a += I8_WORDS * b->mr;
	}
	scale_columns(rows, nv, column, b, d, (const float *)b->a + I8_SCALE * b->mr);
}

static void panel_w8(const struct cm_panel *p)
{
	INT_PANEL(i8_block, I8_WORDS, p, TXDA_W8, p->group < TXDA_I8_GROUP ? 1 : I8_RUN);
}

#ifdef CM_VNNI
static void panel_w4(const struct cm_panel *p)
{
	INT_PANEL(i8_block, I8_WORDS, p, TXDA_W4, p->group < TXDA_I8_GROUP ? 1 : I8_RUN);
}
#endif
