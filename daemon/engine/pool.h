/* SPDX-License-Identifier: MIT */
/*
 * Last hidden states to one vector.
 *
 * The sum is kept in double and added to in the order of positions, whatever pieces the prompt came
 * in, so that a vector's bits depend on the request alone.
 *
 * The engine thread's.
 */
#ifndef TXDA_ENGINE_POOL_H
#define TXDA_ENGINE_POOL_H

#include "engine_internal.h"

/* The first position whose state counts before the last token's; n_prompt: none. */
unsigned pool_first(const struct engine_request *r);

/*
 * Takes the states of an item's rows, the first of which is row @row of the step. The last one ends
 * the request.
 */
void pool_rows(struct step_slot *slot, const struct sched_item *item, unsigned row, uint64_t now);

#endif
