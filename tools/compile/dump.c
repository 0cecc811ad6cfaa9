// SPDX-License-Identifier: MIT
/*
 * compile_dump(): prints a program as text. The file is checked completely first, and its names are
 * printed without control characters.
 */
#include "compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "isa_names.h"
#include "program_view.h"

static const char *const operand_names[TXDA_OP_COUNT][9] = {
	[TXDA_OP_EMBED] = {"tokens", "table", 0, 0, 0, 0, "x"},
	[TXDA_OP_RMSNORM] = {"x", "weight", 0, 0, 0, 0, "out"},
	[TXDA_OP_LINEAR] = {"x", "weight", "bias", "norm", "residual", 0, "out"},
	[TXDA_OP_ROPE_TABLE] = {"positions", "inv_freq", "axes", 0, 0, 0, "table"},
	[TXDA_OP_ROPE_KV] = {"qkv", "table", "slots", "q norm", "k norm", 0, "q", "cache"},
	[TXDA_OP_ATTENTION] = {"q", "cache", "block table", "spans", "context", "sinks", "out"},
	[TXDA_OP_GATHER_ROWS] = {"x", "rows", 0, 0, 0, 0, "out"},
	[TXDA_OP_TOPK] = {"x", 0, 0, 0, 0, 0, "indices", "values", "lse"},
	[TXDA_OP_ALL_REDUCE] = {"x", "residual", 0, 0, 0, 0, "out"},
	[TXDA_OP_ALL_GATHER] = {"x", 0, 0, 0, 0, 0, "out"},
	[TXDA_OP_LAYERNORM] = {"x", "weight", "bias", 0, 0, 0, "out"},
	[TXDA_OP_INTERPOLATE] = {"x", "table", "taps", "weights", 0, 0, "out"},
	[TXDA_OP_SPAN_ATTENTION] = {"qkv", "spans", "table", 0, 0, 0, "out"},
	[TXDA_OP_MERGE_ROWS] = {"x", "source", "rows", 0, 0, 0, "out"},
	[TXDA_OP_MOE_LINEAR] = {"x", "weights", "experts", "norm", "columns", "biases", "out"},
};

/* A name from a file, safe for a terminal; a small ring of buffers. */
static const char *clean(const char *name)
{
	static char ring[4][96];
	static unsigned next;
	char *buf = ring[next++ % 4];
	size_t i;

	for (i = 0; name[i] && i < sizeof(ring[0]) - 1; i++)
		buf[i] = name[i] >= 0x20 && name[i] < 0x7f ? name[i] : '?';
	buf[i] = 0;
	return buf;
}

static const char *human(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	unsigned u = 0;

	while (value >= 1024 && u < 6) {
		value /= 1024;
		u++;
	}
	snprintf(buf, len, u ? "%.1f %s" : "%.0f %s", value, units[u]);
	return buf;
}

static void dump_header(const struct program_view *v)
{
	const struct txda_program *h = v->header;
	unsigned i;

	printf("program \"%s\", format %u.%u, %llu bytes, crc32c %08x, rank %u of %u\n",
	       clean(program_name(v, h->name)), h->major, h->minor, (unsigned long long)h->bytes,
	       h->crc32c, h->rank, h->group_size);
	printf("at most");
	for (i = TXDA_SYM_T; i <= TXDA_SYM_N; i++)
		printf("%s %s = %u", i > TXDA_SYM_T ? "," : "", isa_symbol_name(i), h->sym_max[i]);
	printf("\n\n%u slots\n", h->n_slots);
	for (i = 0; i < h->n_slots; i++) {
		char size[32];

		printf("  %2u  %-12s %-8s %14llu bytes%s  %s\n", i,
		       clean(program_name(v, v->slots[i].name)),
		       isa_slot_kind_name(v->slots[i].kind), (unsigned long long)v->slots[i].bytes,
		       v->slots[i].kind == TXDA_SLOT_KV ? " a block" : "",
		       human(v->slots[i].bytes, size, sizeof(size)));
	}
}

static void dump_tensors(const struct program_view *v)
{
	uint32_t i;

	printf("\n%u tensors\n", v->header->n_tensors);
	for (i = 0; i < v->header->n_tensors; i++) {
		const struct txda_tensor *t = &v->tensors[i];
		char shape[96], type[32], place[64];

		snprintf(type, sizeof(type), t->group ? "%s/%u" : "%s", isa_dtype_name(t->dtype),
			 t->group);
		snprintf(place, sizeof(place), "%s+%llu",
			 clean(program_name(v, v->slots[t->slot].name)),
			 (unsigned long long)t->offset);
		printf("  %%%-4u %-32s %-6s %-12s %-18s %-24s %llu bytes\n", i,
		       clean(program_name(v, t->name)), type, isa_layout_name(t->layout),
		       program_shape(t, shape, sizeof(shape)), place,
		       (unsigned long long)program_tensor_bytes(v, t));
	}
}

static const char *activation_name(uint32_t act)
{
	switch (act) {
	case TXDA_ACT_GELU: return "gelu";
	case TXDA_ACT_GELU_TANH: return "gelu by tanh";
	case TXDA_ACT_GELU_QUICK: return "quick gelu";
	default: return "silu";
	}
}

static void dump_params(const struct txda_op *op)
{
	switch (op->op) {
	case TXDA_OP_EMBED:
		printf("  first %u, vocab %u, scale %g", op->embed.first, op->embed.vocab,
		       (double)op->embed.scale);
		break;
	case TXDA_OP_RMSNORM: printf("  eps %g", (double)op->rmsnorm.eps); break;
	case TXDA_OP_LINEAR:
		if (op->in[3] != TXDA_NONE)
			printf("  eps %g", (double)op->linear.eps);
		if (op->linear.act == TXDA_ACT_SILU_GATED)
			printf("  silu(gate) * up");
		else if (op->linear.act == TXDA_ACT_GELU_GATED)
			printf("  gelu(gate) * up");
		else if (op->linear.act == TXDA_ACT_SOFTCAP)
			printf("  soft cap %g", (double)op->linear.limit);
		else if (txda_is_plain_act(op->linear.act))
			printf("  %s", activation_name(op->linear.act));
		if (op->linear.flags & TXDA_LINEAR_F32_INPUT)
			printf("  float32 input");
		break;
	case TXDA_OP_MOE_LINEAR:
		if (op->moe_linear.act == TXDA_ACT_SWIGLU_CLAMPED)
			printf("  clamped swiglu, limit %g", (double)op->moe_linear.limit);
		break;
	case TXDA_OP_LAYERNORM:
		printf("  eps %g", (double)op->layernorm.eps);
		if (op->layernorm.act)
			printf(", %s", activation_name(op->layernorm.act));
		break;
	case TXDA_OP_SPAN_ATTENTION:
		printf("  %u heads of %u, scale %g", op->span_attention.n_heads,
		       op->span_attention.head_dim, (double)op->span_attention.scale);
		break;
	case TXDA_OP_MERGE_ROWS:
		printf("  %s column %u",
		       op->merge_rows.flags & TXDA_MERGE_ADD ? "adds from" : "from",
		       op->merge_rows.col);
		break;
	case TXDA_OP_ROPE_TABLE:
		printf("  scale %g, positions below %u", (double)op->rope_table.scale,
		       op->rope_table.max_position);
		if (op->rope_table.dynamic_from)
			printf(", dynamic from %u: base %g, factor %g", op->rope_table.dynamic_from,
			       (double)op->rope_table.base, (double)op->rope_table.factor);
		break;
	case TXDA_OP_ROPE_KV:
		printf("  %u + 2 * %u heads of %u, blocks of %u, layer at %llu, eps %g%s",
		       op->rope_kv.n_heads, op->rope_kv.n_kv_heads, op->rope_kv.head_dim,
		       op->rope_kv.block_size, (unsigned long long)op->rope_kv.layer_offset,
		       (double)op->rope_kv.eps,
		       op->rope_kv.flags & TXDA_ROPE_INTERLEAVED ? ", interleaved" : "");
		break;
	case TXDA_OP_ATTENTION:
		printf("  %u heads over %u of %u, blocks of %u, layer at %llu, scale %g",
		       op->attention.n_heads, op->attention.n_kv_heads, op->attention.head_dim,
		       op->attention.block_size, (unsigned long long)op->attention.layer_offset,
		       (double)op->attention.scale);
		if (op->attention.window)
			printf(", window %u", op->attention.window);
		if (op->attention.softcap > 0)
			printf(", soft cap %g", (double)op->attention.softcap);
		break;
	case TXDA_OP_TOPK: printf("  k %u", op->topk.k); break;
	}
}

static void dump_operand(const struct program_view *v, const char *role, const char *name,
			 uint32_t index)
{
	const struct txda_tensor *t;
	char shape[96];

	if (index == TXDA_NONE)
		return;
	t = &v->tensors[index];
	printf("      %-3s %-12s %%%-4u %-32s %-4s %s\n", role, name ? name : "?", index,
	       clean(program_name(v, t->name)), isa_dtype_name(t->dtype),
	       program_shape(t, shape, sizeof(shape)));
}

static void dump_ops(const struct program_view *v)
{
	uint32_t i, j;

	printf("\n%u ops\n", v->header->n_ops);
	for (i = 0; i < v->header->n_ops; i++) {
		const struct txda_op *op = &v->ops[i];

		printf("  %u  %s %s", i, isa_opcode_name(op->op),
		       clean(program_name(v, op->label)));
		dump_params(op);
		putchar('\n');
		for (j = 0; j < 6; j++)
			dump_operand(v, "in", operand_names[op->op][j], op->in[j]);
		for (j = 0; j < 3; j++)
			dump_operand(v, "out", operand_names[op->op][6 + j], op->out[j]);
	}
}

static int dump_file(int dirfd, const char *name, struct tool_error *error)
{
	struct program_view view;
	size_t bytes;
	char *data;
	int r;

	r = tool_read_file(dirfd, name, TXDA_PROGRAM_MAX_BYTES, &data, &bytes, error);
	if (r)
		return r;
	r = program_view(data, bytes, &view, error);
	if (r) {
		tool_fail_within(error, r, "%s", name);
	} else {
		dump_header(&view);
		dump_tensors(&view);
		dump_ops(&view);
		if (fflush(stdout))
			r = tool_fail(error, -EIO, "standard output: %s", strerror(errno));
	}
	free(data);
	return r;
}

int compile_dump(const char *path, struct tool_error *error)
{
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	char name[32];
	unsigned rank;

	if (dirfd < 0)
		return dump_file(AT_FDCWD, path, error);
	for (rank = 0; rank < TXDA_MAX_GROUP && !r; rank++) {
		snprintf(name, sizeof(name), "chip%u/kcore.bin", rank);
		if (rank && faccessat(dirfd, name, F_OK, 0) < 0)
			break;
		printf("%s%s\n", rank ? "\n" : "", name);
		r = dump_file(dirfd, name, error);
	}
	close(dirfd);
	return r ? tool_fail_within(error, r, "%s", path) : 0;
}
