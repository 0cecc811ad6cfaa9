/* SPDX-License-Identifier: MIT */
/*
 * The sequences of a beam search: one for each beam. In each round all of them bring a row, whose
 * best tokens are the candidates of beam.h; then the first beam that goes on from one takes its
 * sequence over, others fork from it, and what no beam goes on from is given back.
 *
 * The engine thread's, from beam_run_start() on.
 */
#ifndef TXDA_ENGINE_BEAM_RUN_H
#define TXDA_ENGINE_BEAM_RUN_H

#include "engine.h"

struct beam_options;
struct beam_run;
struct sched_item;

/* For @r->search; -ENOMEM. */
int beam_run_new(struct engine_request *r, const struct beam_options *options,
		 struct beam_run **ret);
void beam_run_free(struct beam_run *b);

/* 0, or -E2BIG: prompt and answer are longer than the context; words in err. */
int beam_run_check(const struct engine *e, const struct engine_request *r, char *err,
		   size_t errlen);

/* Gives the prompt to the scheduler. */
void beam_run_start(struct engine *e, struct engine_request *r);
/* Takes the candidates of an item's sequence. A broken row ends the request. */
void beam_run_row(struct engine *e, const struct sched_item *item, unsigned row_index);
/*
 * Begins the next round when all beams have their candidates. 1: the search is over. -ENOMEM. After
 * scheduler_done().
 */
int beam_run_next(struct engine *e, struct engine_request *r);
/*
 * When a beam waits for a slot or blocks, those that have their candidates give theirs back: they
 * wait for it. Between two steps.
 */
void beam_run_make_room(struct engine *e, struct engine_request *r);
/* Takes what is left from the scheduler. */
void beam_run_stop(struct engine *e, struct engine_request *r);

#endif
