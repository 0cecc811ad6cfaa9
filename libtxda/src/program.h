/* SPDX-License-Identifier: MIT */
/*
 * The library's view of kcore.bin (struct txda_program): slots to allocate, inputs and outputs to
 * expose, labels of ops.
 *
 * The file is untrusted. txda__program_check() verifies everything that this library uses: sizes,
 * tables, names, slots, the tensors of input and output slots. The operands of ops are checked by
 * the chip itself.
 * Ownership: the view points into the caller's data.
 * Threads: pure functions.
 */
#ifndef TXDA_PROGRAM_H
#define TXDA_PROGRAM_H

#include "internal.h"
#include "txda_isa.h"

struct txda__program {
	const struct txda_program *header;
	const struct txda_slot *slot;
	const struct txda_tensor *tensor;
	const struct txda_op *op;
	const char *strings;
	/* the tensor of each input or output slot, or TXDA_NONE */
	unsigned io_tensor[TXDA_PROGRAM_MAX_SLOTS];
};

/* @data is 8-byte aligned. -EINVAL with the reason in @err. */
int txda__program_check(const void *data, size_t bytes, struct txda__program *ret_program,
			char *err, size_t errlen);

static inline const char *txda__program_string(const struct txda__program *program, uint32_t offset)
{
	return program->strings + offset;
}

/* Size of a dimension with all symbols at their limits. */
uint64_t txda__program_dim(const struct txda__program *program, const struct txda_dim *dim);
/*
 * Bytes of a tensor with row layout at the limits; 0 on overflow or for a type without such a
 * layout.
 */
uint64_t txda__program_tensor_bytes(const struct txda__program *program,
				    const struct txda_tensor *tensor);
/* Formats as "[T, 4096]" into @buf, truncated to @len. */
void txda__program_shape(const struct txda_tensor *tensor, char *buf, size_t len);

#endif /* TXDA_PROGRAM_H */
