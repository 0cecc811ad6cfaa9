// SPDX-License-Identifier: MIT
/* Reasoning within its budget, the form behind it, and by what a form is found again. */

#include "unit.h"
#include "constraint.h"
#include "grammar.h"
#include "grammar_build.h"
#include "structured_key.h"
#include "text_buf.h"

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

TEST(reasoning_ends_with_its_budget)
{
	struct engine_constraint *c = make(NULL, true, 2);

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

TEST(a_form_follows_it)
{
	struct engine_constraint *c = make(form, false, 1);

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

static void key_of(const char *body, struct text_buf *ret)
{
	struct text_bytes tree;
	struct api_params p;
	struct api_error e;

	if (!api_params_parse(API_CHAT, body, strlen(body), &p, &e))
		fail_msg("%s: %s", body, e.message);
	*ret = (struct text_buf){0};
	assert_true(structured_key(&p, REPLY_NO_TOOLS, ret, &tree));
	assert_ptr_equal((const char *)tree.data + tree.len, ret->data + ret->len);
	api_params_free(&p);
}

/* Whether a request finds the grammar of another. */
static bool same_key(const char *one, const char *other)
{
	struct text_buf a, b;
	bool same;

	key_of(one, &a);
	key_of(other, &b);
	same = a.len == b.len && !memcmp(a.data, b.data, a.len);
	free(a.data);
	free(b.data);
	return same;
}

#define ASK    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], "
#define SCHEMA ASK "\"guided_json\": "
#define TOOL                                                                                       \
	ASK "\"tool_choice\": \"required\", \"tools\": [{\"type\": \"function\", \"function\": "   \
	    "{\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": {\"const\": "

TEST(keys_tell_grammars_apart)
{
	assert_true(same_key(SCHEMA "{\"enum\": [1]}}", SCHEMA "{ \"enum\":[1] }, \"top_p\": 1}"));
	assert_false(same_key(SCHEMA "{\"enum\": [1]}}", SCHEMA "{\"enum\": [2]}}"));
	/* A salt keeps them apart, also from those without. */
	assert_true(
		same_key(SCHEMA "{}, \"cache_salt\": \"a\"}", SCHEMA "{}, \"cache_salt\": \"a\"}"));
	assert_false(
		same_key(SCHEMA "{}, \"cache_salt\": \"a\"}", SCHEMA "{}, \"cache_salt\": \"b\"}"));
	assert_false(same_key(SCHEMA "{}}", SCHEMA "{}, \"cache_salt\": \"a\"}"));
	/* One double, but other literals. */
	assert_false(same_key(SCHEMA "{\"enum\": [1234567890123456789]}}",
			      SCHEMA "{\"enum\": [1234567890123456790]}}"));
	assert_false(same_key(SCHEMA "{\"enum\": [1]}}", SCHEMA "{\"enum\": [1.0]}}"));
	assert_false(
		same_key(TOOL "1234567890123456789}}}}}]}", TOOL "1234567890123456790}}}}}]}"));
	assert_false(same_key(SCHEMA "true}", SCHEMA "true, \"guided_whitespace_pattern\": \"\"}"));
}

TEST_MAIN_ALL(set_up, tear_down)
