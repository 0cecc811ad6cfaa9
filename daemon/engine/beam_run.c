// SPDX-License-Identifier: MIT
#include "beam_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "choose.h"

/* A sequence of the scheduler, or a free entry. */
struct beam {
	struct engine_seq seq; /* first member */
	bool in_use, has_row;
	bool parked;	 /* it has its row and has released its blocks: not in the scheduler */
	unsigned index;	 /* index of the beam in its round */
	int32_t *tokens; /* [max_tokens] */
};

struct beam_run {
	unsigned width, max_tokens, n_candidates;
	struct beam *beams;		     /* [2 * width] */
	struct beam *live[ENGINE_MAX_BEAMS]; /* by beam index in this round */
	int32_t *tokens;		     /* [2 * width][max_tokens] */
	struct engine_logprob *candidates;   /* [width][n_candidates] */
};

int beam_run_new(struct engine_request *r, const struct beam_options *options,
		 struct beam_run **ret)
{
	size_t width = options->width, max = options->max_tokens;
	struct beam_run *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->width = options->width;
	b->max_tokens = options->max_tokens;
	b->n_candidates = 2 * b->width > options->n_top ? 2 * b->width : options->n_top;
	b->beams = calloc(2 * width, sizeof(*b->beams));
	b->tokens = calloc(2 * width * max, sizeof(*b->tokens));
	b->candidates = calloc(width * b->n_candidates, sizeof(*b->candidates));
	if (!b->beams || !b->tokens || !b->candidates) {
		beam_run_free(b);
		return -ENOMEM;
	}
	for (size_t i = 0; i < 2 * width; i++) {
		b->beams[i].seq.request = r;
		b->beams[i].tokens = b->tokens + i * max;
	}
	*ret = b;
	return 0;
}

void beam_run_free(struct beam_run *b)
{
	if (!b)
		return;
	free(b->beams);
	free(b->tokens);
	free(b->candidates);
	free(b);
}

int beam_run_check(const struct engine *e, const struct engine_request *r, char *err, size_t errlen)
{
	if (!r->beams || r->beams->max_tokens <= e->limits.max_context - r->n_prompt)
		return 0;
	snprintf(err, errlen,
		 "a prompt of %u tokens and beams of %u are longer than the context of %u",
		 r->n_prompt, r->beams->max_tokens, e->limits.max_context);
	return -E2BIG;
}

/* A sequence for a beam with @n generated tokens, copied from @from. */
static struct beam *new_beam(struct engine_request *r, const struct beam *from, unsigned n)
{
	struct beam *beam = r->beams->beams;

	while (beam->in_use)
		beam++;
	beam->in_use = true;
	if (n)
		memcpy(beam->tokens, from->tokens, n * sizeof(*beam->tokens));
	beam->seq = (struct engine_seq){
		.request = r,
		.late = true, /* no proposals: beams diverge */
		.sched =
			{
				.uid = r->uid,
				.salt = r->salt,
				.priority = r->priority,
				.prompt = r->prompt,
				.images = r->images,
				.generated = beam->tokens,
				.n_prompt = r->n_prompt,
				.n_total = r->n_prompt + n,
				.prompt_row = r->n_prompt,
			},
	};
	return beam;
}

void beam_run_start(struct engine *e, struct engine_request *r)
{
	r->beams->live[0] = new_beam(r, NULL, 0);
	scheduler_add(e->scheduler, &r->beams->live[0]->seq.sched);
}

static void remove_beam(struct engine *e, struct beam *beam)
{
	if (!beam->parked)
		scheduler_remove(e->scheduler, &beam->seq.sched);
	beam->in_use = beam->parked = false;
}

void beam_run_stop(struct engine *e, struct engine_request *r)
{
	for (unsigned i = 0; i < 2 * r->beams->width; i++) {
		if (r->beams->beams[i].in_use)
			remove_beam(e, &r->beams->beams[i]);
	}
}

void beam_run_row(struct engine *e, const struct sched_item *item, unsigned row_index)
{
	const struct engine_sampling greedy = {.top_p = 1};
	struct engine_seq *seq = (struct engine_seq *)item->seq;
	struct beam *beam = (struct beam *)seq;
	struct beam_run *b = seq->request->beams;
	struct sampler_row row;
	int32_t token;

	/*
	 * A beam that already had its row was preempted and recomputed, and the round ended after
	 * this step had begun: the row belongs to the previous round.
	 */
	if (item->first + item->tokens < item->seq->n_total)
		return;
	step_row(&e->slots[e->turn], row_index, &row);
	if (sampler_choose(e->sampler, &row, &greedy, 0, NULL, &token)) {
		seq->request->seq->error = -EIO;
		seq->request->seq->error_words = CHOOSE_BROKEN_ROW;
		return;
	}
	sampler_top(e->sampler, &row, b->n_candidates,
		    b->candidates + (size_t)beam->index * b->n_candidates);
	/* After a preemption it is computed again. */
	e->stats.generation_tokens += !beam->has_row;
	beam->has_row = true;
}

/* Derives the beams of the next round from those of this one. */
static void expand_beams(struct engine *e, struct engine_request *r, unsigned n_before, unsigned n)
{
	unsigned length = beam_search_length(r->search);
	struct beam_run *b = r->beams;
	struct beam *next[ENGINE_MAX_BEAMS];

	for (unsigned i = 0; i < n; i++) {
		struct beam *parent = b->live[beam_search_parent(r->search, i)], *beam = parent;

		/* The first one clears the flag. */
		if (!parent->has_row) {
			beam = new_beam(r, parent, length - 1);
			beam->tokens[length - 1] = beam_search_token(r->search, i);
			beam->seq.sched.n_total++;
			scheduler_fork(e->scheduler, &parent->seq.sched, &beam->seq.sched);
		} else {
			beam->tokens[length - 1] = beam_search_token(r->search, i);
			beam->has_row = false;
		}
		beam->index = i;
		next[i] = beam;
	}
	for (unsigned i = 0; i < n_before; i++) {
		if (b->live[i]->has_row)
			remove_beam(e, b->live[i]);
		else
			b->live[i]->seq.sched.n_total++;
		if (b->live[i]->parked)
			scheduler_add(e->scheduler, &b->live[i]->seq.sched);
		b->live[i]->has_row = b->live[i]->parked = false;
	}
	memcpy(b->live, next, n * sizeof(*next));
}

void beam_run_make_room(struct engine *e, struct engine_request *r)
{
	unsigned n = beam_search_live(r->search);
	struct beam_run *b = r->beams;
	bool stuck = false;

	for (unsigned i = 0; i < n; i++)
		stuck = stuck || (!b->live[i]->has_row && !b->live[i]->seq.sched.cache.blocks[0]);
	for (unsigned i = 0; i < n && stuck; i++) {
		if (!b->live[i]->has_row || b->live[i]->parked)
			continue;
		scheduler_park(e->scheduler, &b->live[i]->seq.sched);
		b->live[i]->parked = true;
	}
}

int beam_run_next(struct engine *e, struct engine_request *r)
{
	const struct engine_logprob *candidates[ENGINE_MAX_BEAMS];
	struct beam_run *b = r->beams;
	unsigned n = beam_search_live(r->search), vocab = e->limits.vocab;

	for (unsigned i = 0; i < n; i++) {
		if (!b->live[i]->has_row)
			return 0;
		candidates[i] = b->candidates + (size_t)i * b->n_candidates;
	}
	if (beam_search_step(r->search, candidates,
			     b->n_candidates < vocab ? b->n_candidates : vocab))
		return -ENOMEM;
	if (!beam_search_live(r->search))
		return 1;
	expand_beams(e, r, n, beam_search_live(r->search));
	return 0;
}
