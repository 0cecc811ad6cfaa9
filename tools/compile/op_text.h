/* SPDX-License-Identifier: MIT */
/* The fields of each op of the instruction set as text, for --dump. Threads: any. */
#ifndef TXDA_COMPILE_OP_TEXT_H
#define TXDA_COMPILE_OP_TEXT_H

#include <stddef.h>

#include "txda_isa.h"

#define OP_TEXT_BYTES 1024

/*
 * All parameters by the names of their fields in txda_isa.h, "k 8, n_groups 1, flags NORMALISE"; empty
 * for an op without. Different values give different texts: floats are printed in as many digits as
 * they need, and flags without a name in hexadecimal. Returns @buf.
 */
char *op_text(const struct txda_op *op, char buf[OP_TEXT_BYTES]);

/* The meaning of in[@place], or of out[@place - 6]: "block table"; NULL: the op has none there. */
const char *op_operand_name(unsigned opcode, unsigned place);

#endif /* TXDA_COMPILE_OP_TEXT_H */
