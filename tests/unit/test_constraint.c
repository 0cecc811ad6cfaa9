// SPDX-License-Identifier: MIT
/* Reasoning within its budget, and the form behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "constraint.h"
#include "grammar.h"
#include "grammar_build.h"

#define VOCAB	  256
#define THINK	  1
#define THINK_END 2

static struct grammar_vocab *vocab;
static struct grammar *form; /* "ab" */

static int set_up(void **state)
{
	static char bytes[VOCAB];
	struct grammar_token tokens[VOCAB];
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root;
	char err[100];
	int r;

	(void)state;
	if (!b)
		return -1;
	for (unsigned i = 0; i < VOCAB; i++) {
		bytes[i] = (char)i;
		tokens[i] = (struct grammar_token){
			.bytes = &bytes[i], .len = 1, .special = i == THINK || i == THINK_END};
	}
	root = grammar_rule(b, "root");
	grammar_define(b, root, grammar_text(b, "ab"));
	r = grammar_build(b, root, &form, err, sizeof(err));
	grammar_builder_free(b);
	return r ? r : grammar_vocab_new(tokens, VOCAB, VOCAB, &vocab);
}

static int tear_down(void **state)
{
	(void)state;
	grammar_unref(form);
	grammar_vocab_unref(vocab);
	return 0;
}

static bool allows(struct engine_constraint *c, int32_t token)
{
	struct engine_mask mask;

	assert_int_equal(c->ops->mask(c, &mask), 0);
	if (mask.bits)
		return mask.bits[token / 32] >> (token % 32) & 1;
	for (uint32_t i = 0; mask.list && i < mask.n; i++)
		if (mask.list[i] == token)
			return true;
	return !mask.list;
}

static int take(struct engine_constraint *c, int32_t token)
{
	assert_true(allows(c, token));
	return c->ops->accept(c, token);
}

static struct engine_constraint *make(struct grammar *g, bool in_reasoning, unsigned budget)
{
	const struct constraint_options options = {
		.in_reasoning = in_reasoning,
		.think = THINK,
		.think_end = THINK_END,
		.vocab = VOCAB,
		.budget = budget,
	};
	struct engine_constraint *c;

	assert_int_equal(constraint_new(g, vocab, &options, &c), 0);
	return c;
}

static void reasoning_ends_with_its_budget(void **state)
{
	struct engine_constraint *c = make(NULL, true, 2);

	(void)state;
	take(c, 'x');
	take(c, 'y');
	assert_false(allows(c, 'z'));
	take(c, THINK_END);
	take(c, 'z');
	take(c, THINK);
	take(c, 'z');
	c->ops->free(c);

	/* The model begins it itself, and need not use it up. */
	c = make(NULL, false, 1);
	take(c, THINK);
	take(c, THINK_END);
	take(c, 'z');
	c->ops->free(c);
	c = make(NULL, false, 0);
	take(c, THINK);
	assert_false(allows(c, 'z'));
	c->ops->free(c);
	c = make(NULL, false, 0);
	take(c, 'z');
	take(c, 'z');
	c->ops->free(c);
}

static void a_form_follows_it(void **state)
{
	struct engine_constraint *c = make(form, false, 1);

	(void)state;
	assert_true(allows(c, 'a'));
	assert_false(allows(c, 'x'));
	take(c, THINK);
	take(c, 'x');
	assert_false(allows(c, 'a'));
	take(c, THINK_END);
	assert_false(allows(c, 'b'));
	assert_int_equal(take(c, 'a'), 0);
	assert_int_equal(take(c, 'b'), 1);
	c->ops->free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reasoning_ends_with_its_budget),
		cmocka_unit_test(a_form_follows_it),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
