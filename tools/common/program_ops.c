// SPDX-License-Identifier: MIT
/* Checks the operands of each opcode against its contract: program_check_op(). */
#include "program_view.h"
#include "isa_names.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define TYPE(dtype) (1u << (dtype))
#define F32	    TYPE(TXDA_F32)
#define I32	    TYPE(TXDA_I32)
#define FLOATS	    (F32 | TYPE(TXDA_BF16))
#define WEIGHTS                                                                                    \
	(FLOATS | TYPE(TXDA_F16) | TYPE(TXDA_W8) | TYPE(TXDA_W4) | TYPE(TXDA_W8Z) |                \
	 TYPE(TXDA_W4Z) | TYPE(TXDA_F8) | TYPE(TXDA_MX4) | TYPE(TXDA_W4M) | TYPE(TXDA_W5M) |       \
	 TYPE(TXDA_W6S))

/* The operands of an op: which are required, and their types. */
struct op_contract {
	uint8_t n_in, n_out;
	uint8_t required; /* bit i: in[i] must be given */
	uint16_t in[6], out[3];
	uint8_t params;	      /* words of raw[] that have a meaning */
	uint8_t optional_out; /* bit i: out[i] may be missing */
};

static const struct op_contract contracts[TXDA_OP_COUNT] = {
	[TXDA_OP_EMBED] = {2, 1, 3, {I32, WEIGHTS}, {F32}, 3},
	[TXDA_OP_RMSNORM] = {3, 1, 3, {F32, F32, F32}, {FLOATS}, 1},
	[TXDA_OP_LINEAR] = {6, 1, 3, {FLOATS, WEIGHTS, F32, F32, F32, I32}, {FLOATS}, 5},
	[TXDA_OP_ROPE_TABLE] = {3, 1, 3, {I32, F32, I32}, {F32}, 5},
	[TXDA_OP_ROPE_KV] = {5, 2, 7, {FLOATS, F32, I32, F32, F32}, {FLOATS, TYPE(TXDA_U8)}, 8},
	[TXDA_OP_ATTENTION] = {6, 1, 31, {FLOATS, TYPE(TXDA_U8), I32, I32, I32, F32}, {FLOATS}, 10},
	[TXDA_OP_GATHER_ROWS] = {2, 1, 3, {F32, I32}, {F32}, 0},
	[TXDA_OP_TOPK] = {1, 3, 1, {F32}, {I32, F32, F32}, 1},
	[TXDA_OP_ALL_REDUCE] = {2, 1, 1, {F32, F32}, {F32}, 0},
	[TXDA_OP_ALL_GATHER] = {1, 1, 1, {F32}, {F32}, 0},
	[TXDA_OP_SILU_MUL] = {1, 1, 1, {F32}, {FLOATS}, 2},
	[TXDA_OP_ROUTE] = {2, 2, 1, {F32, F32}, {I32, F32}, 5},
	[TXDA_OP_MOE_LINEAR] = {6, 1, 3, {FLOATS, WEIGHTS, I32, F32, I32, F32}, {FLOATS}, 7},
	[TXDA_OP_MLA_STORE] = {5, 2, 31, {F32, F32, I32, F32, F32}, {FLOATS, TYPE(TXDA_U8)}, 8},
	[TXDA_OP_MLA_ATTENTION] = {6, 1, 63, {F32, F32, TYPE(TXDA_U8), I32, I32, I32}, {FLOATS}, 8},
	[TXDA_OP_INDEX_STORE] = {6, 2, 63, {F32, F32, I32, F32, F32, F32}, {F32, TYPE(TXDA_U8)}, 7},
	[TXDA_OP_INDEX_SELECT] =
		{6, 2, 63, {F32, F32, TYPE(TXDA_U8), I32, I32, I32}, {I32, I32}, 7, 2},
	[TXDA_OP_MLA_SPARSE] = {4, 1, 15, {F32, F32, TYPE(TXDA_U8), I32}, {FLOATS}, 8},
	[TXDA_OP_DELTA_CONV] = {5, 2, 31, {F32, F32, I32, I32, I32}, {F32, TYPE(TXDA_U8)}, 4},
	[TXDA_OP_DELTA_RULE] = {6, 2, 63, {F32, F32, F32, I32, I32, I32}, {F32, TYPE(TXDA_U8)}, 8},
	[TXDA_OP_GATE] = {3, 1, 3, {F32, F32, F32}, {F32}, 2},
	[TXDA_OP_MOE_COMBINE] = {6, 1, 7, {F32, I32, F32, F32, F32, F32}, {F32}, 2},
	[TXDA_OP_LAYERNORM] = {3, 1, 3, {F32, F32, F32}, {FLOATS}, 2},
	[TXDA_OP_INTERPOLATE] = {4, 1, 15, {F32, F32, I32, F32}, {F32}, 0},
	[TXDA_OP_SPAN_ATTENTION] = {3, 1, 3, {F32, I32, F32}, {FLOATS}, 3},
	[TXDA_OP_MERGE_ROWS] = {3, 1, 7, {F32, F32, I32}, {F32}, 2},
};

struct op_check {
	const struct program_view *v;
	const struct txda_op *op;
	const struct txda_tensor *in[6], *out[3]; /* NULL: not given */
	struct tool_error *error;
};

static int resolve(struct op_check *c, const struct op_contract *k)
{
	uint32_t n = c->v->header->n_tensors;
	unsigned i;

	for (i = 0; i < 6 + 3; i++) {
		bool is_in = i < 6;
		unsigned j = is_in ? i : i - 6;
		uint32_t t = is_in ? c->op->in[j] : c->op->out[j];
		bool known = j < (is_in ? k->n_in : k->n_out);

		if (t == TXDA_NONE) {
			bool gather_rank = c->op->op == TXDA_OP_ALL_GATHER && c->v->header->rank;

			if (known && (is_in ? k->required >> j & 1
					    : !gather_rank && !(k->optional_out >> j & 1)))
				return tool_fail(c->error, -EINVAL, "%s %u is missing",
						 is_in ? "input" : "output", j);
			continue;
		}
		if (!known || t >= n)
			return tool_fail(c->error, -EINVAL,
					 "%s %u is tensor %u of %u, or not wanted",
					 is_in ? "input" : "output", j, t, n);
		if (!((is_in ? k->in[j] : k->out[j]) >> c->v->tensors[t].dtype & 1))
			return tool_fail(c->error, -EINVAL, "%s %u has the type %s",
					 is_in ? "input" : "output", j,
					 isa_dtype_name(c->v->tensors[t].dtype));
		*(is_in ? &c->in[j] : &c->out[j]) = &c->v->tensors[t];
	}
	return 0;
}

static bool same_dim(struct txda_dim a, struct txda_dim b)
{
	return a.sym == b.sym && a.mul == b.mul;
}

/* Whether @t (NULL: accepted) is row-major with exactly these extents. */
static bool is_rows(const struct txda_tensor *t, unsigned ndim, struct txda_dim a,
		    struct txda_dim b)
{
	return !t || (t->layout == TXDA_ROWS && t->ndim == ndim && same_dim(t->dim[0], a) &&
		      (ndim == 1 || same_dim(t->dim[1], b)));
}

static struct txda_dim fixed(uint32_t n)
{
	return (struct txda_dim){0, n};
}

static struct txda_dim symbol(uint32_t sym)
{
	return (struct txda_dim){sym, 1};
}

static bool matrix(const struct txda_tensor *t)
{
	return t->layout == TXDA_ROWS && t->ndim == 2 && !t->dim[1].sym;
}

static bool tiles(const struct txda_tensor *t)
{
	return (t->layout == TXDA_TILE32 || t->layout == TXDA_TILE32_GATED) && t->ndim == 2 &&
	       !t->dim[0].sym && !t->dim[1].sym;
}

static bool check_embed(const struct op_check *c)
{
	const struct txda_tensor *table = c->in[1];
	const struct txda_op_embed *p = &c->op->embed;

	return tiles(table) && table->layout == TXDA_TILE32 && isfinite(p->scale) && p->vocab &&
	       p->first <= p->vocab && c->in[0]->ndim == 1 &&
	       is_rows(c->in[0], 1, c->in[0]->dim[0], fixed(0)) &&
	       is_rows(c->out[0], 2, c->in[0]->dim[0], table->dim[1]);
}

static bool limit_fits(uint32_t act, float limit)
{
	return txda_is_limited(act) ? limit > 0 && isfinite(limit) : limit == 0;
}

static bool check_linear(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0], *w = c->in[1], *out = c->out[0];
	const struct txda_op_linear *p = &c->op->linear;
	bool gated = txda_is_gated(p->act);
	uint32_t width;

	if (!matrix(x) || !tiles(w) || !matrix(out) || p->act >= TXDA_ACT_COUNT || !(p->eps >= 0) ||
	    (p->flags & ~(TXDA_LINEAR_F32_INPUT | TXDA_LINEAR_FLOAT_INPUT)) ||
	    !limit_fits(p->act, p->limit) || gated != (w->layout == TXDA_TILE32_GATED) ||
	    (gated && w->dim[0].mul % 2))
		return false;
	width = gated ? w->dim[0].mul / 2 : w->dim[0].mul;
	if (out->dim[1].mul < width || p->out_col > out->dim[1].mul - width ||
	    (c->in[4] && out->dim[1].mul != width))
		return false;
	return (c->in[5] || same_dim(x->dim[1], w->dim[1])) &&
	       is_rows(c->in[2], 1, w->dim[0], fixed(0)) &&
	       is_rows(c->in[3], 1, x->dim[1], fixed(0)) &&
	       is_rows(c->in[4], 2, x->dim[0], fixed(width)) &&
	       is_rows(c->in[5], 1, w->dim[1], fixed(0)) && same_dim(out->dim[0], x->dim[0]);
}

static struct txda_dim times(struct txda_dim d, uint32_t n)
{
	return (struct txda_dim){d.sym, d.mul * n};
}

static bool check_route(const struct op_check *c)
{
	const struct txda_op_route *p = &c->op->route;
	const struct txda_tensor *x = c->in[0];
	uint32_t experts = x->dim[1].mul;

	return matrix(x) && experts <= TXDA_ROUTE_MAX_EXPERTS && p->k && p->k <= TXDA_ROUTE_MAX_K &&
	       p->k <= experts && p->n_groups && experts % p->n_groups == 0 && p->top_groups &&
	       p->top_groups <= p->n_groups && isfinite(p->scale) &&
	       !(p->flags & ~(TXDA_ROUTE_SIGMOID | TXDA_ROUTE_TOP2 | TXDA_ROUTE_NORMALISE)) &&
	       is_rows(c->in[1], 1, x->dim[1], fixed(0)) &&
	       is_rows(c->out[0], 2, x->dim[0], fixed(p->k)) &&
	       is_rows(c->out[1], 2, x->dim[0], fixed(p->k));
}

static bool check_moe_linear(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0], *w = c->in[1], *ids = c->in[2], *out = c->out[0];
	const struct txda_op_moe_linear *p = &c->op->moe_linear;
	bool gated = txda_is_gated(p->act);
	struct txda_dim rows;
	uint32_t e, width;

	if (!matrix(x) || !matrix(out) || w->ndim != 3 || (p->act != TXDA_ACT_NONE && !gated) ||
	    !(p->eps >= 0) || (p->flags & ~(TXDA_LINEAR_F32_INPUT | TXDA_LINEAR_FLOAT_INPUT)) ||
	    w->layout != (gated ? TXDA_TILE32_GATED : TXDA_TILE32) || !w->dim[0].mul ||
	    !limit_fits(p->act, p->limit))
		return false;
	e = w->dim[0].mul;
	width = gated ? w->dim[1].mul / 2 : w->dim[1].mul;
	if (c->in[4] && !is_rows(c->in[4], 2, w->dim[0], w->dim[2]))
		return false;
	if (!ids)
		return !p->n_experts && !p->first && !p->out_col && !c->in[3] && !c->in[4] &&
		       !c->in[5] && x->dim[1].mul == e * w->dim[2].mul &&
		       out->dim[1].mul == e * width && same_dim(out->dim[0], x->dim[0]);
	rows = times(ids->dim[0], ids->dim[1].mul);
	return matrix(ids) && (same_dim(x->dim[0], ids->dim[0]) || same_dim(x->dim[0], rows)) &&
	       same_dim(out->dim[0], rows) && p->first < p->n_experts &&
	       e <= p->n_experts - p->first && out->dim[1].mul >= width &&
	       p->out_col <= out->dim[1].mul - width &&
	       (c->in[4] || same_dim(x->dim[1], w->dim[2])) &&
	       is_rows(c->in[3], 1, x->dim[1], fixed(0)) &&
	       is_rows(c->in[5], 2, w->dim[0], w->dim[1]);
}

static bool check_moe_combine(const struct op_check *c)
{
	const struct txda_tensor *ids = c->in[1], *out = c->out[0];

	return matrix(ids) && matrix(out) && same_dim(out->dim[0], ids->dim[0]) &&
	       is_rows(c->in[0], 2, times(ids->dim[0], ids->dim[1].mul), out->dim[1]) &&
	       is_rows(c->in[2], 2, ids->dim[0], ids->dim[1]) &&
	       is_rows(c->in[3], 2, out->dim[0], out->dim[1]) &&
	       is_rows(c->in[4], 2, out->dim[0], out->dim[1]) &&
	       is_rows(c->in[5], 2, out->dim[0], fixed(1));
}

static bool block_fits(const struct txda_tensor *cache, uint32_t heads, uint32_t kv_heads,
		       uint32_t head_dim, uint32_t block, uint64_t layer_offset, bool i8)
{
	uint64_t bytes;

	if (cache->layout != TXDA_KV_PAGED || cache->ndim != 2 ||
	    !same_dim(cache->dim[0], symbol(TXDA_SYM_N)) || cache->dim[1].sym)
		return false;
	if (!heads || !kv_heads || heads > 65536 || kv_heads > heads || heads % kv_heads ||
	    !head_dim || head_dim % 2 || head_dim > 512)
		return false;
	if (!txda_is_block_size(block))
		return false;
	bytes = i8 ? txda_kv8_layer_bytes(kv_heads, head_dim, block)
		   : txda_kv_layer_bytes(kv_heads, head_dim, block);
	return layer_offset % 64 == 0 && bytes <= cache->dim[1].mul &&
	       layer_offset <= cache->dim[1].mul - bytes;
}

static bool check_rope_kv(const struct op_check *c)
{
	const struct txda_op_rope_kv *p = &c->op->rope_kv;
	const struct txda_tensor *qkv = c->in[0], *table = c->in[1];

	if (!block_fits(c->out[1], p->n_heads, p->n_kv_heads, p->head_dim, p->block_size,
			p->layer_offset, p->flags & TXDA_KV_INT8) ||
	    (p->flags & ~(TXDA_ROPE_INTERLEAVED | TXDA_KV_INT8)) || !(p->eps >= 0) ||
	    !matrix(qkv) || !matrix(table))
		return false;
	return qkv->dim[1].mul == (p->n_heads + 2 * p->n_kv_heads) * p->head_dim &&
	       table->dim[1].mul % 2 == 0 && table->dim[1].mul <= p->head_dim &&
	       same_dim(table->dim[0], qkv->dim[0]) &&
	       is_rows(c->in[2], 1, qkv->dim[0], fixed(0)) &&
	       is_rows(c->in[3], 1, fixed(p->head_dim), fixed(0)) &&
	       is_rows(c->in[4], 1, fixed(p->head_dim), fixed(0)) &&
	       is_rows(c->out[0], 2, qkv->dim[0], fixed(p->n_heads * p->head_dim));
}

static bool latent_fits(const struct txda_tensor *cache, uint32_t heads, uint32_t latent,
			uint32_t rope, uint32_t block, uint64_t layer_offset, bool i8)
{
	uint64_t bytes = i8 ? txda_mla8_layer_bytes(latent, rope, block)
			    : txda_mla_layer_bytes(latent, rope, block);

	return cache->layout == TXDA_KV_PAGED && cache->ndim == 2 &&
	       same_dim(cache->dim[0], symbol(TXDA_SYM_N)) && !cache->dim[1].sym && heads &&
	       heads <= 65536 && latent && latent <= TXDA_MLA_MAX_LATENT && rope && rope % 2 == 0 &&
	       rope <= TXDA_MLA_MAX_ROPE && txda_is_block_size(block) && layer_offset % 64 == 0 &&
	       bytes <= cache->dim[1].mul && layer_offset <= cache->dim[1].mul - bytes;
}

static bool check_mla_store(const struct op_check *c)
{
	const struct txda_op_mla_store *p = &c->op->mla_store;
	struct txda_dim t = c->in[0]->dim[0];

	return latent_fits(c->out[1], p->n_heads, p->latent, p->rope, p->block_size,
			   p->layer_offset, p->flags & TXDA_KV_INT8) &&
	       !(p->flags & ~(TXDA_ROPE_INTERLEAVED | TXDA_KV_INT8)) && p->eps >= 0 &&
	       is_rows(c->in[0], 2, t, fixed(p->n_heads * p->rope)) &&
	       is_rows(c->in[1], 2, t, fixed(p->rope)) && is_rows(c->in[2], 1, t, fixed(0)) &&
	       is_rows(c->in[3], 2, t, fixed(p->latent + p->rope)) &&
	       is_rows(c->in[4], 1, fixed(p->latent), fixed(0)) &&
	       is_rows(c->out[0], 2, t, fixed(p->n_heads * p->rope));
}

static bool check_mla_attention(const struct op_check *c)
{
	const struct txda_op_mla_attention *p = &c->op->mla_attention;
	struct txda_dim t = c->in[0]->dim[0];

	return latent_fits(c->in[2], p->n_heads, p->latent, p->rope, p->block_size, p->layer_offset,
			   p->flags & TXDA_KV_INT8) &&
	       !(p->flags & ~TXDA_KV_INT8) && isfinite(p->scale) &&
	       is_rows(c->in[0], 2, t, fixed(p->n_heads * p->latent)) &&
	       is_rows(c->in[1], 2, t, fixed(p->n_heads * p->rope)) &&
	       is_rows(c->in[3], 2, symbol(TXDA_SYM_S), symbol(TXDA_SYM_B)) &&
	       is_rows(c->in[4], 2, symbol(TXDA_SYM_S), fixed(2)) &&
	       is_rows(c->in[5], 1, symbol(TXDA_SYM_S), fixed(0)) &&
	       is_rows(c->out[0], 2, t, fixed(p->n_heads * p->latent));
}

static bool index_fits(const struct txda_tensor *cache, uint32_t heads, uint32_t dim,
		       uint32_t block, uint64_t layer_offset)
{
	uint64_t bytes = txda_index_layer_bytes(dim, block);

	return cache->layout == TXDA_KV_PAGED && cache->ndim == 2 &&
	       same_dim(cache->dim[0], symbol(TXDA_SYM_N)) && !cache->dim[1].sym && heads &&
	       heads <= 65536 && dim && dim % 2 == 0 && dim <= TXDA_INDEX_MAX_DIM &&
	       txda_is_block_size(block) && layer_offset % 64 == 0 && bytes <= cache->dim[1].mul &&
	       layer_offset <= cache->dim[1].mul - bytes;
}

static bool check_index_store(const struct op_check *c)
{
	const struct txda_op_index_store *p = &c->op->index_store;
	const struct txda_tensor *table = c->in[1];
	struct txda_dim t = c->in[0]->dim[0];

	return index_fits(c->out[1], p->n_heads, p->dim, p->block_size, p->layer_offset) &&
	       !(p->flags & ~TXDA_ROPE_INTERLEAVED) && p->eps >= 0 && matrix(table) &&
	       table->dim[1].mul % 2 == 0 && table->dim[1].mul <= p->dim &&
	       same_dim(table->dim[0], t) && is_rows(c->in[0], 2, t, fixed(p->n_heads * p->dim)) &&
	       is_rows(c->in[2], 1, t, fixed(0)) && is_rows(c->in[3], 2, t, fixed(p->dim)) &&
	       is_rows(c->in[4], 1, fixed(p->dim), fixed(0)) &&
	       is_rows(c->in[5], 1, fixed(p->dim), fixed(0)) &&
	       is_rows(c->out[0], 2, t, fixed(p->n_heads * p->dim));
}

static bool check_index_select(const struct op_check *c)
{
	const struct txda_op_index_select *p = &c->op->index_select;
	const struct txda_tensor *positions = c->out[1];
	struct txda_dim t = c->in[0]->dim[0];

	if (!p->keys || p->keys > TXDA_INDEX_MAX_KEYS)
		return false;
	if (positions ? !matrix(positions) || !same_dim(positions->dim[0], t) ||
				positions->dim[1].mul < p->keys ||
				p->out_col > positions->dim[1].mul - p->keys
		      : p->out_col != 0)
		return false;
	return index_fits(c->in[2], p->n_heads, p->dim, p->block_size, p->layer_offset) &&
	       is_rows(c->in[0], 2, t, fixed(p->n_heads * p->dim)) &&
	       is_rows(c->in[1], 2, t, fixed(p->n_heads)) &&
	       is_rows(c->in[3], 2, symbol(TXDA_SYM_S), symbol(TXDA_SYM_B)) &&
	       is_rows(c->in[4], 2, symbol(TXDA_SYM_S), fixed(2)) &&
	       is_rows(c->in[5], 1, symbol(TXDA_SYM_S), fixed(0)) &&
	       is_rows(c->out[0], 2, t, fixed(p->keys));
}

static bool check_mla_sparse(const struct op_check *c)
{
	const struct txda_op_mla_attention *p = &c->op->mla_attention;
	const struct txda_tensor *slots = c->in[3];
	struct txda_dim t = c->in[0]->dim[0];

	return latent_fits(c->in[2], p->n_heads, p->latent, p->rope, p->block_size, p->layer_offset,
			   p->flags & TXDA_KV_INT8) &&
	       !(p->flags & ~TXDA_KV_INT8) && isfinite(p->scale) &&
	       is_rows(c->in[0], 2, t, fixed(p->n_heads * p->latent)) &&
	       is_rows(c->in[1], 2, t, fixed(p->n_heads * p->rope)) && matrix(slots) &&
	       same_dim(slots->dim[0], t) && slots->dim[1].mul <= TXDA_INDEX_MAX_KEYS &&
	       is_rows(c->out[0], 2, t, fixed(p->n_heads * p->latent));
}

static bool state_fits(const struct txda_tensor *cache, uint64_t layer_offset, uint64_t bytes)
{
	return cache->layout == TXDA_KV_PAGED && cache->ndim == 2 &&
	       same_dim(cache->dim[0], symbol(TXDA_SYM_N)) && !cache->dim[1].sym &&
	       layer_offset % 64 == 0 && bytes <= cache->dim[1].mul &&
	       layer_offset <= cache->dim[1].mul - bytes;
}

/* State table, spans and contexts from in[@at] on. */
static bool is_states(const struct op_check *c, unsigned at)
{
	return matrix(c->in[at]) && same_dim(c->in[at]->dim[0], symbol(TXDA_SYM_S)) &&
	       c->in[at]->dim[1].mul % 3 == 1 &&
	       is_rows(c->in[at + 1], 2, symbol(TXDA_SYM_S), fixed(2)) &&
	       is_rows(c->in[at + 2], 1, symbol(TXDA_SYM_S), fixed(0));
}

static bool check_delta_conv(const struct op_check *c)
{
	const struct txda_op_delta_conv *p = &c->op->delta_conv;
	const struct txda_tensor *x = c->in[0], *w = c->in[1];

	return matrix(x) && matrix(w) && same_dim(w->dim[0], x->dim[1]) && w->dim[1].mul >= 2 &&
	       w->dim[1].mul <= TXDA_DELTA_MAX_KERNEL && !p->reserved && is_states(c, 2) &&
	       is_rows(c->out[0], 2, x->dim[0], x->dim[1]) &&
	       state_fits(c->out[1], p->layer_offset,
			  txda_conv_state_bytes(x->dim[1].mul, w->dim[1].mul)) &&
	       p->first < c->in[2]->dim[1].mul / 3;
}

static bool check_delta_rule(const struct op_check *c)
{
	const struct txda_op_delta_rule *p = &c->op->delta_rule;
	struct txda_dim t = c->in[0]->dim[0];
	uint32_t values, blocks;

	if (!p->n_k_heads || p->n_v_heads > 65536 || p->n_v_heads < p->n_k_heads ||
	    p->n_v_heads % p->n_k_heads || !p->k_dim || p->k_dim > TXDA_DELTA_MAX_DIM ||
	    !p->v_dim || p->v_dim > TXDA_DELTA_MAX_DIM || !p->per_block ||
	    p->per_block > p->n_v_heads)
		return false;
	values = p->n_v_heads * p->v_dim;
	blocks = (p->n_v_heads + p->per_block - 1) / p->per_block;
	return is_rows(c->in[0], 2, t, fixed(2 * p->n_k_heads * p->k_dim + values)) &&
	       is_rows(c->in[1], 2, t, fixed(2 * p->n_v_heads)) &&
	       is_rows(c->in[2], 2, fixed(2), fixed(p->n_v_heads)) && is_states(c, 3) &&
	       p->first < c->in[3]->dim[1].mul / 3 &&
	       blocks <= c->in[3]->dim[1].mul / 3 - p->first &&
	       is_rows(c->out[0], 2, t, fixed(values)) &&
	       state_fits(c->out[1], p->layer_offset,
			  p->per_block * txda_delta_state_bytes(p->k_dim, p->v_dim));
}

static bool check_gate(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0], *norm = c->in[2];

	return matrix(x) && !(c->op->gate.flags & ~TXDA_GATE_SILU) && c->op->gate.eps >= 0 &&
	       is_rows(c->in[1], 2, x->dim[0], x->dim[1]) &&
	       (!norm || (norm->layout == TXDA_ROWS && norm->ndim == 1 && !norm->dim[0].sym &&
			  x->dim[1].mul % norm->dim[0].mul == 0)) &&
	       is_rows(c->out[0], 2, x->dim[0], x->dim[1]);
}

static bool check_attention(const struct op_check *c)
{
	const struct txda_op_attention *p = &c->op->attention;
	struct txda_dim width = fixed(p->n_heads * p->head_dim), t = c->in[0]->dim[0];

	return block_fits(c->in[1], p->n_heads, p->n_kv_heads, p->head_dim, p->block_size,
			  p->layer_offset, p->flags & TXDA_KV_INT8) &&
	       !(p->flags & ~TXDA_KV_INT8) && isfinite(p->scale) && p->softcap >= 0 &&
	       isfinite(p->softcap) && is_rows(c->in[0], 2, t, width) &&
	       is_rows(c->in[2], 2, symbol(TXDA_SYM_S), symbol(TXDA_SYM_B)) &&
	       is_rows(c->in[3], 2, symbol(TXDA_SYM_S), fixed(2)) &&
	       is_rows(c->in[4], 1, symbol(TXDA_SYM_S), fixed(0)) &&
	       is_rows(c->in[5], 1, fixed(p->n_heads), fixed(0)) && is_rows(c->out[0], 2, t, width);
}

static bool check_rope_table(const struct op_check *c)
{
	const struct txda_op_rope_table *p = &c->op->rope_table;
	const struct txda_tensor *f = c->in[1];

	return isfinite(p->scale) && isfinite(p->base) && isfinite(p->factor) && p->max_position &&
	       f->ndim == 1 && f->layout == TXDA_ROWS && !f->dim[0].sym &&
	       f->dim[0].mul <= UINT32_MAX / 2 &&
	       (c->in[2] ? matrix(c->in[0]) && !p->dynamic_from : c->in[0]->ndim == 1) &&
	       is_rows(c->in[0], c->in[0]->ndim, c->in[0]->dim[0], c->in[0]->dim[1]) &&
	       is_rows(c->in[2], 1, f->dim[0], fixed(0)) &&
	       is_rows(c->out[0], 2, c->in[0]->dim[0], fixed(2 * f->dim[0].mul));
}

static bool check_layernorm(const struct op_check *c)
{
	const struct txda_op_layernorm *p = &c->op->layernorm;
	const struct txda_tensor *x = c->in[0];

	return matrix(x) && p->eps >= 0 && (!p->act || txda_is_plain_act(p->act)) &&
	       is_rows(c->in[1], 1, x->dim[1], fixed(0)) &&
	       is_rows(c->in[2], 1, x->dim[1], fixed(0)) &&
	       is_rows(c->out[0], 2, x->dim[0], x->dim[1]);
}

static bool check_interpolate(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0], *taps = c->in[2];

	return matrix(x) && matrix(c->in[1]) && same_dim(c->in[1]->dim[1], x->dim[1]) &&
	       matrix(taps) && same_dim(taps->dim[0], x->dim[0]) &&
	       taps->dim[1].mul <= TXDA_INTERPOLATE_MAX &&
	       is_rows(c->in[3], 2, taps->dim[0], taps->dim[1]) &&
	       is_rows(c->out[0], 2, x->dim[0], x->dim[1]);
}

static bool check_span_attention(const struct op_check *c)
{
	const struct txda_op_span_attention *p = &c->op->span_attention;
	const struct txda_tensor *qkv = c->in[0], *spans = c->in[1], *table = c->in[2];
	uint32_t width = p->n_heads * p->head_dim;

	return p->n_heads && p->n_heads <= 65536 && p->head_dim && p->head_dim <= 512 &&
	       isfinite(p->scale) && is_rows(qkv, 2, qkv->dim[0], fixed(3 * width)) &&
	       is_rows(spans, 2, spans->dim[0], fixed(2)) &&
	       (!table || (is_rows(table, 2, qkv->dim[0], table->dim[1]) &&
			   table->dim[1].mul % 2 == 0 && table->dim[1].mul <= p->head_dim)) &&
	       is_rows(c->out[0], 2, qkv->dim[0], fixed(width));
}

static bool check_merge_rows(const struct op_check *c)
{
	const struct txda_op_merge_rows *p = &c->op->merge_rows;
	const struct txda_tensor *x = c->in[0], *source = c->in[1], *out = c->out[0];

	return matrix(out) && matrix(source) && !(p->flags & ~TXDA_MERGE_ADD) &&
	       source->dim[1].mul >= out->dim[1].mul &&
	       p->col <= source->dim[1].mul - out->dim[1].mul &&
	       (x->ndim == 1 ? is_rows(x, 1, out->dim[1], fixed(0))
			     : is_rows(x, 2, out->dim[0], out->dim[1])) &&
	       is_rows(c->in[2], 1, out->dim[0], fixed(0));
}

static bool check_topk(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0];
	uint32_t k = c->op->topk.k;

	return matrix(x) && k && k <= TXDA_TOPK_MAX && k <= x->dim[1].mul &&
	       is_rows(c->out[0], 2, x->dim[0], fixed(k)) &&
	       is_rows(c->out[1], 2, x->dim[0], fixed(k)) &&
	       is_rows(c->out[2], 1, x->dim[0], fixed(0));
}

static bool check_all_gather(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0], *out = c->out[0];
	uint64_t g = c->v->header->group_size, width, all;

	if (!matrix(x) || (out != NULL) != (c->v->header->rank == 0))
		return false;
	if (!out)
		return true;
	width = x->dim[1].mul;
	all = out->dim[1].mul;
	return matrix(out) && same_dim(out->dim[0], x->dim[0]) && (g - 1) * width < all &&
	       all <= g * width;
}

static bool check_shapes(const struct op_check *c)
{
	const struct txda_tensor *x = c->in[0];

	switch (c->op->op) {
	case TXDA_OP_EMBED: return check_embed(c);
	case TXDA_OP_RMSNORM:
		return matrix(x) && c->op->rmsnorm.eps >= 0 &&
		       is_rows(c->in[1], 1, x->dim[1], fixed(0)) &&
		       is_rows(c->in[2], 2, x->dim[0], x->dim[1]) &&
		       (!c->in[2] || c->out[0]->dtype == TXDA_F32) &&
		       is_rows(c->out[0], 2, x->dim[0], x->dim[1]);
	case TXDA_OP_LINEAR: return check_linear(c);
	case TXDA_OP_ROPE_TABLE: return check_rope_table(c);
	case TXDA_OP_ROPE_KV: return check_rope_kv(c);
	case TXDA_OP_ATTENTION: return check_attention(c);
	case TXDA_OP_GATHER_ROWS:
		return matrix(x) && c->in[1]->ndim == 1 &&
		       is_rows(c->in[1], 1, c->in[1]->dim[0], fixed(0)) &&
		       is_rows(c->out[0], 2, c->in[1]->dim[0], x->dim[1]);
	case TXDA_OP_TOPK: return check_topk(c);
	case TXDA_OP_ALL_REDUCE:
		return matrix(x) && is_rows(c->in[1], 2, x->dim[0], x->dim[1]) &&
		       is_rows(c->out[0], 2, x->dim[0], x->dim[1]);
	case TXDA_OP_SILU_MUL:
		return matrix(x) && x->dim[1].mul % 2 == 0 &&
		       (!c->op->silu_mul.act || txda_is_gated(c->op->silu_mul.act)) &&
		       limit_fits(c->op->silu_mul.act, c->op->silu_mul.limit) &&
		       is_rows(c->out[0], 2, x->dim[0], fixed(x->dim[1].mul / 2));
	case TXDA_OP_ROUTE: return check_route(c);
	case TXDA_OP_MOE_LINEAR: return check_moe_linear(c);
	case TXDA_OP_MLA_STORE: return check_mla_store(c);
	case TXDA_OP_MLA_ATTENTION: return check_mla_attention(c);
	case TXDA_OP_MOE_COMBINE: return check_moe_combine(c);
	case TXDA_OP_INDEX_STORE: return check_index_store(c);
	case TXDA_OP_INDEX_SELECT: return check_index_select(c);
	case TXDA_OP_MLA_SPARSE: return check_mla_sparse(c);
	case TXDA_OP_DELTA_CONV: return check_delta_conv(c);
	case TXDA_OP_DELTA_RULE: return check_delta_rule(c);
	case TXDA_OP_GATE: return check_gate(c);
	case TXDA_OP_LAYERNORM: return check_layernorm(c);
	case TXDA_OP_INTERPOLATE: return check_interpolate(c);
	case TXDA_OP_SPAN_ATTENTION: return check_span_attention(c);
	case TXDA_OP_MERGE_ROWS: return check_merge_rows(c);
	default: return check_all_gather(c);
	}
}

int program_check_op(const struct program_view *v, uint32_t index, struct tool_error *error)
{
	struct op_check c = {.v = v, .op = &v->ops[index], .error = error};
	const struct op_contract *k;
	unsigned i;
	int r;

	if (c.op->op >= TXDA_OP_COUNT)
		return tool_fail(error, -EINVAL, "opcode %u, the last one is %u", c.op->op,
				 TXDA_OP_COUNT - 1);
	if (c.op->flags || c.op->reserved || c.op->label >= v->header->strings_bytes)
		return tool_fail(error, -EINVAL, "a reserved field or a label out of range");
	k = &contracts[c.op->op];
	for (i = k->params; i < sizeof(c.op->raw) / sizeof(c.op->raw[0]); i++) {
		if (c.op->raw[i])
			return tool_fail(error, -EINVAL, "parameter word %u is not zero", i);
	}
	r = resolve(&c, k);
	if (r)
		return r;
	if (!check_shapes(&c))
		return tool_fail(error, -EINVAL, "shapes, layouts or parameters do not fit the op");
	return 0;
}
