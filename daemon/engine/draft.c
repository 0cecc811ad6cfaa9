// SPDX-License-Identifier: MIT
#include "draft.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "engine_internal.h"

#define NGRAM_WINDOW 8192 /* number of tokens searched backwards */

struct draft {
	enum engine_speculation how;
	unsigned tokens, max_seqs;
	unsigned ngram_min, ngram_max;

	/* ENGINE_SPECULATE_MODEL */
	struct txda_model *model;
	unsigned max_tokens, max_items, max_rows; /* maximum tokens per step */
	unsigned max_context;			  /* no proposals with more sequences than this */
	const struct launch_limits *launch;
	struct sampler *sampler;
	struct step_slot slot;
	unsigned *wanted; /* [max_items] proposals for the slot's items */
	bool mtp;	  /* the large model's own prediction layer */
	float *held; /* [max_seqs, n_before] by slot: states whose next token is not known yet */
};

/* ---- n-gram ---------------------------------------------------------------------------------- */

static int32_t known_token(const struct sched_seq *seq, unsigned i)
{
	return i < seq->n_prompt ? seq->prompt[i] : seq->generated[i - seq->n_prompt];
}

/* How many tokens before @end equal those at the end of the sequence, at most @most. */
static unsigned common_tail(const struct sched_seq *seq, unsigned end, unsigned most)
{
	unsigned n = 0;

	while (n < most && n < end &&
	       known_token(seq, end - 1 - n) == known_token(seq, seq->n_total - 1 - n))
		n++;
	return n;
}

static unsigned ngram_propose(const struct draft *d, const struct sched_seq *seq, int32_t *tokens,
			      unsigned most)
{
	unsigned from = seq->n_total > NGRAM_WINDOW ? seq->n_total - NGRAM_WINDOW : 0;
	unsigned best = 0, best_end = 0, n = 0;

	for (unsigned end = seq->n_total - 1; end > from && best < d->ngram_max; end--) {
		unsigned tail = common_tail(seq, end, d->ngram_max);

		if (tail > best) {
			best = tail;
			best_end = end;
		}
	}
	if (best < d->ngram_min)
		return 0;
	for (; n < most && best_end + n < seq->n_total; n++)
		tokens[n] = known_token(seq, best_end + n);
	return n;
}

/* ---- draft model ----------------------------------------------------------------------------- */

static int run(struct draft *d, unsigned n_items, char *err, size_t errlen)
{
	int error;

	d->slot.n_items = n_items;
	d->slot.n_filled = 0;
	step_fill(&d->slot);
	error = step_run(&d->slot, err, errlen);
	return error ? error : step_wait(&d->slot, clock_ns(), d->launch, err, errlen);
}

/* The layer's inputs for token @token of its next step. */
static void put_state(struct draft *d, unsigned token, const float *state)
{
	size_t n = d->slot.n_before;

	for (unsigned rank = 0; rank < d->slot.n_ranks; rank++)
		memcpy(d->slot.inputs[rank].hidden_before + token * n, state, n * sizeof(*state));
}

/* Samples a proposal for each item that needs one; keeps the items that need another. */
static unsigned take_proposals(struct draft *d, unsigned n_items)
{
	unsigned kept = 0, row = 0, shift = d->slot.token_shift;

	for (unsigned i = 0; i < n_items; i++) {
		struct sched_seq *sched = d->slot.items[i].seq;
		struct engine_seq *seq = (struct engine_seq *)sched;
		unsigned n = sched->n_draft;
		struct sampler_row logits;

		if (!d->slot.items[i].sample)
			continue;
		step_row(&d->slot, row, &logits);
		row++;
		if (sampler_choose(d->sampler, &logits, seq->draft.sampling, sched->n_total + n,
				   NULL, &seq->draft.tokens[n]))
			continue;
		sched->n_draft = n + 1;
		if (n + 1 >= d->wanted[i])
			continue;
		d->slot.items[kept] = (struct sched_item){
			.seq = sched,
			.first = sched->n_total + n - shift,
			.tokens = 1,
			.sample = true,
		};
		if (d->mtp)
			put_state(d, kept, step_hidden(&d->slot, row - 1));
		else
			seq->draft.n_computed = sched->n_total + n + 1;
		d->wanted[kept++] = d->wanted[i];
	}
	return kept;
}

/* Prefix cache hits of an admitted sequence are also valid in the draft model. */
static void note_admission(struct engine_seq *seq)
{
	if (seq->draft.admission == seq->sched.n_admissions)
		return;
	seq->draft.admission = seq->sched.n_admissions;
	seq->draft.holds = false;
	seq->draft.n_computed = seq->sched.n_matched;
}

/* Sets how much of a sequence is valid in the draft model. */
static void forget_rejected(struct engine_seq *seq)
{
	const struct sched_seq *sched = &seq->sched;
	unsigned had = seq->draft.admission ? seq->draft.n_computed : UINT_MAX;

	note_admission(seq);
	/* It finds its own blocks again after a preemption, also those that were not filled yet. */
	if (seq->draft.n_computed > had)
		seq->draft.n_computed = had;
	/* Of proposals the accepted ones; never the last token, which was sampled after them. */
	if (seq->draft.n_computed > sched->n_total - 1)
		seq->draft.n_computed = sched->n_total - 1;
}

static unsigned wanted(const struct draft *d, struct scheduler *s, struct sched_seq *sched)
{
	const struct engine_request *r = ((struct engine_seq *)sched)->request;
	unsigned left = r->sampling.max_tokens - (sched->n_total - r->n_prompt);

	if (sched->n_total - sched->n_computed != 1 || ((struct engine_seq *)sched)->late ||
	    (d->max_context && sched->n_total + d->tokens > d->max_context))
		return 0;
	/* The last token needs no proposal after it. */
	return scheduler_reserve(s, sched, left - 1 < d->tokens ? left - 1 : d->tokens);
}

/* Plans the tokens that the draft model has to catch up with, and the sequences to propose for. */
static unsigned plan_catch_up(struct draft *d, struct scheduler *s)
{
	unsigned n_items = 0, tokens = d->max_tokens, rows = d->max_rows;

	for (unsigned i = 0; i < scheduler_running(s) && n_items < d->max_items; i++) {
		struct sched_seq *sched = scheduler_running_seq(s, i);
		struct engine_seq *seq = (struct engine_seq *)sched;
		unsigned want = wanted(d, s, sched), end, n;

		forget_rejected(seq);
		end = want ? sched->n_total : sched->n_computed;
		end = end < d->max_context ? end : d->max_context;
		if (end <= seq->draft.n_computed)
			continue;
		n = end - seq->draft.n_computed;
		if (n > tokens || !rows)
			want = 0;
		n = n < tokens ? n : tokens;
		if (!n)
			continue;
		d->wanted[n_items] = want;
		d->slot.items[n_items++] = (struct sched_item){
			.seq = sched,
			.first = seq->draft.n_computed,
			.tokens = n,
			.sample = want != 0,
		};
		seq->draft.n_computed += n;
		tokens -= n;
		rows -= want != 0;
	}
	return n_items;
}

/*
 * Plans the layer's part of an item: the tokens from n_computed on whose next token is known. The
 * last one's is not while the sequence waits for its mask; then its state is held until it is.
 * @states: of the item's tokens [n]; @token: the first one of this item in the layer's step. Returns
 * the number of tokens, which may be 0.
 */
static unsigned plan_tokens(struct draft *d, struct engine_seq *seq, const float *states,
			    unsigned n, unsigned token)
{
	const size_t size = d->slot.n_before;
	float *held = d->held + seq->sched.slot * size;
	unsigned before = seq->draft.holds, all = before + n, first = seq->draft.n_computed;
	unsigned known =
		seq->sched.n_total - 1 - first < all ? seq->sched.n_total - 1 - first : all;

	if (token + known > d->max_tokens)
		return 0;
	for (unsigned i = 0; i < known; i++)
		put_state(d, token + i, i < before ? held : states + (i - before) * size);
	seq->draft.n_computed += known;
	seq->draft.holds = known < all;
	if (known < all)
		memcpy(held, states + (n - 1) * size, size * sizeof(*held));
	return known;
}

/* Plans the layer's step over the accepted tokens of @step. */
static unsigned plan_layer(struct draft *d, struct scheduler *s, const struct step_slot *step)
{
	unsigned n_items = 0, token = 0, at = 0;

	for (unsigned i = 0; i < step->n_items; i++) {
		const struct sched_item *item = &step->items[i];
		struct engine_seq *seq = (struct engine_seq *)item->seq;
		const float *states = step->states + (size_t)at * step->n_states;
		unsigned n = item->tokens - item->rejected, first, known;

		at += item->tokens;
		/* A beam may have been dropped with the step. */
		if (!seq || seq->request->pooling.how || seq->request->beams)
			continue;
		note_admission(seq);
		first = seq->draft.n_computed;
		if (first + seq->draft.holds != item->first || item->first + n > d->max_context)
			continue;
		known = plan_tokens(d, seq, states, n, token);
		if (!known)
			continue;
		token += known;
		d->wanted[n_items] = seq->draft.holds ? 0 : wanted(d, s, item->seq);
		d->slot.items[n_items] = (struct sched_item){
			.seq = item->seq,
			.first = first,
			.tokens = known,
			.sample = d->wanted[n_items] != 0,
		};
		n_items++;
	}
	return n_items;
}

static int model_propose(struct draft *d, struct scheduler *s, const struct step_slot *step,
			 char *err, size_t errlen)
{
	unsigned n_items = d->mtp ? plan_layer(d, s, step) : plan_catch_up(d, s);
	int error = 0;

	while (n_items && !error) {
		error = run(d, n_items, err, errlen);
		if (!error)
			n_items = take_proposals(d, n_items);
	}
	return error;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool draft_wanted(const struct draft *d, const struct scheduler *s)
{
	return scheduler_running(s) <= d->max_seqs;
}

void draft_forget(struct draft *d, const struct scheduler *s)
{
	if (d->how != ENGINE_SPECULATE_MODEL || d->mtp)
		return;
	for (unsigned i = 0; i < scheduler_running(s); i++)
		forget_rejected((struct engine_seq *)scheduler_running_seq(s, i));
}

int draft_propose(struct draft *d, struct scheduler *s, const struct step_slot *step, char *err,
		  size_t errlen)
{
	if (!draft_wanted(d, s)) {
		draft_forget(d, s);
		return 0;
	}
	if (d->how == ENGINE_SPECULATE_MODEL)
		return model_propose(d, s, step, err, errlen);
	for (unsigned i = 0; i < scheduler_running(s); i++) {
		struct sched_seq *sched = scheduler_running_seq(s, i);
		struct engine_seq *seq = (struct engine_seq *)sched;

		sched->n_draft = ngram_propose(d, sched, seq->draft.tokens, wanted(d, s, sched));
	}
	return 0;
}

/* Whether the model provides the layer's inputs, for as many tokens. */
static int check_layer(struct draft *d, const struct txda_model_info *info,
		       const struct txda_model_info *target, const struct step_slot *slot,
		       char *err, size_t errlen)
{
	d->mtp = d->slot.n_before != 0;
	if (!d->mtp)
		return 0;
	d->slot.token_shift = 1;
	if (slot->n_states != d->slot.n_before || d->slot.n_hidden != d->slot.n_before) {
		snprintf(
			err, errlen,
			"the layer that predicts further tokens needs hidden states of %u elements "
			"of all tokens and gives %u; the model gives %u (compile it with --states)",
			d->slot.n_before, d->slot.n_hidden, slot->n_states);
		return -EINVAL;
	}
	if (info->max_tokens < target->max_tokens || info->max_seqs < target->max_seqs ||
	    info->max_rows < target->max_rows) {
		snprintf(err, errlen,
			 "the layer that predicts further tokens takes %u tokens, %u sequences and "
			 "%u rows a step, the model %u, %u and %u",
			 info->max_tokens, info->max_seqs, info->max_rows, target->max_tokens,
			 target->max_seqs, target->max_rows);
		return -EINVAL;
	}
	d->held = calloc((size_t)target->max_seqs * d->slot.n_before, sizeof(*d->held));
	return d->held ? 0 : -ENOMEM;
}

static int load_model(struct draft *d, struct txda_group *group,
		      const struct engine_options *options, const struct txda_model_info *target,
		      const struct step_slot *slot, char *err, size_t errlen)
{
	struct txda_model_options model_options = TXDA_INIT(struct txda_model_options);
	struct txda_model_info info = TXDA_INIT(struct txda_model_info);
	unsigned max_blocks;
	int error;

	model_options.path = options->draft_case_dir;
	/* Its blocks have the same numbers as the model's (step.h). */
	model_options.kv_blocks_per_group = target->kv_blocks;
	model_options.keep_weights = options->keep_weights;
	model_options.map_weights = options->map_weights;
	model_options.verify_weights = true;
	error = txda_model_load(group, &model_options, &d->model);
	if (!error)
		error = txda_model_info(d->model, &info);
	if (error) {
		snprintf(err, errlen, "cannot load the draft model %s: %s (%s)",
			 options->draft_case_dir, txda_context_error(options->context),
			 strerror(-error));
		return error;
	}
	if (info.vocab != target->vocab || info.block_size != target->block_size) {
		snprintf(err, errlen,
			 "the draft model has a vocabulary of %u and KV blocks of %u, the model "
			 "%u and %u: they must be the same",
			 info.vocab, info.block_size, target->vocab, target->block_size);
		return -EINVAL;
	}
	if (info.stateful) {
		snprintf(err, errlen,
			 "the draft model has layers that keep a state, in which proposals that "
			 "are not kept would stay");
		return -EINVAL;
	}
	error = step_init(&d->slot, d->model, options->context, &info, &max_blocks, err, errlen);
	d->slot.borrows = true;
	if (!error)
		error = check_layer(d, &info, target, slot, err, errlen);
	if (error)
		return error;
	d->max_context = max_blocks * info.block_size;
	if (max_blocks >= UINT32_MAX / info.block_size || d->max_context > info.max_context)
		d->max_context = info.max_context;
	d->max_tokens = info.max_tokens;
	d->max_items = info.max_seqs;
	d->max_rows = info.max_rows;
	d->wanted = calloc(d->max_items, sizeof(*d->wanted));
	error = d->wanted ? sampler_new(info.vocab, info.topk, &d->sampler) : -ENOMEM;
	if (error)
		snprintf(err, errlen, "cannot set up the draft model: %s", strerror(-error));
	return error;
}

int draft_new(struct txda_group *group, const struct engine_options *options,
	      const struct launch_limits *launch, const struct txda_model_info *target,
	      const struct step_slot *slot, struct draft **ret, char *err, size_t errlen)
{
	struct draft *d = calloc(1, sizeof(*d));
	int error = 0;

	if (!d) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	d->how = options->speculation;
	d->tokens = options->speculative_tokens ? options->speculative_tokens : 4;
	d->max_seqs = options->speculative_max_seqs ? options->speculative_max_seqs : 8;
	d->ngram_min = options->ngram_min ? options->ngram_min : 2;
	d->ngram_max = options->ngram_max ? options->ngram_max : 4;
	d->launch = launch;
	if (d->tokens > ENGINE_MAX_DRAFT || d->ngram_min > d->ngram_max) {
		snprintf(err, errlen,
			 "speculation with %u tokens a step (the limit is %u) and n-grams of %u to "
			 "%u tokens is not possible",
			 d->tokens, ENGINE_MAX_DRAFT, d->ngram_min, d->ngram_max);
		error = -EINVAL;
	}
	if (!error && d->how == ENGINE_SPECULATE_MODEL)
		error = load_model(d, group, options, target, slot, err, errlen);
	if (error) {
		draft_free(d);
		return error;
	}
	*ret = d;
	return 0;
}

struct txda_model *draft_model(struct draft *d)
{
	return d ? d->model : NULL;
}

void draft_free(struct draft *d)
{
	if (!d)
		return;
	sampler_free(d->sampler);
	free(d->wanted);
	free(d->held);
	step_fini(&d->slot);
	txda_model_unref(d->model);
	free(d);
}
