/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * TX8 instruction set: command streams and programs; txda_layouts.h has how their tensors lie in
 * memory.
 *
 * This header is the whole contract between a program's maker (txda-compile), whoever launches it
 * (libtxda, the driver only passes streams on) and the chip (the device model, firmware). It is
 * installed for those who write streams to txda_queue_submit(3) or QUEUE_SUBMIT. All
 * fields are little endian. Every struct has explicit padding; a reserved field or an undefined
 * flag bit must be zero and the chip faults if it is not.
 *
 * Streams, programs, binding tables and everything they point to are written by unprivileged
 * clients. The chip trusts none of it: each address range is checked against the queue's address
 * space before it is touched, each index read from memory (token id, block number, row) against
 * its table, each size with overflow-safe arithmetic. A violation stops the queue that caused it
 * with a struct txda_fault; other queues go on.
 *
 * Determinism. Each output element of an op is reduced over K (or over key positions) in one fixed
 * order that does not depend on the number of rows, the batch, the chunking or the number of
 * cores, so that a request gives the same bits alone, batched or chunked on one machine.
 */
#ifndef TXDA_ISA_H
#define TXDA_ISA_H

#include <linux/types.h>

#include "txda_layouts.h"

#define TXDA_ISA_MAJOR 1 /* other majors are refused */
/*
 * Newer minors are refused by older chips. What a minor added, in fields that were reserved before
 * (0: as it was):
 *   2: activations GELU_GATED and SOFTCAP, txda_op_linear.limit, txda_op_silu_mul,
 *      txda_op_attention.softcap
 *   3: type MX4, activation SWIGLU_CLAMPED, txda_op_moe_linear.limit and its biases, sinks of
 *      ATTENTION; INDEX_STORE, INDEX_SELECT, MLA_SPARSE; DELTA_CONV, DELTA_RULE, GATE; LAYERNORM,
 *      INTERPOLATE, SPAN_ATTENTION and MERGE_ROWS, activations GELU to SILU, positions with several
 *      coordinates in ROPE_TABLE; types W4M, W5M and W6S
 *   4: DELTA_CONV and DELTA_RULE have a table of states in place of the block table
 *   5: odd sizes of heads in SPAN_ATTENTION
 */
#define TXDA_ISA_MINOR 5

#define TXDA_VA_BITS   48
#define TXDA_MAX_GROUP 8 /* chips in one group (tensor-parallel degree) */
#define TXDA_NONE      0xffffffffu

/* ------------------------------------------------------------------------------------------- */
/* Command streams                                                                               */
/* ------------------------------------------------------------------------------------------- */

/*
 * A stream is a sequence of packets, 8-byte aligned, executed in order by one queue. A packet may be
 * as large as its ranges allow: whoever stops the queue does so in the middle of it (txda_regs.h,
 * "Pieces"), and what it had written by then is there. Nothing that comes after it in the stream has
 * happened.
 */
#define TXDA_STREAM_MAX_BYTES (1u << 20)

enum txda_packet {
	TXDA_PKT_NOP = 0,
	TXDA_PKT_COPY = 1,	 /* struct txda_pkt_copy */
	TXDA_PKT_COPY_2D = 2,	 /* struct txda_pkt_copy_2d */
	TXDA_PKT_FILL = 3,	 /* struct txda_pkt_fill */
	TXDA_PKT_EXEC = 4,	 /* struct txda_pkt_exec; compute queues only */
	TXDA_PKT_SIGNAL = 5,	 /* struct txda_pkt_fence */
	TXDA_PKT_WAIT = 6,	 /* struct txda_pkt_fence */
	TXDA_PKT_TIMESTAMP = 7,	 /* struct txda_pkt_timestamp */
	TXDA_PKT_ALL_REDUCE = 8, /* struct txda_pkt_collective; compute queues only */
	TXDA_PKT_ALL_GATHER = 9, /* struct txda_pkt_collective; compute queues only */
	TXDA_PKT_COUNT
};

struct txda_pkt {
	__u16 op;    /* enum txda_packet */
	__u16 flags; /* per packet; 0 unless stated */
	__u32 bytes; /* of the whole packet with this header; a multiple of 8 */
};

/* Copies @bytes from @src to @dst. The ranges must not overlap. */
struct txda_pkt_copy {
	struct txda_pkt hdr;
	__u64 dst;
	__u64 src;
	__u64 bytes;
};

/* Copies @rows rows of @row_bytes; row i starts at src + i * src_pitch and dst + i * dst_pitch. */
struct txda_pkt_copy_2d {
	struct txda_pkt hdr;
	__u64 dst;
	__u64 src;
	__u64 dst_pitch;
	__u64 src_pitch;
	__u64 row_bytes;
	__u64 rows;
};

/* Fills [dst, dst + bytes) with the 32-bit @value; @dst and @bytes are multiples of 4. */
struct txda_pkt_fill {
	struct txda_pkt hdr;
	__u64 dst;
	__u64 bytes;
	__u32 value;
	__u32 reserved;
};

/*
 * SIGNAL stores @value to the 64-bit word at @va (8-byte aligned) with release order after all
 * earlier packets of the queue, then raises the completion interrupt if TXDA_SIGNAL_IRQ is set.
 * WAIT holds the queue until the word, read with acquire order, is >= @value (unsigned).
 */
#define TXDA_SIGNAL_IRQ (1u << 0)

struct txda_pkt_fence {
	struct txda_pkt hdr;
	__u64 va;
	__u64 value;
};

/* Stores the chip's time in nanoseconds to the 64-bit word at @va (8-byte aligned). */
struct txda_pkt_timestamp {
	struct txda_pkt hdr;
	__u64 va;
};

/*
 * Collective among the members of the address space's group @group (see txda_pkt_exec.group).
 * Members meet by order: the i-th collective of each member on that group belong together; they
 * must agree in kind, count and dtype, else all members fault.
 * ALL_REDUCE: dst[i] = sum over ranks, in rank order, of src[i]; float32 or bfloat16 (summed as
 * float32, rounded once). ALL_GATHER: dst[rank * count + i] = src_of_rank[i].
 */
struct txda_pkt_collective {
	struct txda_pkt hdr;
	__u64 dst;
	__u64 src;
	__u64 count; /* elements of @src */
	__u32 dtype; /* enum txda_dtype: F32 or BF16 */
	__u32 group;
};

/* Symbols: run-time sizes that a launch gives and tensor dimensions refer to. */
enum txda_symbol {
	TXDA_SYM_NONE = 0, /* the dimension is a constant */
	TXDA_SYM_T = 1,	   /* tokens in this step */
	TXDA_SYM_S = 2,	   /* sequences in this step */
	TXDA_SYM_R = 3,	   /* rows whose logits are wanted */
	TXDA_SYM_B = 4,	   /* columns of the block table: most KV blocks of one sequence */
	TXDA_SYM_N = 5,	   /* KV blocks in the cache */
	TXDA_SYM_COUNT = 8
};

/*
 * Runs a program. The chip reads the program at its first launch and may go on with that copy until
 * the range is unmapped or a launch has TXDA_EXEC_RELOAD set.
 */
#define TXDA_EXEC_RELOAD (1u << 0) /* forget a cached copy of the program */
/*
 * Precise mode (chips with TXDA_CAP_PRECISE): every activation is kept in float32 and every product
 * is made with float32 inputs, so that a wrong graph can be told from rounding. In this mode every
 * tensor with TXDA_TENSOR_ACTIVATION has twice its offset and size, and BF16 in it means F32; the
 * bindings of such slots must be twice as large. Without it, subnormal operands and results of
 * float32 operations may count as 0.
 */
#define TXDA_EXEC_PRECISE (1u << 1)
/*
 * Timeline: the chip writes one struct txda_op_time per op to @profile_va.
 */
#define TXDA_EXEC_PROFILE (1u << 2)
/*
 * Of the ops only n_ops from first_op on: a long program in several launches, between which other
 * queues have the chip. What the ops before left in the bindings' memory must be there still.
 */
#define TXDA_EXEC_PART (1u << 3)

struct txda_pkt_exec {
	struct txda_pkt hdr; /* flags: TXDA_EXEC_* */
	__u64 program_va;    /* 64-byte aligned struct txda_program */
	__u64 bindings_va;   /* struct txda_binding[n_bindings], 8-byte aligned */
	__u64 profile_va;    /* struct txda_op_time[n_ops], or 0 */
	__u32 program_bytes;
	__u32 n_bindings; /* must equal the program's n_slots */
	__u32 group;	  /* group slot of the address space, or TXDA_NONE */
	__u32 reserved;
	__u32 sym[TXDA_SYM_COUNT]; /* by enum txda_symbol; [0] and unused ones are 0 */
	__u32 first_op, n_ops;	   /* of TXDA_EXEC_PART, n_ops >= 1; else 0 */
};

struct txda_binding {
	__u64 va; /* 64-byte aligned */
	__u64 bytes;
};

struct txda_op_time {
	__u64 start_ns; /* chip time */
	__u64 end_ns;
};

/* ------------------------------------------------------------------------------------------- */
/* Programs                                                                                      */
/* ------------------------------------------------------------------------------------------- */

enum txda_slot_kind {
	TXDA_SLOT_WEIGHTS = 0, /* param.bin as it is; read-only */
	TXDA_SLOT_KV = 1,
	TXDA_SLOT_SCRATCH = 2, /* contents undefined between launches */
	TXDA_SLOT_INPUT = 3,
	TXDA_SLOT_OUTPUT = 4,
	TXDA_SLOT_KIND_COUNT
};

#define TXDA_PROGRAM_MAGIC     0x50445854u /* "TXDP" */
#define TXDA_PROGRAM_MAX_BYTES (64u << 20)
#define TXDA_PROGRAM_MAX_SLOTS 64

/* The header of kcore.bin. Offsets are from the header's start and 8-byte aligned. */
struct txda_program {
	__u32 magic;
	__u16 major;
	__u16 minor;
	__u64 bytes;  /* of the whole program */
	__u32 crc32c; /* of the whole program with this field 0 */
	__u32 n_slots;
	__u32 n_tensors;
	__u32 n_ops;
	__u32 slots_off;   /* struct txda_slot[n_slots] */
	__u32 tensors_off; /* struct txda_tensor[n_tensors] */
	__u32 ops_off;	   /* struct txda_op[n_ops] */
	__u32 strings_off; /* NUL-terminated names; the last byte is NUL */
	__u32 strings_bytes;
	__u32 name;		       /* of the program ("step"); offset into strings */
	__u32 group_size;	       /* chips that run it together; 1: none */
	__u32 rank;		       /* of this chip in the group */
	__u32 sym_max[TXDA_SYM_COUNT]; /* the largest value of each symbol */
	__u32 reserved[8];
};

struct txda_slot {
	__u32 name;
	__u32 kind;  /* enum txda_slot_kind */
	__u64 bytes; /* needed when every symbol is at its maximum; KV: per block */
};

struct txda_dim {
	__u32 sym; /* enum txda_symbol */
	__u32 mul; /* the extent is mul times the symbol's value, or mul */
};

/* In precise mode offset and size count twice and BF16 means F32. */
#define TXDA_TENSOR_ACTIVATION (1u << 0)

struct txda_tensor {
	__u32 name;
	__u16 slot;
	__u8 dtype;   /* enum txda_dtype */
	__u8 layout;  /* enum txda_layout */
	__u64 offset; /* into the slot; a multiple of 64 */
	__u8 ndim;    /* 1 to 4 */
	__u8 flags;   /* TXDA_TENSOR_* */
	__u16 group;  /* W8 to W6S: K elements that share a scale; else 0 */
	__u32 reserved[3];
	struct txda_dim dim[4]; /* outermost first; unused ones are 0 */
};

enum txda_opcode {
	TXDA_OP_EMBED = 0,
	TXDA_OP_RMSNORM = 1,
	TXDA_OP_LINEAR = 2,
	TXDA_OP_ROPE_TABLE = 3,
	TXDA_OP_ROPE_KV = 4,
	TXDA_OP_ATTENTION = 5,
	TXDA_OP_GATHER_ROWS = 6,
	TXDA_OP_TOPK = 7,
	TXDA_OP_ALL_REDUCE = 8,
	TXDA_OP_ALL_GATHER = 9,
	TXDA_OP_SILU_MUL = 10,
	TXDA_OP_ROUTE = 11,
	TXDA_OP_MOE_LINEAR = 12,
	TXDA_OP_MOE_COMBINE = 13,
	TXDA_OP_MLA_STORE = 14,
	TXDA_OP_MLA_ATTENTION = 15,
	TXDA_OP_INDEX_STORE = 16,
	TXDA_OP_INDEX_SELECT = 17,
	TXDA_OP_MLA_SPARSE = 18,
	TXDA_OP_DELTA_CONV = 19,
	TXDA_OP_DELTA_RULE = 20,
	TXDA_OP_GATE = 21,
	TXDA_OP_LAYERNORM = 22,
	TXDA_OP_INTERPOLATE = 23,
	TXDA_OP_SPAN_ATTENTION = 24,
	TXDA_OP_MERGE_ROWS = 25,
	TXDA_OP_COUNT
};

/*
 * EMBED: out[t] = table[token[t] - first] for first <= token < first + rows of the table, zeros for
 * other tokens below @vocab (another chip of the group has them). token >= vocab faults.
 *   in:  [0] tokens I32 [T]   [1] table TILE32 [V', H] any weight type
 *   out: [0] x F32 [T, H]
 */
struct txda_op_embed {
	__u32 first;
	__u32 vocab;
	float scale; /* multiplies the row; 1 for most families */
};

/*
 * RMSNORM: out = residual + x / sqrt(mean(x^2) + eps) * weight, reduced in float32 (Zhang and
 * Sennrich 2019).
 *   in:  [0] x F32 [M, H]   [1] weight F32 [H]
 *        [2] residual F32 [M, H] or none (may be the output itself); then the output is F32
 *   out: [0] F32 or BF16 [M, H]
 */
struct txda_op_rmsnorm {
	float eps;
};

/*
 * LINEAR: out = act(norm(x) W^T + bias) + residual, accumulated in float32 over rising K; if N is at
 * most 32, pieces of 1024 of K by themselves, which are then added in order (not in precise mode).
 * norm(x) is RMSNORM by [3] and @eps when [3] is given. Then, when [5] is given, K is put into
 * another order: element k of the product's input is norm(x)[columns[k]], or 0 for 0xffffffff. So
 * weights with non-contiguous groups (GPTQ's act-order, a shard that begins within a group) keep
 * their groups.
 * W8 and W4 weights: the activations are quantised by row to int8 in groups of 128 of K (scale =
 * max|x| / 127), products are int32; but see TXDA_LINEAR_FLOAT_INPUT. W4M, W5M and W6S: likewise to
 * int16 by 32 (scale = max|x| / 32512), which F32_INPUT takes for float32. F8, MX4: products are of
 * floats, the activations rounded to bf16 where the chip multiplies bf16; blocks of 32 of K are
 * summed by themselves, then scaled. W8Z, W4Z: one of these two, as is faster on the chip.
 *   in:  [0] x F32 or BF16 [M, X]       [1] W TILE32 or TILE32_GATED [N, K]
 *        [2] bias F32 [N] or none       [3] norm weight F32 [X] or none
 *        [4] residual F32 [M, N] or none (may be the output itself)
 *        [5] columns I32 [K], each below X or 0xffffffff, or none: then K = X
 *   out: [0] F32 or BF16 [M, N]; gated: [M, N / 2], the rows of W being N/2 gates, then N/2 ups:
 *        out[j] = silu(gate_j) * up_j, or gelu(gate_j) * up_j with gelu(x) = x / (1 + exp(-2 u)),
 *        u = sqrt(2 / pi) (x + 0.044715 x^3): the form by tanh (Hendrycks and Gimpel 2016)
 * SOFTCAP: act(y) = limit * tanh(y / limit). GELU: y times the normal distribution up to y, by erf;
 * GELU_TANH: as in GELU_GATED; GELU_QUICK: y / (1 + exp(-1.702 y)); SILU: y / (1 + exp(-y)).
 * SWIGLU_CLAMPED: out[j] = (u + 1) g / (1 + exp(-1.702 g)) with g = min(gate_j, limit), u = up_j
 * within [-limit, limit].
 * Without a residual the output may be wider: the result goes to its columns from @out_col on.
 */
enum txda_activation {
	TXDA_ACT_NONE = 0,
	TXDA_ACT_SILU_GATED = 1,     /* W has layout TILE32_GATED */
	TXDA_ACT_GELU_GATED = 2,     /* the same */
	TXDA_ACT_SOFTCAP = 3,	     /* LINEAR only */
	TXDA_ACT_SWIGLU_CLAMPED = 4, /* gated, as SILU_GATED */
	TXDA_ACT_GELU = 5,	     /* this and what follows: LINEAR and LAYERNORM */
	TXDA_ACT_GELU_TANH = 6,
	TXDA_ACT_GELU_QUICK = 7,
	TXDA_ACT_SILU = 8,
	TXDA_ACT_COUNT
};

static inline int txda_is_gated(__u32 act)
{
	return act == TXDA_ACT_SILU_GATED || act == TXDA_ACT_GELU_GATED ||
	       act == TXDA_ACT_SWIGLU_CLAMPED;
}

/* Whether it has a limit: finite, above 0; the others' is 0. */
static inline int txda_is_limited(__u32 act)
{
	return act == TXDA_ACT_SOFTCAP || act == TXDA_ACT_SWIGLU_CLAMPED;
}

/* Activations of each element by itself. */
static inline int txda_is_plain_act(__u32 act)
{
	return act >= TXDA_ACT_GELU && act <= TXDA_ACT_SILU;
}

/*
 * BF16, W8Z, W4Z, F8 and MX4 weights, and W8 and W4 with FLOAT_INPUT: the activations enter the
 * products as they are (float32, or two bf16 terms or an int16 that hold 16 of its bits), not rounded
 * to bf16. For projections whose rounding the model amplifies, such as queries and keys that are not
 * normalised.
 */
#define TXDA_LINEAR_F32_INPUT (1u << 0)
/* W8 and W4 weights: the activations are not quantised to int8, products as for W8Z and W4Z. */
#define TXDA_LINEAR_FLOAT_INPUT (1u << 1)

struct txda_op_linear {
	__u32 act; /* enum txda_activation */
	float eps;
	__u32 flags; /* TXDA_LINEAR_* */
	__u32 out_col;
	float limit; /* txda_is_limited() */
};

/*
 * SILU_MUL: out[j] = act(x[j]) * x[N + j]: what gated activations do, where gates and ups are made
 * by two LINEARs.
 *   in:  [0] x F32 [M, 2 N]
 *   out: [0] F32 or BF16 [M, N]
 */
struct txda_op_silu_mul {
	__u32 act; /* 0: as SILU_GATED; or a gated enum txda_activation */
	float limit;
};

/*
 * ROUTE: which experts see a token, and with what weights. Scores are the softmax of the logits, or
 * their sigmoid with TXDA_ROUTE_SIGMOID. The choice is made by score + bias, the weights are the
 * scores. With @n_groups > 1 the experts form groups of neighbours; a group counts by the choice of
 * its best expert, or of its best two with TXDA_ROUTE_TOP2; all but the best @top_groups groups'
 * choices become 0. Then the @k best experts are taken, best first, the lower index first among
 * equals; NaN counts as minus infinity. With TXDA_ROUTE_NORMALISE the weights are divided by their
 * sum + 1e-20. At last they are multiplied by @scale.
 *   in:  [0] logits F32 [T, E]   [1] bias F32 [E] or none
 *   out: [0] experts I32 [T, k]   [1] weights F32 [T, k]
 */
#define TXDA_ROUTE_SIGMOID     (1u << 0)
#define TXDA_ROUTE_TOP2	       (1u << 1)
#define TXDA_ROUTE_NORMALISE   (1u << 2)
#define TXDA_ROUTE_MAX_EXPERTS 4096
#define TXDA_ROUTE_MAX_K       64

struct txda_op_route {
	__u32 k;
	__u32 n_groups; /* divides E; 1: none */
	__u32 top_groups;
	__u32 flags; /* TXDA_ROUTE_* */
	float scale;
};

/*
 * MOE_LINEAR: a LINEAR whose matrix is chosen row by row. W holds E matrices, one after another.
 * With [2], row t k + j of the output is the product of row t of x (or row t k + j, where x has T k
 * rows) with matrix experts[t][j] - @first; where that is no matrix of W (another chip has it) the
 * row stays as it was. Only matrices that some row chose are read. Without [2], x and the output
 * have E parts side by side, and part e meets matrix e: what each head multiplies by itself.
 * A row's bits depend on nothing but the row and its matrix.
 *   in:  [0] x F32 or BF16 [T, X], [T k, X] or [T, E X]   [1] W TILE32 or TILE32_GATED [E, N, K]
 *        [2] experts I32 [T, k] or none, each below @n_experts   [3] norm weight F32 [X] or none
 *        [4] columns I32 [E, K] or none, as in LINEAR   [5] biases F32 [E, N] or none, with [2]
 *   out: [0] F32 or BF16 [T k, N] or [T, E N]; gated: N / 2 for N
 * With [2] the output may be wider, as in LINEAR.
 */
struct txda_op_moe_linear {
	__u32 act; /* NONE, or a gated enum txda_activation */
	float eps;
	__u32 flags; /* TXDA_LINEAR_* */
	__u32 out_col;
	__u32 first;
	__u32 n_experts; /* of all chips; 0 without [2] */
	float limit;	 /* txda_is_limited() */
};

/*
 * MOE_COMBINE: out[t] = residual + sum over rising j of weights[t][j] y[t k + j], for experts in
 * [first, first + count), + shared[t], times sigmoid(gate[t]) when [5] is given.
 *   in:  [0] y F32 [T k, H]   [1] experts I32 [T, k]   [2] weights F32 [T, k]
 *        [3] residual F32 [T, H] or none (may be the output itself)
 *        [4] shared F32 [T, H] or none   [5] gate F32 [T, 1] or none
 *   out: [0] F32 [T, H]
 */
struct txda_op_moe_combine {
	__u32 first;
	__u32 count;
};

/*
 * ROPE_TABLE: cos and sin of every token's position for the rotary embedding of ROPE_KV (Su et al.
 * 2021): angle[i] = position * inv_freq[i], both in float32; table[t] = cos[P], sin[P], times
 * @scale (yarn's attention factor). Scaling schemes (linear, llama3, yarn) are in inv_freq. Dynamic
 * NTK scaling is a function of the position: where position + 1 > dynamic_from > 0, inv_freq is
 * made anew from base' = base * (factor * (position + 1) / dynamic_from - (factor - 1)) ^ (2P / (2P
 * - 2)), as a step-by-step decode of the reference implementations has it.
 * With [2] a position has A coordinates (time, row and column of a patch): angle[i] is made from
 * coordinate axes[i].
 *   in:  [0] positions I32 [T], or [T, A] with [2]   [1] inv_freq F32 [P]
 *        [2] axes I32 [P], each below A, or none
 *   out: [0] table F32 [T, 2 P]
 */
struct txda_op_rope_table {
	float scale;
	float base;
	float factor;
	__u32 dynamic_from; /* 0: never */
	__u32 max_position; /* positions >= this fault */
};

/*
 * ROPE_KV: splits the fused projection, optionally normalises each head of q and k by RMSNORM over
 * D, rotates the first 2 P elements of each head of q and k, writes q, and stores k and v to the
 * cache block slot[t] / block_size at offset slot[t] % block_size. A slot of 0xffffffff stores
 * nothing. The pairs are (i, i + P), or (2i, 2i + 1) with TXDA_ROPE_INTERLEAVED. If an element of a
 * head of v is not finite in the cache's type, v is stored as zeros and the key as NaN (not as F32, in
 * precise mode): so the queries that see it get NaN, and no others.
 *   in:  [0] qkv F32 or BF16 [T, (Hq + 2 Hkv) D]   [1] table F32 [T, 2 P]   [2] slots I32 [T]
 *        [3] q norm F32 [D] or none   [4] k norm F32 [D] or none
 *   out: [0] q BF16 or F32 [T, Hq D]   [1] cache KV_PAGED [N, bytes of a block]
 */
#define TXDA_ROPE_INTERLEAVED (1u << 0)
/* The cache keeps keys and values as int8 with a scale for each token and head (txda_layouts.h). */
#define TXDA_KV_INT8 (1u << 1)

struct txda_op_rope_kv {
	__u32 n_heads;	    /* Hq of this chip */
	__u32 n_kv_heads;   /* Hkv of this chip */
	__u32 head_dim;	    /* D, even, at most 512 */
	__u32 block_size;   /* tokens a block: txda_is_block_size() */
	__u64 layer_offset; /* of this layer within a block, bytes (doubled in precise mode) */
	float eps;
	__u32 flags; /* TXDA_ROPE_*, TXDA_KV_INT8 */
};

/*
 * ATTENTION: causal softmax(scale q K^T) V over a paged cache, ragged batch. Sequence s owns the
 * tokens [spans[s][0], spans[s][0] + spans[s][1]) of the step; they are the last ones of its
 * context[s] tokens, whose keys are all in the cache already. Key position p of sequence s is in
 * block table[s][p / block_size]; entries past the context must be in range, and what is there is not
 * read. Query head h reads KV head h * Hkv / Hq. window > 0: the query at
 * position p sees keys in (p - window, p]; what TXDA_ATTENTION_TILE - 1 positions or more before these
 * is there does not matter, so that its blocks may be of something else. softcap > 0: a score x = scale q . k counts as
 * softcap * tanh(x / softcap). With sinks, the softmax of head h has one key more with the score
 * sinks[h], whose value is 0 (Xiao et al. 2023). Keys are taken in parts of TXDA_ATTENTION_SPLIT
 * positions counted from position 0; the parts' partial results (Milakov and Gimelshein 2018,
 * online softmax) are merged in rising order, whoever computed them.
 * T Hq / Hkv is less than 2^32.
 *   in:  [0] q BF16 or F32 [T, Hq D]   [1] cache KV_PAGED [N, bytes of a block]
 *        [2] block table I32 [S, B]
 *        [3] spans I32 [S, 2]: first token and number of tokens of each sequence in this step;
 *            the ranges rise, do not overlap and lie in [0, T)
 *        [4] context I32 [S]   [5] sinks F32 [Hq] or none
 *   out: [0] BF16 or F32 [T, Hq D]
 */
#define TXDA_ATTENTION_SPLIT 512
#define TXDA_ATTENTION_TILE  64 /* keys that are looked at together; divides the above */

struct txda_op_attention {
	__u32 n_heads;
	__u32 n_kv_heads;
	__u32 head_dim;
	__u32 block_size;
	__u64 layer_offset;
	float scale;
	__u32 window;  /* 0: none */
	__u32 flags;   /* TXDA_KV_INT8 */
	float softcap; /* finite; 0: none */
};

/*
 * Multi-head latent attention (DeepSeek-AI 2024): the cache has one latent vector of L elements a
 * token, from which each head's keys and values are linear, and one key of R elements that rotates.
 * With the heads' matrices moved to the queries and to the result (MOE_LINEAR without a choice),
 * attention is over the latent vectors themselves.
 *
 * MLA_STORE: normalises the first L elements of each row of kv by RMSNORM, rotates the other R and
 * the R elements of each head of q, and stores what was kv to cache block slot[t] / block_size. A
 * latent vector that is not finite is stored as ROPE_KV does with v.
 *   in:  [0] q F32 [T, Hq R]   [1] table F32 [T, R]   [2] slots I32 [T]   [3] kv F32 [T, L + R]
 *        [4] norm weight F32 [L]
 *   out: [0] q BF16 or F32 [T, Hq R]   [1] cache KV_PAGED [N, bytes of a block]
 *
 * MLA_ATTENTION: as ATTENTION; the score of a key is scale (q_latent . latent + q . key), the result
 * is the weighted sum of latent vectors.
 *   in:  [0] q_latent F32 [T, Hq L]   [1] q F32 [T, Hq R]   [2] cache   [3] block table I32 [S, B]
 *        [4] spans I32 [S, 2]   [5] context I32 [S]
 *   out: [0] BF16 or F32 [T, Hq L]
 */
#define TXDA_MLA_MAX_LATENT 1024
#define TXDA_MLA_MAX_ROPE   256

struct txda_op_mla_store {
	__u32 n_heads; /* Hq of this chip */
	__u32 latent;  /* L */
	__u32 rope;    /* R, even */
	__u32 block_size;
	__u64 layer_offset;
	float eps;
	__u32 flags; /* TXDA_ROPE_INTERLEAVED, TXDA_KV_INT8 */
};

struct txda_op_mla_attention {
	__u32 n_heads;
	__u32 latent;
	__u32 rope;
	__u32 block_size;
	__u64 layer_offset;
	float scale;
	__u32 flags; /* TXDA_KV_INT8 */
};

/*
 * Attention over keys that an indexer chose (DeepSeek-AI 2025). Its own keys, one of D elements a
 * token, stand in the blocks of the cache, too.
 *
 * INDEX_STORE: rotates the first elements of each head of q, as many as the table is wide;
 * normalises k to mean 0 and variance 1, times weight, plus bias, rotates it likewise and stores it
 * to cache block slot[t] / block_size.
 *   in:  [0] q F32 [T, Hi D]   [1] table F32 [T, R]   [2] slots I32 [T]   [3] k F32 [T, D]
 *        [4] norm weight F32 [D]   [5] norm bias F32 [D]
 *   out: [0] q F32 [T, Hi D]   [1] cache KV_PAGED [N, bytes of a block]
 *
 * INDEX_SELECT: the @keys positions p of the sequence up to the token's own that score best, all of
 * them where there are no more; the score is the sum over rising heads h of weights[t][h] max(0,
 * q[t][h] . key[p]). Among equals the lower position is better; NaN is the worst. Batches are as in
 * ATTENTION.
 *   in:  [0] q F32 [T, Hi D]   [1] weights F32 [T, Hi]   [2] cache   [3] block table I32 [S, B]
 *        [4] spans I32 [S, 2]   [5] context I32 [S]
 *   out: [0] slots I32 [T, keys]: where the chosen tokens are in the cache, positions rising, then
 *            0xffffffff   [1] their positions, likewise, or none; it may be wider: they go to its
 *            columns from @out_col on
 *
 * MLA_SPARSE: MLA_ATTENTION over the tokens in the slots [t][..] up to the first 0xffffffff; zeros
 * where there is none.
 *   in:  [0] q_latent F32 [T, Hq L]   [1] q F32 [T, Hq R]   [2] cache   [3] slots I32 [T, keys]
 *   out: [0] F32 or BF16 [T, Hq L]
 */
#define TXDA_INDEX_MAX_DIM  512
#define TXDA_INDEX_MAX_KEYS 65536

struct txda_op_index_store {
	__u32 n_heads; /* Hi */
	__u32 dim;     /* D, even */
	__u32 block_size;
	__u32 flags; /* TXDA_ROPE_INTERLEAVED */
	__u64 layer_offset;
	float eps;
	__u32 reserved;
};

struct txda_op_index_select {
	__u32 n_heads;
	__u32 dim;
	__u32 block_size;
	__u32 keys;
	__u64 layer_offset;
	__u32 out_col;
	__u32 reserved;
};

/*
 * Layers with a state in place of keys (gated delta net: Yang et al. 2024). The state of a sequence,
 * all layers, is in M blocks of the cache; a table has for each sequence a row of 1 + 3 M words:
 *   [0]            a number of its tokens, or 0
 *   [1, M]         the blocks with the state behind the token before the step's first one; a sequence
 *                  at position 0 begins with zeros
 *   [M + 1, 2 M]   the blocks that get the state behind the step's last token; these may be the same
 *   [2 M + 1, 3 M] the blocks that get the state behind as many tokens as [0] says, if that is in
 *                  the step: a snapshot, from which this sequence or another may go on
 * All entries must be in range. Batches are as in ATTENTION. A sequence's tokens are taken one after
 * the other in float32, so that chunks do not change a bit.
 *
 * DELTA_CONV: out[t][c] = silu(sum over rising j of weight[c][j] x[t - K + 1 + j][c]), by position;
 * the state is the last K - 1 rows of x, [K - 1][C], at @layer_offset of block @first of the state.
 *   in:  [0] x F32 [T, C]   [1] weight F32 [C, K]   [2] state table I32 [S, 1 + 3 M]
 *        [3] spans I32 [S, 2]   [4] context I32 [S]
 *   out: [0] F32 [T, C]   [1] cache KV_PAGED [N, bytes of a block]
 *
 * DELTA_RULE: x has Hk queries and as many keys of Dk elements, then Hv values of Dv. Queries and
 * keys are divided by the root of their sum of squares + 1e-6, queries also by that of Dk. Head h
 * of the values goes with h Hk / Hv of the keys and has the state S [Dk][Dv], the one of number
 * h % @per_block from @layer_offset on in block @first + h / @per_block of the state:
 *   S = exp(c[0][h] log(1 + exp(a[t][h] + c[1][h]))) S
 *   S = S + k (sigmoid(b[t][h]) (v - S^T k))^T,   out[t][h] = S^T q
 * The halves of the row [1] are b and a.
 *   in:  [0] x F32 [T, 2 Hk Dk + Hv Dv]   [1] b and a F32 [T, 2 Hv]   [2] c F32 [2, Hv]
 *        [3] state table I32 [S, 1 + 3 M]   [4] spans I32 [S, 2]   [5] context I32 [S]
 *   out: [0] F32 [T, Hv Dv]   [1] cache KV_PAGED [N, bytes of a block]
 *
 * GATE: out = x act(gate), act being the sigmoid, or silu with TXDA_GATE_SILU. With [2] each run of
 * D elements of x is normalised by RMSNORM first.
 *   in:  [0] x F32 [T, N]   [1] gate F32 [T, N]   [2] norm weight F32 [D] or none, N a multiple of D
 *   out: [0] F32 [T, N]
 */
#define TXDA_DELTA_MAX_KERNEL 16
#define TXDA_DELTA_MAX_DIM    512
#define TXDA_GATE_SILU	      (1u << 0)

struct txda_op_delta_conv {
	__u32 first;
	__u32 reserved;
	__u64 layer_offset;
};

struct txda_op_delta_rule {
	__u32 n_k_heads; /* Hk of this chip */
	__u32 n_v_heads; /* Hv of this chip, a multiple of Hk */
	__u32 k_dim;	 /* Dk */
	__u32 v_dim;	 /* Dv */
	__u64 layer_offset;
	__u32 first;
	__u32 per_block;
};

struct txda_op_gate {
	float eps;
	__u32 flags; /* TXDA_GATE_* */
};

/*
 * GATHER_ROWS: out[r] = x[row[r]]; row[r] >= M faults.
 *   in:  [0] x F32 [M, H]   [1] rows I32 [R]
 *   out: [0] F32 [R, H]
 */

/*
 * TOPK: the @k largest elements of each row, largest first, the lower index first among equals (k =
 * 1 is argmax), and the log of the sum of exponentials of the whole row. NaN sorts as minus
 * infinity.
 *   in:  [0] x F32 [R, V]
 *   out: [0] indices I32 [R, k]   [1] values F32 [R, k]   [2] lse F32 [R]
 */
#define TXDA_TOPK_MAX 128

struct txda_op_topk {
	__u32 k;
};

/*
 * ALL_REDUCE: out = residual + (x of rank 0 + x of rank 1 + ...), summed in rank order.
 *   in:  [0] x F32 [M, H]   [1] residual F32 [M, H] or none (may be the output itself)
 *   out: [0] F32 [M, H]
 * ALL_GATHER: out[m] = the rows x[m] of the ranks side by side, cut to the width of out. Only rank
 * 0 has an output; the others give TXDA_NONE.
 *   in:  [0] x F32 [M, W]
 *   out: [0] F32 [M, V], (group_size - 1) * W < V <= group_size * W
 */

/*
 * What towers that see images need beside the above.
 *
 * LAYERNORM: out = act((x - mean(x)) / sqrt(variance(x) + eps) * weight + bias), reduced in float32
 * (Ba et al. 2016).
 *   in:  [0] x F32 [M, H]   [1] weight F32 [H]   [2] bias F32 [H] or none
 *   out: [0] F32 or BF16 [M, H]
 *
 * INTERPOLATE: out[m] = x[m] + sum over rising j of weights[m][j] table[taps[m][j]]: learned
 * positions between those of a table.
 *   in:  [0] x F32 [M, H] (may be the output itself)   [1] table F32 [N, H]
 *        [2] taps I32 [M, k], each below N   [3] weights F32 [M, k]
 *   out: [0] F32 [M, H]
 *
 * SPAN_ATTENTION: softmax(scale q K^T) V among the rows of each span, in both directions. A row of
 * qkv has the queries, keys and values of Hq heads; the first 2 P elements of queries and keys are
 * rotated by the table's row when [2] is given, in pairs (i, i + P). Rows outside of all spans stay
 * as they were. A row's bits depend on its span alone.
 *   in:  [0] qkv F32 [M, 3 Hq D]
 *        [1] spans I32 [S, 2]: first row and number of rows; the ranges rise, do not overlap and
 *            lie in [0, M)
 *        [2] table F32 [M, 2 P] or none
 *   out: [0] BF16 or F32 [M, Hq D]
 *
 * MERGE_ROWS: out[m] = columns [col, col + H) of source[rows[m]], plus x[m] with TXDA_MERGE_ADD;
 * and x[m] where rows[m] is 0xffffffff.
 *   in:  [0] x F32 [M, H] (may be the output itself), or [H], the same for all
 *        [1] source F32 [E, W]   [2] rows I32 [M], each below E or 0xffffffff
 *   out: [0] F32 [M, H]
 */
#define TXDA_INTERPOLATE_MAX 64 /* taps */
#define TXDA_MERGE_ADD	     (1u << 0)

struct txda_op_layernorm {
	float eps;
	__u32 act; /* NONE, or a plain enum txda_activation */
};

struct txda_op_span_attention {
	__u32 n_heads;
	__u32 head_dim; /* at most 512 */
	float scale;
};

struct txda_op_merge_rows {
	__u32 flags; /* TXDA_MERGE_ADD */
	__u32 col;
};

struct txda_op {
	__u16 op;    /* enum txda_opcode */
	__u16 flags; /* 0 */
	__u32 label; /* "layers.3.mlp.down"; offset into strings */
	__u32 in[6]; /* tensor indices or TXDA_NONE */
	__u32 out[3];
	__u32 reserved;
	union {
		struct txda_op_embed embed;
		struct txda_op_rmsnorm rmsnorm;
		struct txda_op_linear linear;
		struct txda_op_silu_mul silu_mul;
		struct txda_op_rope_table rope_table;
		struct txda_op_rope_kv rope_kv;
		struct txda_op_attention attention;
		struct txda_op_topk topk;
		struct txda_op_route route;
		struct txda_op_moe_linear moe_linear;
		struct txda_op_moe_combine moe_combine;
		struct txda_op_mla_store mla_store;
		struct txda_op_mla_attention mla_attention; /* and of MLA_SPARSE */
		struct txda_op_index_store index_store;
		struct txda_op_index_select index_select;
		struct txda_op_delta_conv delta_conv;
		struct txda_op_delta_rule delta_rule;
		struct txda_op_gate gate;
		struct txda_op_layernorm layernorm;
		struct txda_op_span_attention span_attention;
		struct txda_op_merge_rows merge_rows;
		__u32 raw[20]; /* what an op does not name is 0 */
	};
};

/* ------------------------------------------------------------------------------------------- */
/* Faults                                                                                        */
/* ------------------------------------------------------------------------------------------- */

enum txda_fault_code {
	TXDA_FAULT_NONE = 0,
	TXDA_FAULT_PAGE = 1,	   /* @va is not mapped, or not with that access */
	TXDA_FAULT_PACKET = 2,	   /* bad packet; @detail: enum txda_packet or its size */
	TXDA_FAULT_PROGRAM = 3,	   /* bad header, table or record */
	TXDA_FAULT_SHAPE = 4,	   /* dims or types of @tensor do not fit the op */
	TXDA_FAULT_INDEX = 5,	   /* @detail: the index read from @tensor, @va: where */
	TXDA_FAULT_BINDING = 6,	   /* slot @detail too small, unaligned or missing */
	TXDA_FAULT_SYMBOL = 7,	   /* symbol @detail above the program's maximum */
	TXDA_FAULT_COLLECTIVE = 8, /* members disagree, one was lost, or no such group */
	TXDA_FAULT_HANG = 9,	   /* reported by whoever watched the queue */
	TXDA_FAULT_ECC = 10,
	TXDA_FAULT_LOST = 11, /* the chip is gone */
	TXDA_FAULT_CODE_COUNT
};

struct txda_fault {
	__u32 code; /* enum txda_fault_code */
	__u32 queue;
	__u32 vmid;
	__u32 op;	 /* index of the op in the program, or TXDA_NONE */
	__u32 tensor;	 /* index of the tensor, or TXDA_NONE */
	__u32 opcode;	 /* enum txda_opcode, or TXDA_NONE */
	__u64 va;	 /* the address at fault, or 0 */
	__u64 packet_va; /* the packet that was executed */
	__u64 detail;
};

#endif /* TXDA_ISA_H */
