/* SPDX-License-Identifier: MIT */
/*
 * One step on the chips: fills the launch arguments from the scheduler's plan, runs the program,
 * hands out rows.
 *
 * A step slot is what one launch in flight needs: its plan and the memory of its inputs and
 * outputs. The engine has one, over the model's own tensors; a second one would bind memory of its
 * own to them.
 *
 * Every rank gets the same inputs, written straight into the mapped tensors. Outputs are rank 0's
 * and valid from step_wait() to the next step_run() of the slot.
 *
 * Errors: -errno, words in err. One thread at a time.
 */
#ifndef TXDA_ENGINE_STEP_H
#define TXDA_ENGINE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <txda.h>

#include "sampler.h"
#include "scheduler.h"

struct step_inputs { /* of one rank, as docs/case-dir.md describes them */
	int32_t *tokens, *positions, *slots, *spans, *context, *block_table, *rows;
	float *hidden_before; /* NULL: no such input */
};

struct step_slot {
	struct txda_model *model;     /* borrowed */
	struct txda_context *context; /* borrowed, for words; may be NULL */
	unsigned n_ranks, block_size, vocab, topk;
	struct step_inputs inputs[TXDA_MAX_CHIPS_PER_GROUP];
	const float *logits, *topk_logits, *lse;
	const float *hidden; /* NULL: the program has no such output */
	unsigned n_hidden;   /* columns of it */
	const float *states; /* likewise of all tokens of the step; NULL: no such output */
	unsigned n_states;
	unsigned n_before;    /* columns of the input hidden_before */
	unsigned token_shift; /* at a position goes the token of one this much further */
	const int32_t *topk_ids;

	struct sched_item *items; /* [max_seqs], the plan */
	unsigned n_items;
	unsigned n_tokens, n_rows;
	unsigned n_blocks; /* columns of the block table */
	uint64_t fence;
};

/*
 * Finds the model's tensors and checks their types and sizes against what info promises.
 * *ret_max_blocks: columns that the block table has at most.
 */
int step_init(struct step_slot *slot, struct txda_model *model, struct txda_context *context,
	      const struct txda_model_info *info, unsigned max_seqs, unsigned *ret_max_blocks,
	      char *err, size_t errlen);
void step_fini(struct step_slot *slot);

/* Writes the plan in items[0..n_items) to the inputs of all ranks. */
void step_fill(struct step_slot *slot);
int step_run(struct step_slot *slot, char *err, size_t errlen);
/* -ETIMEDOUT: still running at @deadline_ns (CLOCK_MONOTONIC). */
int step_wait(struct step_slot *slot, uint64_t deadline_ns, char *err, size_t errlen);
/* Row @row; rows are numbered along the items: an item's prompt rows, then the one behind its
 * last known token, then those behind its proposals. */
void step_row(const struct step_slot *slot, unsigned row, struct sampler_row *ret);
/* The last hidden state [n_hidden] behind row @row. */
const float *step_hidden(const struct step_slot *slot, unsigned row);

#endif
