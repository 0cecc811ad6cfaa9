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
#include "op_text.h"
#include "program_view.h"

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
		printf("  %%%-4u %-32s %-6s %-12s %-18s %-24s %llu bytes%s\n", i,
		       clean(program_name(v, t->name)), type, isa_layout_name(t->layout),
		       program_shape(t, shape, sizeof(shape)), place,
		       (unsigned long long)program_tensor_bytes(v, t),
		       t->flags & TXDA_TENSOR_ACTIVATION ? ", activation" : "");
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
	printf("      %-3s %-12s %%%-4u %-32s %-4s %s\n", role, name, index,
	       clean(program_name(v, t->name)), isa_dtype_name(t->dtype),
	       program_shape(t, shape, sizeof(shape)));
}

static void dump_ops(const struct program_view *v)
{
	uint32_t i, j;

	printf("\n%u ops\n", v->header->n_ops);
	for (i = 0; i < v->header->n_ops; i++) {
		const struct txda_op *op = &v->ops[i];
		char params[OP_TEXT_BYTES];

		op_text(op, params);
		printf("  %u  %s %s%s%s\n", i, isa_opcode_name(op->op),
		       clean(program_name(v, op->label)), *params ? "  " : "", params);
		for (j = 0; j < 6; j++)
			dump_operand(v, "in", op_operand_name(op->op, j), op->in[j]);
		for (j = 0; j < 3; j++)
			dump_operand(v, "out", op_operand_name(op->op, 6 + j), op->out[j]);
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
