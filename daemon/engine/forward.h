/* SPDX-License-Identifier: MIT */
/*
 * Rows of a prompt's outputs to the request's sink.
 *
 * Rows are wanted by position. The scheduler computes those between two wanted ones of a chunk,
 * too; they are left out here. What the prefix cache holds is used up to the first wanted row, and
 * a request that is computed anew after a preemption gives no row twice.
 *
 * The engine thread's.
 */
#ifndef TXDA_ENGINE_FORWARD_H
#define TXDA_ENGINE_FORWARD_H

#include "engine_internal.h"

/* 0, or -EOPNOTSUPP: the sink reads other columns than this model has; words in err. */
int forward_check(const struct engine *e, const struct engine_request *r, char *err, size_t errlen);

/* The first position whose row is wanted. */
unsigned forward_first(const struct engine_request *r);

/*
 * Hands over the rows of an item, the first of which is row @row of the step. The last one ends the
 * request, as does a sink that fails.
 */
void forward_rows(struct step_slot *slot, const struct sched_item *item, unsigned row,
		  uint64_t now);

#endif
