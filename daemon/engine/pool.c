// SPDX-License-Identifier: MIT
#include "pool.h"

#include <errno.h>
#include <math.h>

unsigned pool_first(const struct engine_request *r)
{
	return r->pooling.how == ENGINE_POOL_LAST ? r->n_prompt : 0;
}

/*
 * Adds the state at @position; positions come in order, the last one at the end. Returns the next
 * position that is needed.
 */
static unsigned take(struct engine_request *r, unsigned position, const float *hidden)
{
	bool last = position == r->n_prompt - 1;

	if ((r->pooling.how == ENGINE_POOL_LAST && !last) ||
	    (r->pooling.how == ENGINE_POOL_CLS && position))
		return r->n_prompt;
	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		r->pooled[i] += (double)hidden[i];
	return r->pooling.how == ENGINE_POOL_MEAN ? position + 1 : r->n_prompt;
}

/* Computes the vector. -EIO: it is not finite: the model or the chip is faulty. */
static int finish(struct engine_request *r)
{
	double scale = r->pooling.how == ENGINE_POOL_MEAN ? 1.0 / r->n_prompt : 1, square = 0;

	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		square += r->pooled[i] * r->pooled[i];
	if (!isfinite(square))
		return -EIO;
	/* A zero vector has no direction and is returned as it is. */
	if (r->pooling.normalize)
		scale = square > 0 ? 1 / sqrt(square) : 0;
	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		r->embedding[i] = (float)(r->pooled[i] * scale);
	return 0;
}

void pool_rows(struct step_slot *slot, const struct sched_item *item, unsigned row, uint64_t now)
{
	struct engine_seq *seq = (struct engine_seq *)item->seq;
	struct engine_request *r = seq->request;

	for (unsigned i = 0; i < item->rows; i++)
		seq->sched.prompt_row = take(r, item->first_row + i, step_hidden(slot, row + i));
	if (!item->sample)
		return;
	take(r, r->n_prompt - 1, step_hidden(slot, row + item->rows));
	r->first_token_ns = r->last_token_ns = now;
	seq->error = finish(r);
	seq->error_words = "the model's hidden states are not finite";
	seq->ending = seq->error ? ENGINE_FINISH_ERROR : ENGINE_FINISH_COMPLETE;
}
