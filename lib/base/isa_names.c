// SPDX-License-Identifier: MIT
#include "isa_names.h"

#include <stddef.h>

#include "txda_isa.h"

static const char *const opcodes[TXDA_OP_COUNT] = {
	[TXDA_OP_EMBED] = "EMBED",
	[TXDA_OP_RMSNORM] = "RMSNORM",
	[TXDA_OP_LINEAR] = "LINEAR",
	[TXDA_OP_ROPE_TABLE] = "ROPE_TABLE",
	[TXDA_OP_ROPE_KV] = "ROPE_KV",
	[TXDA_OP_ATTENTION] = "ATTENTION",
	[TXDA_OP_GATHER_ROWS] = "GATHER_ROWS",
	[TXDA_OP_TOPK] = "TOPK",
	[TXDA_OP_ALL_REDUCE] = "ALL_REDUCE",
	[TXDA_OP_ALL_GATHER] = "ALL_GATHER",
	[TXDA_OP_SILU_MUL] = "SILU_MUL",
	[TXDA_OP_ROUTE] = "ROUTE",
	[TXDA_OP_MOE_LINEAR] = "MOE_LINEAR",
	[TXDA_OP_MOE_COMBINE] = "MOE_COMBINE",
	[TXDA_OP_MLA_STORE] = "MLA_STORE",
	[TXDA_OP_MLA_ATTENTION] = "MLA_ATTENTION",
	[TXDA_OP_INDEX_STORE] = "INDEX_STORE",
	[TXDA_OP_INDEX_SELECT] = "INDEX_SELECT",
	[TXDA_OP_MLA_SPARSE] = "MLA_SPARSE",
	[TXDA_OP_DELTA_CONV] = "DELTA_CONV",
	[TXDA_OP_DELTA_RULE] = "DELTA_RULE",
	[TXDA_OP_GATE] = "GATE",
	[TXDA_OP_LAYERNORM] = "LAYERNORM",
	[TXDA_OP_INTERPOLATE] = "INTERPOLATE",
	[TXDA_OP_SPAN_ATTENTION] = "SPAN_ATTENTION",
	[TXDA_OP_MERGE_ROWS] = "MERGE_ROWS",
};

static const struct {
	const char *name;
	unsigned bytes;
} dtypes[TXDA_DTYPE_COUNT] = {
	[TXDA_F32] = {"F32", 4}, [TXDA_BF16] = {"BF16", 2}, [TXDA_F16] = {"F16", 2},
	[TXDA_I32] = {"I32", 4}, [TXDA_I64] = {"I64", 8},   [TXDA_U8] = {"U8", 1},
	[TXDA_W8] = {"W8", 0},	 [TXDA_W4] = {"W4", 0},	    [TXDA_W8Z] = {"W8Z", 0},
	[TXDA_W4Z] = {"W4Z", 0}, [TXDA_F8] = {"F8", 0},	    [TXDA_MX4] = {"MX4", 0},
	[TXDA_W4M] = {"W4M", 0}, [TXDA_W5M] = {"W5M", 0},   [TXDA_W6S] = {"W6S", 0},
};

static const char *const layouts[TXDA_LAYOUT_COUNT] = {
	[TXDA_ROWS] = "ROWS",
	[TXDA_TILE32] = "TILE32",
	[TXDA_TILE32_GATED] = "TILE32_GATED",
	[TXDA_KV_PAGED] = "KV_PAGED",
};

static const char *const slot_kinds[TXDA_SLOT_KIND_COUNT] = {
	[TXDA_SLOT_WEIGHTS] = "weights", [TXDA_SLOT_KV] = "kv",
	[TXDA_SLOT_SCRATCH] = "scratch", [TXDA_SLOT_INPUT] = "input",
	[TXDA_SLOT_OUTPUT] = "output",
};

static const char *const symbols[TXDA_SYM_COUNT] = {
	[TXDA_SYM_NONE] = "", [TXDA_SYM_T] = "T", [TXDA_SYM_S] = "S",
	[TXDA_SYM_R] = "R",   [TXDA_SYM_B] = "B", [TXDA_SYM_N] = "N",
};

static const struct {
	const char *name, *detail;
} faults[TXDA_FAULT_CODE_COUNT] = {
	[TXDA_FAULT_NONE] = {"no fault", NULL},
	[TXDA_FAULT_PAGE] = {"page fault", NULL},
	[TXDA_FAULT_PACKET] = {"bad packet", "packet type or size"},
	[TXDA_FAULT_PROGRAM] = {"bad program", "value"},
	[TXDA_FAULT_SHAPE] = {"shape or type does not fit the op", NULL},
	[TXDA_FAULT_INDEX] = {"index out of range", "index"},
	[TXDA_FAULT_BINDING] = {"bad binding", "slot"},
	[TXDA_FAULT_SYMBOL] = {"symbol above the program's maximum", "symbol"},
	[TXDA_FAULT_COLLECTIVE] = {"collective failed", "group"},
	[TXDA_FAULT_HANG] = {"hang", NULL},
	[TXDA_FAULT_ECC] = {"uncorrectable memory error", NULL},
	[TXDA_FAULT_LOST] = {"the chip is lost", NULL},
};

#define NAME(names, n) ((n) < sizeof(names) / sizeof((names)[0]) && (names)[n] ? (names)[n] : "?")

const char *isa_opcode_name(unsigned opcode)
{
	return NAME(opcodes, opcode);
}

const char *isa_dtype_name(unsigned dtype)
{
	return dtype < TXDA_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

unsigned isa_dtype_bytes(unsigned dtype)
{
	return dtype < TXDA_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *isa_layout_name(unsigned layout)
{
	return NAME(layouts, layout);
}

const char *isa_slot_kind_name(unsigned kind)
{
	return NAME(slot_kinds, kind);
}

const char *isa_symbol_name(unsigned symbol)
{
	return NAME(symbols, symbol);
}

const char *isa_fault_name(unsigned code)
{
	return code < TXDA_FAULT_CODE_COUNT ? faults[code].name : "unknown fault";
}

const char *isa_fault_detail(unsigned code)
{
	return code < TXDA_FAULT_CODE_COUNT ? faults[code].detail : NULL;
}
