/* SPDX-License-Identifier: MIT */
/*
 * What the instruction set calls its ops, types and faults, in words: one table for messages, dumps
 * and model_info.json. A number that there is not is "?", or an "unknown fault". Threads: any.
 */
#ifndef TXDA_BASE_ISA_NAMES_H
#define TXDA_BASE_ISA_NAMES_H

const char *isa_opcode_name(unsigned opcode); /* "LINEAR" */
const char *isa_dtype_name(unsigned dtype);   /* "BF16" */
unsigned isa_dtype_bytes(unsigned dtype); /* of one element; 0: it comes in groups, or is none */
const char *isa_layout_name(unsigned layout);  /* "TILE32" */
const char *isa_slot_kind_name(unsigned kind); /* "weights" */
const char *isa_symbol_name(unsigned symbol);  /* "T" */
const char *isa_fault_name(unsigned code);     /* "page fault" */
/* What the fault's detail is: "slot"; NULL: nothing. */
const char *isa_fault_detail(unsigned code);

#endif /* TXDA_BASE_ISA_NAMES_H */
