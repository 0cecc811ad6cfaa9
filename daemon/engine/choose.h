/* SPDX-License-Identifier: MIT */
/*
 * Chooses the next tokens from a step's rows, the request's sampling parameters, its previous
 * tokens and its constraint.
 *
 * The masks of constraints are computed concurrently by mask_workers.h. If a mask is not ready when
 * its row is, the row is kept and no token is counted, so that the scheduler has nothing to compute
 * for the sequence; choose_late() continues with it. The chosen tokens are the same either way.
 *
 * Used by the engine thread.
 */
#ifndef TXDA_ENGINE_CHOOSE_H
#define TXDA_ENGINE_CHOOSE_H

#include "engine_internal.h"

#define CHOOSE_BROKEN_ROW "the model's logits are not finite: its weights or the chip are broken"

/* Starts computing the first mask of a constrained request. */
void choose_begin(struct engine *e, struct engine_seq *seq);

/*
 * Whether the request will certainly continue after the running step's token, as far as is known
 * beforehand. Without a mask no token may be allowed.
 */
bool choose_goes_on(const struct engine *e, const struct engine_seq *seq);

/*
 * Appends the token after the last known one, from row @row_index of the step, and one for each
 * proposal that equals the token sampled before it. Sets error or ending of the sequence if the
 * request ends with it, and the item's number of rejected proposals.
 */
void choose_tokens(struct engine *e, struct sched_item *item, unsigned row_index, uint64_t now);

/*
 * Appends the first token of a request that continues another's prompt, from row @row_index of the
 * step; false: its mask is not known.
 */
bool choose_first(struct engine *e, struct engine_seq *seq, unsigned row_index, uint64_t now);

/* Whether error or ending is set and final. */
bool choose_ended(struct engine_seq *seq);

/* Appends the token of a kept row if its mask is known by now; returns whether it did. */
bool choose_late(struct engine *e, struct engine_seq *seq, uint64_t now);
/* Frees a kept row, if there is one. */
void choose_drop_row(struct engine_seq *seq);

#endif
