// SPDX-License-Identifier: MIT
#include "op_text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a field is printed; the last ones are flags. */
enum kind { U32, U64, F32, ACT, LINEAR, ROUTE, ROPE, GATE, MERGE, KINDS };

#define MAX_FLAGS 3

static const char *const flag_names[KINDS][MAX_FLAGS] = {
	[LINEAR] = {"F32_INPUT", "FLOAT_INPUT"},
	[ROUTE] = {"SIGMOID", "TOP2", "NORMALISE"},
	[ROPE] = {"INTERLEAVED", "INT8"},
	[GATE] = {"SILU"},
	[MERGE] = {"ADD"},
};

static const char *const act_names[TXDA_ACT_COUNT] = {
	[TXDA_ACT_NONE] = "NONE",
	[TXDA_ACT_SILU_GATED] = "SILU_GATED",
	[TXDA_ACT_GELU_GATED] = "GELU_GATED",
	[TXDA_ACT_SOFTCAP] = "SOFTCAP",
	[TXDA_ACT_SWIGLU_CLAMPED] = "SWIGLU_CLAMPED",
	[TXDA_ACT_GELU] = "GELU",
	[TXDA_ACT_GELU_TANH] = "GELU_TANH",
	[TXDA_ACT_GELU_QUICK] = "GELU_QUICK",
	[TXDA_ACT_SILU] = "SILU",
};

struct field {
	const char *name; /* NULL: the one before was the last */
	enum kind kind;
	size_t at;
};

/* clang-format off */
#define FIELD(op, name, kind) {#name, kind, offsetof(struct txda_op, op.name)}
/* clang-format on */

#define LATENT_FIELDS                                                                              \
	{                                                                                          \
		FIELD(mla_attention, n_heads, U32), FIELD(mla_attention, latent, U32),             \
			FIELD(mla_attention, rope, U32), FIELD(mla_attention, block_size, U32),    \
			FIELD(mla_attention, layer_offset, U64), FIELD(mla_attention, scale, F32), \
			FIELD(mla_attention, flags, ROPE)                                          \
	}

static const struct {
	const char *operand[9]; /* in[6], out[3] */
	struct field field[9];
} ops[TXDA_OP_COUNT] = {
	[TXDA_OP_EMBED] = {{"tokens", "table", 0, 0, 0, 0, "x"},
			   {FIELD(embed, first, U32), FIELD(embed, vocab, U32),
			    FIELD(embed, scale, F32)}},
	[TXDA_OP_RMSNORM] = {{"x", "weight", "residual", 0, 0, 0, "out"},
			     {FIELD(rmsnorm, eps, F32)}},
	[TXDA_OP_LINEAR] = {{"x", "weight", "bias", "norm", "residual", "columns", "out"},
			    {FIELD(linear, act, ACT), FIELD(linear, eps, F32),
			     FIELD(linear, flags, LINEAR), FIELD(linear, out_col, U32),
			     FIELD(linear, limit, F32)}},
	[TXDA_OP_ROPE_TABLE] = {{"positions", "inv_freq", "axes", 0, 0, 0, "table"},
				{FIELD(rope_table, scale, F32), FIELD(rope_table, base, F32),
				 FIELD(rope_table, factor, F32),
				 FIELD(rope_table, dynamic_from, U32),
				 FIELD(rope_table, max_position, U32)}},
	[TXDA_OP_ROPE_KV] = {{"qkv", "table", "slots", "q norm", "k norm", 0, "q", "cache"},
			     {FIELD(rope_kv, n_heads, U32), FIELD(rope_kv, n_kv_heads, U32),
			      FIELD(rope_kv, head_dim, U32), FIELD(rope_kv, block_size, U32),
			      FIELD(rope_kv, layer_offset, U64), FIELD(rope_kv, eps, F32),
			      FIELD(rope_kv, flags, ROPE)}},
	[TXDA_OP_ATTENTION] = {{"q", "cache", "block table", "spans", "context", "sinks", "out"},
			       {FIELD(attention, n_heads, U32), FIELD(attention, n_kv_heads, U32),
				FIELD(attention, head_dim, U32), FIELD(attention, block_size, U32),
				FIELD(attention, layer_offset, U64), FIELD(attention, scale, F32),
				FIELD(attention, window, U32), FIELD(attention, flags, ROPE),
				FIELD(attention, softcap, F32)}},
	[TXDA_OP_GATHER_ROWS] = {{"x", "rows", 0, 0, 0, 0, "out"}, {{0}}},
	[TXDA_OP_TOPK] = {{"x", 0, 0, 0, 0, 0, "indices", "values", "lse"}, {FIELD(topk, k, U32)}},
	[TXDA_OP_ALL_REDUCE] = {{"x", "residual", 0, 0, 0, 0, "out"}, {{0}}},
	[TXDA_OP_ALL_GATHER] = {{"x", 0, 0, 0, 0, 0, "out"}, {{0}}},
	[TXDA_OP_SILU_MUL] = {{"x", 0, 0, 0, 0, 0, "out"},
			      {FIELD(silu_mul, act, ACT), FIELD(silu_mul, limit, F32)}},
	[TXDA_OP_ROUTE] = {{"logits", "bias", 0, 0, 0, 0, "experts", "weights"},
			   {FIELD(route, k, U32), FIELD(route, n_groups, U32),
			    FIELD(route, top_groups, U32), FIELD(route, flags, ROUTE),
			    FIELD(route, scale, F32)}},
	[TXDA_OP_MOE_LINEAR] = {{"x", "weights", "experts", "norm", "columns", "biases", "out"},
				{FIELD(moe_linear, act, ACT), FIELD(moe_linear, eps, F32),
				 FIELD(moe_linear, flags, LINEAR), FIELD(moe_linear, out_col, U32),
				 FIELD(moe_linear, first, U32), FIELD(moe_linear, n_experts, U32),
				 FIELD(moe_linear, limit, F32)}},
	[TXDA_OP_MOE_COMBINE] = {{"y", "experts", "weights", "residual", "shared", "gate", "out"},
				 {FIELD(moe_combine, first, U32), FIELD(moe_combine, count, U32)}},
	[TXDA_OP_MLA_STORE] = {{"q", "table", "slots", "kv", "norm", 0, "q", "cache"},
			       {FIELD(mla_store, n_heads, U32), FIELD(mla_store, latent, U32),
				FIELD(mla_store, rope, U32), FIELD(mla_store, block_size, U32),
				FIELD(mla_store, layer_offset, U64), FIELD(mla_store, eps, F32),
				FIELD(mla_store, flags, ROPE)}},
	[TXDA_OP_MLA_ATTENTION] = {{"q latent", "q", "cache", "block table", "spans", "context",
				    "out"},
				   LATENT_FIELDS},
	[TXDA_OP_INDEX_STORE] = {{"q", "table", "slots", "k", "norm", "norm bias", "q", "cache"},
				 {FIELD(index_store, n_heads, U32), FIELD(index_store, dim, U32),
				  FIELD(index_store, block_size, U32),
				  FIELD(index_store, flags, ROPE),
				  FIELD(index_store, layer_offset, U64),
				  FIELD(index_store, eps, F32)}},
	[TXDA_OP_INDEX_SELECT] =
		{{"q", "weights", "cache", "block table", "spans", "context", "slots", "positions"},
		 {FIELD(index_select, n_heads, U32), FIELD(index_select, dim, U32),
		  FIELD(index_select, block_size, U32), FIELD(index_select, keys, U32),
		  FIELD(index_select, layer_offset, U64), FIELD(index_select, out_col, U32)}},
	[TXDA_OP_MLA_SPARSE] = {{"q latent", "q", "cache", "slots", 0, 0, "out"}, LATENT_FIELDS},
	[TXDA_OP_DELTA_CONV] = {{"x", "weight", "state table", "spans", "context", 0, "out",
				 "cache"},
				{FIELD(delta_conv, first, U32),
				 FIELD(delta_conv, layer_offset, U64)}},
	[TXDA_OP_DELTA_RULE] = {{"x", "b and a", "c", "state table", "spans", "context", "out",
				 "cache"},
				{FIELD(delta_rule, n_k_heads, U32),
				 FIELD(delta_rule, n_v_heads, U32), FIELD(delta_rule, k_dim, U32),
				 FIELD(delta_rule, v_dim, U32),
				 FIELD(delta_rule, layer_offset, U64),
				 FIELD(delta_rule, first, U32), FIELD(delta_rule, per_block, U32)}},
	[TXDA_OP_GATE] = {{"x", "gate", "norm", 0, 0, 0, "out"},
			  {FIELD(gate, eps, F32), FIELD(gate, flags, GATE)}},
	[TXDA_OP_LAYERNORM] = {{"x", "weight", "bias", 0, 0, 0, "out"},
			       {FIELD(layernorm, eps, F32), FIELD(layernorm, act, ACT)}},
	[TXDA_OP_INTERPOLATE] = {{"x", "table", "taps", "weights", 0, 0, "out"}, {{0}}},
	[TXDA_OP_SPAN_ATTENTION] = {{"qkv", "spans", "table", 0, 0, 0, "out"},
				    {FIELD(span_attention, n_heads, U32),
				     FIELD(span_attention, head_dim, U32),
				     FIELD(span_attention, scale, F32)}},
	[TXDA_OP_MERGE_ROWS] = {{"x", "source", "rows", 0, 0, 0, "out"},
				{FIELD(merge_rows, flags, MERGE), FIELD(merge_rows, col, U32)}},
};

struct text {
	char *buf;
	size_t at;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + t->at, OP_TEXT_BYTES - t->at, format, args);
	va_end(args);
	if (n > 0 && (size_t)n < OP_TEXT_BYTES - t->at)
		t->at += (size_t)n;
}

/* In as few digits as give the same float again. */
static void add_float(struct text *t, float x)
{
	char digits[32];

	for (int n = 6; n <= 9; n++) {
		snprintf(digits, sizeof(digits), "%.*g", n, (double)x);
		if (strtof(digits, NULL) == x)
			break;
	}
	add(t, "%s", digits);
}

static void add_flags(struct text *t, enum kind kind, uint32_t flags)
{
	const char *between = "";

	for (unsigned i = 0; i < MAX_FLAGS; i++) {
		if (!flag_names[kind][i] || !(flags >> i & 1))
			continue;
		add(t, "%s%s", between, flag_names[kind][i]);
		between = "|";
		flags &= ~(1u << i);
	}
	if (flags || !*between)
		add(t, "%s%#x", between, flags);
}

char *op_text(const struct txda_op *op, char buf[OP_TEXT_BYTES])
{
	struct text t = {buf, 0};

	buf[0] = '\0';
	for (const struct field *f = ops[op->op].field, *end = f + 9; f < end && f->name; f++) {
		const uint8_t *at = (const uint8_t *)op + f->at;
		uint64_t wide = 0;
		uint32_t word;
		float x;

		memcpy(&word, at, 4);
		memcpy(&x, at, 4);
		if (f->kind == U64)
			memcpy(&wide, at, 8);
		add(&t, "%s%s ", t.at ? ", " : "", f->name);
		switch (f->kind) {
		case U32: add(&t, "%u", word); break;
		case U64: add(&t, "%llu", (unsigned long long)wide); break;
		case F32: add_float(&t, x); break;
		case ACT:
			if (word < TXDA_ACT_COUNT)
				add(&t, "%s", act_names[word]);
			else
				add(&t, "%u", word);
			break;
		default: add_flags(&t, f->kind, word); break;
		}
	}
	return buf;
}

const char *op_operand_name(unsigned opcode, unsigned place)
{
	return ops[opcode].operand[place];
}
