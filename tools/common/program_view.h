/* SPDX-License-Identifier: MIT */
/*
 * Programs (kcore.bin) as read by tools: the tables of a file, after all checks that need no
 * launch, so that a reader may use each index and offset without further checks. A chip checks a
 * program itself.
 */
#ifndef TXDA_TOOLS_PROGRAM_VIEW_H
#define TXDA_TOOLS_PROGRAM_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "txda_isa.h"

struct program_view {
	const struct txda_program *header;
	const struct txda_slot *slots;
	const struct txda_tensor *tensors;
	const struct txda_op *ops;
	const char *strings;
};

/*
 * Checks the @bytes at @data (8-byte aligned, kept by the caller) and sets @ret. Checked: magic,
 * versions, sizes, checksum, reserved fields, each table's range, names, dims, tensors within their
 * slots at the symbols' maxima, and each op's tensors against its contract.
 */
int program_view(const void *data, size_t bytes, struct program_view *ret,
		 struct tool_error *error);

/*
 * Checks an op against its contract in txda_isa.h: which tensors are given, types, layouts,
 * matching shapes, parameters.
 */
int program_check_op(const struct program_view *v, uint32_t index, struct tool_error *error);

const char *program_name(const struct program_view *v, uint32_t offset);
/* Bytes of a tensor when the symbols are at their maxima; 0 on overflow. */
uint64_t program_tensor_bytes(const struct program_view *v, const struct txda_tensor *t);
uint64_t program_dim(const struct program_view *v, struct txda_dim dim); /* at the maximum */
/* "[T, 2048]" in @buf. Returns buf. */
char *program_shape(const struct txda_tensor *t, char *buf, size_t len);

#endif /* TXDA_TOOLS_PROGRAM_VIEW_H */
