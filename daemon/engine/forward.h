/* SPDX-License-Identifier: MIT */
/*
 * Passes rows of a prompt's outputs to the request's sink.
 *
 * Rows are requested by position. The scheduler also computes the rows between two requested ones
 * of a chunk; they are skipped here. The prefix cache is used up to the first requested row, and a
 * request that is recomputed after a preemption passes no row twice.
 *
 * Used by the engine thread.
 */
#ifndef TXDA_ENGINE_FORWARD_H
#define TXDA_ENGINE_FORWARD_H

#include "engine_internal.h"

/* 0, or -EOPNOTSUPP: the sink expects other columns than this model has; message in err. */
int forward_check(const struct engine *e, const struct engine_request *r, char *err, size_t errlen);

/* The first position whose row is requested. */
unsigned forward_first(const struct engine_request *r);

/*
 * Passes on the rows of an item, the first of which is row @row of the step. The last one ends the
 * request, and so does a failing sink.
 */
void forward_rows(struct step_slot *slot, const struct sched_item *item, unsigned row,
		  uint64_t now);

#endif
