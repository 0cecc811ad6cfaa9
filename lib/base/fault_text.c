// SPDX-License-Identifier: MIT
#include "isa_names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "txda_isa.h"

struct text {
	char *buf;
	size_t len, at;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + t->at, t->len - t->at, format, args);
	va_end(args);
	if (n > 0)
		t->at = (size_t)n < t->len - t->at ? t->at + (size_t)n : t->len - 1;
}

size_t isa_fault_text(const struct txda_fault *f, const struct isa_fault_names *names, char *buf,
		      size_t len)
{
	const char *detail = isa_fault_detail(f->code);
	struct text t = {buf, len, 0};

	add(&t, "%s", isa_fault_name(f->code));
	if (f->code >= TXDA_FAULT_CODE_COUNT)
		add(&t, " %" PRIu32, f->code);
	if (detail)
		add(&t, ", %s %" PRIu64, detail, (uint64_t)f->detail);
	if (f->op != TXDA_NONE)
		add(&t, " in op %" PRIu32, f->op);
	if (names->opcode)
		add(&t, " %s", names->opcode);
	if (names->op)
		add(&t, " \"%.95s\"", names->op);
	if (f->tensor != TXDA_NONE)
		add(&t, ", tensor %" PRIu32, f->tensor);
	if (names->tensor)
		add(&t, " \"%.95s\"", names->tensor);
	if (f->va)
		add(&t, ", address 0x%" PRIx64, (uint64_t)f->va);
	if (f->packet_va)
		add(&t, ", packet at 0x%" PRIx64, (uint64_t)f->packet_va);
	return t.at;
}
