/* SPDX-License-Identifier: MIT */
/*
 * Proposes tokens for speculative decoding (see engine_options.h for its guarantees).
 *
 * N-gram: searches for the last ngram_max to ngram_min tokens of a sequence earlier in it (the
 * longest match first, at its latest occurrence), and proposes what followed. (Prompt lookup
 * decoding, A. Saxena, 2023.)
 *
 * Model: a draft model runs on the same group after each step. It has as many KV blocks of the same
 * size as the large one and keeps a sequence's keys in the blocks with the same numbers, so it
 * needs no block management: blocks shared, reused from the prefix cache or freed are so in both.
 * If a block was shared before the draft model had filled it, its proposals are worse, without
 * other effects. It samples with the request's parameters and the same random numbers, so that it
 * agrees with the large model as often as their distributions do. (Leviathan et al., "Fast
 * inference from transformers via speculative decoding", 2023, but coupled by a common random
 * number instead of rejection sampling.)
 *
 * MTP: the model's own prediction layer after the last one (DeepSeek-V3, section 2.2) predicts the
 * token at p + 2 from the token at p + 1 and the model's hidden state at p. It runs after each step
 * over that step's tokens, the only time their states are available, and stores its keys of p and
 * p + 1 at the model's position p. For further proposals it uses its own state as input. It does not
 * run while too many sequences are running; sequences that missed a step get no proposals until
 * they are admitted again. The last state of one whose mask is late is held until its token is known.
 *
 * One thread at a time; draft_new() is the only function that allocates.
 */
#ifndef TXDA_ENGINE_DRAFT_H
#define TXDA_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine_options.h"

struct draft;
struct launch_limits;
struct scheduler;
struct step_slot;
struct txda_group;
struct txda_model;
struct txda_model_info;

/* Per-sequence state, embedded in the engine's. */
struct draft_seq {
	const struct engine_sampling *sampling;
	int32_t tokens[ENGINE_MAX_DRAFT];
	unsigned n_computed; /* number of tokens whose keys the draft model has */
	unsigned admission;  /* admission number of the scheduler that this is valid for */
	bool holds; /* MTP: the state after n_computed is held, its next token is to come */
};

/*
 * @launch: borrowed. @target, @slot: the large model and its step. -EINVAL: the models do not
 * match; see err.
 */
int draft_new(struct txda_group *group, const struct engine_options *options,
	      const struct launch_limits *launch, const struct txda_model_info *target,
	      const struct step_slot *slot, struct draft **ret, char *err, size_t errlen);
void draft_free(struct draft *d);
/* The draft model, borrowed; NULL: there is none. */
struct txda_model *draft_model(struct draft *d);

/* Whether there are few enough sequences for proposals. */
bool draft_wanted(const struct draft *d, const struct scheduler *s);
/*
 * Call before sequences grow without draft_propose(): the draft model's keys of rejected proposals
 * must not be used for the tokens that replace them.
 */
void draft_forget(struct draft *d, const struct scheduler *s);
/*
 * Between two steps: sets the proposals of the running sequences that need one token. @step is the
 * previous step; its items whose requests ended have no sequence. Nonzero: the chips failed.
 */
int draft_propose(struct draft *d, struct scheduler *s, const struct step_slot *step, char *err,
		  size_t errlen);

#endif
