/* SPDX-License-Identifier: MIT */
/*
 * Pooling: converts last hidden states to one vector.
 *
 * The sum is kept in double and accumulated in position order, however the prompt was split into
 * chunks, so that a vector's bits depend on the request alone.
 *
 * Used by the engine thread.
 */
#ifndef TXDA_ENGINE_POOL_H
#define TXDA_ENGINE_POOL_H

#include "engine_internal.h"

/* The first position before the last token's whose state is needed; n_prompt: none. */
unsigned pool_first(const struct engine_request *r);

/*
 * Adds the states of an item's rows, the first of which is row @row of the step. The last one ends
 * the request.
 */
void pool_rows(struct step_slot *slot, const struct sched_item *item, unsigned row, uint64_t now);

#endif
