/* SPDX-License-Identifier: MIT */
/*
 * Panel kernels of LINEAR with AVX2: weights of bf16, float16 and float32 with float32 activations,
 * W8 and W4 with int8 ones, and, with int16 ones, those of two levels and whatever else has no int8
 * activations. Included by path.c; see simd.h and the tile layouts of txda_layouts.h. F8 and MX4 are
 * in kern_avx2_group.h.
 *
 * Up to 12 of the 16 registers are sums: those of one or two rows and all 4 vectors of a panel's
 * width, or of up to 6 rows and 2 vectors. What is left holds weights, which all rows use as soon as
 * they are loaded, and an activation: so loads and conversions fit in beside the products.
 */

/* Calls BODY(rows, vectors, column, ...) until up to 6 rows have all 32 columns. */
#define AVX2_HALVES(rows, BODY, ...)                                                               \
	do {                                                                                       \
		ROLLED for (unsigned half = 0; half < 32; half += 16)                              \
			BODY(rows, 2, half, __VA_ARGS__);                                          \
	} while (0)

#define AVX2_ROWS 6
#define AVX2_CASES(BODY, ...)                                                                      \
	case 1: BODY(1, 4, 0, __VA_ARGS__); break;                                                 \
	case 2: BODY(2, 4, 0, __VA_ARGS__); break;                                                 \
	case 3: AVX2_HALVES(3, BODY, __VA_ARGS__); break;                                          \
	case 4: AVX2_HALVES(4, BODY, __VA_ARGS__); break;                                          \
	case 5: AVX2_HALVES(5, BODY, __VA_ARGS__); break;                                          \
	case 6: AVX2_HALVES(6, BODY, __VA_ARGS__); break

/*
 * The products and their operands from memory are inline assembly: compilers would keep constants, and
 * values that are loaded twice, in registers that the sums need, and spill the sums.
 */
#define FMA(sum, w, x)	   __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x))
#define BROADCAST(v, word) __asm__("vbroadcastss %1, %0" : "=x"(v) : "m"(word))

/* sum += w * x, products and sums of integers by two instructions. */
#define MADD(multiply, add, sum, w, x)                                                             \
	do {                                                                                       \
		__m256i product;                                                                   \
                                                                                                   \
		__asm__(multiply " %3, %2, %1\n\t" add " %1, %0, %0"                               \
			: "+x"(sum), "=&x"(product)                                                \
			: "x"(w), "x"(x));                                                         \
	} while (0)
/* The same for two vectors: the sums of 6 rows leave no other register. */
#define MADD_2(multiply, add, sum, w, word)                                                        \
	do {                                                                                       \
		__m256i other, product;                                                            \
                                                                                                   \
		__asm__("vpbroadcastd %6, %2\n\t" multiply " %2, %4, %3\n\t" add                   \
			" %3, %0, %0\n\t" multiply " %2, %5, %2\n\t" add " %2, %1, %1"             \
			: "+x"((sum)[0]), "+x"((sum)[1]), "=&x"(other), "=&x"(product)             \
			: "x"((w)[0]), "x"((w)[1]), "m"(word));                                    \
	} while (0)
/* sum[nv] += w[nv] * the word of a row */
#define MADD_ROW(multiply, add, nv, sum, w, word)                                                  \
	do {                                                                                       \
		__m256i row_word;                                                                  \
                                                                                                   \
		if (nv == 2) {                                                                     \
			MADD_2(multiply, add, sum, w, word);                                       \
		} else {                                                                           \
			BROADCAST(row_word, word);                                                 \
			EACH(vector, nv)                                                           \
				MADD(multiply, add, (sum)[vector], (w)[vector], row_word);         \
		}                                                                                  \
	} while (0)

/* Values read through @pointer before are loaded again after this. */
#define AGAIN(pointer) __asm__("" : "+r"(pointer))

#define TIMES_8(x)                                                                                 \
	{                                                                                          \
		x, x, x, x, x, x, x, x                                                             \
	}
static const uint32_t odd_elements[8] __attribute__((aligned(32))) = TIMES_8(0xffff0000);
static const uint32_t even_bytes[8] __attribute__((aligned(32))) = TIMES_8(0x00ff00ff);
static const uint32_t low_nibbles[8] __attribute__((aligned(32))) = TIMES_8(0x0f0f0f0f);
static const uint32_t pair_of_ones[8] __attribute__((aligned(32))) = TIMES_8(0x00010001);
static const uint32_t bit_4[8] __attribute__((aligned(32))) = TIMES_8(0x10101010);
static const uint32_t bits_4_and_5[8] __attribute__((aligned(32))) = TIMES_8(0x30303030);

V_INLINE __m256i masked(__m256i v, const uint32_t mask[8])
{
	__asm__("vpand %1, %0, %0" : "+x"(v) : "m"(*(const __m256i *)mask));
	return v;
}

/* Sums of two int16 each. */
V_INLINE __m256i pair_sums(__m256i v)
{
	__asm__("vpmaddwd %1, %0, %0" : "+x"(v) : "m"(*(const __m256i *)pair_of_ones));
	return v;
}

V_INLINE __m256i load_codes(const uint8_t *w)
{
	return _mm256_load_si256((const __m256i *)w);
}

/* ---- floats ---------------------------------------------------------------------------------- */

enum float_kind { FLOAT_BF16, FLOAT_F16, FLOAT_F32 };

/* Units of K, 8 KB of a panel at most, after which the next rows or columns follow: the first-level
 * cache holds them with their activations. */
#define FLOAT_STRETCH 64

V_INLINE unsigned float_bytes(const enum float_kind kind)
{
	return kind == FLOAT_F16 ? 64 : 128;
}

/* VL weights from column @c on: the even or the odd elements of pairs of bf16. */
V_INLINE vf float_weights(const enum float_kind kind, const uint8_t *w, unsigned c,
			  const unsigned odd)
{
	if (kind == FLOAT_F16)
		return v_load_f16((const uint16_t *)w + c);
	if (kind == FLOAT_F32)
		return v_load((const float *)w + c);
	if (odd)
		return (vf)masked(load_codes(w + 4 * c), odd_elements);
	return v_pair_even(*(const vu_any *)(w + 4 * c));
}

/* Units of K times rows: where they are, and what is prefetched meanwhile. */
struct float_pass {
	const uint8_t *w, *ahead;
	const float *x;
	float *acc;
	size_t n, pace;
	unsigned mr;
	bool first;
};

V_INLINE void float_rows(const unsigned rows, const unsigned nv, const unsigned column,
			 const enum float_kind kind, struct float_pass *p)
{
	const unsigned elements = kind == FLOAT_BF16 ? 2 : 1, mr = p->mr;
	const uint8_t *w = p->w, *ahead = p->ahead;
	const size_t pace = p->pace;
	const float *x = p->x;
	float *acc = p->acc + column;
	vf c[AVX2_ROWS][4];

	EACH(m, rows)
		EACH(v, nv)
			c[m][v] = p->first ? (vf){0} : v_load(acc + m * 32 + v * VL);
	for (size_t n = p->n; n; n--, w += float_bytes(kind)) {
		fetch_ahead(&ahead, pace, nv / 2);
		EACH(odd, elements) {
			vf u[4], xm;

			AGAIN(w);
			EACH(v, nv)
				u[v] = float_weights(kind, w, column + v * VL, odd);
			EACH(m, rows) {
				BROADCAST(xm, x[m]);
				EACH(v, nv)
					FMA(c[m][v], u[v], xm);
			}
			x += mr;
		}
	}
	EACH(m, rows)
		EACH(v, nv)
			v_store(acc + m * 32 + v * VL, c[m][v]);
	p->ahead = ahead;
}

V_INLINE void float_panel(const enum float_kind kind, const struct cm_panel *p)
{
	const unsigned words = kind == FLOAT_BF16 ? 2 : 1, mr = p->mr, steps = (mr + 5) / AVX2_ROWS;
	const size_t bytes = float_bytes(kind);
	struct float_pass pass = {
		.ahead = p->ahead,
		/* A pass of all or of half of the columns prefetches two lines, or one, for a unit. */
		.pace = (p->pace * bytes + 128 * steps - 1) / (128 * steps),
		.mr = mr,
	};

	for (size_t at = 0; at < p->n; at += FLOAT_STRETCH) {
		pass.w = p->w + at * bytes;
		pass.n = p->n - at < FLOAT_STRETCH ? p->n - at : FLOAT_STRETCH;
		pass.first = p->first && !at;
		for (unsigned m = 0; m < mr; m += AVX2_ROWS) {
			pass.x = (const float *)p->a + at * words * mr + m;
			pass.acc = p->acc + m * 32;
			switch (mr - m < AVX2_ROWS ? mr - m : AVX2_ROWS) {
				AVX2_CASES(float_rows, kind, &pass);
			}
		}
	}
}

static void panel_bf16(const struct cm_panel *p)
{
	float_panel(FLOAT_BF16, p);
}

static void panel_f16(const struct cm_panel *p)
{
	float_panel(FLOAT_F16, p);
}

static void panel_f32(const struct cm_panel *p)
{
	float_panel(FLOAT_F32, p);
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Blocks of 32 of K: weights, their scales, and activations. */
struct int_block {
	const uint8_t *w, *header;
	const uint32_t *a;
	unsigned mr;
	unsigned run; /* blocks: more than one for W8 with int8 activations */
	float *acc;
};

/* acc += s x sum: the rows' sums of columns from @column on, with scales of columns and of rows. */
V_INLINE void scale_sums(const unsigned rows, const unsigned nv, const unsigned column,
			 const struct int_block *b, vi d[][4], const vf s[4], const float *x)
{
	EACH(v, nv)
		EACH(m, rows) {
			float *to = b->acc + m * 32 + column + v * VL;

			v_store(to, v_fma(v_i2f(d[m][v]), s[v] * v_set1(x[m]), v_load(to)));
		}
}

/* The same with a group's scales. */
V_INLINE void scale_columns(const unsigned rows, const unsigned nv, const unsigned column,
			    const struct int_block *b, vi d[][4], const float *x)
{
	vf s[4];

	EACH(v, nv)
		s[v] = v_load_f16((const uint16_t *)b->header + column + v * VL);
	scale_sums(rows, nv, column, b, d, s, x);
}

/* Blocks of K that share a scale of int8 activations, if they also share those of the weights. */
#define I8_RUN (TXDA_I8_GROUP / TXDA_QUANT_BLOCK)

/* All blocks of a panel, up to @most at a time, by BLOCK(rows, vectors, column, type, blocks); @words
 * of activations for a row and block. */
#define INT_PANEL(BLOCK, words, p, type, most)                                                     \
	do {                                                                                       \
		struct int_block b = {.w = (p)->w, .a = (p)->a, .mr = (p)->mr, .acc = (p)->acc};   \
		const unsigned bytes = txda_tile_block_bytes(type);                                \
		const uint8_t *ahead = (p)->ahead;                                                 \
                                                                                                   \
		if ((p)->first)                                                                    \
			memset(b.acc, 0, b.mr * 32 * sizeof(float));                               \
		for (size_t n = (p)->n, left = 0; n; n -= b.run, left -= b.run) {                  \
			if (!left) {                                                               \
				b.header = b.w;                                                    \
				b.w += txda_tile_group_header(type);                               \
				left = (p)->group / 32;                                            \
				fetch_ahead(&ahead, (p)->pace, txda_tile_group_header(type) / 64); \
			}                                                                          \
			b.run = n < (most) ? (unsigned)n : (most);                                 \
			for (unsigned i = 0; i < b.run; i++)                                       \
				fetch_ahead(&ahead, (p)->pace, bytes / 64);                        \
			switch (b.mr) {                                                            \
				AVX2_CASES(BLOCK, type, &b);                                       \
			}                                                                          \
			b.w += b.run * bytes;                                                      \
			b.a += b.run * (words)*b.mr;                                               \
		}                                                                                  \
	} while (0)

#ifdef CM_VNNI
#include "kern_avx2_vnni.h"
#else
#define MADD_WORDS(nv, sum, w, word) MADD_ROW("vpmaddwd", "vpaddd", nv, sum, w, word)

/*
 * W4 with int8 activations: VPMADDUBSW multiplies codes by them and adds pairs of products, each at
 * most 15 * 127, so that int16 holds the sums of the 8 quads of a block: 30480. Only those are widened.
 */
V_INLINE void w4_block(const unsigned rows, const unsigned nv, const unsigned column,
		       const unsigned type, const struct int_block *b)
{
	const uint8_t *q = b->w + column * 4;
	const uint32_t *a = b->a;
	__m256i d[AVX2_ROWS][4];
	vi sum[AVX2_ROWS][4];

	(void)type;
	EACH(m, rows)
		EACH(v, nv)
			d[m][v] = _mm256_setzero_si256();
	for (unsigned j = 0; j < 4; j++, q += 128)
		EACH(high, 2) {
			__m256i u[4];

			AGAIN(q);
			EACH(v, nv) {
				u[v] = load_codes(q + v * 32);
				u[v] = masked(high ? _mm256_srli_epi16(u[v], 4) : u[v],
					      low_nibbles);
			}
			EACH(m, rows)
				MADD_ROW("vpmaddubsw", "vpaddw", nv, d[m], u, a[m]);
			a += b->mr;
		}
	EACH(m, rows) {
		vi zero = (vi)_mm256_set1_epi32((int)a[b->mr + m]);

		EACH(v, nv)
			sum[m][v] = (vi)pair_sums(d[m][v]) + zero;
	}
	scale_columns(rows, nv, column, b, sum, (const float *)a);
}

static void panel_w4(const struct cm_panel *p)
{
	INT_PANEL(w4_block, 10, p, TXDA_W4, 1u);
}
#endif
