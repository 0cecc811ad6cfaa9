/* SPDX-License-Identifier: MIT */
/*
 * Sequences of a beam search: one per beam. In each round every beam produces a row, whose best
 * tokens are the candidates for beam.h; then the first continuation of a beam takes over its
 * sequence, others fork from it, and beams without continuation are removed.
 *
 * Used by the engine thread, from beam_run_start() on.
 */
#ifndef TXDA_ENGINE_BEAM_RUN_H
#define TXDA_ENGINE_BEAM_RUN_H

#include "engine_request.h"

struct beam_options;
struct beam_run;
struct engine;
struct sched_item;

/* For @r->search; -ENOMEM. */
int beam_run_new(struct engine_request *r, const struct beam_options *options,
		 struct beam_run **ret);
void beam_run_free(struct beam_run *b);

/* 0, or -E2BIG: prompt and answer exceed the context; message in err. */
int beam_run_check(const struct engine *e, const struct engine_request *r, char *err,
		   size_t errlen);

/* Adds the prompt to the scheduler. */
void beam_run_start(struct engine *e, struct engine_request *r);
/* Takes the candidates of an item's sequence. An invalid row ends the request. */
void beam_run_row(struct engine *e, const struct sched_item *item, unsigned row_index);
/*
 * Starts the next round when all beams have their candidates. 1: the search is over. -ENOMEM. Call
 * after scheduler_done().
 */
int beam_run_next(struct engine *e, struct engine_request *r);
/*
 * If a beam waits for a slot or blocks, beams that have their candidates release theirs, since they
 * have to wait for it anyway. Between two steps.
 */
void beam_run_make_room(struct engine *e, struct engine_request *r);
/* Removes the remaining sequences from the scheduler. */
void beam_run_stop(struct engine *e, struct engine_request *r);

#endif
