/* SPDX-License-Identifier: MIT */
/*
 * Proposes tokens for speculative decoding (engine.h says what holds).
 *
 * N-gram: the last ngram_max to ngram_min tokens of a sequence are looked for earlier in it (the
 * longest first, the latest occurrence of it), and what followed is proposed. (Prompt lookup
 * decoding, A. Saxena, 2023.)
 *
 * Model: a small model runs on the same group after each step. It has as many KV blocks of the same
 * size as the large one and keeps a sequence's keys in the blocks with the same numbers, so it
 * needs no block management: what is shared, reused from the prefix cache or taken away is so in
 * both. Where a block came to be shared before the small model had filled it, its proposals are
 * poor, and nothing else. It samples as the request does, with the same random numbers, so that it
 * agrees with the large model as often as their distributions do. (Leviathan et al., "Fast
 * inference from transformers via speculative decoding", 2023, but coupled by a common random
 * number in place of rejection sampling.)
 *
 * MTP: the model's own layer behind the last one (DeepSeek-V3, section 2.2) has made from the token
 * at p + 1 and the model's hidden state at p what the model would say at p + 1. It runs after each
 * step over that step's tokens, whose states are there then and only then, and has its keys of
 * (p, p + 1) where the model has its own of p. For further proposals it goes on from its own state.
 * While too many sequences run it does not; those that missed a step so are not proposed for any
 * more, unless they are admitted again.
 *
 * One thread at a time; nothing is allocated after draft_new().
 */
#ifndef TXDA_ENGINE_DRAFT_H
#define TXDA_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

struct draft;
struct scheduler;
struct step_slot;
struct txda_group;
struct txda_model;
struct txda_model_info;

/* A sequence's share, part of the engine's own. */
struct draft_seq {
	const struct engine_sampling *sampling;
	int32_t tokens[ENGINE_MAX_DRAFT];
	unsigned n_computed; /* tokens whose keys the small model has */
	unsigned admission;  /* of the scheduler, for which that holds */
};

/*
 * @target, @slot: what the large model is, and gives. -EINVAL: the models do not go together, err
 * says how.
 */
int draft_new(struct txda_group *group, const struct engine_options *options,
	      const struct txda_model_info *target, const struct step_slot *slot,
	      struct draft **ret, char *err, size_t errlen);
void draft_free(struct draft *d);
/* The small model, borrowed; NULL: there is none. */
struct txda_model *draft_model(struct draft *d);

/* Whether there are few enough sequences for proposals. */
bool draft_wanted(const struct draft *d, const struct scheduler *s);
/*
 * Before sequences grow without draft_propose(): what the small model holds of proposals that were
 * not kept is not to be taken for the tokens that come to stand there.
 */
void draft_forget(struct draft *d, const struct scheduler *s);
/*
 * Between two steps: sets the proposals of the running sequences that wait for one token. @step is
 * the one before, of whose items those that ended have no sequence. Nonzero: the chips failed.
 */
int draft_propose(struct draft *d, struct scheduler *s, const struct step_slot *step, char *err,
		  size_t errlen);

#endif
