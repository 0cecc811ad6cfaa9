// SPDX-License-Identifier: MIT
#include "constraint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar.h"

enum phase {
	PHASE_START,	/* the grammar, or reasoning */
	PHASE_THINKING, /* anything, up to the end of reasoning */
	PHASE_FORM,	/* the grammar */
};

struct constraint {
	struct engine_constraint base;	 /* first member: the engine has a pointer to it */
	struct grammar_matcher *matcher; /* NULL: any text */
	enum phase phase;
	int32_t think, think_end;
	unsigned budget; /* remaining tokens of reasoning */
	uint32_t words;
	uint32_t *bits; /* [words] the grammar's mask plus the token that starts reasoning */
	char error[160];
};

static int note(struct constraint *c, int error)
{
	if (error == -E2BIG)
		snprintf(c->error, sizeof(c->error),
			 "the grammar is too ambiguous or too complex for this text");
	else if (error == -EINVAL)
		snprintf(c->error, sizeof(c->error), "the text is nested deeper than %d levels",
			 GRAMMAR_MAX_DEPTH);
	else
		snprintf(c->error, sizeof(c->error), "the grammar cannot continue: %s",
			 strerror(-error));
	return error;
}

/* Adds the token that starts reasoning to the mask. */
static void allow_thinking(struct constraint *c, struct engine_mask *mask)
{
	memset(c->bits, 0, c->words * sizeof(*c->bits));
	if (mask->bits)
		memcpy(c->bits, mask->bits, c->words * sizeof(*c->bits));
	for (uint32_t i = 0; mask->list && i < mask->n; i++)
		c->bits[mask->list[i] / 32] |= 1u << (mask->list[i] % 32);
	if (!(c->bits[c->think / 32] >> (c->think % 32) & 1))
		mask->n++;
	c->bits[c->think / 32] |= 1u << (c->think % 32);
	mask->bits = c->bits;
	mask->list = NULL;
}

static int on_mask(struct engine_constraint *base, struct engine_mask *ret)
{
	struct constraint *c = (struct constraint *)base;
	struct grammar_mask mask;
	int error;

	if (c->phase == PHASE_THINKING && !c->budget) {
		*ret = (struct engine_mask){.list = &c->think_end, .n = 1};
		return 0;
	}
	if (c->phase == PHASE_THINKING || !c->matcher) {
		*ret = (struct engine_mask){.end = true};
		return 0;
	}
	error = grammar_matcher_mask(c->matcher, &mask);
	if (error)
		return note(c, error);
	*ret = (struct engine_mask){
		.bits = mask.bits, .list = mask.list, .n = mask.n, .end = mask.end};
	if (c->phase == PHASE_START)
		allow_thinking(c, ret);
	return 0;
}

static int on_accept(struct engine_constraint *base, int32_t token)
{
	struct constraint *c = (struct constraint *)base;
	int error;

	if (c->phase == PHASE_THINKING) {
		if (token == c->think_end)
			c->phase = PHASE_FORM;
		else
			c->budget--;
		return 0;
	}
	if (c->phase == PHASE_START && token == c->think) {
		c->phase = PHASE_THINKING;
		return 0;
	}
	c->phase = PHASE_FORM;
	if (!c->matcher)
		return 0;
	error = grammar_matcher_accept(c->matcher, token);
	if (error)
		return note(c, error);
	return grammar_matcher_over(c->matcher);
}

static const char *on_error(struct engine_constraint *base)
{
	return ((struct constraint *)base)->error;
}

static void on_free(struct engine_constraint *base)
{
	struct constraint *c = (struct constraint *)base;

	grammar_matcher_free(c->matcher);
	free(c->bits);
	free(c);
}

int constraint_new(struct grammar *g, struct grammar_vocab *v,
		   const struct constraint_options *options, struct engine_constraint **ret)
{
	static const struct engine_constraint_ops ops = {
		.mask = on_mask,
		.accept = on_accept,
		.error = on_error,
		.free = on_free,
	};
	struct constraint *c = calloc(1, sizeof(*c));
	int error = 0;

	if (!c)
		return -ENOMEM;
	c->base.ops = &ops;
	c->think = options->think;
	c->think_end = options->think_end;
	c->budget = options->budget;
	c->phase = PHASE_FORM;
	c->words = (options->vocab + 31) / 32;
	if (options->think_end >= 0 && options->in_reasoning) {
		c->phase = PHASE_THINKING;
	} else if (options->think_end >= 0 && options->think >= 0) {
		c->phase = PHASE_START;
		c->bits = calloc(c->words, sizeof(*c->bits));
	}
	if (c->phase == PHASE_START && !c->bits)
		error = -ENOMEM;
	else if (g)
		error = grammar_matcher_new(g, v, &c->matcher);
	if (error) {
		free(c->bits);
		free(c);
		return error;
	}
	*ret = &c->base;
	return 0;
}
