/* SPDX-License-Identifier: MIT */
/*
 * Names of the instruction set's ops, types and faults: one table for messages, dumps and
 * model_info.json. An invalid number gives "?", or "unknown fault". Threads: any.
 */
#ifndef TXDA_BASE_ISA_NAMES_H
#define TXDA_BASE_ISA_NAMES_H

#include <stddef.h>

struct txda_fault;

const char *isa_opcode_name(unsigned opcode);  /* "LINEAR" */
const char *isa_dtype_name(unsigned dtype);    /* "BF16" */
unsigned isa_dtype_bytes(unsigned dtype);      /* of one element; 0: stored in groups, or invalid */
const char *isa_layout_name(unsigned layout);  /* "TILE32" */
const char *isa_slot_kind_name(unsigned kind); /* "weights" */
const char *isa_symbol_name(unsigned symbol);  /* "T" */
const char *isa_fault_name(unsigned code);     /* "page fault" */
/* The meaning of the fault's detail: "slot"; NULL: none. */
const char *isa_fault_detail(unsigned code);

/* Names for the numbers of a fault, from the faulting program; NULL: not known. */
struct isa_fault_names {
	const char *opcode; /* "LINEAR" */
	const char *op;	    /* "layers.0.mlp.down" */
	const char *tensor;
};

/*
 * Describes a fault: "page fault in op 12 LINEAR "layers.0.mlp.down", tensor 40, address 0x2000".
 * Writes one line into @buf, truncated to @len (above 0), names to 95 bytes each; returns its
 * length.
 */
size_t isa_fault_text(const struct txda_fault *fault, const struct isa_fault_names *names,
		      char *buf, size_t len);

#endif /* TXDA_BASE_ISA_NAMES_H */
