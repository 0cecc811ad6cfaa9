/* SPDX-License-Identifier: MIT */
/*
 * One step on the chips: fills the launch arguments from the scheduler's plan, runs the program,
 * hands out rows.
 *
 * A step slot is a plan and the inputs that it makes, in host memory: they can be filled while
 * another slot's step runs, also before a token is known that the running step is to bring.
 * step_patch() then puts such tokens in. step_run() copies the inputs to all ranks, of the block
 * table the entries that each sequence uses, straight from the scheduler's, and launches, so
 * one step of a model is in flight at a time, and its slot's outputs, which are rank 0's own
 * tensors, are valid from step_wait() to the next step_run() of any slot of that model.
 *
 * Why not two launches in flight: sampling is the host's, so that the next step of a sequence that
 * decodes waits for it in any case. Only steps without decodes could follow each other on the chip
 * by themselves, and those are the long ones, beside which the time between two launches is
 * nothing. Two sets of outputs would take the memory of many KV blocks for that.
 *
 * Errors: -errno, words in err. One thread at a time.
 */
#ifndef TXDA_ENGINE_STEP_H
#define TXDA_ENGINE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <txda.h>

#include "images.h"
#include "sampler.h"
#include "scheduler.h"

struct step_inputs { /* of one rank, as docs/case-dir.md describes them */
	int32_t *tokens, *positions, *slots, *spans, *context, *rows;
	int32_t *block_table;
	float *hidden_before; /* NULL: no such input */
	/* Of models that see, else NULL. */
	int32_t *image_rows;
	float *image_embeds, *image_deepstack;
};

struct step_slot {
	struct txda_model *model;     /* borrowed */
	struct txda_context *context; /* borrowed, for words; may be NULL */
	unsigned n_ranks, block_size, vocab, topk;
	unsigned axes;			/* coordinates of a position, all the same for text */
	unsigned n_embeds, n_deepstack; /* columns of these inputs; 0: there are none */
	bool sees; /* images of sequences go into these; the owner sets it where n_embeds is not 0 */
	struct step_inputs inputs[TXDA_MAX_CHIPS_PER_GROUP]; /* the tensors */
	struct step_inputs filled; /* for all ranks, without the block table and rows of floats */
	int32_t *memory;	   /* of it */
	const float *logits, *topk_logits, *lse; /* outputs */
	const float *hidden;			 /* NULL: the program has no such output */
	unsigned n_hidden;			 /* columns of it */
	const float *states; /* likewise of all tokens of the step; NULL: no such output */
	unsigned n_states;
	unsigned n_before;    /* columns of the input hidden_before */
	unsigned token_shift; /* at a position goes the token of one this much further */
	const int32_t *topk_ids;

	struct sched_item *items; /* [max_seqs], the plan */
	unsigned n_items;
	unsigned n_filled; /* items in the inputs; 0 when there is a new plan */
	unsigned n_tokens, n_rows;
	int32_t *row_ids;		    /* [topk] of the row that step_row() gave last */
	float *row_logits;		    /* [topk] */
	uint64_t bytes_written, bytes_read; /* so far: inputs, outputs */
	unsigned n_blocks;		    /* columns of the block table, set by step_run() */
	uint64_t fence;
};

/*
 * Finds the model's tensors and checks their types and sizes against what info promises.
 * *ret_max_blocks: columns that the block table has at most.
 */
int step_init(struct step_slot *slot, struct txda_model *model, struct txda_context *context,
	      const struct txda_model_info *info, unsigned *ret_max_blocks, char *err,
	      size_t errlen);
void step_fini(struct step_slot *slot);

/* Fills the inputs with items[n_filled..n_items). */
void step_fill(struct step_slot *slot);
/* Puts the last token of each item that has one token into the inputs anew. */
void step_patch(struct step_slot *slot);
int step_run(struct step_slot *slot, char *err, size_t errlen);
/* -ETIMEDOUT: still running at @deadline_ns (CLOCK_MONOTONIC). */
int step_wait(struct step_slot *slot, uint64_t deadline_ns, char *err, size_t errlen);
/* Row @row, its candidates valid until the next call; rows are numbered along the items: an item's prompt rows, then the one behind its
 * last known token, then those behind its proposals. */
void step_row(struct step_slot *slot, unsigned row, struct sampler_row *ret);
/* All logits [vocab] of row @row, to be read once. */
const float *step_logits(struct step_slot *slot, unsigned row);
/* The last hidden state [n_hidden] behind row @row, to be read once. */
const float *step_hidden(struct step_slot *slot, unsigned row);

#endif
