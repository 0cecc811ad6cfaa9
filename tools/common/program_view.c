// SPDX-License-Identifier: MIT
#include "program_view.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "isa_names.h"

/* Larger extents are refused, so that products of two and a few bytes stay below 2^64. */
#define MAX_DIM (1ull << 40)

const char *program_name(const struct program_view *v, uint32_t offset)
{
	return offset < v->header->strings_bytes ? v->strings + offset : "";
}

uint64_t program_dim(const struct program_view *v, struct txda_dim dim)
{
	return dim.sym ? (uint64_t)dim.mul * v->header->sym_max[dim.sym] : dim.mul;
}

char *program_shape(const struct txda_tensor *t, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "[");
	unsigned i;

	for (i = 0; i < t->ndim && i < 4 && at < len; i++) {
		const char *sym = isa_symbol_name(t->dim[i].sym);

		if (t->dim[i].sym && t->dim[i].mul == 1)
			at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "", sym);
		else
			at += (size_t)snprintf(buf + at, len - at, "%s%u%s%s", i ? ", " : "",
					       t->dim[i].mul, *sym ? " " : "", sym);
	}
	if (at < len)
		snprintf(buf + at, len - at, "]");
	return buf;
}

uint64_t program_tensor_bytes(const struct program_view *v, const struct txda_tensor *t)
{
	uint64_t bytes, d;
	unsigned i;

	if (t->layout == TXDA_TILE32 || t->layout == TXDA_TILE32_GATED) {
		const struct txda_dim *dim = t->dim + (t->ndim == 3);
		uint64_t n = program_dim(v, dim[0]), k = program_dim(v, dim[1]);

		if ((t->ndim != 2 && t->ndim != 3) || n > MAX_DIM || k > UINT32_MAX ||
		    __builtin_mul_overflow(txda_tile_panels(t->layout, n),
					   txda_tile_panel_bytes(t->dtype, k, t->group), &bytes) ||
		    (t->ndim == 3 &&
		     __builtin_mul_overflow(bytes, program_dim(v, t->dim[0]), &bytes)))
			return 0;
		return bytes;
	}
	bytes = isa_dtype_bytes(t->dtype);
	for (i = 0; i < t->ndim; i++) {
		d = program_dim(v, t->dim[i]);
		if (d > MAX_DIM || __builtin_mul_overflow(bytes, d, &bytes))
			return 0;
	}
	return bytes;
}

static bool all_zero(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	size_t i;

	for (i = 0; i < bytes; i++) {
		if (p[i])
			return false;
	}
	return true;
}

static int check_table(uint64_t total, const char *what, uint32_t offset, uint32_t count,
		       size_t size, struct tool_error *error)
{
	if (offset % 8 || offset < sizeof(struct txda_program) || offset > total ||
	    (uint64_t)count * size > total - offset)
		return tool_fail(error, -EINVAL, "%u %s at offset %u do not fit into %llu bytes",
				 count, what, offset, (unsigned long long)total);
	return 0;
}

static int check_crc(const struct txda_program *h, struct tool_error *error)
{
	const size_t at = offsetof(struct txda_program, crc32c);
	const char *data = (const char *)h, zero[4] = {0};
	uint32_t crc = crc32c(0, data, at);

	crc = crc32c(crc, zero, 4);
	crc = crc32c(crc, data + at + 4, h->bytes - at - 4);
	if (crc != h->crc32c)
		return tool_fail(error, -EBADMSG, "checksum %08x, the header says %08x", crc,
				 h->crc32c);
	return 0;
}

static int check_header(const struct txda_program *h, size_t bytes, struct tool_error *error)
{
	unsigned i;
	int r;

	if (bytes < sizeof(*h))
		return tool_fail(error, -EINVAL, "%zu bytes are too short for a program", bytes);
	if (h->magic != TXDA_PROGRAM_MAGIC)
		return tool_fail(error, -EINVAL, "magic %08x, a program has %08x", h->magic,
				 TXDA_PROGRAM_MAGIC);
	if (h->major != TXDA_ISA_MAJOR || h->minor > TXDA_ISA_MINOR)
		return tool_fail(error, -EINVAL, "version %u.%u, this tool knows %u.%u", h->major,
				 h->minor, TXDA_ISA_MAJOR, TXDA_ISA_MINOR);
	if (h->bytes != bytes || bytes > TXDA_PROGRAM_MAX_BYTES)
		return tool_fail(error, -EINVAL,
				 "%llu bytes by its header, %zu in the file, at most %u",
				 (unsigned long long)h->bytes, bytes, TXDA_PROGRAM_MAX_BYTES);
	r = check_crc(h, error);
	if (r)
		return r;
	if (!h->n_slots || h->n_slots > TXDA_PROGRAM_MAX_SLOTS)
		return tool_fail(error, -EINVAL, "%u slots, the limit is %u", h->n_slots,
				 TXDA_PROGRAM_MAX_SLOTS);
	if (!h->group_size || h->group_size > TXDA_MAX_GROUP || h->rank >= h->group_size)
		return tool_fail(error, -EINVAL, "rank %u of a group of %u chips", h->rank,
				 h->group_size);
	if (!all_zero(h->reserved, sizeof(h->reserved)) || h->sym_max[0] || h->sym_max[6] ||
	    h->sym_max[7])
		return tool_fail(error, -EINVAL, "a reserved header field is not zero");
	for (i = TXDA_SYM_T; i <= TXDA_SYM_N; i++) {
		if (!h->sym_max[i])
			return tool_fail(error, -EINVAL, "symbol %s has the maximum 0",
					 isa_symbol_name(i));
	}
	r = check_table(bytes, "slots", h->slots_off, h->n_slots, sizeof(struct txda_slot), error);
	if (!r)
		r = check_table(bytes, "tensors", h->tensors_off, h->n_tensors,
				sizeof(struct txda_tensor), error);
	if (!r)
		r = check_table(bytes, "ops", h->ops_off, h->n_ops, sizeof(struct txda_op), error);
	if (!r)
		r = check_table(bytes, "bytes of strings", h->strings_off, h->strings_bytes, 1,
				error);
	return r;
}

static int check_tensor(const struct program_view *v, uint32_t index, struct tool_error *error)
{
	const struct txda_tensor *t = &v->tensors[index];
	bool tiles = t->layout == TXDA_TILE32 || t->layout == TXDA_TILE32_GATED;
	bool quantised = txda_is_grouped(t->dtype);
	uint64_t bytes, room;
	unsigned i;

	if (t->name >= v->header->strings_bytes || t->slot >= v->header->n_slots)
		return tool_fail(error, -EINVAL, "name or slot %u out of range", t->slot);
	if (t->dtype >= TXDA_DTYPE_COUNT || t->layout >= TXDA_LAYOUT_COUNT ||
	    (t->flags & ~TXDA_TENSOR_ACTIVATION) || !all_zero(t->reserved, sizeof(t->reserved)))
		return tool_fail(error, -EINVAL,
				 "dtype %u, layout %u, flags %#x or a reserved field", t->dtype,
				 t->layout, t->flags);
	if (t->offset % 64)
		return tool_fail(error, -EINVAL, "offset %llu is not a multiple of 64",
				 (unsigned long long)t->offset);
	if (t->ndim < 1 || t->ndim > 4)
		return tool_fail(error, -EINVAL, "%u dimensions", t->ndim);
	for (i = 0; i < 4; i++) {
		if (i < t->ndim ? t->dim[i].sym > TXDA_SYM_N || !t->dim[i].mul
				: t->dim[i].sym || t->dim[i].mul)
			return tool_fail(error, -EINVAL, "dimension %u: symbol %u times %u", i,
					 t->dim[i].sym, t->dim[i].mul);
	}
	if (quantised ? !tiles || (t->group != 32 && t->group != 64 && t->group != 128 &&
				   t->group != 256)
		      : t->group != 0)
		return tool_fail(error, -EINVAL, "a quantisation group of %u in %s %s", t->group,
				 isa_dtype_name(t->dtype), isa_layout_name(t->layout));
	bytes = program_tensor_bytes(v, t);
	room = v->slots[t->slot].bytes;
	if (v->slots[t->slot].kind == TXDA_SLOT_KV) {
		if (__builtin_mul_overflow(room, v->header->sym_max[TXDA_SYM_N], &room))
			return tool_fail(error, -EOVERFLOW, "the KV slot's size overflows");
	}
	if (!bytes || t->offset > room || bytes > room - t->offset)
		return tool_fail(error, -EINVAL,
				 "%llu bytes at %llu do not fit into a slot of %llu",
				 (unsigned long long)bytes, (unsigned long long)t->offset,
				 (unsigned long long)room);
	return 0;
}

int program_view(const void *data, size_t bytes, struct program_view *ret, struct tool_error *error)
{
	const char *base = data;
	struct program_view v = {.header = data};
	uint32_t i;
	int r;

	r = check_header(v.header, bytes, error);
	if (r)
		return r;
	v.slots = (const void *)(base + v.header->slots_off);
	v.tensors = (const void *)(base + v.header->tensors_off);
	v.ops = (const void *)(base + v.header->ops_off);
	v.strings = base + v.header->strings_off;
	if (!v.header->strings_bytes || v.strings[v.header->strings_bytes - 1] ||
	    v.header->name >= v.header->strings_bytes)
		return tool_fail(error, -EINVAL, "the strings do not end, or the name is outside");
	for (i = 0; i < v.header->n_slots; i++) {
		if (v.slots[i].kind >= TXDA_SLOT_KIND_COUNT ||
		    v.slots[i].name >= v.header->strings_bytes)
			return tool_fail(error, -EINVAL, "slot %u: kind %u or name out of range", i,
					 v.slots[i].kind);
	}
	for (i = 0; i < v.header->n_tensors; i++) {
		r = check_tensor(&v, i, error);
		if (r)
			return tool_fail_within(error, r, "tensor %u (%.64s)", i,
						program_name(&v, v.tensors[i].name));
	}
	for (i = 0; i < v.header->n_ops; i++) {
		r = program_check_op(&v, i, error);
		if (r)
			return tool_fail_within(error, r, "op %u (%s %.64s)", i,
						isa_opcode_name(v.ops[i].op),
						program_name(&v, v.ops[i].label));
	}
	*ret = v;
	return 0;
}
