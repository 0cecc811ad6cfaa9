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

#include "engine.h"

/* The first position whose state counts before the last token's; n_prompt: none. */
unsigned pool_first(const struct engine_request *r);

/*
 * Takes the state behind @position, which are given in order, the last one last. Returns the first
 * position that is wanted next.
 */
unsigned pool_take(struct engine_request *r, unsigned position, const float *hidden);

/* Makes the vector. -EIO: it is not finite: the model or the chip is broken. */
int pool_finish(struct engine_request *r);

#endif
