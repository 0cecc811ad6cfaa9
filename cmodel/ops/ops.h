/* SPDX-License-Identifier: MIT */
/*
 * Compute kernels of the device model: what each opcode does, given checked pointers.
 *
 * The executor (core/exec.h) resolves an op's tensors to host pointers, then for each launch:
 *   check()  by the leader: shapes and types against the op, and every index that the op will read
 *            from memory. On an error it fills l->fault and returns -EINVAL. Nothing is written to
 *            device memory before it returns 0.
 *   plan()   by the leader: sets l->phases and l->parts[] from the shapes; never from the number of
 *            cores in a way that changes a result.
 *   run()    through cm_op_run(), by all cores, for each phase in turn, for each part in
 *            [0, l->parts[phase]) in any order on any core; there is a barrier between phases.
 *
 * Memory: l->shared (the same for all cores, l->shared_bytes) and l->core[i] (private,
 * l->core_bytes) are scratch of the chip; need() returns how much an op needs for given shapes. It
 * is allocated before the op runs. Nothing here allocates, locks or sleeps.
 */
#ifndef CM_OPS_H
#define CM_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "float_mode.h"
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
	uint16_t group; /* weights in groups: elements of K that share a scale */
	uint32_t index; /* in the program, for fault records */
	uint64_t va;
};

struct cm_launch {
	const struct txda_op *op;
	const struct cm_tensor *in[6]; /* NULL: not given */
	const struct cm_tensor *out[3];
	bool precise;
	unsigned cores; /* threads of the pool */
	/* Collective ops: the launches of all ranks. One of them does the work for all. */
	unsigned group_size, rank;
	const struct cm_launch *peer[TXDA_MAX_GROUP];

	unsigned phases;	       /* set by plan() */
	uint64_t parts[CM_MAX_PHASES]; /* more than UINT32_MAX: a fault */
	struct {
		uint64_t u[12];
	} state;      /* from plan() to run() */
	void *shared; /* 64-byte aligned */
	size_t shared_bytes;
	void *const *core; /* [cores]: 64-byte aligned */
	size_t core_bytes;
	struct txda_fault *fault; /* filled by check(): code, tensor, va, detail */
};

struct cm_op_need {
	size_t shared_bytes;
	size_t core_bytes;
};

struct cm_op_impl {
	unsigned n_in, n_out; /* maximum of in[] and out[] */
	int (*check)(const struct cm_launch *l);
	/* Scratch for the shapes of @l, which are at the program's limits; pointers are not
	 * valid. */
	void (*need)(const struct cm_launch *l, struct cm_op_need *need);
	void (*plan)(struct cm_launch *l);
	void (*run)(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core);
	/* Bytes that a launch reads and writes, for the sensors and the timeline. */
	void (*traffic)(const struct cm_launch *l, uint64_t *read, uint64_t *written);
};

/* The implementation of @opcode, or NULL. cm_ops_init() must have chosen a path. */
const struct cm_op_impl *cm_op_impl(unsigned opcode);

/* run() of the launch's op, in the mode of floats that ops have (float_mode.h). */
static inline void cm_op_run(const struct cm_launch *l, unsigned phase, unsigned part,
			     unsigned core)
{
	const uint32_t mode = cm_float_mode();

	cm_set_float_mode(l->precise ? CM_FLOAT_EXACT : CM_FLOAT_FLUSH);
	cm_op_impl(l->op->op)->run(l, phase, part, core);
	cm_set_float_mode(mode);
}

/*
 * Chooses the SIMD path: "auto" (or NULL), "c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx",
 * "neon" or "neonbf16". -ENOTSUP if the CPU or the system lacks it, -EINVAL for other names. The whole process
 * has one: -EBUSY while others, which have not called cm_ops_exit() yet, use another one.
 */
int cm_ops_init(const char *isa, const char **ret_name);
void cm_ops_exit(void);

/* Whether the chosen path uses tile instructions (AMX). */
bool cm_ops_use_tiles(void);

/*
 * The calling thread is about to sleep: releases registers that the system would save and restore.
 */
void cm_ops_rest(void);

/* Fails a check: fills l->fault and returns -EINVAL. */
int cm_bad(const struct cm_launch *l, uint32_t code, const struct cm_tensor *t, uint64_t va,
	   uint64_t detail);

#endif /* CM_OPS_H */
