/* SPDX-License-Identifier: MIT */
/*
 * Chooses the next token from one row of logits.
 *
 * The order is that of Hugging Face: adjust, mask, temperature, top_k, top_p, min_p, draw.
 *	adjust		the bias of a token is added to its logit; then, for tokens that occurred,
 *			the penalties for repetition, frequency and presence, in this order
 *	mask		tokens that are not allowed are removed: by a mask, and stop tokens before
 *			min_tokens
 *	temperature	logits are divided by it; 0 takes the best token and skips the rest
 *	top_k		the k best are kept (ties at the limit are broken by the ranking)
 *	top_p		the shortest run of best tokens is kept whose probability, relative to what
 *			top_k left, reaches top_p; at least one
 *	min_p		tokens are kept whose probability is at least min_p times the best one's
 *	draw		u in [0, 1) selects from the cumulative probability of the kept tokens, in
 *			ranking order
 *
 * u is a function of (seed, position) alone, position being the index of the new token in its
 * sequence, and everything else depends only on the row and the sequence. So a request draws the
 * same tokens alone, in a batch or after a preemption.
 *
 * The ranking is that of the device's top-k list, with adjusted tokens that are better than its
 * last entry merged in by their logits, followed by the other tokens by number. If the list is
 * sufficient (greedy, top_k within it, or the draw falls into it whatever the exact mass of the
 * tail, which is bounded through lse), the full row is not read; otherwise it is, with the same
 * result. Under a mask that is a list, the ranking has all allowed tokens by their logits.
 *
 * Logprobs are the model's: logit - lse, before any adjustment.
 *
 * The row of logits stays on the chip. Only this is read, counted in sampler_bytes_read():
 *	single logits	of biased and penalised tokens, of those that a mask lists, of stop tokens that
 *			min_tokens forbids, and of a token outside the list whose logprob is wanted
 *	the full row	once a row, if the draw may fall outside the list; if a mask of bits or
 *			min_tokens leaves nothing of the list; if more logprobs are wanted than the list
 *			has; or if a 16th of the row would be read as single logits
 */
#ifndef TXDA_ENGINE_SAMPLER_H
#define TXDA_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine_request.h"

#define SAMPLER_MAX_TOPK 256 /* maximum length of the device's list that is used */

/* One row of the step's outputs; the lists are in host memory. */
struct sampler_row {
	const float *logits;	  /* [vocab] on the chip; once fetched is set, the sampler's copy */
	const int32_t *topk_ids;  /* [k], best first */
	const float *topk_logits; /* [k] */
	float lse;
	unsigned vocab, k;
	bool fetched; /* initially false; valid until the sampler's next row */
};

struct token_counts;

/* Conditions of one choice besides the request's sampling; zero: none. */
struct sampler_rules {
	bool mask_stops;		   /* stop tokens are not allowed */
	const struct engine_mask *mask;	   /* NULL: every token is allowed */
	const struct token_counts *counts; /* of the sequence; for penalties */
};

/* Scratch memory for one thread. */
struct sampler;
/* @k: length of the device's list; any length is accepted, the first SAMPLER_MAX_TOPK are used. */
int sampler_new(unsigned vocab, unsigned k, struct sampler **ret);
void sampler_free(struct sampler *s);

/*
 * Chooses the token at @position. @rules may be NULL. -EDOM: the row is not finite or the list has
 * a token outside the vocabulary: the model or the chip is faulty. -ENOENT: no token is allowed.
 */
int sampler_choose(struct sampler *s, struct sampler_row *row,
		   const struct engine_sampling *sampling, uint64_t position,
		   const struct sampler_rules *rules, int32_t *ret_token);

float sampler_logprob(struct sampler *s, struct sampler_row *row, int32_t token);
/* The n best tokens of the row, best first. */
void sampler_top(struct sampler *s, struct sampler_row *row, unsigned n,
		 struct engine_logprob *ret);

/* [0, 1) in steps of 2^-53. */
double sampler_uniform(uint64_t seed, uint64_t position);

/* Bytes of logits read from the chip so far. */
uint64_t sampler_bytes_read(const struct sampler *s);

/* 0, or -EINVAL and a message about the value out of range. */
int sampler_check(const struct engine_sampling *sampling, char *err, size_t errlen);
/* Whether the token is one of the stop tokens. */
bool sampler_is_stop(const struct engine_sampling *sampling, int32_t token);
/* Whether there is a penalty that requires counts of the sequence's tokens. */
bool sampler_needs_counts(const struct engine_sampling *sampling);

#endif
