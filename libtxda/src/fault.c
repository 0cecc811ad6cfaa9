// SPDX-License-Identifier: MIT
#include "fault.h"

#include "isa_names.h"

void txda__fault_text(const struct txda_fault *f, const struct txda__program *program, char *buf,
		      size_t len)
{
	struct isa_fault_names names = {0};

	if (program && f->op < program->header->n_ops) {
		names.opcode = isa_opcode_name(program->op[f->op].op);
		names.op = txda__program_string(program, program->op[f->op].label);
	}
	if (program && f->tensor < program->header->n_tensors)
		names.tensor = txda__program_string(program, program->tensor[f->tensor].name);
	isa_fault_text(f, &names, buf, len);
}
