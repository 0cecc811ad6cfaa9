// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <stdarg.h>

#include "fault.h"
#include "isa_names.h"

struct text {
	char *buf;
	size_t len, at;
};

static void say(struct text *t, const char *format, ...) TXDA__PRINTF(2, 3);

static void say(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + t->at, t->len - t->at, format, args);
	va_end(args);
	if (n > 0)
		t->at = (size_t)n < t->len - t->at ? t->at + (size_t)n : t->len - 1;
}

void txda__fault_text(const struct txda_fault *f, const struct txda__program *program, char *buf,
		      size_t len)
{
	const char *detail = isa_fault_detail(f->code);
	struct text t = {buf, len, 0};

	say(&t, "%s", isa_fault_name(f->code));
	if (f->code >= TXDA_FAULT_CODE_COUNT)
		say(&t, " %" PRIu32, f->code);
	if (detail)
		say(&t, ", %s %" PRIu64, detail, (uint64_t)f->detail);
	if (f->op != TXDA_NONE) {
		say(&t, " in op %" PRIu32, f->op);
		if (program && f->op < program->header->n_ops)
			say(&t, " %s \"%.80s\"", isa_opcode_name(program->op[f->op].op),
			    txda__program_string(program, program->op[f->op].label));
	}
	if (f->tensor != TXDA_NONE) {
		say(&t, ", tensor %" PRIu32, f->tensor);
		if (program && f->tensor < program->header->n_tensors)
			say(&t, " \"%.80s\"",
			    txda__program_string(program, program->tensor[f->tensor].name));
	}
	if (f->va)
		say(&t, ", address 0x%" PRIx64, (uint64_t)f->va);
	if (f->packet_va)
		say(&t, ", packet at 0x%" PRIx64, (uint64_t)f->packet_va);
}
