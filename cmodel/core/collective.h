/* SPDX-License-Identifier: MIT */
/*
 * ALL_REDUCE and ALL_GATHER packets: checks, and the work of all members of a meeting (c2c.h).
 *
 * The sum over the ranks is taken in the order of the ranks in float32, whatever the number of
 * cores, so all members get the same bits each time.
 * Threads: all by the leader.
 */
#ifndef CM_COLLECTIVE_H
#define CM_COLLECTIVE_H

#include <stdbool.h>

#include "fault.h"
#include "mmu.h"
#include "pool.h"

/* One member's part in the meeting, by rank. */
struct cm_collective {
	struct cm_vm *vm;
	const struct txda_pkt_collective *pkt;
	struct txda_fault *fault; /* where CM_FAULT says why */
	const _Atomic bool *cancel;
};

/* Checks that are possible before the other members have arrived. */
bool cm_collective_is_sound(const struct txda_pkt_collective *p, unsigned size, unsigned rank);
/*
 * Runs the packets of all members: CM_DONE, or CM_FAULT when they do not agree, one is cancelled, or
 * the memory of one cannot be resolved. In the last case *ret_guilty is its rank, and @size
 * otherwise.
 */
enum cm_result cm_collective_run(struct cm_pool *pool, const struct cm_collective *member,
				 unsigned size, unsigned *ret_guilty);

#endif /* CM_COLLECTIVE_H */
