/* SPDX-License-Identifier: MIT */
/* Comparison with golden files (tests/fixtures/README.md). */
#ifndef TXDA_VERIFY_GOLDEN_H
#define TXDA_VERIFY_GOLDEN_H

#include <stdbool.h>

#include "runner.h"

struct golden_options {
	const char *path;
	unsigned chunk; /* tokens of the prompt per step; 0: all */
	double mean_limit,
		worst_limit; /* relative error of a row; the first of the mean over all */
	double images_limit; /* of a row of an image's embeddings */
	double margin_limit; /* greedy tokens with a larger margin must be equal; < 0: by the error
			      */
	bool check_greedy;
	/* 95% of the rows must be within it. */
	double rows_limit;
	/*
	 * The model has routers: rounding may change a choice, and with it a whole row. Only the
	 * mean, the share of rows within rows_limit and that of equal greedy tokens are judged.
	 */
	bool routed;
	/*
	 * Models with routers are judged by the median row instead, which does not change if some
	 * rows differ.
	 */
	bool median;
	unsigned one_off_in; /* of greedy tokens, then: one in this many may differ */
};

/* Keys that an indexer chooses for a token, of all layers, by the file; 0: not in the file. */
int golden_keys(const char *path, unsigned *ret, struct tool_error *error);
/* Prints a line per case. 0: within the limits, 1: beyond, or -errno. */
int golden_run(struct runner *r, const struct golden_options *options, struct tool_error *error);

/*
 * The same for the logits in case{i}.mtp_rows of the layer after the last one: @r has the output
 * states, @mtp gets them as hidden_before.
 */
int golden_run_mtp(struct runner *r, struct runner *mtp, const struct golden_options *options,
		   struct tool_error *error);

/* The longest prompt with its continuation, in tokens; or -errno. */
int golden_context(const char *path, unsigned *ret, struct tool_error *error);

#endif /* TXDA_VERIFY_GOLDEN_H */
