/* SPDX-License-Identifier: MIT */
/*
 * Keeps an engine request to a grammar (engine.h's struct engine_constraint over a grammar's
 * matcher), and its reasoning to a budget.
 *
 * A model that reasons may do so first: where the prompt has begun that, the grammar waits for the
 * token that ends it; where it has not, the model may begin with the token that begins it instead
 * of with the grammar.
 */
#ifndef TXDA_SERVER_CONSTRAINT_H
#define TXDA_SERVER_CONSTRAINT_H

#include "engine.h"

struct grammar;
struct grammar_vocab;

struct constraint_options {
	bool in_reasoning;
	int32_t think, think_end; /* tokens; -1: there is none */
	unsigned vocab;		  /* tokens that the model may give */
	unsigned budget;	  /* tokens of reasoning, then the one that ends it must come */
};

/* @g NULL: any text. 0, -ENOMEM or -E2BIG. Takes references. */
int constraint_new(struct grammar *g, struct grammar_vocab *v,
		   const struct constraint_options *options, struct engine_constraint **ret);

#endif
