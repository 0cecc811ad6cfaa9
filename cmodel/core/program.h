/* SPDX-License-Identifier: MIT */
/*
 * Programs: a checked private copy of each one that an address space runs.
 *
 * Everything that can be checked once is checked when the program is loaded: the frame, the tables,
 * each record, each name, each tensor's size at the limits of the symbols. What depends on a launch
 * is left to exec.h: bindings, symbols, memory.
 *
 * Ownership: the cache of the address space holds one reference, each context of a queue one more.
 * Threads: all by the leader.
 */
#ifndef CM_PROGRAM_H
#define CM_PROGRAM_H

#include "../ops/ops.h"
#include "mmu.h"
#include "pool.h"

#define CM_PROGRAM_CACHE_BYTES (256ull << 20) /* of program images in one address space */

struct cm_program {
	unsigned refs;
	bool dropped;		 /* removed from the cache */
	struct cm_program *next; /* in the cache of the vm */
	uint64_t va;
	uint64_t bytes;
	uint8_t *image;
	const struct txda_program *hdr; /* all these point into the image */
	const struct txda_slot *slot;
	const struct txda_tensor *tensor;
	const struct txda_op *op;
	const char *strings;
	uint32_t n_symbolic;
	uint32_t *symbolic;   /* tensors whose size depends on symbols */
	uint64_t written;     /* slots that an op writes, a bit each */
	struct cm_pool *pool; /* whose scratch it needs; NULL: none yet */
	struct cm_scratch_need need;
};

/* The extents of one tensor. */
struct cm_extent {
	uint64_t dim[4];
	uint64_t offset; /* into the slot */
	uint64_t bytes;
};

/*
 * The tensor's extents for these symbols. False when they do not fit in CM_VA_BYTES, which cannot
 * happen for symbols within the limits of a loaded program.
 */
bool cm_tensor_extent(const struct txda_tensor *t, const uint32_t *sym, bool precise,
		      struct cm_extent *ret);
/* Describes a tensor of a launch, except for its address. */
void cm_tensor_describe(const struct txda_tensor *t, uint32_t index, const struct cm_extent *extent,
			bool precise, struct cm_tensor *ret);

/*
 * The program at [va, va + bytes): from the cache, else it is loaded and the pool gets the scratch
 * that it needs. 0, or -1 and @fault says why.
 */
int cm_program_get(struct cm_vm *vm, struct cm_pool *pool, uint64_t va, uint64_t bytes, bool reload,
		   struct cm_program **ret, struct txda_fault *fault);
void cm_program_put(struct cm_program *p);
/* Drops the cached programs that overlap [va, end). */
void cm_program_drop(struct cm_vm *vm, uint64_t va, uint64_t end);

#endif /* CM_PROGRAM_H */
