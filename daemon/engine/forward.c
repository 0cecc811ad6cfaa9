// SPDX-License-Identifier: MIT
#include "forward.h"

#include <errno.h>
#include <stdio.h>

int forward_check(const struct engine *e, const struct engine_request *r, char *err, size_t errlen)
{
	const struct engine_sink *sink = r->sink;

	if (!sink)
		return 0;
	if ((!sink->vocab || sink->vocab == e->limits.vocab) &&
	    (!sink->hidden || sink->hidden == e->limits.hidden))
		return 0;
	snprintf(err, errlen,
		 "rows of %u logits and %u hidden states were requested; the model has %u and %u",
		 sink->vocab, sink->hidden, e->limits.vocab, e->limits.hidden);
	return -EOPNOTSUPP;
}

unsigned forward_first(const struct engine_request *r)
{
	return r->sink->rows[0];
}

/* Passes the row at @position on, if it was requested; -errno: the sink failed. */
static int take(struct step_slot *slot, struct engine_request *r, unsigned position, unsigned row)
{
	struct engine_sink *sink = r->sink;
	int error;

	if (r->n_taken == sink->n_rows || sink->rows[r->n_taken] != position)
		return 0;
	error = sink->ops->row(sink, r->n_taken, sink->vocab ? step_logits(slot, row) : NULL,
			       sink->hidden ? step_hidden(slot, row) : NULL);
	r->n_taken += !error;
	return error;
}

void forward_rows(struct step_slot *slot, const struct sched_item *item, unsigned row, uint64_t now)
{
	struct engine_seq *seq = (struct engine_seq *)item->seq;
	struct engine_request *r = seq->request;
	int error = 0;

	for (unsigned i = 0; i < item->rows && !error; i++)
		error = take(slot, r, item->first_row + i, row + i);
	if (item->sample && !error)
		error = take(slot, r, r->n_prompt - 1, row + item->rows);
	if (error) {
		seq->error = error;
		seq->error_words = r->sink->ops->error(r->sink);
		return;
	}
	if (item->sample) {
		r->first_token_ns = r->last_token_ns = now;
		seq->ending = ENGINE_FINISH_COMPLETE;
	} else {
		seq->sched.prompt_row = r->sink->rows[r->n_taken];
	}
}
