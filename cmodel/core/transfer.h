/* SPDX-License-Identifier: MIT */
/*
 * COPY, COPY_2D and FILL packets.
 *
 * A transfer runs in slices, between which other queues have their turns. The cores share the parts
 * of a slice. Memory is resolved for each slice, since it may be unmapped between two.
 * Threads: all by the leader.
 */
#ifndef CM_TRANSFER_H
#define CM_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fault.h"
#include "mmu.h"
#include "pool.h"

/* A transfer in progress: rows of bytes, counted through as one sequence. */
struct cm_transfer {
	struct cm_pool *pool;
	struct cm_vm *vm;
	uint32_t op;	   /* of the packet */
	uint64_t dst, src; /* @src is not used by a fill */
	uint64_t dst_pitch, src_pitch;
	uint64_t dst_span, src_span; /* bytes from the first to the end of the last row */
	uint64_t row_bytes;
	uint64_t total, done;
	bool fill;
	uint32_t value;
};

/*
 * Checks the packet, whose size has been checked, and sets up @t. CM_AGAIN: cm_transfer_step() does
 * the work; CM_DONE: there is none; CM_FAULT.
 */
enum cm_result cm_transfer_begin(struct cm_transfer *t, struct cm_pool *pool, struct cm_vm *vm,
				 const struct txda_pkt *pkt, struct txda_fault *ret);
/* Runs the next slice. CM_AGAIN, CM_DONE or CM_FAULT; CM_PARK: *@flag says that it is cancelled. */
enum cm_result cm_transfer_step(struct cm_transfer *t, const _Atomic bool *flag,
				struct txda_fault *ret);

#endif /* CM_TRANSFER_H */
