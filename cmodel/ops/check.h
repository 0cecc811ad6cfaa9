/* SPDX-License-Identifier: MIT */
/* Checks that the ops share. On an error each fills the launch's fault and returns -EINVAL. */
#ifndef CM_OPS_CHECK_H
#define CM_OPS_CHECK_H

#include "ops.h"

#define CM_ANY	  UINT64_MAX	   /* any extent */
#define CM_VECTOR (UINT64_MAX - 1) /* no second dimension */
#define DT(t)	  (1u << (t))
#define DT_ACT	  (DT(TXDA_F32) | DT(TXDA_BF16))
#define DT_WEIGHT                                                                                  \
	(DT(TXDA_F32) | DT(TXDA_BF16) | DT(TXDA_F16) | DT(TXDA_W8) | DT(TXDA_W4) | DT(TXDA_W8Z) |  \
	 DT(TXDA_W4Z) | DT(TXDA_F8) | DT(TXDA_MX4) | DT(TXDA_W4M) | DT(TXDA_W5M) | DT(TXDA_W6S))

/* A row-major tensor of one of @dtypes with shape [d0, d1], or [d0] if d1 is CM_VECTOR. */
int cm_want(const struct cm_launch *l, const struct cm_tensor *t, unsigned dtypes, uint64_t d0,
	    uint64_t d1);
/* The same, but @t may be NULL. */
int cm_may(const struct cm_launch *l, const struct cm_tensor *t, unsigned dtypes, uint64_t d0,
	   uint64_t d1);
/* Weight tiles [n, k], in a gated layout if and only if @gated. */
int cm_want_tiles(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t k,
		  bool gated);
/* A stack of such matrices, [any, n, k]. */
int cm_want_stack(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t k,
		  bool gated);
/* The limit of activation @act: positive if it has one, else 0. */
int cm_want_limit(const struct cm_launch *l, uint32_t act, float limit);
/* Each of the first @n indices of @t is below @limit, or TXDA_NONE if @also is that (else 0). */
int cm_want_index(const struct cm_launch *l, const struct cm_tensor *t, uint64_t n, uint64_t limit,
		  uint32_t also);

/* A paged cache whose blocks have room for a layer of that geometry at @layer_offset, in precise
 * mode as float32; heads must be a multiple of kv_heads. */
int cm_want_cache(const struct cm_launch *l, const struct cm_tensor *t, uint32_t heads,
		  uint32_t kv_heads, uint32_t dim, uint32_t block_size, uint64_t layer_offset,
		  bool i8);

/* The same for a layer of latent attention. */
int cm_want_latent_cache(const struct cm_launch *l, const struct cm_tensor *t, uint32_t heads,
			 uint32_t latent, uint32_t rope, uint32_t block_size, uint64_t layer_offset,
			 bool i8);

/* Blocks of a cache have room for @bytes of a layer at @layer_offset. */
int cm_want_room(const struct cm_launch *l, const struct cm_tensor *t, uint64_t bytes,
		 uint64_t layer_offset);

/* A ragged batch of @tokens tokens over a paged cache: block table, spans and contexts (ATTENTION
 * in txda_isa.h). */
int cm_want_batch(const struct cm_launch *l, uint64_t tokens, const struct cm_tensor *cache,
		  const struct cm_tensor *table, const struct cm_tensor *spans,
		  const struct cm_tensor *ctx, uint32_t block_size);

/* Rotates the first 2 * @pairs of @dim elements by the angles in a row of a ROPE_TABLE. */
void cm_rotate(const float *x, const float *table, unsigned pairs, unsigned dim, bool inter,
	       float *y);

/*
 * Values of attention as bf16. Their probability is 0 for a query that does not see them, but 0 times
 * infinity is NaN: so false, and zeros, if one is not finite. Then the caller makes the key NaN, since
 * scores of keys that a query does not see are replaced.
 */
bool cm_put_values(uint16_t *h, const float *v, size_t n);
#define CM_BF16_NAN 0x7fc0

/* One element of a weight tile as float32; the shared definition of every tile format. */
float cm_tile_get(const struct cm_tensor *w, uint64_t n, uint64_t k);
/* Row @n of W as float32[k]. */
void cm_tile_row(const struct cm_tensor *w, uint64_t n, float *out);
/* RMSNORM of precise mode, with sums in double. */
void cm_precise_norm(float *out, const float *x, const float *w, size_t n, float eps);

/* Index @i of an index tensor, read once: the client may write there at any time. */
static inline uint32_t cm_index_at(const struct cm_tensor *t, uint64_t i)
{
	return __atomic_load_n((const uint32_t *)t->ptr + i, __ATOMIC_RELAXED);
}

static inline uint64_t cm_div_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* The row after the last one of part @part, where each part has @each of @rows. */
static inline uint64_t cm_part_end(unsigned part, uint64_t each, uint64_t rows)
{
	uint64_t end = (part + (uint64_t)1) * each;

	return end < rows ? end : rows;
}

/* Ops that compute the rows of their output one by one (rows.c): a part is a range of rows. */
#define CM_ROWS_PER_PART 16
void cm_rows_plan(struct cm_launch *l);
void cm_rows_need(const struct cm_launch *l, struct cm_op_need *need);
void cm_rows_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written);

/* Makes the numbers of LINEAR launches unpredictable; called when a path is chosen. */
void cm_linear_seed(void);

extern const struct cm_op_impl cm_op_embed, cm_op_rmsnorm, cm_op_linear, cm_op_rope_table,
	cm_op_rope_kv, cm_op_attention, cm_op_gather_rows, cm_op_topk, cm_op_all_reduce,
	cm_op_all_gather, cm_op_silu_mul, cm_op_route, cm_op_moe_linear, cm_op_moe_combine,
	cm_op_mla_store, cm_op_mla_attention, cm_op_index_store, cm_op_index_select,
	cm_op_mla_sparse, cm_op_delta_conv, cm_op_delta_rule, cm_op_gate, cm_op_layernorm,
	cm_op_interpolate, cm_op_span_attention, cm_op_merge_rows;

#endif /* CM_OPS_CHECK_H */
