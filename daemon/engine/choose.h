/* SPDX-License-Identifier: MIT */
/*
 * Which tokens come next: by the rows of a step, a request's sampling, what it said so far and what
 * its constraint allows.
 *
 * The masks of constraints are found by mask_workers.h meanwhile. Where one is not known when its
 * row is there, the row is kept and no token is counted, so that the scheduler finds nothing to
 * compute for the sequence; choose_late() goes on with it. Which tokens come is the same either way.
 *
 * The engine thread's.
 */
#ifndef TXDA_ENGINE_CHOOSE_H
#define TXDA_ENGINE_CHOOSE_H

#include "engine_internal.h"

#define CHOOSE_BROKEN_ROW "the model's logits are not finite: its weights or the chip are broken"

/* Has the first mask of a constrained request found. */
void choose_begin(struct engine *e, struct engine_seq *seq);

/*
 * Whether a step that runs brings a token behind which the request goes on, by what is known before.
 * Without a mask there may be none.
 */
bool choose_goes_on(const struct engine *e, const struct engine_seq *seq);

/*
 * Appends the token behind the last known one, by row @row_index of the step, and one behind each
 * proposal that is the token which was sampled there. Sets error or ending of the sequence if the
 * request ends with it, and the item's number of rejected proposals.
 */
void choose_tokens(struct engine *e, struct sched_item *item, unsigned row_index, uint64_t now);

/*
 * Appends the first token of a request that goes on from another's prompt, by row @row_index of the
 * step; false: its mask is not known.
 */
bool choose_first(struct engine *e, struct engine_seq *seq, unsigned row_index, uint64_t now);

/* Whether error or ending is set and final. */
bool choose_ended(struct engine_seq *seq);

/* Appends the token of a row that was kept, if its mask is known by now; whether there is one. */
bool choose_late(struct engine *e, struct engine_seq *seq, uint64_t now);
/* Gives the memory of a kept row back, if there is one. */
void choose_drop_row(struct engine_seq *seq);

#endif
