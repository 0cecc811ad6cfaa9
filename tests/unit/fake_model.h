/* SPDX-License-Identifier: MIT */
/*
 * A model without a chip, in the place of libtxda's model calls: for tests of what drives one.
 *
 * It keeps real KV: each token's entry is written through its slot and read back through the block
 * table. A row's logits are a function of the whole prefix that is found there, so that a wrong
 * block, slot, position or reused prefix gives other tokens. Every launch is checked for what a
 * real program demands, and that no more of the block tables is written for it than the sequences
 * use; a violation is counted and makes the launch fail. What a launch reads and
 * writes it reads and writes when it is waited for, so that inputs that change while it runs, and
 * outputs that are read too early, give other tokens, too.
 *
 * A model with "mtp" in its path is a layer that predicts further tokens: from the state before and
 * the token it says exactly what the model will say.
 */
#ifndef TXDA_TESTS_FAKE_MODEL_H
#define TXDA_TESTS_FAKE_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <txda.h>

struct fake_model_config {
	struct txda_model_info info; /* of models loaded from now on; kv_blocks counts */
	float spread;		     /* logits lie between 0 and this */
	bool cheap; /* logits from the last token alone, only their first values change: for timing
		     */
	unsigned delay_us; /* a step takes this long */
	unsigned hidden;   /* columns of the output `hidden`; 0: there is none */
	bool states;	   /* there is an output `states`, for a model whose path has "mtp" in it */
};

/* Two ranks, 97 tokens of vocabulary, blocks of 4 tokens. */
struct fake_model_config fake_model_small(void);
extern struct fake_model_config fake_model_config;

/* What all models did. */
extern atomic_uint fake_model_violations, fake_model_loaded, fake_model_launches,
	fake_model_launch_tokens;
/* The launch after this many more fails with -EIO, on the group that is named; 0: never. */
extern atomic_uint fake_model_fail_after;
extern struct txda_group *fake_model_fail_group;
/* Steps do not end while it is set. */
extern atomic_bool fake_model_hang;
/* Likewise steps of a layer that predicts further tokens. */
extern atomic_bool fake_model_hang_mtp;
/* Lets txda_model_load() fail with this. */
extern int fake_model_load_error;
/* What txda_model_weights() gives of a model's path; NULL: -ENOENT. */
extern int (*fake_model_weights)(struct txda_group *group, const char *path, unsigned rank,
				 struct txda_weights **ret);

/* Of the last load: where, and how much memory the KV cache was to leave. */
extern struct txda_group *_Atomic fake_model_last_group;
extern _Atomic uint64_t fake_model_last_reserve;

/* A group without meaning, told apart by its address. */
struct txda_group *fake_group(unsigned index);

/* The logits [vocab] behind a prefix, as a launch gives them. */
void fake_model_logits(const int32_t *prefix, unsigned n, float *logits);
/* Likewise the last hidden state [hidden]. */
void fake_model_hidden(const int32_t *prefix, unsigned n, float *hidden);

#endif
