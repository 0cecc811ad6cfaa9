/* SPDX-License-Identifier: MIT */
/*
 * Constrains an engine request (struct engine_constraint) to a grammar, using a grammar matcher, and
 * its reasoning to a token budget.
 *
 * Reasoning comes before the constrained text: if the prompt has already started it, the grammar
 * becomes active after the token that ends it; otherwise the model may generate the token that
 * starts it instead of starting with the grammar.
 */
#ifndef TXDA_REQUEST_CONSTRAINT_H
#define TXDA_REQUEST_CONSTRAINT_H

#include "engine.h"

struct grammar;
struct grammar_vocab;

struct constraint_options {
	bool in_reasoning;
	int32_t think, think_end; /* -1: no such token */
	unsigned vocab;		  /* number of tokens that the model can generate */
	unsigned budget;	  /* maximum of reasoning tokens; then it is ended */
};

/* @g NULL: any text. 0, -ENOMEM or -E2BIG. Takes references. */
int constraint_new(struct grammar *g, struct grammar_vocab *v,
		   const struct constraint_options *options, struct engine_constraint **ret);

#endif
