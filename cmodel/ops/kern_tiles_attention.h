/* SPDX-License-Identifier: MIT */
/*
 * The two products of attention in tiles: 16 query rows are the rows of a tile, and keys and values
 * lie in the cache as tiles have their second operand. Included by kern_attention.h; see
 * kern_tiles.h.
 */
#if defined(CM_TILES)
/* A step of K is 32 elements of a head; latent attention has float32 products. */
V_INLINE bool in_tiles(const struct cm_attend *a)
{
	return !a->rope && a->dim % 32 == 0;
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

/* q_pack is u32[D/32][terms][CM_ATT_ROWS][16]; rows that the item does not have may be anything. */
static void tile_pack_queries(const struct cm_attend *a)
{
	tiles_for_attention();
	for (unsigned r = 0; r < a->rows; r++) {
		uint16_t *to = (uint16_t *)(a->q_pack + 16 * r);

		for (unsigned d = 0; d < a->dim; d += 32) {
			if (!a->q_f32) {
				memcpy(to, (const uint16_t *)a->q[r] + d, 64);
				to += 32 * CM_ATT_ROWS;
				continue;
			}
			for (unsigned i = 0; i < 32; i += VL) {
				vf v = v_load((const float *)a->q[r] + d + i);
				uint16_t *low = to + 32 * CM_ATT_ROWS;

				v_store_bf16(to + i, v);
				v_store_bf16(low + i, v - v_load_bf16(to + i));
			}
			to += 64 * CM_ATT_ROWS;
		}
	}
}

/* Tile 4, the queries, times a step of each group of keys. */
V_INLINE void tile_score_step(const struct tile *t, unsigned i)
{
	TILE_LOAD(6, t->k[0] + i * 256, 64);
	TILE_BF16(0, 4, 6);
	if (t->groups > 1) {
		TILE_LOAD(6, t->k[1] + i * 256, 64);
		TILE_BF16(1, 4, 6);
	}
	if (t->groups > 2) {
		TILE_LOAD(6, t->k[2] + i * 256, 64);
		TILE_BF16(2, 4, 6);
	}
	if (t->groups > 3) {
		TILE_LOAD(6, t->k[3] + i * 256, 64);
		TILE_BF16(3, 4, 6);
	}
}

static void tile_score(const struct cm_attend *a, const struct tile *t)
{
	const uint32_t *q = a->q_pack;

	TILE_ZERO(0);
	TILE_ZERO(1);
	TILE_ZERO(2);
	TILE_ZERO(3);
	for (unsigned i = 0; i < a->dim / 32; i++)
		for (unsigned term = 0; term < 1u + a->q_f32; term++, q += 16 * CM_ATT_ROWS) {
			TILE_LOAD(4, q, 64);
			tile_score_step(t, i);
		}
	TILE_STORE(0, a->scores, CM_ATT_TILE * 4);
	TILE_STORE(1, a->scores + 16, CM_ATT_TILE * 4);
	TILE_STORE(2, a->scores + 32, CM_ATT_TILE * 4);
	TILE_STORE(3, a->scores + 48, CM_ATT_TILE * 4);
}

/* Tile 5, the probabilities of 16 keys, times their values. */
V_INLINE void tile_value_step(const bool four, const uint32_t *v, size_t stride)
{
	TILE_LOAD(7, v, stride);
	TILE_BF16(0, 5, 7);
	TILE_LOAD(7, v + 16, stride);
	TILE_BF16(1, 5, 7);
	if (!four)
		return;
	TILE_LOAD(7, v + 32, stride);
	TILE_BF16(2, 5, 7);
	TILE_LOAD(7, v + 48, stride);
	TILE_BF16(3, 5, 7);
}

/* Clears what lies past the last key of a partial group, since NaN times zero is NaN. */
static void tile_last_keys(uint32_t *to, const uint32_t *v, unsigned v_stride, unsigned width,
			   uint32_t keys)
{
	memset(to, 0, 8 * 64 * 4);
	for (uint32_t i = 0; i < (keys + 1) / 2; i++, v += v_stride, to += 64)
		for (unsigned c = 0; c < width; c++)
			to[c] = 2 * i + 1 < keys ? v[c] : v[c] & 0xffffu;
}

/* acc[..][d0 .. d0 + 64 or 32) += p . v */
V_INLINE void tile_value_cols(const bool four, const struct cm_attend *a, const struct tile *t,
			      unsigned d0)
{
	float *acc = a->acc + d0;
	size_t stride = a->acc_stride * 4;

	TILE_LOAD(0, acc, stride);
	TILE_LOAD(1, acc + 16, stride);
	if (four) {
		TILE_LOAD(2, acc + 32, stride);
		TILE_LOAD(3, acc + 48, stride);
	}
	for (unsigned g = 0; g < t->groups; g++) {
		uint32_t keys = a->to - (t->at + g * 16), last[8 * 64];

		TILE_LOAD(5, a->p_pack + g * 8, CM_ATT_TILE * 2);
		if (keys >= 16) {
			tile_value_step(four, t->v[g] + d0, a->v_stride * 4);
			continue;
		}
		tile_last_keys(last, t->v[g] + d0, a->v_stride, four ? 64 : 32, keys);
		tile_value_step(four, last, 256);
	}
	TILE_STORE(0, acc, stride);
	TILE_STORE(1, acc + 16, stride);
	if (four) {
		TILE_STORE(2, acc + 32, stride);
		TILE_STORE(3, acc + 48, stride);
	}
}

static void tile_value(const struct cm_attend *a, const struct tile *t)
{
	unsigned d = 0;

	for (; d + 64 <= a->dim; d += 64)
		tile_value_cols(true, a, t, d);
	if (d < a->dim)
		tile_value_cols(false, a, t, d);
}
#else
V_INLINE bool in_tiles(const struct cm_attend *a)
{
	(void)a;
	return false;
}

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
