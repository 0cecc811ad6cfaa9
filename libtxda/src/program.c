// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "crc32c.h"
#include "isa_names.h"
#include "program.h"
#include "set_error.h"

uint64_t txda__program_dim(const struct txda__program *program, const struct txda_dim *dim)
{
	return dim->sym ? (uint64_t)dim->mul * program->header->sym_max[dim->sym] : dim->mul;
}

uint64_t txda__program_tensor_bytes(const struct txda__program *program,
				    const struct txda_tensor *tensor)
{
	uint64_t bytes = isa_dtype_bytes(tensor->dtype);

	for (unsigned i = 0; i < tensor->ndim; i++)
		if (!txda__mul(bytes, txda__program_dim(program, &tensor->dim[i]), &bytes))
			return 0;
	return bytes;
}

void txda__program_shape(const struct txda_tensor *tensor, char *buf, size_t len)
{
	static const char symbol[] = "-TSRBN??";
	size_t at = 0;

	if (len)
		buf[0] = '\0';
	for (unsigned i = 0; i < tensor->ndim && at < len; i++) {
		const struct txda_dim *dim = &tensor->dim[i];
		const char *before = i ? ", " : "[";

		if (!dim->sym)
			at += (size_t)snprintf(buf + at, len - at, "%s%u", before, dim->mul);
		else if (dim->mul == 1)
			at += (size_t)snprintf(buf + at, len - at, "%s%c", before,
					       symbol[dim->sym & 7]);
		else
			at += (size_t)snprintf(buf + at, len - at, "%s%u%c", before, dim->mul,
					       symbol[dim->sym & 7]);
	}
	if (at < len)
		snprintf(buf + at, len - at, "]");
}

/* Whether a table of @count records lies within the program, after the header, 8-byte aligned. */
static bool table_ok(uint64_t program_bytes, uint32_t offset, uint32_t count, size_t record)
{
	return offset % 8 == 0 && offset >= sizeof(struct txda_program) &&
	       txda__range_ok(offset, (uint64_t)count * record, program_bytes);
}

static int check_header(const struct txda_program *h, size_t bytes, char *err, size_t errlen)
{
	struct txda_program copy;
	uint32_t crc;

	if (h->magic != TXDA_PROGRAM_MAGIC)
		return set_error(-EINVAL, err, errlen, "magic is 0x%08x; expected 0x%08x", h->magic,
				 TXDA_PROGRAM_MAGIC);
	if (h->major != TXDA_ISA_MAJOR || h->minor > TXDA_ISA_MINOR)
		return set_error(-EINVAL, err, errlen,
				 "version %u.%u; this library runs %u.0 to %u.%u", h->major,
				 h->minor, TXDA_ISA_MAJOR, TXDA_ISA_MAJOR, TXDA_ISA_MINOR);
	if (h->bytes != bytes)
		return set_error(-EINVAL, err, errlen,
				 "the header says %llu bytes, the file has %zu",
				 (unsigned long long)h->bytes, bytes);
	copy = *h;
	copy.crc32c = 0;
	crc = crc32c(0, &copy, sizeof(copy));
	crc = crc32c(crc, h + 1, bytes - sizeof(*h));
	if (crc != h->crc32c)
		return set_error(-EINVAL, err, errlen, "checksum is 0x%08x; the header says 0x%08x",
				 crc, h->crc32c);
	if (!h->n_slots || h->n_slots > TXDA_PROGRAM_MAX_SLOTS)
		return set_error(-EINVAL, err, errlen, "%u slots; it must be 1 to %d", h->n_slots,
				 TXDA_PROGRAM_MAX_SLOTS);
	if (!h->n_ops || !h->n_tensors)
		return set_error(-EINVAL, err, errlen, "it has no %s",
				 h->n_ops ? "tensors" : "ops");
	if (!table_ok(bytes, h->slots_off, h->n_slots, sizeof(struct txda_slot)) ||
	    !table_ok(bytes, h->tensors_off, h->n_tensors, sizeof(struct txda_tensor)) ||
	    !table_ok(bytes, h->ops_off, h->n_ops, sizeof(struct txda_op)) ||
	    !table_ok(bytes, h->strings_off, h->strings_bytes, 1) || !h->strings_bytes)
		return set_error(-EINVAL, err, errlen,
				 "a table is not inside the program or not on an 8-byte border");
	if (!h->group_size || h->group_size > TXDA_MAX_GROUP || h->rank >= h->group_size)
		return set_error(-EINVAL, err, errlen, "rank %u of a group of %u", h->rank,
				 h->group_size);
	if (h->sym_max[0] || h->sym_max[6] || h->sym_max[7])
		return set_error(-EINVAL, err, errlen, "an unknown symbol has a limit");
	return 0;
}

static int check_names(const struct txda__program *p, char *err, size_t errlen)
{
	const struct txda_program *h = p->header;
	uint32_t limit = h->strings_bytes;
	bool ok = p->strings[limit - 1] == '\0' && h->name < limit;

	for (uint32_t i = 0; i < h->n_slots; i++)
		ok &= p->slot[i].name < limit;
	for (uint32_t i = 0; i < h->n_tensors; i++)
		ok &= p->tensor[i].name < limit;
	for (uint32_t i = 0; i < h->n_ops; i++)
		ok &= p->op[i].label < limit;
	return ok ? 0 : set_error(-EINVAL, err, errlen, "a name is outside of the strings");
}

static int check_slots(const struct txda__program *p, char *err, size_t errlen)
{
	unsigned count[TXDA_SLOT_KIND_COUNT] = {0};

	for (uint32_t i = 0; i < p->header->n_slots; i++) {
		const struct txda_slot *slot = &p->slot[i];
		const char *name = txda__program_string(p, slot->name);

		if (slot->kind >= TXDA_SLOT_KIND_COUNT)
			return set_error(-EINVAL, err, errlen, "slot %u (%.60s) has kind %u", i,
					 name, slot->kind);
		if (!slot->bytes || slot->bytes > 1ull << 40)
			return set_error(-EINVAL, err, errlen,
					 "slot %u (%.60s) has %llu bytes; it must be 1 to 2^40", i,
					 name, (unsigned long long)slot->bytes);
		if (slot->kind < TXDA_SLOT_INPUT && ++count[slot->kind] > 1)
			return set_error(-EINVAL, err, errlen,
					 "slot %u (%.60s): there is one of that kind already", i,
					 name);
		if (slot->kind >= TXDA_SLOT_INPUT && (!*name || strlen(name) >= 64))
			return set_error(-EINVAL, err, errlen,
					 "slot %u has a name of %zu bytes; it must be 1 to 63", i,
					 strlen(name));
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(name, txda__program_string(p, p->slot[j].name)))
				return set_error(-EINVAL, err, errlen,
						 "two slots are named \"%.60s\"", name);
	}
	return 0;
}

/* Inputs and outputs: finds the tensor at the start of such a slot that has the slot's name. */
static int find_io(struct txda__program *p, char *err, size_t errlen)
{
	memset(p->io_tensor, 0xff, sizeof(p->io_tensor));
	for (uint32_t i = 0; i < p->header->n_tensors; i++) {
		const struct txda_tensor *t = &p->tensor[i];
		const char *name = txda__program_string(p, t->name);
		const struct txda_slot *slot;
		uint64_t bytes;

		if (t->slot >= p->header->n_slots)
			return set_error(-EINVAL, err, errlen,
					 "tensor %u (%.60s) is in slot %u of %u", i, name, t->slot,
					 p->header->n_slots);
		slot = &p->slot[t->slot];
		if (slot->kind != TXDA_SLOT_INPUT && slot->kind != TXDA_SLOT_OUTPUT)
			continue;
		if (t->offset || strcmp(name, txda__program_string(p, slot->name)))
			continue;
		if (!t->ndim || t->ndim > 4 || t->layout != TXDA_ROWS || !isa_dtype_bytes(t->dtype))
			return set_error(-EINVAL, err, errlen,
					 "tensor %u (%.60s) is not a plain array", i, name);
		for (unsigned d = 0; d < t->ndim; d++)
			if (t->dim[d].sym > TXDA_SYM_N)
				return set_error(-EINVAL, err, errlen,
						 "tensor %u (%.60s) has symbol %u", i, name,
						 t->dim[d].sym);
		bytes = txda__program_tensor_bytes(p, t);
		if (!bytes || bytes > slot->bytes)
			return set_error(
				-EINVAL, err, errlen,
				"tensor %u (%.60s) of %llu bytes does not fit its slot of %llu", i,
				name, (unsigned long long)bytes, (unsigned long long)slot->bytes);
		p->io_tensor[t->slot] = i;
	}
	for (uint32_t i = 0; i < p->header->n_slots; i++)
		if (p->slot[i].kind >= TXDA_SLOT_INPUT && p->io_tensor[i] == TXDA_NONE)
			return set_error(-EINVAL, err, errlen,
					 "slot %u (%.60s) holds no tensor of that name", i,
					 txda__program_string(p, p->slot[i].name));
	return 0;
}

int txda__program_check(const void *data, size_t bytes, struct txda__program *ret_program,
			char *err, size_t errlen)
{
	const struct txda_program *header = data;
	const char *base = data;
	struct txda__program p;
	int r;

	if (bytes < sizeof(*header) || bytes > TXDA_PROGRAM_MAX_BYTES)
		return set_error(-EINVAL, err, errlen, "it has %zu bytes; it must be %zu to %u",
				 bytes, sizeof(*header), TXDA_PROGRAM_MAX_BYTES);
	r = check_header(header, bytes, err, errlen);
	if (r < 0)
		return r;
	p.header = header;
	p.slot = (const struct txda_slot *)(base + header->slots_off);
	p.tensor = (const struct txda_tensor *)(base + header->tensors_off);
	p.op = (const struct txda_op *)(base + header->ops_off);
	p.strings = base + header->strings_off;
	r = check_names(&p, err, errlen);
	if (r >= 0)
		r = check_slots(&p, err, errlen);
	if (r >= 0)
		r = find_io(&p, err, errlen);
	if (r >= 0)
		*ret_program = p;
	return r;
}
