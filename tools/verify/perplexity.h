/* SPDX-License-Identifier: MIT */
/*
 * Measures how well a model predicts a text: mean negative log likelihood per token and its
 * exponential, in independent windows. With a second model (the same weights in another type) also
 * the difference between the two.
 */
#ifndef TXDA_VERIFY_PERPLEXITY_H
#define TXDA_VERIFY_PERPLEXITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner.h"

struct perplexity_result {
	uint64_t tokens; /* predicted ones */
	double nll;	 /* mean, in nats */
	double top1;	 /* share of tokens that were the most likely one */
	/* Against the second model. */
	double other_nll;
	double divergence; /* mean KL(other || this), in nats */
	double agreement;  /* share of positions with the same most likely token */
};

/* @other may be NULL. @window tokens at a time, at least 2. */
int perplexity_run(struct runner *r, struct runner *other, const int32_t *tokens, size_t n,
		   unsigned window, struct perplexity_result *ret, struct tool_error *error);

/*
 * Reads token ids, numbers separated by white space, or text, which @model_dir's tokeniser converts
 * to ids. Freed by the caller.
 */
int perplexity_read(const char *path, bool ids, const char *model_dir, unsigned vocab,
		    int32_t **ret, size_t *ret_n, struct tool_error *error);

#endif /* TXDA_VERIFY_PERPLEXITY_H */
