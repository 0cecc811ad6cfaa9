/* SPDX-License-Identifier: MIT */
/* Helpers of the grammar tests: making grammars in one line, asking whether a text is in one. */
#ifndef TXDA_TESTS_GRAMMAR_TEST_H
#define TXDA_TESTS_GRAMMAR_TEST_H

#include <errno.h>

#include "unit.h"
#include "grammar.h"
#include "grammar_build.h"
#include "grammar_gbnf.h"
#include "grammar_regex.h"
#include "grammar_schema.h"

/* A vocabulary: every byte, the words, and a control token at the end. */
static inline struct grammar_vocab *test_vocab(const char *const *words, size_t n_words,
					       uint32_t *ret_n)
{
	static char bytes[256];
	uint32_t n = 256 + (uint32_t)n_words + 1;
	struct grammar_token *tokens = calloc(n, sizeof(*tokens));
	struct grammar_vocab *v = NULL;

	assert_non_null(tokens);
	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		tokens[i] = (struct grammar_token){&bytes[i], 1, false};
	}
	for (size_t i = 0; i < n_words; i++)
		tokens[256 + i] = (struct grammar_token){words[i], strlen(words[i]), false};
	tokens[n - 1] = (struct grammar_token){"<|end|>", 7, true};
	assert_int_equal(grammar_vocab_new(tokens, n, n + 5, &v), 0);
	free(tokens);
	*ret_n = n;
	return v;
}

static inline int build_gbnf(const char *text, struct grammar **ret, char *err, size_t errlen)
{
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root;
	int error;

	assert_non_null(b);
	grammar_gbnf(b, text, strlen(text), &root);
	error = grammar_build(b, root, ret, err, errlen);
	grammar_builder_free(b);
	return error;
}

static inline int build_regex(const char *text, bool search, struct grammar **ret, char *err,
			      size_t errlen)
{
	const struct grammar_regex_options options = {.search = search};
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root;
	int error;

	assert_non_null(b);
	root = grammar_rule(b, "root");
	grammar_define(b, root, grammar_regex(b, text, strlen(text), &options));
	error = grammar_build(b, root, ret, err, errlen);
	grammar_builder_free(b);
	return error;
}

static inline int build_schema(const char *text, const struct grammar_json_options *options,
			       struct grammar **ret, char *err, size_t errlen)
{
	struct grammar_builder *b = grammar_builder_new();
	cJSON *schema = cJSON_Parse(text);
	struct grammar_json *j;
	uint32_t root;
	int error;

	if (!schema)
		fail_msg("the test's schema is not JSON: %s", text);
	assert_non_null(b);
	j = grammar_json_new(b, options);
	assert_non_null(j);
	root = grammar_json_schema(j, schema, schema);
	grammar_json_finish(j);
	error = grammar_build(b, root, ret, err, errlen);
	grammar_json_free(j);
	grammar_builder_free(b);
	cJSON_Delete(schema);
	return error;
}

/* 1: the text is in the grammar; 0: it is the beginning of one that is; -1: it is none. */
static inline int matches(struct grammar *g, struct grammar_vocab *v, const char *text, size_t len)
{
	struct grammar_matcher *m;
	struct grammar_mask mask;
	int error;

	assert_int_equal(grammar_matcher_new(g, v, &m), 0);
	error = grammar_matcher_accept_bytes(m, text, len);
	assert_true(!error || error == -EINVAL);
	if (!error)
		assert_int_equal(grammar_matcher_mask(m, &mask), 0);
	grammar_matcher_free(m);
	return error ? -1 : mask.end;
}

#endif
