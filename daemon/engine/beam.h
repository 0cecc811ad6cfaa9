/* SPDX-License-Identifier: MIT */
/*
 * Beam search: the answers that are likeliest as a whole, found by following the best few
 * beginnings at once.
 *
 * Pure: it keeps the beams and chooses among candidates; somebody else has the model say what may
 * follow each beam, round by round.
 *
 * As Hugging Face does it: of all that follows all beams the best 2 * width are looked at. Those
 * that end with a stop token, if they are among the first width, are finished; the first width
 * others are the new beams. A hypothesis scores its log probability divided by its length (the stop
 * token counted) to the power of length_penalty. At the end beams that are not finished count as
 * they are.
 *
 * One thread at a time.
 */
#ifndef TXDA_ENGINE_BEAM_H
#define TXDA_ENGINE_BEAM_H

#include "engine.h"

enum beam_stopping {
	BEAM_STOP_BY_SCORE, /* when the best beam, ended now, would not be among the width finished
			     */
	BEAM_STOP_AT_WIDTH, /* when width are finished */
	BEAM_STOP_NEVER,    /* when no beam can get among them any more */
};

struct beam_options {
	unsigned width;
	unsigned max_tokens;
	unsigned n_top; /* best tokens that are kept with each token, for who wants to see them */
	unsigned n_stops;
	int32_t stops[ENGINE_MAX_STOP_TOKENS];
	double length_penalty;
	enum beam_stopping stopping;
};

struct beam_search;

/* -EINVAL: no width or no tokens; -ENOMEM. */
int beam_search_new(const struct beam_options *options, struct beam_search **ret);
void beam_search_free(struct beam_search *b);

/* Beams that want to be continued; at first one, of no tokens. 0: the search is over. */
unsigned beam_search_live(const struct beam_search *b);
/* Tokens of each of them. */
unsigned beam_search_length(const struct beam_search *b);
/* Which beam of the round before it goes on from, and by which token. */
unsigned beam_search_parent(const struct beam_search *b, unsigned beam);
int32_t beam_search_token(const struct beam_search *b, unsigned beam);

/*
 * What follows each live beam: candidates[beam][n], best first, with at least 2 * width entries or
 * the whole vocabulary, and n_top. -ENOMEM.
 */
int beam_search_step(struct beam_search *b, const struct engine_logprob *const *candidates,
		     unsigned n);

/* The finished ones, best first, width at most; once the search is over. */
unsigned beam_search_results(const struct beam_search *b);
struct beam_result {
	unsigned n; /* tokens, a stop token not among them */
	double score;
	bool stopped; /* by a stop token */
};
void beam_search_result(const struct beam_search *b, unsigned i, struct beam_result *ret);
/* Its tokens [n], their log probabilities [n], and the best tokens at each place [n][n_top]. */
void beam_search_copy(const struct beam_search *b, unsigned i, int32_t *tokens,
		      struct engine_logprob *logprobs, struct engine_logprob *top);

#endif
