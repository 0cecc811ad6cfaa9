/* SPDX-License-Identifier: MIT */
/*
 * Builds a program (struct txda_program) in memory: slots, tensors, ops, names. Scratch tensors are
 * placed at the end, by liveness: from the first op that writes one to the last that reads it,
 * first fit, at the symbols' maxima.
 *
 * The functions that add tensors return indices, which are used in ops. Running out of memory or
 * space is recorded and reported by program_finish(), so that a graph is built without a check on
 * every line.
 */
#ifndef TXDA_COMPILE_PROGRAM_H
#define TXDA_COMPILE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "txda_isa.h"

struct program;

/* An extent: PROGRAM_DIM(n) is fixed, PROGRAM_SYM(T) varies. */
#define PROGRAM_DIM(n) ((struct txda_dim){.mul = (n)})
#define PROGRAM_SYM(s) ((struct txda_dim){.sym = TXDA_SYM_##s, .mul = 1})

/* @sym_max is by enum txda_symbol. */
struct program *program_new(const char *name, uint32_t group_size, uint32_t rank,
			    const uint32_t sym_max[TXDA_SYM_COUNT]);
void program_free(struct program *p);

uint32_t program_add_slot(struct program *p, const char *name, enum txda_slot_kind kind,
			  uint64_t bytes);
/* The slot's size is only known at the end for weights. */
void program_set_slot_bytes(struct program *p, uint32_t slot, uint64_t bytes);

struct program_tensor {
	const char *name;
	uint32_t slot;
	uint8_t dtype, layout;
	uint8_t flags;
	uint16_t group;
	uint64_t offset; /* within the slot; not for scratch */
	uint8_t ndim;
	struct txda_dim dim[4];
};
uint32_t program_add_tensor(struct program *p, const struct program_tensor *t);
/* A row-major activation in the slot @scratch. */
uint32_t program_add_scratch(struct program *p, uint32_t scratch, const char *name, uint8_t dtype,
			     struct txda_dim rows, uint32_t columns);
/* The scratch tensor @of with another shape of the same size. */
uint32_t program_add_alias(struct program *p, uint32_t of, const char *name, struct txda_dim rows,
			   uint32_t columns);
/* A row-major I32 tensor there: ids that one op passes to another. */
uint32_t program_add_ids(struct program *p, uint32_t scratch, const char *name,
			 struct txda_dim rows, uint32_t columns);
/* An input or output in a separate slot with its name; ndim 1 or 2. */
uint32_t program_add_io(struct program *p, const char *name, enum txda_slot_kind kind,
			uint8_t dtype, uint8_t ndim, struct txda_dim a, struct txda_dim b);

/*
 * Appends an op, all operands TXDA_NONE, and returns it to be filled in; valid until the next call.
 * Never NULL: after a failure it is a dummy.
 */
struct txda_op *program_add_op(struct program *p, enum txda_opcode opcode, const char *label);

/* "layers.3.q" for name "q" in layer 3; a small ring of buffers, good for one expression. */
const char *program_label(struct program *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Places the scratch tensors and serialises the program. The caller frees *ret. The result has
 * passed program_view().
 */
int program_finish(struct program *p, void **ret, size_t *ret_bytes, struct tool_error *error);

/* After program_finish(). */
uint64_t program_slot_bytes(const struct program *p, uint32_t slot);
uint64_t
program_io_bytes(const struct program *p); /* of all inputs and outputs, each rounded up to 64 */

#endif /* TXDA_COMPILE_PROGRAM_H */
