/* SPDX-License-Identifier: MIT */
/*
 * One split of attention for up to CM_ATT_ROWS query rows that share a KV head. Included by path.c;
 * see simd.h and the cache layout of txda_isa.h.
 *
 * Online softmax (Milakov and Gimelshein 2018) over tiles of CM_ATT_TILE keys. A tile in which a
 * row sees no key does not change that row's state (with AMX only the sign of a 0 may change), so
 * that rows of different positions can share a call. Probabilities are rounded to bfloat16 for
 * the product with V; their sum is not.
 */

#define GROUPS (CM_ATT_TILE / 16) /* groups of 16 keys in a tile */

/* Words of a row of p_pack, which the tiles of AMX share with the vectors. */
#if defined(CM_BF16_DOT)
#define P_ROW (CM_ATT_TILE / 2)
#else
#define P_ROW CM_ATT_TILE
#endif

/* Rows that a kernel takes next if @rows are left: the shares of a tile differ by one at most. */
#define ATT_SHARE(rows)                                                                            \
	(((rows) + ((rows) + ATT_ROWS - 1) / ATT_ROWS - 1) / (((rows) + ATT_ROWS - 1) / ATT_ROWS))

V_INLINE vi lane_numbers(void)
{
	static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

	return *(const vi_any *)lanes;
}

struct tile {
	const uint32_t *k[GROUPS];			  /* [D'/2][16] pairs */
	const uint32_t *v[GROUPS];			  /* [8][D'] pairs */
	bool paced;					  /* see find_next() */
	const uint32_t *next_k[GROUPS];			  /* k of the next tile, or NULL */
	unsigned groups;				  /* that have a key before a->to */
	uint32_t at;					  /* first key */
	float k_scale[CM_ATT_TILE], v_scale[CM_ATT_TILE]; /* int8: of each key; 0 past the last */
};

/* int8 to bf16, which is exact. @n is a multiple of 32. */
V_INLINE void widen_i8(uint16_t *to, const int8_t *q, size_t n)
{
	for (size_t i = 0; i < n; i += 2 * VL) {
		vf v0 = v_i2f(v_load_i8(q + i)), v1 = v_i2f(v_load_i8(q + i + VL));

#if defined(CM_BF16_DOT) && VL == 16
		_mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh((__m512)v1, (__m512)v0));
#else
		*(vh_any *)(to + i) = __builtin_convertvector((vu)v0 >> 16, vh);
		*(vh_any *)(to + i + VL) = __builtin_convertvector((vu)v1 >> 16, vh);
#endif
	}
}

/* A group of 16 keys: elements as bf16 in scratch, scales beside them. */
static void tile_widen(const struct cm_attend *a, const uint8_t *block, uint32_t in, unsigned g,
		       struct tile *t)
{
	size_t dim = a->v_stride, n = dim * 16;
	const int8_t *q = (const int8_t *)block;
	const float *scale = (const float *)(block + 2 * dim * a->block_size) + in;
	uint16_t *k = a->kv_pack + g * n, *v = a->kv_pack + (GROUPS + g) * n;
	uint32_t left = a->to - (t->at + g * 16);

	widen_i8(k, q + in / 16 * n, n);
	widen_i8(v, q + dim * a->block_size + in / 2 * dim * 2, n);
	t->k[g] = (const uint32_t *)k;
	t->v[g] = (const uint32_t *)v;
	for (unsigned i = 0; i < 16; i++) {
		t->k_scale[g * 16 + i] = i < left ? scale[i] : 0;
		t->v_scale[g * 16 + i] = i < left ? scale[a->block_size + i] : 0;
	}
}

/* VL elements of two keys side by side, the first @n of each key times its latent scale. */
V_INLINE void widen_pair(uint16_t *to, const int8_t *q, int32_t n, const float latent[2],
			 const float rope[2])
{
	vi pairs = (vi) __builtin_convertvector(*(const vh_any *)q, vu), first = lane_numbers() < n;
	vf even = v_i2f(pairs << 24 >> 24), odd = v_i2f(pairs << 16 >> 24);

	even *= v_select(first, v_set1(latent[0]), v_set1(rope[0]));
	odd *= v_select(first, v_set1(latent[1]), v_set1(rope[1]));
	*(vu_any *)to = v_bf16_bits(even) | v_bf16_bits(odd) << 16;
}

/* The same of latent vectors, with their scales: from here on they are handled as bf16. */
static void tile_widen_latent(const struct cm_attend *a, const uint8_t *block, uint32_t in,
			      unsigned g, struct tile *t)
{
	size_t dim = a->v_stride;
	const int8_t *q = (const int8_t *)block + in / 2 * dim * 2;
	const float *scale = (const float *)(block + dim * a->block_size) + in;
	uint16_t *to = a->kv_pack + g * dim * 16;
	uint32_t left = a->to - (t->at + g * 16);
	float latent[16], rope[16];

	t->v[g] = (const uint32_t *)to;
	for (unsigned i = 0; i < 16; i++) {
		latent[i] = i < left ? scale[i] : 0;
		rope[i] = i < left ? scale[a->block_size + i] : 0;
	}
	for (unsigned i = 0; i < 16; i += 2, q += 2 * dim, to += 2 * dim)
		for (size_t d = 0; d < dim; d += VL)
			widen_pair(to + 2 * d, q + 2 * d, (int32_t)a->dim - (int32_t)d, latent + i,
				   rope + i);
}

static void tile_find(const struct cm_attend *a, uint32_t at, struct tile *t)
{
	uint64_t dim = TXDA_KV_DIM(a->dim);

	t->at = at;
	t->groups = 0;
	if (a->i8)
		memset(t->v_scale, 0, sizeof(t->v_scale));
	for (unsigned g = 0; g < GROUPS && at + g * 16 < a->to; g++, t->groups++) {
		uint32_t p = at + g * 16;
		const uint8_t *block = a->cache + (uint64_t)(uint32_t)a->blocks[p / a->block_size] *
							  a->block_stride;
		uint32_t in = p % a->block_size;

		if (a->rope && a->latent_i8) {
			tile_widen_latent(a, block, in, g, t);
			continue;
		}
		if (a->rope) {
			t->v[g] = (const uint32_t *)block + in / 2 * a->v_stride;
			continue;
		}
		if (a->i8) {
			tile_widen(a, block, in, g, t);
			continue;
		}
		t->k[g] = (const uint32_t *)block + in / 16 * dim * 8;
		t->v[g] = (const uint32_t *)block + a->block_size * dim / 2 + in / 2 * dim;
	}
}

/*
 * Products of pairs: 16 lanes of K or V pairs times one pair of q or p of each row. Rows of q and p
 * stand one after the other: with CM_BF16_DOT a pair is a word, and float32 queries have two rows of
 * them, high halves and low ones; else rows are floats.
 *
 * ATT_ROWS rows times ATT_VECTORS() vectors of keys or values are what the registers hold.
 */
#if defined(CM_BF16_DOT) && VL == 16
typedef __m512 dotacc;
#define DOT_ZERO	  _mm512_setzero_ps()
#define DOT_WORDS	  1 /* words of a pair */
#define WIDE_ROWS	  2 /* rows of a float32 query */
#define ATT_ROWS	  6
#define ATT_VECTORS(rows) 4u

/* c[r][v] += the words at w[v] times the pair at x + r * row */
V_INLINE void dot_pairs(const unsigned rows, const unsigned vectors, dotacc c[][8],
			const uint32_t *const *w, const uint32_t *x, size_t row)
{
	__m512i one, held[8];

	/* Rows or vectors, whichever are fewer, stay in registers. */
	EACH(i, rows < vectors ? rows : vectors) {
		held[i] = rows < vectors ? _mm512_set1_epi32((int)x[i * row])
					 : _mm512_loadu_si512(w[i]);
		KEEP(held[i]);
	}
	EACH(j, rows < vectors ? vectors : rows) {
		one = rows < vectors ? _mm512_loadu_si512(w[j])
				     : _mm512_set1_epi32((int)x[j * row]);
		KEEP(one);
		EACH(i, rows < vectors ? rows : vectors) {
			dotacc *to = rows < vectors ? &c[i][j] : &c[j][i];

			*to = _mm512_dpbf16_ps(*to, (__m512bh)(rows < vectors ? one : held[i]),
					       (__m512bh)(rows < vectors ? held[i] : one));
		}
	}
}

V_INLINE dotacc dot_load(const float *p, float times)
{
	return _mm512_mul_ps(_mm512_loadu_ps(p), _mm512_set1_ps(times));
}

V_INLINE void dot_store(float *p, dotacc c)
{
	_mm512_storeu_ps(p, c);
}

#else
struct dotacc {
	vf v[16 / VL];
};
typedef struct dotacc dotacc;
#define DOT_ZERO ((dotacc){0})
#if VL == 8
#define ATT_VECTORS(rows) ((rows) == 1 ? 4u : (rows) == 2 ? 2u : 1u)
#else
#define ATT_VECTORS(rows) (VL == 16 ? 2u : 1u)
#endif

#if defined(CM_BF16_DOT)
#define DOT_WORDS 1
#define WIDE_ROWS 2
#define ATT_ROWS  6

V_INLINE void dot_pairs(const unsigned rows, const unsigned vectors, dotacc c[][8],
			const uint32_t *const *w, const uint32_t *x, size_t row)
{
	EACH(v, vectors)
		EACH(i, 16 / VL) {
			vu u = *(const vu_any *)(w[v] + i * VL);

			EACH(r, rows)
				c[r][v].v[i] = v_dot_bf16(c[r][v].v[i], u, x[r * row]);
		}
}
#else
#define DOT_WORDS 2
#define WIDE_ROWS 1
#if defined(CM_NEON)
#define ATT_ROWS 4
#else
#define ATT_ROWS (VL == 16 ? 8 : VL == 8 ? 6 : 2)
#endif

#if VL == 8
V_INLINE void dot_pairs(const unsigned rows, const unsigned vectors, dotacc c[][8],
			const uint32_t *const *w, const uint32_t *x, size_t row)
{
	const unsigned holds = vectors > 1 ? rows : 0; /* rows in registers for all vectors */

	EACH(odd, 2) {
		vf held[2], one, u[2];

		EACH(r, holds)
			BROADCAST(held[r], x[r * row + odd]);
		EACH(v, vectors) {
			const uint32_t *from = w[v];

			AGAIN(from);
			EACH(i, 2)
				u[i] = float_weights(FLOAT_BF16, (const uint8_t *)from, i * VL,
						     odd);
			EACH(r, rows) {
				if (holds)
					one = held[r];
				else
					BROADCAST(one, x[r * row + odd]);
				EACH(i, 2)
					FMA(c[r][v].v[i], u[i], one);
			}
		}
	}
}
#else
V_INLINE void dot_pairs(const unsigned rows, const unsigned vectors, dotacc c[][8],
			const uint32_t *const *w, const uint32_t *x, size_t row)
{
	const float *f = (const float *)x;

	EACH(v, vectors)
		EACH(i, 16 / VL) {
			vu u = *(const vu_any *)(w[v] + i * VL);
			vf even = v_pair_even(u), odd = v_pair_odd(u);

			EACH(r, rows)
				c[r][v].v[i] = v_fma(odd, v_set1(f[r * row + 1]),
						     v_fma(even, v_set1(f[r * row]), c[r][v].v[i]));
		}
}
#endif
#endif

V_INLINE dotacc dot_load(const float *p, float times)
{
	dotacc c;

	EACH(i, 16 / VL)
		c.v[i] = v_load(p + i * VL) * v_set1(times);
	return c;
}

V_INLINE void dot_store(float *p, dotacc c)
{
	EACH(i, 16 / VL)
		v_store(p + i * VL, c.v[i]);
}
#endif

/* scores[r][16 g ..] = q . k for @rows rows from @r0 and @groups groups of keys from @g0; one that
 * the tile does not have is the last again, and masked later. */
V_INLINE void score_rows(const unsigned rows, const unsigned groups, const struct cm_attend *a,
			 const struct tile *t, unsigned r0, unsigned g0)
{
	const unsigned terms = a->q_f32 ? WIDE_ROWS : 1, pairs = a->dim / 2;
	const size_t row = (size_t)terms * pairs * DOT_WORDS;
	/* The first rows prefetch the values, at the same distance from the keys in all groups. */
	const size_t ahead = t->paced && !r0 ? (size_t)a->block_size * TXDA_KV_DIM(a->dim) / 2 : 0;
	const uint32_t *k[8], *q = a->q_pack + r0 * row;
	dotacc c[ATT_ROWS][8];

	EACH(g, groups)
		k[g] = t->k[g0 + g < t->groups ? g0 + g : t->groups - 1];
	EACH(r, rows)
		EACH(g, groups)
			c[r][g] = DOT_ZERO;
	for (unsigned i = 0; i < pairs; i++, q += DOT_WORDS) {
		EACH(g, groups)
			if (ahead)
				__builtin_prefetch(k[g] + ahead, 0, 2);
		dot_pairs(rows, groups, c, k, q, row);
		if (terms == 2)
			dot_pairs(rows, groups, c, k, q + pairs, row);
		EACH(g, groups)
			k[g] += 16;
	}
	EACH(r, rows)
		EACH(g, groups)
			dot_store(a->scores + (r0 + r) * CM_ATT_TILE + (g0 + g) * 16, c[r][g]);
}

/* acc[r][d0 .. d0 + 16 vectors) = acc * correction + p . v */
V_INLINE void value_rows(const unsigned rows, const unsigned vectors, const struct cm_attend *a,
			 const struct tile *t, const float *correction, unsigned r0, unsigned d0)
{
	const uint32_t *p = a->p_pack + r0 * P_ROW;
	float *acc = a->acc + r0 * a->acc_stride + d0;
	const uint32_t *w[8], *next;
	dotacc c[ATT_ROWS][8];

	EACH(r, rows)
		EACH(v, vectors)
			c[r][v] = dot_load(acc + r * a->acc_stride + v * 16, correction[r0 + r]);
	for (unsigned g = 0; g < t->groups; g++) {
		uint32_t keys = a->to - (t->at + g * 16);
		uint32_t last[8 * 16] __attribute__((aligned(64))); /* as the cache's pairs are */
		unsigned pairs = keys < 16 ? keys / 2 : 8;

		EACH(v, vectors)
			w[v] = t->v[g] + d0 + v * 16;
		next = t->paced && !r0 && t->next_k[g] ? t->next_k[g] + d0 : NULL;
		for (unsigned i = 0; i < pairs; i++) {
			if (next) {
				EACH(v, vectors)
					__builtin_prefetch(next + v * 16, 0, 2);
				next += a->v_stride;
			}
			dot_pairs(rows, vectors, c, w, p + (g * 8 + i) * DOT_WORDS, P_ROW);
			EACH(v, vectors)
				w[v] += a->v_stride;
		}
		if (keys >= 16 || !(keys & 1))
			continue;
		/*
		 * The second key of the pair does not exist: clear it, since NaN times zero is NaN.
		 */
		for (unsigned i = 0; i < 16 * vectors; i++)
			last[i] = w[0][i] & 0xffffu;
		EACH(v, vectors)
			w[v] = last + v * 16;
		dot_pairs(rows, vectors, c, w, p + (g * 8 + pairs) * DOT_WORDS, P_ROW);
	}
	EACH(r, rows)
		EACH(v, vectors)
			dot_store(acc + r * a->acc_stride + v * 16, c[r][v]);
}

#if defined(CM_BF16_DOT) || VL == 8
#define ATT_CASES(CALL) ROW_CASES_6(CALL, 0)
#elif VL == 16
#define ATT_CASES(CALL) ROW_CASES_8(CALL, 0)
#elif defined(CM_NEON)
#define ATT_CASES(CALL) ROW_CASES_4(CALL, 0)
#else
#define ATT_CASES(CALL)                                                                            \
	case 1: CALL(1, 0); break;                                                                 \
	case 2:                                                                                    \
		CALL(2, 0);                                                                        \
		break
#endif

static void score_block(const struct cm_attend *a, const struct tile *t, unsigned r0, unsigned n)
{
#define CALL(N, unused) score_rows(N, ATT_VECTORS(N), a, t, r0, g)
	for (unsigned g = 0; g < t->groups; g += ATT_VECTORS(n))
		switch (n) {
			ATT_CASES(CALL);
		}
#undef CALL
}

static void value_block(const struct cm_attend *a, const struct tile *t, const float *correction,
			unsigned r0, unsigned n)
{
	unsigned d = 0;

#if defined(CM_BF16_DOT) && VL == 16
	/* With few rows more vectors, so that enough additions are independent to hide their
	 * latency. */
	for (; n <= 3 && d + 128 <= a->acc_stride; d += 128)
		switch (n) {
		case 1: value_rows(1, 8, a, t, correction, r0, d); break;
		case 2: value_rows(2, 8, a, t, correction, r0, d); break;
		case 3: value_rows(3, 8, a, t, correction, r0, d); break;
		}
#endif
#define CALL(N, unused) value_rows(N, ATT_VECTORS(N), a, t, correction, r0, d)
	for (; d + 16 * ATT_VECTORS(n) <= a->acc_stride; d += 16 * ATT_VECTORS(n))
		switch (n) {
			ATT_CASES(CALL);
		}
#undef CALL
#define CALL(N, unused) value_rows(N, 1, a, t, correction, r0, d)
	for (; d < a->acc_stride; d += 16)
		switch (n) {
			ATT_CASES(CALL);
		}
#undef CALL
}

/*
 * Latent attention: elements in lanes, a pair of keys at a time. The queries stand as floats, row
 * by row, with zeros up to the stride; where the second key does not exist its score is masked
 * later.
 */
V_INLINE void latent_rows(const unsigned rows, const struct cm_attend *a, const struct tile *t,
			  unsigned r0, unsigned g)
{
	const float *q = (const float *)a->q_pack + r0 * a->v_stride;

	for (unsigned i = 0; i < 8; i++) {
		const uint32_t *c = t->v[g] + i * a->v_stride;
		float *s = a->scores + r0 * CM_ATT_TILE + g * 16 + 2 * i;
		vf s0[8], s1[8];

		EACH(r, rows)
			s0[r] = s1[r] = (vf){0};
		for (unsigned d = 0; d < a->v_stride; d += VL) {
			vu u = *(const vu_any *)(c + d);
			vf even = v_pair_even(u), odd = v_pair_odd(u);

			EACH(r, rows) {
				vf x = v_load(q + r * a->v_stride + d);

				s0[r] = v_fma(even, x, s0[r]);
				s1[r] = v_fma(odd, x, s1[r]);
			}
		}
		EACH(r, rows) {
			s[r * CM_ATT_TILE] = v_sum(s0[r]);
			s[r * CM_ATT_TILE + 1] = v_sum(s1[r]);
		}
	}
}

static void latent_block(const struct cm_attend *a, const struct tile *t, unsigned r0, unsigned n)
{
#define CALL(N, unused) latent_rows(N, a, t, r0, g)
	for (unsigned g = 0; g < t->groups; g++)
		switch (n) {
			ATT_CASES(CALL);
		}
#undef CALL
}

#include "kern_tiles_attention.h"

/* Visible keys of the tile for row @r are [*lo, *hi); false: none. */
V_INLINE bool visible(const struct cm_attend *a, const struct tile *t, unsigned r, int32_t *lo,
		      int32_t *hi)
{
	uint32_t from = a->first[r] > t->at ? a->first[r] - t->at : 0;
	uint32_t to = a->pos[r] + 1 > t->at ? a->pos[r] + 1 - t->at : 0;

	to = to < a->to - t->at ? to : a->to - t->at;
	to = to < CM_ATT_TILE ? to : CM_ATT_TILE;
	*lo = (int32_t)from;
	*hi = (int32_t)to;
	return from < to;
}

/* Scales, caps and, unless the row sees all keys of the tile, masks the scores of row @r; returns
 * the largest. */
V_INLINE float scale_scores(const bool all, const struct cm_attend *a, const struct tile *t,
			    unsigned r, int32_t lo, int32_t hi)
{
	const vf none = v_set1(-INFINITY), scale = v_set1(a->scale), cap = v_set1(a->softcap);
	float *s = a->scores + r * CM_ATT_TILE;
	vf top = none;

	for (int32_t i = 0; i < CM_ATT_TILE; i += VL) {
		vi at = lane_numbers() + i;
		vf v = v_load(s + i);

		if (a->i8)
			v *= v_load(t->k_scale + i);
		v *= scale;
		if (a->softcap > 0)
			v = cap * v_tanh(v / cap);
		if (!all)
			v = v_select((at >= lo) & (at < hi), v, none);
		v_store(s + i, v);
		top = v_max(top, v);
	}
	return v_top(top);
}

/* The probabilities of row @r, rounded to bf16, into p_pack; returns their sum. */
V_INLINE float put_probabilities(const struct cm_attend *a, const struct tile *t, unsigned r,
				 float top)
{
	const float *s = a->scores + r * CM_ATT_TILE;
	uint32_t *p = a->p_pack + r * P_ROW;
	vf sum = {0}, vt = v_set1(top);

	for (unsigned i = 0; i < CM_ATT_TILE; i += VL) {
		vf e = v_exp(v_load(s + i) - vt);

		sum += e;
		if (a->i8)
			e *= v_load(t->v_scale + i);
		if (DOT_WORDS == 1)
			v_store_bf16((uint16_t *)p + i, e);
		else
			v_store((float *)p + i, (vf)(v_bf16_bits(e) << 16));
	}
	return v_sum(sum);
}

/*
 * Updates the softmax state of all rows with the tile's scores: probabilities to p_pack, and to
 * @correction the factors of the sums so far.
 */
static void soften(const struct cm_attend *a, const struct tile *t, float correction[CM_ATT_ROWS])
{
	float top[CM_ATT_ROWS] = {0}, drop[CM_ATT_ROWS] = {0};
	int32_t lo, hi;

	for (unsigned r = 0; r < a->rows; r++) {
		if (!visible(a, t, r, &lo, &hi))
			continue; /* its correction is exp(0) */
		top[r] = lo == 0 && hi == CM_ATT_TILE ? scale_scores(true, a, t, r, lo, hi)
						      : scale_scores(false, a, t, r, lo, hi);
		top[r] = top[r] > a->max[r] ? top[r] : a->max[r];
		drop[r] = a->max[r] - top[r];
	}
	for (unsigned r = 0; r < CM_ATT_ROWS; r += VL)
		v_store(correction + r, v_exp(v_load(drop + r)));
	for (unsigned r = 0; r < a->rows; r++) {
		if (!visible(a, t, r, &lo, &hi)) {
			memset(a->p_pack + r * P_ROW, 0, P_ROW * 4);
			continue;
		}
		a->sum[r] = a->sum[r] * correction[r] + put_probabilities(a, t, r, top[r]);
		a->max[r] = top[r];
	}
}

/* Packs row @r of q for the products. */
static void pack_query(const struct cm_attend *a, unsigned r)
{
#if defined(CM_BF16_DOT)
	const unsigned dim = a->dim, terms = a->q_f32 ? 2 : 1;
	uint16_t *high = (uint16_t *)a->q_pack + r * terms * dim, *low = high + dim;
	const float *x = a->q[r];
	unsigned i = 0;

	if (!a->q_f32) {
		memcpy(high, a->q[r], dim * 2);
		return;
	}
	for (; i + VL <= dim; i += VL) {
		vf v = v_load(x + i);

		v_store_bf16(high + i, v);
		v_store_bf16(low + i, v - v_load_bf16(high + i));
	}
	for (; i < dim; i++) {
		high[i] = cm_f32_to_bf16(x[i]);
		low[i] = cm_f32_to_bf16(x[i] - cm_bf16_to_f32(high[i]));
	}
#else
	float *to = (float *)a->q_pack + r * a->dim;

	if (a->q_f32)
		memcpy(to, a->q[r], a->dim * sizeof(float));
	else
		from_bf16(to, a->q[r], a->dim);
#endif
}

static void pack_queries(const struct cm_attend *a)
{
	if (IN_TILES) {
		tile_pack_queries(a);
		return;
	}
	for (unsigned r = 0; r < a->rows; r++) {
		float *q = (float *)a->q_pack + r * a->v_stride;

		if (!a->rope) {
			pack_query(a, r);
			continue;
		}
		memset(q, 0, a->v_stride * sizeof(float));
		memcpy(q, a->q[r], a->dim * sizeof(float));
		memcpy(q + a->dim, a->q_rope[r], a->rope * sizeof(float));
	}
}

/*
 * Prefetches the keys and values of a tile at once, where find_next() does not: those of a block
 * are too few for the hardware prefetcher to detect.
 */
static void foresee(const struct cm_attend *a, const struct cm_attend_keys *k, uint32_t at)
{
	/* elements of a group of 16 keys, and of all values before the block's scales */
	const size_t dim = a->rope ? a->v_stride : TXDA_KV_DIM(a->dim), size = a->i8 ? 1 : 2;

	if (a->latent_i8)
		return;
	for (uint32_t p = at; p < at + CM_ATT_TILE && p < k->to; p += 16) {
		const char *block =
			(const char *)k->cache +
			(uint64_t)(uint32_t)k->blocks[p / a->block_size] * a->block_stride;
		size_t in = p % a->block_size * dim * size;

		for (size_t i = 0; i < 16 * dim * size; i += 64) {
			__builtin_prefetch(block + in + i, 0, 2);
			if (!a->rope)
				__builtin_prefetch(block + a->block_size * dim * size + in + i, 0,
						   2);
		}
	}
}

static void score_tile(const struct cm_attend *a, const struct tile *t)
{
	if (IN_TILES) {
		tile_score(a, t);
		return;
	}
	for (unsigned r = 0, n; r < a->rows; r += n) {
		n = ATT_SHARE(a->rows - r);
		if (a->rope)
			latent_block(a, t, r, n);
		else
			score_block(a, t, r, n);
	}
}

static void value_tile(const struct cm_attend *a, const struct tile *t, const float *correction)
{
	if (IN_TILES) {
		for (unsigned r = 0; r < a->rows; r++) {
			float *acc = a->acc + r * a->acc_stride;

			for (unsigned d = 0; correction[r] != 1.0f && d < a->acc_stride; d += VL)
				v_store(acc + d, v_load(acc + d) * v_set1(correction[r]));
		}
		tile_value(a, t);
		return;
	}
	for (unsigned r = 0, n; r < a->rows; r += n) {
		n = ATT_SHARE(a->rows - r);
		value_block(a, t, correction, r, n);
	}
}

/*
 * Keys and values of bf16 are prefetched line by line while others are used: the values of a tile
 * while its keys are, the keys of the next tile while these values are. Many prefetches in a row
 * would stall the core.
 */
static void find_next(const struct cm_attend *a, uint32_t at, struct tile *t)
{
	const struct cm_attend_keys own = {a->cache, a->blocks, a->to};
	const struct cm_attend_keys *k = at + CM_ATT_TILE < a->to ? &own : &a->next;
	const uint32_t from = at + CM_ATT_TILE < a->to ? at + CM_ATT_TILE : a->next_from;
	const size_t dim = TXDA_KV_DIM(a->dim);

	for (unsigned g = 0; g < GROUPS; g++) {
		uint32_t p = from + g * 16;

		t->next_k[g] = NULL;
		if (!k->cache || p >= k->to)
			continue;
		t->next_k[g] = (const uint32_t *)(k->cache +
						  (uint64_t)(uint32_t)k->blocks[p / a->block_size] *
							  a->block_stride) +
			       p % a->block_size / 16 * dim * 8;
		/* This tile's group is partial: too few keys to prefetch the next ones meanwhile. */
		for (size_t i = 0; at + (g + 1) * 16 > a->to && i < dim * 8; i += 16)
			__builtin_prefetch(t->next_k[g] + i, 0, 2);
	}
}

static void attend(const struct cm_attend *a)
{
	const struct cm_attend_keys keys = {a->cache, a->blocks, a->to};
	float correction[CM_ATT_ROWS];

	pack_queries(a);
	for (unsigned r = 0; r < a->rows; r++) {
		a->max[r] = -INFINITY;
		a->sum[r] = 0;
		memset(a->acc + r * a->acc_stride, 0, a->acc_stride * sizeof(float));
	}
	for (uint32_t at = a->from; at < a->to; at += CM_ATT_TILE) {
		struct tile t;

		t.paced = !a->rope && !a->i8 && !IN_TILES;
		if (t.paced)
			find_next(a, at, &t);
		else if (at + CM_ATT_TILE < a->to)
			foresee(a, &keys, at + CM_ATT_TILE);
		else if (a->next.cache)
			foresee(a, &a->next, a->next_from);
		tile_find(a, at, &t);
		score_tile(a, &t);
		soften(a, &t, correction);
		value_tile(a, &t, correction);
	}
}
