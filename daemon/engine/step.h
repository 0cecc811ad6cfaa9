/* SPDX-License-Identifier: MIT */
/*
 * One step on the chips: fills the launch arguments from the scheduler's plan, runs the program,
 * returns rows.
 *
 * A step slot is a plan and its inputs, in host memory: they can be filled while another slot's
 * step runs, also before a token is known that the running step will produce. step_patch() inserts
 * such tokens later. step_run() copies the inputs to all ranks (of the block table only the entries
 * that each sequence uses, directly from the scheduler's table) and launches, so one step of a
 * model is in flight at a time. Its slot's outputs, which are rank 0's own tensors, are valid from
 * step_wait() to the next step_run() of any slot of that model.
 *
 * Why not two launches in flight: sampling is done by the host, so the next step of a decoding
 * sequence has to wait for it in any case. Only steps without decodes could follow each other
 * directly on the chip, and those are long, so that the time between two launches does not matter.
 * Two sets of outputs would take the memory of many KV blocks.
 *
 * Errors: -errno, message in err. One thread at a time.
 */
#ifndef TXDA_ENGINE_STEP_H
#define TXDA_ENGINE_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <txda.h>

#include "images.h"
#include "launch.h"
#include "sampler.h"
#include "scheduler.h"

struct step_inputs { /* tensors of one rank, as described in docs/case-dir.md */
	int32_t *tokens, *positions, *spans, *context, *rows;
	int32_t *slots[KV_MAX_GROUPS], *block_table[KV_MAX_GROUPS]; /* of each group of layers */
	int32_t *state_table; /* NULL: the program has no such input */
	float *hidden_before; /* NULL: the program has no such input */
	/* For vision models, else NULL. */
	int32_t *image_rows;
	float *image_embeds, *image_deepstack;
};

struct step_slot {
	struct txda_model *model;     /* borrowed */
	struct txda_context *context; /* borrowed, for messages; may be NULL */
	unsigned n_ranks, block_size, vocab, topk, n_groups;
	unsigned state_blocks;
	const struct kv *kv; /* of the sequences; the owner sets it */
	/* Sequences have another model's blocks: those of group g are block * n_groups + g of group 0. */
	bool borrows;
	unsigned axes;			/* coordinates per position, all equal for text */
	unsigned n_embeds, n_deepstack; /* columns of these inputs; 0: not present */
	bool sees;			/* the program has image inputs; the owner sets it */
	struct step_inputs inputs[TXDA_MAX_CHIPS_PER_GROUP]; /* the tensors */
	struct step_inputs filled; /* for all ranks, without the block table and float rows */
	int32_t *memory;	   /* of it */
	const float *logits, *topk_logits, *lse; /* outputs */
	const float *hidden;			 /* NULL: the program has no such output */
	unsigned n_hidden;			 /* columns of it */
	const float *states; /* the same for all tokens of the step; NULL: no such output */
	unsigned n_states;
	unsigned n_before;    /* columns of the input hidden_before */
	unsigned token_shift; /* the input at a position is the token this much further on */
	const int32_t *topk_ids;

	struct sched_item *items; /* [max_seqs], the plan */
	unsigned n_items;
	unsigned n_filled; /* items whose inputs are filled; 0 for a new plan */
	unsigned n_tokens, n_rows;
	int32_t *row_ids;		    /* [topk] of the last row from step_row() */
	float *row_logits;		    /* [topk] */
	uint64_t bytes_written, bytes_read; /* total bytes: inputs, outputs */
	unsigned n_blocks;		    /* columns of the block table, set by step_run() */
	uint64_t fence;
};

/*
 * Finds the model's tensors and checks their types and sizes against info. *ret_max_blocks: maximum
 * columns of the block table.
 */
int step_init(struct step_slot *slot, struct txda_model *model, struct txda_context *context,
	      const struct txda_model_info *info, unsigned *ret_max_blocks, char *err,
	      size_t errlen);
void step_fini(struct step_slot *slot);

/* Fills in the inputs of items[n_filled..n_items). */
void step_fill(struct step_slot *slot);
/* Writes the last token again for each item that has one token. */
void step_patch(struct step_slot *slot);
int step_run(struct step_slot *slot, char *err, size_t errlen);
/* Waits for the step that was run at @start_ns; errors as launch_wait(). */
int step_wait(struct step_slot *slot, uint64_t start_ns, const struct launch_limits *limits,
	      char *err, size_t errlen);
/*
 * Row @row, its candidates valid until the next call; rows are numbered in item order: an item's
 * prompt rows, then the one after its last known token, then those after its proposals.
 */
void step_row(struct step_slot *slot, unsigned row, struct sampler_row *ret);
/* All logits [vocab] of row @row; each row is read at most once. */
const float *step_logits(struct step_slot *slot, unsigned row);
/* The last hidden state [n_hidden] of row @row; each row is read at most once. */
const float *step_hidden(struct step_slot *slot, unsigned row);

#endif
