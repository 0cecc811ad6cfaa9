/* SPDX-License-Identifier: MIT */
/*
 * What the instruction set calls its ops, types and faults, in words: one table for messages, dumps
 * and model_info.json. A number that there is not is "?", or an "unknown fault". Threads: any.
 */
#ifndef TXDA_BASE_ISA_NAMES_H
#define TXDA_BASE_ISA_NAMES_H

#include <stddef.h>

struct txda_fault;

const char *isa_opcode_name(unsigned opcode); /* "LINEAR" */
const char *isa_dtype_name(unsigned dtype);   /* "BF16" */
unsigned isa_dtype_bytes(unsigned dtype); /* of one element; 0: it comes in groups, or is none */
const char *isa_layout_name(unsigned layout);  /* "TILE32" */
const char *isa_slot_kind_name(unsigned kind); /* "weights" */
const char *isa_symbol_name(unsigned symbol);  /* "T" */
const char *isa_fault_name(unsigned code);     /* "page fault" */
/* What the fault's detail is: "slot"; NULL: nothing. */
const char *isa_fault_detail(unsigned code);

/* What a fault's numbers stand for in the program at fault; NULL: not known. */
struct isa_fault_names {
	const char *opcode; /* "LINEAR" */
	const char *op;	    /* "layers.0.mlp.down" */
	const char *tensor;
};

/*
 * A fault in words: "page fault in op 12 LINEAR "layers.0.mlp.down", tensor 40, address 0x2000". One
 * line into @buf, cut to @len (above 0), of names at most 95 bytes each; the bytes it has.
 */
size_t isa_fault_text(const struct txda_fault *fault, const struct isa_fault_names *names,
		      char *buf, size_t len);

#endif /* TXDA_BASE_ISA_NAMES_H */
