/* SPDX-License-Identifier: MIT */
/*
 * The two products of attention in tiles: 16 query rows are the rows of a tile, and keys and values
 * lie in the cache as tiles have their second operand. Included by kern_attention.h; see
 * kern_tiles.h.
 */
#if defined(CM_TILES)
#define IN_TILES true

static void attend(const struct cm_attend *a);

/* A step of K is 32 elements of a head, the last one 16 or 32; latent attention has float32
 * products. */
static void tile_attend(const struct cm_attend *a)
{
	if (a->rope || a->dim % 16)
		cm_simd_avx512bf16.attend(a);
	else
		attend(a);
}

/* Attention: C 0 to 3, A 4 (16 words of K) and 5 (8), B 6 and 7 alike. */
static void tiles_for_attention(void)
{
	struct tile_config c = {.palette = 1};

	if (tiles_for == FOR_ATTENTION)
		return;
	for (unsigned i = 0; i < 4; i++)
		tiles_set(&c, i, 16, 64);
	tiles_set(&c, 4, 16, 64);
	tiles_set(&c, 5, 16, 32);
	tiles_set(&c, 6, 16, 64);
	tiles_set(&c, 7, 8, 64);
	TILE_CONFIG(&c);
	tiles_for = FOR_ATTENTION;
}

/* q_pack is u32[ceil(D/32)][terms][CM_ATT_ROWS][16]; unused rows and elements are undefined. */
static void tile_pack_queries(const struct cm_attend *a)
{
	tiles_for_attention();
	for (unsigned r = 0; r < a->rows; r++) {
		uint16_t *to = (uint16_t *)(a->q_pack + 16 * r);

		for (unsigned d = 0; d < a->dim; d += 16) {
			uint16_t *high = to + d / 32 * (a->q_f32 ? 64 : 32) * CM_ATT_ROWS + d % 32;
			vf v;

			if (!a->q_f32) {
				memcpy(high, (const uint16_t *)a->q[r] + d, 32);
				continue;
			}
			v = v_load((const float *)a->q[r] + d);
			v_store_bf16(high, v);
			v_store_bf16(high + 32 * CM_ATT_ROWS, v - v_load_bf16(high));
		}
	}
}

/* Tile A, the queries, times a step of group @g of the keys in tile B. */
#define SCORE_GROUP(g, A, B)                                                                       \
	do {                                                                                       \
		if (t->groups > (g)) {                                                             \
			TILE_LOAD(B, t->k[g] + at, 64);                                            \
			TILE_BF16(g, A, B);                                                        \
		}                                                                                  \
	} while (0)

/* A step of 32 elements from word @at of the keys on, or of 16. */
V_INLINE void tile_score_step(const bool whole, const struct tile *t, const uint32_t *q, size_t at)
{
	if (whole) {
		TILE_LOAD(4, q, 64);
		SCORE_GROUP(0, 4, 6);
		SCORE_GROUP(1, 4, 6);
		SCORE_GROUP(2, 4, 6);
		SCORE_GROUP(3, 4, 6);
	} else {
		TILE_LOAD(5, q, 64);
		SCORE_GROUP(0, 5, 7);
		SCORE_GROUP(1, 5, 7);
		SCORE_GROUP(2, 5, 7);
		SCORE_GROUP(3, 5, 7);
	}
}
#undef SCORE_GROUP

static void tile_score(const struct cm_attend *a, const struct tile *t)
{
	const uint32_t *q = a->q_pack;

	TILE_ZERO(0);
	TILE_ZERO(1);
	TILE_ZERO(2);
	TILE_ZERO(3);
	for (unsigned d = 0; d < a->dim; d += 32)
		for (unsigned term = 0; term < 1u + a->q_f32; term++, q += 16 * CM_ATT_ROWS)
			if (d + 32 <= a->dim)
				tile_score_step(true, t, q, d * 8);
			else
				tile_score_step(false, t, q, d * 8);
	TILE_STORE(0, a->scores, CM_ATT_TILE * 4);
	TILE_STORE(1, a->scores + 16, CM_ATT_TILE * 4);
	TILE_STORE(2, a->scores + 32, CM_ATT_TILE * 4);
	TILE_STORE(3, a->scores + 48, CM_ATT_TILE * 4);
}

/* Columns of values, in tile B, times their probabilities, in tile A. */
#define VALUE_COLS(c, A, B)                                                                        \
	do {                                                                                       \
		if (tiles > (c)) {                                                                 \
			TILE_LOAD(B, v + (c)*16, stride);                                          \
			TILE_BF16(c, A, B);                                                        \
		}                                                                                  \
	} while (0)

/* A step of 32 keys, or of 16, times @tiles of 16 columns. */
V_INLINE void tile_value_step(const bool two, const unsigned tiles, const uint32_t *p,
			      const uint32_t *v, size_t stride)
{
	if (two) {
		TILE_LOAD(4, p, CM_ATT_TILE * 2);
		VALUE_COLS(0, 4, 6);
		VALUE_COLS(1, 4, 6);
		VALUE_COLS(2, 4, 6);
		VALUE_COLS(3, 4, 6);
	} else {
		TILE_LOAD(5, p, CM_ATT_TILE * 2);
		VALUE_COLS(0, 5, 7);
		VALUE_COLS(1, 5, 7);
		VALUE_COLS(2, 5, 7);
		VALUE_COLS(3, 5, 7);
	}
}
#undef VALUE_COLS

/* Clears what lies past the last key of a partial step, since NaN times zero is NaN. */
static void tile_last_keys(uint32_t *to, const uint32_t *v, unsigned v_stride, unsigned width,
			   uint32_t keys, uint32_t pairs)
{
	for (uint32_t i = 0; i < pairs; i++, v += v_stride, to += 64) {
		const uint32_t mask = 2 * i + 1 < keys ? 0xffffffffu : 0xffffu;

		for (unsigned c = 0; c < width; c++)
			to[c] = 2 * i < keys ? v[c] & mask : 0;
	}
}

/*
 * acc[..][d0 .. d0 + 16 tiles) += p . v
 *
 * Two groups of keys form a step if they are always in the same block of the cache; a second one in
 * which no row sees a key may be left out, as its sum is 0.
 */
V_INLINE void tile_value_cols(const unsigned tiles, const struct cm_attend *a, const struct tile *t,
			      unsigned d0)
{
	const unsigned most = a->block_size % 32 ? 1 : 2;
	const size_t stride = a->acc_stride * 4;
	float *acc = a->acc + d0;

	TILE_LOAD(0, acc, stride);
	if (tiles > 1)
		TILE_LOAD(1, acc + 16, stride);
	if (tiles > 2)
		TILE_LOAD(2, acc + 32, stride);
	if (tiles > 3)
		TILE_LOAD(3, acc + 48, stride);
	for (unsigned g = 0, n; g < t->groups; g += n) {
		uint32_t keys = a->to - (t->at + g * 16), last[16 * 64];
		const uint32_t *p = a->p_pack + g * 8, *v = t->v[g] + d0;
		size_t v_stride = a->v_stride * 4;

		n = t->groups - g < most ? 1 : most;
		if (keys < n * 16) {
			tile_last_keys(last, v, a->v_stride, tiles * 16, keys, n * 8);
			v = last;
			v_stride = 256;
		}
		if (n == 2)
			tile_value_step(true, tiles, p, v, v_stride);
		else
			tile_value_step(false, tiles, p, v, v_stride);
	}
	TILE_STORE(0, acc, stride);
	if (tiles > 1)
		TILE_STORE(1, acc + 16, stride);
	if (tiles > 2)
		TILE_STORE(2, acc + 32, stride);
	if (tiles > 3)
		TILE_STORE(3, acc + 48, stride);
}

static void tile_value(const struct cm_attend *a, const struct tile *t)
{
	unsigned d = 0;

	for (; d + 64 <= a->dim; d += 64)
		tile_value_cols(4, a, t, d);
	switch ((a->dim - d) / 16) {
	case 1: tile_value_cols(1, a, t, d); break;
	case 2: tile_value_cols(2, a, t, d); break;
	case 3: tile_value_cols(3, a, t, d); break;
	}
}
#else
#define IN_TILES false

V_INLINE void tile_pack_queries(const struct cm_attend *a)
{
	(void)a;
}

V_INLINE void tile_score(const struct cm_attend *a, const struct tile *t)
{
	(void)a;
	(void)t;
}

V_INLINE void tile_value(const struct cm_attend *a, const struct tile *t)
{
	(void)a;
	(void)t;
}
#endif
