// SPDX-License-Identifier: MIT
#include "choose.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "token_counts.h"

/* How long all proposals together wait for masks after a step. */
#define MASK_WAIT_NS (NS_PER_S / 1000)

/* ---- masks ----------------------------------------------------------------------------------- */

/* Starts the job that accepts @token (-1: none) and computes the next mask. */
static void ask_mask(struct engine *e, struct engine_seq *seq, int32_t token, bool last)
{
	seq->job.token = token;
	seq->job.last = last;
	mask_workers_submit(e->masks, &seq->job);
}

/* Whether the set of allowed tokens is known. */
static bool mask_known(const struct engine_seq *seq)
{
	return !seq->request->constraint ||
	       atomic_load_explicit(&seq->job.done, memory_order_acquire);
}

/* Whether a token is allowed, by a known mask; otherwise error or ending is set. */
static bool mask_allows(struct engine_seq *seq)
{
	struct engine_constraint *c = seq->request->constraint;

	if (c && seq->job.error) {
		seq->error = -EPROTO;
		seq->error_words = c->ops->error(c);
		seq->ending = ENGINE_FINISH_ERROR;
	} else if (c && seq->job.over) {
		seq->ending = ENGINE_FINISH_COMPLETE;
	}
	return seq->ending == ENGINE_RUNNING;
}

/* Keeps a copy of a row until its mask is known. */
static void keep_row(struct engine *e, struct engine_seq *seq, unsigned row_index)
{
	struct step_slot *slot = &e->slots[e->turn];
	size_t vocab = slot->vocab, k = slot->topk;
	struct kept_row *kept = malloc(sizeof(*kept) + (vocab + 2 * k) * sizeof(float));
	float *topk_logits;

	if (!kept) {
		seq->error = -ENOMEM;
		seq->error_words = "no memory for a row of logits";
		return;
	}
	topk_logits = kept->memory + vocab;
	step_row(slot, row_index, &kept->row);
	memcpy(kept->memory, step_logits(slot, row_index), vocab * sizeof(float));
	memcpy(topk_logits, kept->row.topk_logits, k * sizeof(float));
	memcpy(topk_logits + k, kept->row.topk_ids, k * sizeof(int32_t));
	kept->row.logits = kept->memory;
	kept->row.topk_logits = topk_logits;
	kept->row.topk_ids = (const int32_t *)(topk_logits + k);
	kept->row.fetched = true;
	seq->kept = kept;
	seq->late = true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/*
 * Chooses token number @n of those generated. -EIO: the row is invalid; -EPROTO: no token is
 * allowed.
 */
static int sample(struct engine *e, struct engine_seq *seq, struct sampler_row *row, unsigned n,
		  int32_t *ret_token)
{
	const struct engine_request *r = seq->request;
	const struct engine_sampling *p = &r->sampling;
	const struct engine_mask *mask = r->constraint ? &seq->job.mask : NULL;
	/* If the constrained text is complete the answer ends, regardless of min_tokens. */
	bool complete = mask && (mask->bits || mask->list) && !mask->n && mask->end;
	const struct sampler_rules rules = {
		.mask_stops = !p->ignore_eos && n < p->min_tokens && !complete,
		.mask = mask,
		.counts = r->counts,
	};
	int error = sampler_choose(e->sampler, row, p, r->n_prompt + n, &rules, ret_token);

	if (error == -ENOENT) {
		seq->error_words =
			"no token of the vocabulary can continue the text within its constraint";
		return -EPROTO;
	}
	if (error) {
		seq->error_words = CHOOSE_BROKEN_ROW;
		return -EIO;
	}
	if (r->counts)
		token_counts_add(r->counts, *ret_token, true);
	return 0;
}

/* Samples a token from the row with a known mask and appends it; false: the request ends. */
static bool advance(struct engine *e, struct engine_seq *seq, struct sampler_row *row, uint64_t now)
{
	struct engine_request *r = seq->request;
	const struct engine_sampling *p = &r->sampling;
	unsigned n = atomic_load_explicit(&r->n_tokens, memory_order_relaxed);
	int32_t token;

	if (!mask_allows(seq))
		return false;
	seq->error = sample(e, seq, row, n, &token);
	if (seq->error) {
		seq->ending = ENGINE_FINISH_ERROR;
		return false;
	}
	r->tokens[n] = token;
	if (r->logprobs)
		r->logprobs[n] =
			(struct engine_logprob){token, sampler_logprob(e->sampler, row, token)};
	if (r->top)
		sampler_top(e->sampler, row, (unsigned)p->logprobs,
			    r->top + (size_t)n * (unsigned)p->logprobs);
	if (!n)
		r->first_token_ns = now;
	r->last_token_ns = now;
	atomic_store_explicit(&r->n_tokens, ++n, memory_order_release);
	e->stats.generation_tokens++;
	if (!p->ignore_eos && sampler_is_stop(p, token)) {
		seq->ending = ENGINE_FINISH_STOP;
		return false;
	}
	if (n >= p->max_tokens || r->n_prompt + n >= e->limits.max_context)
		seq->ending = ENGINE_FINISH_LENGTH;
	else
		seq->sched.n_total = r->n_prompt + n;
	if (r->constraint)
		ask_mask(e, seq, token, seq->ending != ENGINE_RUNNING);
	return seq->ending == ENGINE_RUNNING;
}

/* ---- interface of the loop ------------------------------------------------------------------- */

void choose_begin(struct engine *e, struct engine_seq *seq)
{
	ask_mask(e, seq, -1, false);
}

bool choose_goes_on(const struct engine *e, const struct engine_seq *seq)
{
	const struct engine_request *r = seq->request;
	unsigned n = atomic_load_explicit(&r->n_tokens, memory_order_relaxed) + 1;

	if (r->constraint && (!mask_known(seq) || seq->job.error || seq->job.over))
		return false;
	return n < r->sampling.max_tokens && r->n_prompt + n < e->limits.max_context &&
	       !atomic_load(&r->cancelled);
}

void choose_tokens(struct engine *e, struct sched_item *item, unsigned row_index, uint64_t now)
{
	struct engine_seq *seq = (struct engine_seq *)item->seq;
	unsigned accepted = 0;

	/* The row was computed again after a preemption. */
	choose_drop_row(seq);
	/* In time again: proposals are worth their while. */
	if (mask_known(seq))
		seq->late = false;
	for (;;) {
		struct sampler_row row;

		if (!mask_known(seq) &&
		    (!accepted || !mask_workers_wait(e->masks, &seq->job, now + MASK_WAIT_NS))) {
			keep_row(e, seq, row_index + accepted);
			break;
		}
		step_row(&e->slots[e->turn], row_index + accepted, &row);
		if (!advance(e, seq, &row, now) || accepted == item->drafts ||
		    seq->request->tokens[seq->sched.n_total - 1 - seq->request->n_prompt] !=
			    item->seq->draft[accepted])
			break;
		e->stats.accepted_at[accepted++]++;
	}
	item->rejected = item->drafts - accepted;
	e->stats.drafts += item->drafts != 0;
	e->stats.draft_tokens += item->drafts;
	e->stats.accepted_tokens += accepted;
}

bool choose_first(struct engine *e, struct engine_seq *seq, unsigned row_index, uint64_t now)
{
	struct sampler_row row;

	if (!mask_known(seq))
		return false;
	step_row(&e->slots[e->turn], row_index, &row);
	advance(e, seq, &row, now);
	return true;
}

bool choose_ended(struct engine_seq *seq)
{
	/* Its mask may show that the last token completed the constrained text, or fail. */
	if (seq->ending == ENGINE_FINISH_LENGTH) {
		if (!mask_known(seq))
			return false;
		mask_allows(seq);
	}
	return seq->error || seq->ending;
}

bool choose_late(struct engine *e, struct engine_seq *seq, uint64_t now)
{
	unsigned n = atomic_load_explicit(&seq->request->n_tokens, memory_order_relaxed);

	if (!mask_known(seq) || !mask_allows(seq) || !seq->kept)
		return false;
	/* After a preemption the row is computed again, with the tokens before it. */
	if (seq->sched.n_computed == seq->sched.n_total)
		advance(e, seq, &seq->kept->row, now);
	choose_drop_row(seq);
	return n != atomic_load_explicit(&seq->request->n_tokens, memory_order_relaxed);
}

void choose_drop_row(struct engine_seq *seq)
{
	free(seq->kept);
	seq->kept = NULL;
}
