/* SPDX-License-Identifier: MIT */
/*
 * Compute kernels of the device model: what each opcode does, given checked pointers.
 *
 * The executor (core/exec.h) resolves an op's tensors to host pointers, then for each launch:
 *   check()  by the leader: shapes and types against the op, and every index that the op will read
 *            from memory. Fills l->fault and returns -EINVAL when something is wrong. Nothing is
 *            written to device memory before it returns 0.
 *   plan()   by the leader: sets l->phases and l->parts[] from the shapes; never from the number of
 *            cores in a way that changes a result.
 *   run()    by all cores, for each phase in turn, for each part in [0, l->parts[phase]) in any
 *            order on any core; a barrier stands between phases.
 *
 * Memory: l->shared (the same for all cores, l->shared_bytes) and l->core[i] (private,
 * l->core_bytes) are scratch of the chip; need() says how much an op wants for given shapes. It is
 * allocated before, never while an op runs. Nothing here allocates, locks or sleeps.
 */
#ifndef CM_OPS_H
#define CM_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "txda_isa.h"

#define CM_MAX_PHASES 4
#define CM_MAX_CORES  1024

struct cm_tensor {
	void *ptr;	 /* 64-byte aligned host address of the first element */
	uint64_t dim[4]; /* extents of this launch, outermost first; unused: 1 */
	uint64_t bytes;	 /* mapped and checked bytes at ptr */
	uint8_t ndim;
	uint8_t dtype;	/* enum txda_dtype; F32 where precise mode makes BF16 activations F32 */
	uint8_t layout; /* enum txda_layout */
	uint16_t group; /* W8, W4 */
	uint32_t index; /* in the program, for fault records */
	uint64_t va;
};

struct cm_launch {
	const struct txda_op *op;
	const struct cm_tensor *in[6]; /* NULL: none given */
	const struct cm_tensor *out[3];
	bool precise;
	unsigned cores; /* threads of the pool */
	/* Collective ops: the tensors of all ranks, by rank. One rank's launch does the work of
	 * all. */
	unsigned group_size, rank;
	const struct cm_launch *peer[TXDA_MAX_GROUP];

	unsigned phases; /* set by plan() */
	unsigned parts[CM_MAX_PHASES];
	struct {
		uint64_t u[12];
	} state;      /* plan()'s notes for run() */
	void *shared; /* 64-byte aligned */
	size_t shared_bytes;
	void *const *core; /* [cores]: 64-byte aligned */
	size_t core_bytes;
	struct txda_fault *fault; /* where check() says what is wrong: code, tensor, va, detail */
};

struct cm_op_need {
	size_t shared_bytes;
	size_t core_bytes;
};

struct cm_op_impl {
	unsigned n_in, n_out; /* how many in[] and out[] may be given */
	int (*check)(const struct cm_launch *l);
	/* l has the shapes at the program's limits (pointers are not valid); adds what the op
	 * wants. */
	void (*need)(const struct cm_launch *l, struct cm_op_need *need);
	void (*plan)(struct cm_launch *l);
	void (*run)(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core);
	/* Bytes that a launch reads and writes, for the sensors and the timeline. */
	void (*traffic)(const struct cm_launch *l, uint64_t *read, uint64_t *written);
};

/* The implementation of @opcode, or NULL. cm_ops_init() must have chosen a path. */
const struct cm_op_impl *cm_op_impl(unsigned opcode);

/* SIMD path: "auto", "c", "avx2", "avx512", "avx512bf16" or "amx"; -ENOTSUP when this CPU or system
 * lacks it, -EINVAL for other words. */
int cm_ops_init(const char *isa, const char **ret_name);

/*
 * The calling thread is about to sleep: releases registers that the system would save and restore.
 */
void cm_ops_rest(void);

/* Fails a check: fills l->fault and returns -EINVAL. */
int cm_bad(const struct cm_launch *l, uint32_t code, const struct cm_tensor *t, uint64_t va,
	   uint64_t detail);

#endif /* CM_OPS_H */
