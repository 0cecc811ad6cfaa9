/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * How the tensors of programs lie in memory: element types, weight tiles, blocks of caches. A part of
 * txda_isa.h, which includes it.
 */
#ifndef TXDA_LAYOUTS_H
#define TXDA_LAYOUTS_H

#include <linux/types.h>

enum txda_dtype {
	TXDA_F32 = 0,
	TXDA_BF16 = 1,
	TXDA_F16 = 2,
	TXDA_I32 = 3,
	TXDA_I64 = 4,
	TXDA_U8 = 5,
	TXDA_W8 = 6, /* group-quantised weights, tiles only */
	TXDA_W4 = 7,
	TXDA_W8Z = 8, /* the same with zero points */
	TXDA_W4Z = 9,
	TXDA_F8 = 10,  /* 8-bit floats (E4M3) with scales, tiles only */
	TXDA_MX4 = 11, /* 4-bit floats (E2M1) whose scales are powers of two, tiles only */
	TXDA_W4M =
		12, /* group-quantised weights with scales and minimums of two levels, tiles only */
	TXDA_W5M = 13,
	TXDA_W6S = 14, /* the same with scales alone */
	TXDA_DTYPE_COUNT
};

enum txda_layout {
	TXDA_ROWS = 0,	       /* row-major, no padding */
	TXDA_TILE32 = 1,       /* weight tiles, below */
	TXDA_TILE32_GATED = 2, /* the same, gate and up columns alternating by 16 */
	TXDA_KV_PAGED = 3,     /* KV cache blocks, below */
	TXDA_LAYOUT_COUNT
};

/* ------------------------------------------------------------------------------------------- */
/* Weight tiles                                                                                  */
/* ------------------------------------------------------------------------------------------- */

/*
 * A weight W [N, K] (N outputs) is stored in panels of 32 rows of W, so that one output is one SIMD
 * lane: ceil(N / 32) panels one after another, rows past N zero. Let n = 32 * panel + c.
 *
 *   F32:  [K][32], element (k, c).
 *   BF16: [ceil(K/2)][32][2], element (k / 2, c, k % 2): a pair of K is one 32-bit lane.
 *   F16:  [K][32], element (k, c).
 *   W8:   [ceil(K/G)] groups of { F16 scale[32]; U8 q[G/4][32][4] }; K past the end has q = 128.
 *         W[n][k] = scale[c] * (q - 128). G is 32, 64, 128 or 256.
 *   W4:   [ceil(K/G)] groups of { F16 scale[32]; U8 q[G/8][32][4] }; byte (j, c, i) holds K element
 *         8 j + i of the group in its low and 8 j + 4 + i in its high nibble; past the end 8.
 *         W[n][k] = scale[c] * (q - 8).
 *   W8Z:  [ceil(K/G)] groups of { F16 scale[32]; I16 zero[32]; U8 q[G/4][32][4] }; past the end q is
 *         arbitrary, the activations there are 0. W[n][k] = scale[c] * (q - 128 - zero[c]).
 *   W4Z:  [ceil(K/G)] groups of { F16 scale[32]; I16 zero[32]; U8 q[G/8][32][4] }, nibbles as in W4.
 *         W[n][k] = scale[c] * (q - 8 - zero[c]).
 *   F8:   [ceil(K/G)] groups of { F32 scale[32]; U8 q[G/4][8][2][4][2] }; byte (j, c / 4, p, c % 4,
 *         i) is K element 4 j + 2 p + i of the group: a sign, 4 bits of exponent (bias 7) and 3 of
 *         mantissa, no infinities, 0x7f and 0xff NaN; past the end 0. W[n][k] = scale[c] * q.
 *   MX4:  [ceil(K/G)] groups of { BF16 scale[32]; U8 q[G/8][32][4] }, nibbles as in W4: a sign, 2
 *         bits of exponent (bias 1) and 1 of mantissa; past the end 0. W[n][k] = scale[c] * q. Scales of
 *         the OCP microscaling formats are powers of two, from 2^-127 to 2^127, or NaN; the first of
 *         these is subnormal and counts as 0, as everywhere but in precise mode.
 *
 * Groups of two levels consist of G/32 blocks of 32 of K, each with small integers that scale what the
 * group has; past the end of K codes are arbitrary. Each product is made in float32, where that of a
 * scale is exact, before the next:
 *
 *   W4M:  [ceil(K/G)] groups of { F16 d[32]; F16 dmin[32]; [G/32] { U8 s[32]; U8 m[32];
 *         U8 q[4][32][4] } }, nibbles as in W4. W[n][k] = d[c] * s[c] * q - dmin[c] * m[c].
 *   W5M:  the same with { U8 s[32]; U8 m[32]; U8 q[4][32][4]; U8 high[32][4] }: bit j of byte (c, i)
 *         is the fifth bit of K element 4 j + i of the block.
 *   W6S:  [ceil(K/G)] groups of { F16 d[32]; [G/32] { I8 s[2][32]; U8 q[4][32][4];
 *         U8 high[2][32][4] } }: bits 2 j and 2 j + 1 of byte (h, c, i) are the fifth and the sixth bit
 *         of K element 16 h + 4 j + i. W[n][k] = d[c] * s[h][c] * (q - 32), h being the half of the
 *         block.
 *
 * TILE32_GATED: W is [gate; up], each [N/2, K]; panel p holds gates [16 p, 16 p + 16) as c = 0..15
 * and ups [16 p, 16 p + 16) as c = 16..31: ceil(N/2 / 16) panels. A bias is [gate; up], too.
 */
#define TXDA_TILE_N	 32
#define TXDA_QUANT_BLOCK 32  /* K elements of int16 activations that share a scale */
#define TXDA_I8_GROUP	 128 /* and of int8 activations */

static inline __u64 txda_tile_panels(__u32 layout, __u64 n)
{
	return layout == TXDA_TILE32_GATED ? (n / 2 + 15) / 16 : (n + 31) / 32;
}

/* Whether tiles of that type come in groups with scales. */
static inline int txda_is_grouped(__u32 dtype)
{
	return dtype >= TXDA_W8 && dtype <= TXDA_W6S;
}

/* Whether these have two levels. */
static inline int txda_is_two_level(__u32 dtype)
{
	return dtype >= TXDA_W4M && dtype <= TXDA_W6S;
}

/* Whether they hold two elements a byte. */
static inline int txda_is_nibbles(__u32 dtype)
{
	return dtype == TXDA_W4 || dtype == TXDA_W4Z || dtype == TXDA_MX4;
}

/* Bytes of what stands before a group's elements or blocks: its scales, zero points or minimums. */
static inline __u32 txda_tile_group_header(__u32 dtype)
{
	switch (dtype) {
	case TXDA_W8:
	case TXDA_W4:
	case TXDA_MX4:
	case TXDA_W6S: return 64;
	default: return 128;
	}
}

/* Bytes of 32 elements of K of a group's panel. */
static inline __u32 txda_tile_block_bytes(__u32 dtype)
{
	switch (dtype) {
	case TXDA_W4M: return 64 + 512;
	case TXDA_W5M: return 64 + 512 + 128;
	case TXDA_W6S: return 64 + 512 + 256;
	default: return txda_is_nibbles(dtype) ? 512 : 1024;
	}
}

/* Bytes of a group of @group elements of K in a panel. */
static inline __u64 txda_tile_group_bytes(__u32 dtype, __u32 group)
{
	if (!txda_is_grouped(dtype))
		return 0;
	return txda_tile_group_header(dtype) + (__u64)group / 32 * txda_tile_block_bytes(dtype);
}

/* Bytes of one panel; 0 if the type has no tile form. @k below 2^32. */
static inline __u64 txda_tile_panel_bytes(__u32 dtype, __u64 k, __u32 group)
{
	switch (dtype) {
	case TXDA_F32: return k * 128;
	case TXDA_BF16: return (k + 1) / 2 * 128;
	case TXDA_F16: return k * 64;
	default: return group ? (k + group - 1) / group * txda_tile_group_bytes(dtype, group) : 0;
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Caches                                                                                        */
/* ------------------------------------------------------------------------------------------- */

/*
 * KV cache. Block b is at b * block bytes; layer l within it at layer_offset. There, for each KV
 * head:
 *   K: [block_size/16][D'/2][16][2], element (p / 16, d / 2, p % 16, d % 2): 16 keys in lanes
 *   V: [block_size/2][D'][2], element (p / 2, d, p % 2): elements of the head in lanes
 *
 * with D' = D rounded up to 16; elements past D are not defined. BF16 (F32 in precise mode).
 */
#define TXDA_KV_DIM(d)	   (((d) + 15u) & ~15u)
#define TXDA_KV_MAX_GROUPS 8 /* of layers with block tables of their own in a program */

static inline __u64 txda_kv_layer_bytes(__u32 n_kv_heads, __u32 head_dim, __u32 block_size)
{
	return (__u64)n_kv_heads * TXDA_KV_DIM(head_dim) * block_size * 2 * 2;
}

/*
 * TXDA_KV_INT8: K and V as above but with int8 elements, then F32 scale_k[block_size] and
 * scale_v[block_size] of the block's tokens, for each KV head; an element is scale * q, scale =
 * max|x| / 127 over the head's D elements. The same in precise mode, at twice the offsets.
 */
static inline __u64 txda_kv8_layer_bytes(__u32 n_kv_heads, __u32 head_dim, __u32 block_size)
{
	return (__u64)n_kv_heads * (TXDA_KV_DIM(head_dim) * 2 + 8) * block_size;
}

/*
 * Latent attention keeps at layer_offset one vector a token, [block_size/2][D'][2], element
 * (p / 2, d, p % 2): the latent one, then the key; D' = L + R rounded up to 16, elements past L + R
 * are 0.
 */
static inline __u64 txda_mla_layer_bytes(__u32 latent, __u32 rope, __u32 block_size)
{
	return (__u64)TXDA_KV_DIM(latent + rope) * block_size * 2;
}

/*
 * TXDA_KV_INT8: the vectors as above but with int8 elements, then F32 scale[block_size] of the
 * latent parts and F32 scale[block_size] of the keys; what attention sees is scale * q, rounded to
 * bf16 (not in precise mode). The same in precise mode, at twice the offsets.
 */
static inline __u64 txda_mla8_layer_bytes(__u32 latent, __u32 rope, __u32 block_size)
{
	return (__u64)(TXDA_KV_DIM(latent + rope) + 8) * block_size;
}

/* The keys of an indexer: [block_size][D'], D' = D rounded up to 16, elements past D are 0. */
static inline __u64 txda_index_layer_bytes(__u32 dim, __u32 block_size)
{
	return (__u64)TXDA_KV_DIM(dim) * block_size * 2;
}

/* States of DELTA_CONV and DELTA_RULE, F32 (at twice the offsets in precise mode). */
static inline __u64 txda_conv_state_bytes(__u32 channels, __u32 kernel)
{
	return ((__u64)channels * (kernel - 1) * 4 + 63) & ~63ull;
}

/* Of one head; heads follow each other. */
static inline __u64 txda_delta_state_bytes(__u32 k_dim, __u32 v_dim)
{
	return ((__u64)k_dim * v_dim * 4 + 63) & ~63ull;
}

/* Tokens of a KV block. */
static inline int txda_is_block_size(__u32 n)
{
	return n >= 16 && n <= 1024 && !(n & (n - 1));
}

#endif /* TXDA_LAYOUTS_H */
