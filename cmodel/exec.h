/* SPDX-License-Identifier: MIT */
/*
 * EXEC: launches of programs.
 *
 * A queue keeps a context for each program that it has launched: the tensors resolved to host
 * addresses for the last bindings and symbols. A launch that differs in nothing but the contents of
 * memory, as the steps of a decode do, resolves nothing anew; one that differs in symbols only
 * the tensors whose shape has symbols. Nothing is allocated once the context exists.
 *
 * Threads: all by the leader.
 */
#ifndef CM_EXEC_H
#define CM_EXEC_H

#include "internal.h"

#define CM_MAX_CONTEXTS 8 /* programs that a queue remembers */

struct cm_context {
	struct cm_context *next;
	struct cm_program *program; /* a reference */
	bool valid;		    /* tensors are those of the fields that follow */
	bool precise;
	uint64_t vm_generation;
	uint64_t scratch_generation;
	uint32_t sym[TXDA_SYM_COUNT];
	struct txda_binding binding[TXDA_PROGRAM_MAX_SLOTS];
	uint8_t *base[TXDA_PROGRAM_MAX_SLOTS]; /* host address of the binding; NULL: empty */
	struct txda_op_time *profile;	       /* host address; NULL: not wanted */
	uint64_t start_ns;		       /* of the current op, for the profile */
	struct txda_fault fault;	       /* where checks say what is wrong */
	struct cm_launch launch;
	struct cm_tensor tensor[]; /* [n_tensors] */
};

/* Checks the EXEC in q->pkt, loads its program, resolves its tensors; CM_AGAIN, CM_DONE (no ops) or
 * CM_FAULT. */
enum cm_result cm_exec_begin(struct cm_queue *q);
/* Runs its next op. */
enum cm_result cm_exec_step(struct cm_queue *q);
/* Makes the context right again after an unmap or a move of the scratch; false: the queue has
 * faulted.
 */
bool cm_exec_refresh(struct cm_queue *q);
/* Fails the queue with context->fault, which becomes a record of the current op. */
void cm_exec_fail(struct cm_queue *q);
/* The phases of the planned launch of @q, all parts. */
void cm_exec_run(struct cm_queue *q);
/* Books the traffic of the launch of @q. */
void cm_exec_count(struct cm_queue *q);
/* Frees the queue's contexts. */
void cm_exec_release(struct cm_queue *q);

#endif /* CM_EXEC_H */
