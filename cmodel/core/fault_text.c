// SPDX-License-Identifier: MIT
/*
 * Formats faults as text. Names are read from the client's memory, which may have changed since the
 * fault: nothing in it is trusted, and names that cannot be read are left out.
 */
#include "isa_names.h"
#include "mmu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 96

struct names {
	char op[NAME_BYTES]; /* "" when unknown */
	char tensor[NAME_BYTES];
};

/* Reads [base + off, ...) of the program when it lies within its @total bytes. */
static bool read_part(struct cm_vm *vm, uint64_t base, uint64_t total, uint64_t off, void *buf,
		      size_t bytes)
{
	return off <= total && bytes <= total - off && !cm_vm_read(vm, base + off, buf, bytes);
}

static void read_name(struct cm_vm *vm, uint64_t base, const struct txda_program *h, uint32_t name,
		      char *ret)
{
	size_t n = 0;

	ret[0] = '\0';
	if (name >= h->strings_bytes)
		return;
	while (n < NAME_BYTES - 1 && n < h->strings_bytes - name &&
	       read_part(vm, base, h->bytes, (uint64_t)h->strings_off + name + n, ret + n, 1) &&
	       ret[n]) {
		if (ret[n] < ' ' || ret[n] > '~' || ret[n] == '"')
			ret[n] = '?';
		n++;
	}
	ret[n] = '\0';
}

/* The names in the program that the faulting packet launched. Leader. */
static void find_names(struct cm_vm *vm, const struct txda_fault *f, struct names *ret)
{
	struct txda_pkt_exec p;
	struct txda_program h;
	struct txda_op op;
	struct txda_tensor tensor;
	uint64_t at;

	if (cm_vm_read(vm, f->packet_va, &p, sizeof(p)) || p.hdr.op != TXDA_PKT_EXEC ||
	    p.hdr.bytes != sizeof(p) || cm_vm_read(vm, p.program_va, &h, sizeof(h)) ||
	    h.magic != TXDA_PROGRAM_MAGIC || h.bytes > TXDA_PROGRAM_MAX_BYTES)
		return;
	at = h.ops_off + (uint64_t)f->op * sizeof(op);
	if (f->op < h.n_ops && read_part(vm, p.program_va, h.bytes, at, &op, sizeof(op)))
		read_name(vm, p.program_va, &h, op.label, ret->op);
	at = h.tensors_off + (uint64_t)f->tensor * sizeof(tensor);
	if (f->tensor < h.n_tensors &&
	    read_part(vm, p.program_va, h.bytes, at, &tensor, sizeof(tensor)))
		read_name(vm, p.program_va, &h, tensor.name, ret->tensor);
}

char *cm_fault_text(struct cm_vm *vm, const struct txda_fault *f, char *buf, size_t len)
{
	struct names names = {"", ""};
	size_t at;

	if (!len)
		return buf;
	/*
	 * Nothing is unmapped meanwhile. The map lock would do as well, but may be held by a thread
	 * that waits for the leader, which calls this when a queue has failed.
	 */
	if (vm && !vm->translate && f->packet_va) {
		cm_pause(vm->mmu->lead);
		find_names(vm, f, &names);
		cm_resume(vm->mmu->lead);
	}
	at = isa_fault_text(
		f,
		&(struct isa_fault_names){
			.opcode = f->opcode < TXDA_OP_COUNT ? isa_opcode_name(f->opcode) : NULL,
			.op = names.op[0] ? names.op : NULL,
			.tensor = names.tensor[0] ? names.tensor : NULL,
		},
		buf, len);
	snprintf(buf + at, len - at, " (queue %" PRIu32 ", vm %" PRIu32 ")", f->queue, f->vmid);
	return buf;
}
