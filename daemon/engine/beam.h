/* SPDX-License-Identifier: MIT */
/*
 * Beam search: finds the answers with the highest total probability by following the best few
 * prefixes in parallel.
 *
 * Pure: it keeps the beams and chooses among candidates; the caller runs the model for each beam,
 * round by round.
 *
 * The algorithm is that of Hugging Face: among all continuations of all beams the best 2 * width
 * are examined. Those that end with a stop token, if they are among the first width, are finished;
 * the first width others are the new beams. The score of a hypothesis is its log probability
 * divided by its length (including the stop token) to the power of length_penalty. At the end
 * unfinished beams count as they are.
 *
 * One thread at a time.
 */
#ifndef TXDA_ENGINE_BEAM_H
#define TXDA_ENGINE_BEAM_H

#include "engine_request.h"

enum beam_stopping {
	BEAM_STOP_BY_SCORE, /* when the best beam, ended now, would not be among the width finished
			     */
	BEAM_STOP_AT_WIDTH, /* when width are finished */
	BEAM_STOP_NEVER,    /* when no beam can still become one of them */
};

struct beam_options {
	unsigned width;
	unsigned max_tokens;
	unsigned n_top; /* number of alternatives that are kept with each token, for logprobs */
	unsigned n_stops;
	int32_t stops[ENGINE_MAX_STOP_TOKENS];
	double length_penalty;
	enum beam_stopping stopping;
};

struct beam_search;

/* -EINVAL: no width or no tokens; -ENOMEM. */
int beam_search_new(const struct beam_options *options, struct beam_search **ret);
void beam_search_free(struct beam_search *b);

/* Number of beams to be continued; initially one, without tokens. 0: the search is over. */
unsigned beam_search_live(const struct beam_search *b);
/* Number of tokens in each of them. */
unsigned beam_search_length(const struct beam_search *b);
/* The beam of the previous round that it continues, and the token added. */
unsigned beam_search_parent(const struct beam_search *b, unsigned beam);
int32_t beam_search_token(const struct beam_search *b, unsigned beam);

/*
 * The continuations of each live beam: candidates[beam][n], best first, with at least 2 * width
 * entries or the whole vocabulary, and n_top. -ENOMEM.
 */
int beam_search_step(struct beam_search *b, const struct engine_logprob *const *candidates,
		     unsigned n);

/* The finished hypotheses, best first, at most width; once the search is over. */
unsigned beam_search_results(const struct beam_search *b);
struct beam_result {
	unsigned n; /* tokens, without the stop token */
	double score;
	bool stopped; /* ended by a stop token */
};
void beam_search_result(const struct beam_search *b, unsigned i, struct beam_result *ret);
/* Its tokens [n], their log probabilities [n], and the alternatives at each place [n][n_top]. */
void beam_search_copy(const struct beam_search *b, unsigned i, int32_t *tokens,
		      struct engine_logprob *logprobs, struct engine_logprob *top);

#endif
