/* SPDX-License-Identifier: MIT */
/*
 * The kernels that exist once per SIMD path (path.c, compiled for portable C, AVX2, AVX-512, AMX and
 * NEON).
 *
 * Rounding is a property of (path, row) alone: a kernel that takes several rows at once gives each
 * of them the bits that it would get alone.
 *
 * Packed activations. Rows go in blocks of up to mr; within a block, the 32-bit units of K of all
 * rows stand side by side, so that a kernel reads them with one pointer:
 *   bf16:  u32[ceil(K/2)][mr], a pair of K each; or, where products are made in float32
 *          (bf16_floats), the values as float[2 ceil(K/2)][mr]. Wide ones are not rounded: those
 *          floats, or two words a pair, u32[ceil(K/2)][2][mr], the high and the low halves of what
 *          bf16 splits them into
 *   f32:   float[K][mr]
 *   int8:  per 32 of K { u32 q[8][mr] of 4 K each; float scale[mr]; int32 zero[mr] }, scale that of
 *          its 128 of K, zero what the zero point of the weights adds: the sum of the 32 q times -8
 *          (W4) or -128 (W8). With w8_words that of W8 has u32 q[8][2][mr], the even and the odd two
 *          of 4 K as int16
 *   int16: per 32 of K { u32 q[8][2][mr] of 4 K each; float scale[mr]; int32 sum[2][mr] of the first
 *          and of the last 16 }, for weights of two levels and with groups_i16. The two are the high
 *          bytes and what is left to add to 256 times these, or, with AVX2 and in portable C, the
 *          even and the odd elements
 *   group: per 32 of K { u32[16][mr], a pair each, or u32[16][2][mr] when wide, or float[32][mr]
 *          with group_floats; without groups_i16 float sum[mr] of them }. For nibbles the pairs
 *          stand as in the kernel's loads
 * With tiles, each row's step of K is in one piece, zeros past its end: bf16 is
 * u32[ceil(K/32)][mr][16], or [ceil(K/32)][2][mr][16] when wide. Where mr is above CM_MR_I8, int8 has
 * u32 q[mr][8] or, for weights in groups of 128 or more, per 128 of K { u32 q[2][mr][16];
 * float scale[mr]; int32 zero[mr]; u32 unused[6][mr] }.
 */
#ifndef CM_SIMD_H
#define CM_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most rows of a packed block. */
#define CM_MR	    12 /* float32 activations */
#define CM_MR_I8    6  /* int8, which also have int32 sums */
#define CM_MR_I16   3  /* int16, which have two of these */
#define CM_MR_GROUP 8  /* floats for weights in groups; AVX2 has 6, AVX-512 without BF16 12 */
#define CM_MR_MAX   32 /* of any path */

/* acc[m][32] (+)= a block of packed rows times units of K of one panel. */
struct cm_panel {
	float *acc;
	const uint8_t *w;  /* units of the panel */
	const uint32_t *a; /* packed rows */
	size_t n;    /* units: pairs of K (bf16), K (f32, f16), blocks of 32 of K (the others) */
	unsigned mr; /* rows */
	bool first;  /* acc starts at 0 */
	bool wide;
	unsigned dtype, group; /* as in the tensor; whole groups unless the last */
	const uint8_t *ahead;  /* to be prefetched at the same time */
	unsigned pace;	       /* bytes of it for each 64 of w */
	const void *unpacked;  /* w in the form of unpack_group() or from_f16(), or NULL */
};

/* Bytes of a block of 32 of K from unpack_group(): pairs of bf16 in the layout of bf16 weights,
 * then 32 float32 scales. */
#define CM_UNPACKED_BYTES (16 * 128 + 128)

/* One KV head's share of ATTENTION for up to CM_ATT_ROWS query rows, over keys [from, to) of one
 * split. */
#define CM_ATT_ROWS 16
#define CM_ATT_TILE TXDA_ATTENTION_TILE /* keys of a step of the online softmax */

/* Keys and values of a sequence and head. */
struct cm_attend_keys {
	const uint8_t *cache;  /* layer and head within block 0 */
	const int32_t *blocks; /* of the sequence */
	uint32_t to;	       /* end of the keys */
};

struct cm_attend {
	unsigned rows, dim; /* query rows; head dim D */
	unsigned block_size;
	uint64_t block_stride;	    /* bytes between cache blocks */
	const uint8_t *cache;	    /* layer and head within block 0 */
	const int32_t *blocks;	    /* of the sequence */
	const void *q[CM_ATT_ROWS]; /* [D] bf16, or float32 if q_f32 */
	bool q_f32;
	/* Latent attention: keys and values are the same vectors, [block_size/2][v_stride][2]. */
	unsigned rope;			  /* elements of a key beyond dim; 0: not latent */
	const float *q_rope[CM_ATT_ROWS]; /* [rope] */
	unsigned v_stride;		  /* elements from one pair of values to the next */
	bool i8;			  /* TXDA_KV_INT8 */
	bool latent_i8;			  /* the same for latent attention */
	uint16_t *kv_pack;		  /* scratch for int8: [2][CM_ATT_TILE][v_stride] */
	uint32_t pos[CM_ATT_ROWS];	  /* position of each row: the last key that it sees */
	uint32_t first[CM_ATT_ROWS];	  /* the first key that it sees */
	uint32_t from,
		to; /* keys of this split that any row sees; from is a multiple of CM_ATT_TILE */
	float scale;
	float softcap;		    /* 0: none */
	float *max, *sum;	    /* [rows] results of the split */
	float *acc;		    /* [rows][acc_stride] */
	unsigned acc_stride;	    /* floats; D rounded up to 16 */
	uint32_t *q_pack;	    /* scratch: u32[CM_ATT_ROWS][2 D] */
	uint32_t *p_pack;	    /* scratch: u32[CM_ATT_ROWS][CM_ATT_TILE] */
	float *scores;		    /* scratch: [CM_ATT_ROWS][CM_ATT_TILE] */
	struct cm_attend_keys next; /* to be prefetched at the end, from next_from on; or NULL */
	uint32_t next_from;
};

/*
 * Output of the sums of a panel: act(sums + bias) + add, in 32 columns, or 16 gated ones, of
 * consecutive rows.
 */
struct cm_put {
	void *out; /* bf16, or float32 if f32 */
	size_t stride;
	bool f32;
	unsigned act; /* enum txda_activation */
	float limit;
	const float *bias;    /* of the columns, or of the gates; or NULL */
	const float *bias_up; /* of the gated values */
	const float *add;     /* residual, float32 as @out is then, with its stride; or NULL */
};

struct cm_simd {
	const char *name;
	bool bf16_floats;  /* products of bf16 weights use float32 */
	bool group_floats; /* and those of weights in groups with float activations */
	bool groups_i16;   /* W8, W4, W8Z and W4Z use int16 activations unless int8 ones */
	bool w8_words;	   /* int8 activations of W8 are packed as words */
	bool tiles;	   /* packed activations have the layouts for tiles */
	unsigned mr, mr_i8, mr_i16, mr_group; /* most rows of a block: bf16, int8, int16, groups */
	unsigned unpack_rows; /* more rows than that get weights from unpack_group() */
	/* See cm_ops_rest(); or NULL. */
	void (*rest)(void);
	/* out = x / rms(x) * w, [n] */
	void (*rmsnorm)(float *out, const float *x, const float *w, size_t n, float eps);
	/* Conversions; to_bf16() rounds to nearest even. */
	void (*from_bf16)(float *out, const uint16_t *x, size_t n);
	void (*to_bf16)(uint16_t *out, const float *x, size_t n);
	/* @n a multiple of 16; NULL where products of float16 are no slower than those of float32 */
	void (*from_f16)(float *out, const uint16_t *x, size_t n);
	/* Packs one row [k] as row @m of a block of @mr. */
	void (*pack_bf16)(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
			  bool wide);
	void (*pack_f32)(float *block, unsigned mr, unsigned m, const float *x, size_t k);
	/* For weights with that zero point, in groups of @group. */
	void (*pack_i8)(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
			unsigned zero, unsigned group);
	/* to[i * mr + r] = rows[r][i]: rows of @n words, each packed alone, to a block of @mr. */
	void (*interleave)(uint32_t *to, unsigned mr, const uint32_t *const *rows, unsigned n_rows,
			   size_t n);
	void (*panel_bf16)(const struct cm_panel *p);
	void (*panel_f16)(const struct cm_panel *p);
	void (*panel_f32)(const struct cm_panel *p);
	void (*panel_w8)(const struct cm_panel *p);
	void (*panel_w4)(const struct cm_panel *p);
	/* As for w8 and w4, but with int16 activations: weights of two levels and, with groups_i16, W8,
	 * W4, W8Z and W4Z. */
	void (*pack_i16)(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k);
	void (*panel_i16)(const struct cm_panel *p);
	/* And with float activations: F8, MX4 and, without groups_i16, W8, W4, W8Z and W4Z. */
	void (*pack_group)(uint32_t *block, unsigned mr, unsigned m, const float *x, size_t k,
			   bool nibbles, bool wide);
	void (*panel_group)(const struct cm_panel *p);
	/* Unpacks the weights of @p to @to, CM_UNPACKED_BYTES for each block, once for many rows;
	 * or NULL. */
	void (*unpack_group)(uint8_t *to, const struct cm_panel *p);
	/* y[2 pairs] = x rotated: pairs (i, i + pairs) by the angles of cos[pairs], sin[pairs] */
	void (*rotate)(float *y, const float *x, const float *cs, const float *sn, unsigned pairs);
	/* to[2 i] = h[i]; does not access the elements between, which other cores may be writing */
	void (*put_every_other)(uint16_t *to, const uint16_t *h, size_t n);
	/* Writes the output of acc[rows][32]. */
	void (*put)(const struct cm_put *p, const float *acc, unsigned rows);
	void (*attend)(const struct cm_attend *a);
	/* One token of a head of DELTA_RULE: decays the state s[k_dim][v_dim], v_dim a multiple of
	 * 16, and applies the rule with @beta; out[v_dim], scratch tmp[v_dim] */
	void (*delta_step)(float *s, unsigned k_dim, unsigned v_dim, const float *q, const float *k,
			   const float *v, float decay, float beta, float *out, float *tmp);
	/* scores[i] = sum over heads h of weights[h] * max(0, q[h][dim] . keys[i][dim]), for @n
	 * bf16 keys; @dim is a multiple of 16 */
	void (*index_scores)(float *scores, const float *q, const float *weights, unsigned heads,
			     unsigned dim, const uint16_t *keys, unsigned n);
	/* Largest of x[n] (NaN as -inf), and the sum of exp(x - max). */
	float (*row_max)(const float *x, size_t n);
	float (*sum_exp)(const float *x, size_t n, float max);
	/* out = a + b, out = a * x + b * y over [n] */
	void (*add)(float *out, const float *a, const float *b, size_t n);
	void (*blend)(float *out, float a, const float *x, float b, const float *y, size_t n);
	/* Index of the first element in [i, n) above @than, or n. */
	size_t (*next_above)(const float *x, size_t i, size_t n, float than);
	/* out = (x - mean) / deviation * w + b over [n]; b may be NULL */
	void (*layernorm)(float *out, const float *x, const float *w, const float *b, size_t n,
			  float eps);
};

extern const struct cm_simd cm_simd_c;
#if defined(__x86_64__)
extern const struct cm_simd cm_simd_avx2;
/* And AVX-VNNI; fills *@s. */
void cm_simd_put_avxvnni(struct cm_simd *s);
extern const struct cm_simd cm_simd_avx512;	/* F, BW, VL, DQ, VNNI */
extern const struct cm_simd cm_simd_avx512bf16; /* and BF16, VBMI */
/* And AMX: TILE, BF16, INT8; fills *@s. */
void cm_simd_put_amx(struct cm_simd *s);
#elif defined(__aarch64__)
extern const struct cm_simd cm_simd_neon;     /* dotprod */
extern const struct cm_simd cm_simd_neonbf16; /* and bf16, i8mm */
#endif

/* The path in use; set by cm_ops_init() while nobody uses it. */
extern const struct cm_simd *cm_simd;

#endif /* CM_SIMD_H */
