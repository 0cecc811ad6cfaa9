/* SPDX-License-Identifier: MIT */
/*
 * One split of attention for up to CM_ATT_ROWS query rows that share a KV head. Included by path.c;
 * see simd.h and the cache layout of txda_isa.h.
 *
 * Online softmax (Milakov and Gimelshein 2018) over tiles of CM_ATT_TILE keys. A tile in which a
 * row sees no key leaves that row's state as it was, bit for bit, so that rows of different
 * positions can share a call. Probabilities are rounded to bfloat16 for the product with V; their
 * sum is not.
 */

#define GROUPS (CM_ATT_TILE / 16) /* groups of 16 keys in a tile */

struct tile {
	const uint32_t *k[GROUPS];			  /* [D'/2][16] pairs */
	const uint32_t *v[GROUPS];			  /* [8][D'] pairs */
	unsigned groups;				  /* with any key before a->to */
	uint32_t at;					  /* first key */
	float k_scale[CM_ATT_TILE], v_scale[CM_ATT_TILE]; /* int8: of each key; 0 past the last */
};

/* int8 to bf16, which holds them exactly. @n is a multiple of 16. */
V_INLINE void widen_i8(uint16_t *to, const int8_t *q, size_t n)
{
	for (size_t i = 0; i < n; i += VL) {
		vi v = __builtin_convertvector(*(const v8_any *)(q + i), vi);

		*(vh_any *)(to + i) = __builtin_convertvector((vu)v_i2f(v) >> 16, vh);
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

/* The same of latent vectors, with their scales: from here on they are handled as bf16. */
static void tile_widen_latent(const struct cm_attend *a, const uint8_t *block, uint32_t in,
			      unsigned g, struct tile *t)
{
	size_t dim = a->v_stride;
	const int8_t *q = (const int8_t *)block + in / 2 * dim * 2;
	const float *scale = (const float *)(block + dim * a->block_size) + in;
	uint16_t *to = a->kv_pack + g * dim * 16;
	uint32_t left = a->to - (t->at + g * 16);

	t->v[g] = (const uint32_t *)to;
	for (unsigned i = 0; i < 16; i++) {
		const int8_t *from = q + i / 2 * dim * 2 + i % 2;
		uint16_t *key = to + i / 2 * dim * 2 + i % 2;
		float latent = i < left ? scale[i] : 0,
		      rope = i < left ? scale[a->block_size + i] : 0;

		for (size_t d = 0; d < dim; d++)
			key[2 * d] =
				cm_f32_to_bf16((float)from[2 * d] * (d < a->dim ? latent : rope));
	}
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
 * Products of pairs: 16 lanes of K or V pairs times one pair of q or p. That pair stands in q_pack
 * and p_pack as one word with CM_BF16_DOT, else as two floats CM_ATT_ROWS apart; PAIR_ROWS words
 * further is the next pair.
 */
#if defined(CM_BF16_DOT)
typedef __m512 dotacc;
#define DOT_ZERO  _mm512_setzero_ps()
#define PAIR_ROWS CM_ATT_ROWS

V_INLINE void dot16(dotacc *c, const uint32_t *w, const uint32_t *x)
{
	*c = _mm512_dpbf16_ps(*c, (__m512bh)_mm512_loadu_si512(w),
			      (__m512bh)_mm512_set1_epi32((int)*x));
}

V_INLINE void put_pair(uint32_t *to, uint32_t pair)
{
	*to = pair;
}

/* Two terms of a pair of floats: high halves here, low ones a row group further. */
V_INLINE void put_floats(uint32_t *to, const float *x)
{
	uint16_t h[2] = {cm_f32_to_bf16(x[0]), cm_f32_to_bf16(x[1])};
	uint16_t l[2] = {cm_f32_to_bf16(x[0] - cm_bf16_to_f32(h[0])),
			 cm_f32_to_bf16(x[1] - cm_bf16_to_f32(h[1]))};

	memcpy(to, h, 4);
	memcpy(to + CM_ATT_ROWS, l, 4);
}

#define WIDE_WORDS 2 /* words of a pair of float32 queries */
#else
struct dotacc {
	vf v[16 / VL];
};
typedef struct dotacc dotacc;
#define DOT_ZERO  ((dotacc){0})
#define PAIR_ROWS (2 * CM_ATT_ROWS)

V_INLINE void dot16(dotacc *c, const uint32_t *w, const uint32_t *x)
{
	const float *f = (const float *)x;
	vf x0 = v_set1(f[0]), x1 = v_set1(f[CM_ATT_ROWS]);

	for (int i = 0; i < 16 / VL; i++) {
		vu u = *(const vu_any *)(w + i * VL);

		c->v[i] = v_fma(v_pair_odd(u), x1, v_fma(v_pair_even(u), x0, c->v[i]));
	}
}

V_INLINE void put_pair(uint32_t *to, uint32_t pair)
{
	to[0] = pair << 16;
	to[CM_ATT_ROWS] = pair & 0xffff0000u;
}

V_INLINE void put_floats(uint32_t *to, const float *x)
{
	memcpy(to, x, 4);
	memcpy(to + CM_ATT_ROWS, x + 1, 4);
}

#define WIDE_WORDS 1
#endif

/* scores[r][16 g ..] = q . k for @rows rows from @r0 and two groups of keys (g, g2; the same one
 * twice at an odd end) */
V_INLINE void score_rows(const unsigned rows, const unsigned terms, const struct cm_attend *a,
			 const struct tile *t, unsigned r0, unsigned g, unsigned g2)
{
	const uint32_t *k0 = t->k[g], *k1 = t->k[g2], *q = a->q_pack + r0;
	dotacc c[8][2];

	EACH(r, rows)
		c[r][0] = c[r][1] = DOT_ZERO;
	for (unsigned i = 0; i < (a->dim + 1) / 2; i++, k0 += 16, k1 += 16, q += PAIR_ROWS * terms)
		for (unsigned term = 0; term < terms; term++)
			EACH(r, rows) {
				dot16(&c[r][0], k0, q + term * PAIR_ROWS + r);
				dot16(&c[r][1], k1, q + term * PAIR_ROWS + r);
			}
	EACH(r, rows) {
		memcpy(a->scores + (r0 + r) * CM_ATT_TILE + g * 16, &c[r][0], 64);
		memcpy(a->scores + (r0 + r) * CM_ATT_TILE + g2 * 16, &c[r][1], 64);
	}
}

/* acc[r][d0 .. d0 + 32) += p . v; @two: the second 16 lanes exist */
V_INLINE void value_rows(const unsigned rows, const struct cm_attend *a, const struct tile *t,
			 unsigned r0, unsigned d0, const bool two)
{
	dotacc c[8][2];

	EACH(r, rows)
		for (unsigned i = 0; i < 1u + two; i++)
			memcpy(&c[r][i], a->acc + (r0 + r) * a->acc_stride + d0 + i * 16, 64);
	for (unsigned g = 0; g < t->groups; g++) {
		const uint32_t *v = t->v[g] + d0, *p = a->p_pack + g * 8 * PAIR_ROWS + r0;
		uint32_t keys = a->to - (t->at + g * 16);
		unsigned pairs = keys < 16 ? keys / 2 : 8;
		uint32_t last[32];

		for (unsigned i = 0; i < pairs; i++, v += a->v_stride, p += PAIR_ROWS)
			EACH(r, rows) {
				dot16(&c[r][0], v, p + r);
				if (two)
					dot16(&c[r][1], v + 16, p + r);
			}
		if (keys >= 16 || !(keys & 1))
			continue;
		/*
		 * The second key of the pair does not exist: clear it, since NaN times zero is NaN.
		 */
		for (unsigned i = 0; i < 16u + 16u * two; i++)
			last[i] = v[i] & 0xffffu;
		EACH(r, rows) {
			dot16(&c[r][0], last, p + r);
			if (two)
				dot16(&c[r][1], last + 16, p + r);
		}
	}
	EACH(r, rows)
		for (unsigned i = 0; i < 1u + two; i++)
			memcpy(a->acc + (r0 + r) * a->acc_stride + d0 + i * 16, &c[r][i], 64);
}

#define ATT_CASES(CALL)                                                                            \
	switch (n) {                                                                               \
	case 1: CALL(1); break;                                                                    \
	case 2: CALL(2); break;                                                                    \
	case 3: CALL(3); break;                                                                    \
	case 4: CALL(4); break;                                                                    \
	case 5: CALL(5); break;                                                                    \
	case 6: CALL(6); break;                                                                    \
	case 7: CALL(7); break;                                                                    \
	case 8: CALL(8); break;                                                                    \
	}

/* Prefetches @bytes at @p: keys and values of a block are too short for the hardware to detect. */
V_INLINE void foresee(const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch((const char *)p + i);
}

static void score_block(const struct cm_attend *a, const struct tile *t, unsigned r0, unsigned n,
			unsigned g, unsigned g2)
{
#define CALL(N)                                                                                    \
	do {                                                                                       \
		if (WIDE_WORDS == 2 && a->q_f32)                                                   \
			score_rows(N, 2, a, t, r0, g, g2);                                         \
		else                                                                               \
			score_rows(N, 1, a, t, r0, g, g2);                                         \
	} while (0)
	ATT_CASES(CALL)
#undef CALL
}

static void value_block(const struct cm_attend *a, const struct tile *t, unsigned r0, unsigned n,
			unsigned d0)
{
	bool two = d0 + 16 < TXDA_KV_DIM(a->dim);

#define CALL(N)                                                                                    \
	do {                                                                                       \
		if (two)                                                                           \
			value_rows(N, a, t, r0, d0, true);                                         \
		else                                                                               \
			value_rows(N, a, t, r0, d0, false);                                        \
	} while (0)
	ATT_CASES(CALL)
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

static void latent_block(const struct cm_attend *a, const struct tile *t, unsigned r0, unsigned n,
			 unsigned g){
#define CALL(N) latent_rows(N, a, t, r0, g)
	ATT_CASES(CALL)
#undef CALL
}

#include "kern_tiles_attention.h"

V_INLINE float exp1(float x)
{
	return v_exp(v_set1(x))[0];
}

/* Packs the probabilities of row @r for the product with the values. */
V_INLINE void put_probabilities(const struct cm_attend *a, unsigned r,
				const uint16_t h[CM_ATT_TILE])
{
	if (in_tiles(a)) {
		memcpy(a->p_pack + r * (CM_ATT_TILE / 2), h, CM_ATT_TILE * 2);
		return;
	}
	for (unsigned i = 0; i < CM_ATT_TILE / 2; i++) {
		uint32_t u;

		memcpy(&u, h + 2 * i, 4);
		put_pair(a->p_pack + i * PAIR_ROWS + r, u);
	}
}

/* Scales the scores of a tile and applies the soft cap. */
static void cap_scores(const struct cm_attend *a, float *s)
{
	vf cap = v_set1(a->softcap), scale = v_set1(a->scale);

	for (unsigned i = 0; i < CM_ATT_TILE; i += VL)
		v_store(s + i, cap * v_tanh(v_load(s + i) * scale / cap));
}

/* Softmax state of row @r after the tile's scores; leaves probabilities in p_pack. */
static void soften(const struct cm_attend *a, const struct tile *t, unsigned r)
{
	float *s = a->scores + r * CM_ATT_TILE;
	/* visible keys of the tile are [lo, hi) */
	uint32_t lo = a->first[r] > t->at ? a->first[r] - t->at : 0;
	uint32_t hi = a->pos[r] + 1 > t->at ? a->pos[r] + 1 - t->at : 0;
	float top, sum = 0, corr, scale_by = a->scale;
	uint16_t h[CM_ATT_TILE] = {0};

	hi = hi < a->to - t->at ? hi : a->to - t->at;
	hi = hi < CM_ATT_TILE ? hi : CM_ATT_TILE;
	if (lo >= hi) {
		put_probabilities(a, r, h);
		return;
	}
	if (a->softcap > 0) {
		cap_scores(a, s);
		scale_by = 1;
	}
	for (uint32_t i = 0; i < lo; i++)
		s[i] = -INFINITY;
	for (uint32_t i = hi; i < CM_ATT_TILE; i++)
		s[i] = -INFINITY;
	{
		vf m = v_set1(-INFINITY), l = {0}, scale = v_set1(scale_by), vt;

		for (unsigned i = 0; i < CM_ATT_TILE; i += VL) {
			vf v = v_load(s + i) * scale;

			v_store(s + i, v);
			m = v_max(m, v);
		}
		top = v_top(m);
		top = top > a->max[r] ? top : a->max[r];
		vt = v_set1(top);
		for (unsigned i = 0; i < CM_ATT_TILE; i += VL) {
			vf e = v_exp(v_load(s + i) - vt);

			l += e;
			if (a->i8)
				e *= v_load(t->v_scale + i);
			v_store_bf16(h + i, e);
		}
		sum = v_sum(l);
	}
	corr = exp1(a->max[r] - top);
	if (corr != 1.0f)
		for (unsigned d = 0; d < a->acc_stride; d += VL)
			v_store(a->acc + r * a->acc_stride + d,
				v_load(a->acc + r * a->acc_stride + d) * v_set1(corr));
	a->sum[r] = a->sum[r] * corr + sum;
	a->max[r] = top;
	put_probabilities(a, r, h);
}

/* Packs the queries for the scores. */
static void pack_queries(const struct cm_attend *a)
{
	if (in_tiles(a)) {
		tile_pack_queries(a);
		return;
	}
	for (unsigned r = 0; r < a->rows; r++) {
		float *q = (float *)a->q_pack + r * a->v_stride;

		if (a->rope) {
			memset(q, 0, a->v_stride * sizeof(float));
			memcpy(q, a->q[r], a->dim * sizeof(float));
			memcpy(q + a->dim, a->q_rope[r], a->rope * sizeof(float));
			continue;
		}
		for (unsigned i = 0; i < (a->dim + 1) / 2; i++) {
			uint32_t u;

			if (a->q_f32) {
				put_floats(a->q_pack + i * PAIR_ROWS * WIDE_WORDS + r,
					   (const float *)a->q[r] + 2 * i);
				continue;
			}
			memcpy(&u, (const uint16_t *)a->q[r] + 2 * i, 4);
			put_pair(a->q_pack + i * PAIR_ROWS + r, u);
		}
	}
}

static void score_tile(const struct cm_attend *a, const struct tile *t)
{
	for (unsigned g = 0; g < t->groups && !a->i8; g++) {
		if (!a->rope)
			foresee(t->k[g], a->acc_stride * 32);
		foresee(t->v[g], a->v_stride * 32);
	}
	if (in_tiles(a))
		tile_score(a, t);
	for (unsigned g = 0; g < t->groups && !in_tiles(a); g += a->rope ? 1 : 2)
		for (unsigned r = 0; r < a->rows; r += 8) {
			unsigned n = a->rows - r < 8 ? a->rows - r : 8;

			if (a->rope)
				latent_block(a, t, r, n, g);
			else
				score_block(a, t, r, n, g, g + 1 < t->groups ? g + 1 : g);
		}
	for (unsigned r = 0; a->i8 && r < a->rows; r++)
		for (unsigned i = 0; i < t->groups * 16; i += VL) {
			float *s = a->scores + r * CM_ATT_TILE + i;

			v_store(s, v_load(s) * v_load(t->k_scale + i));
		}
}

static void attend(const struct cm_attend *a)
{
	pack_queries(a);
	for (unsigned r = 0; r < a->rows; r++) {
		a->max[r] = -INFINITY;
		a->sum[r] = 0;
		memset(a->acc + r * a->acc_stride, 0, a->acc_stride * sizeof(float));
	}
	for (uint32_t at = a->from; at < a->to; at += CM_ATT_TILE) {
		struct tile t;

		tile_find(a, at, &t);
		score_tile(a, &t);
		for (unsigned r = 0; r < a->rows; r++)
			soften(a, &t, r);
		if (in_tiles(a)) {
			tile_value(a, &t);
			continue;
		}
		for (unsigned d = 0; d < a->acc_stride; d += 32)
			for (unsigned r = 0; r < a->rows; r += 8)
				value_block(a, &t, r, a->rows - r < 8 ? a->rows - r : 8, d);
	}
}
