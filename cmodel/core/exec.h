/* SPDX-License-Identifier: MIT */
/*
 * EXEC: launches of programs.
 *
 * Each queue has an executor, which keeps a context for each program that it has launched: the
 * tensors resolved to host addresses for the last bindings and symbols. A launch that differs only
 * in the contents of memory, as the steps of a decode do, resolves nothing; one that differs in
 * symbols resolves only the tensors whose shape has symbols. Nothing is allocated once the context
 * exists.
 *
 * A step of the launch runs one op:
 *
 *	cm_exec_begin()		checks the packet, loads the program, resolves its tensors
 *	repeat
 *		cm_exec_prepare()	points the launch at the next op
 *		cm_exec_run()		runs it; or, for a collective op of a group, CM_MEET:
 *		cm_exec_meet()		run by one thread for the executors of all ranks
 *		cm_exec_next()		on to the next op
 *
 * The caller checks between prepare and run whether an injected fault hits the op (inject.h), and
 * brings the members of a group together (c2c.h).
 *
 * Threads: all by the leader.
 */
#ifndef CM_EXEC_H
#define CM_EXEC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../ops/ops.h"
#include "c2c.h"
#include "fault.h"
#include "mmu.h"
#include "pool.h"
#include "program.h"

#define CM_MAX_CONTEXTS 8 /* programs cached per queue */

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
	struct txda_fault fault;	       /* where the checks of an op say what is wrong */
	bool sound;			       /* they found nothing wrong */
	struct cm_launch launch;
	struct cm_tensor tensor[]; /* [n_tensors] */
};

struct cm_exec {
	struct cm_pool *pool;
	struct cm_vm *vm;
	struct cm_member *member;	    /* of the groups of @vm */
	const _Atomic bool *cancel;	    /* skip the rest of the running op */
	_Atomic uint64_t *progress;	    /* incremented within an op; written by the leader */
	const struct txda_pkt_exec *packet; /* of the current launch */
	struct cm_context *context;	    /* likewise */
	struct cm_context *contexts;	    /* all of this queue, last used first */
	uint32_t op, end;		    /* the current op, and one past the last */
	struct txda_fault *fault;	    /* where CM_FAULT says why */
};

/*
 * Begins the launch of the packet *@p, which stays as it is until the launch is over; @packet_va is
 * its address. CM_AGAIN, CM_DONE (no ops) or CM_FAULT.
 */
enum cm_result cm_exec_begin(struct cm_exec *e, const struct txda_pkt_exec *p, uint64_t packet_va);
/* Resolves again what became stale by an unmap or a move of the scratch; false: CM_FAULT. */
bool cm_exec_refresh(struct cm_exec *e);
/* Points the launch at the current op. */
void cm_exec_prepare(struct cm_exec *e);
/*
 * Runs it: CM_DONE, CM_FAULT, CM_PARK when it was cancelled, or CM_MEET when it is an op of the
 * packet's group.
 */
enum cm_result cm_exec_run(struct cm_exec *e);
/*
 * Runs the collective op of @size executors, by rank: CM_DONE, or CM_FAULT when they do not agree,
 * one is cancelled or has a fault. In the last case *ret_guilty is its rank, and @size otherwise.
 */
enum cm_result cm_exec_meet(struct cm_exec *const *rank, unsigned size, unsigned *ret_guilty);
/* The current op is done: CM_AGAIN, or CM_DONE when it was the last. */
enum cm_result cm_exec_next(struct cm_exec *e);
/* Makes context->fault, with a code and tensor, the fault of the current op. CM_FAULT. */
enum cm_result cm_exec_fail(struct cm_exec *e);
/* Frees the contexts. */
void cm_exec_fini(struct cm_exec *e);

#endif /* CM_EXEC_H */
