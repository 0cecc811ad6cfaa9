// SPDX-License-Identifier: MIT
/*
 * Grammars, regular expressions and JSON schemas: the first byte says which ('g', 'r', 's', and 'S'
 * for a strict schema). What is taken is walked through, and each mask must agree with what is
 * accepted.
 */
#include "fuzz.h"
#include "grammar.h"
#include "grammar_build.h"
#include "grammar_gbnf.h"
#include "grammar_regex.h"
#include "grammar_schema.h"
#include "json_strict.h"

static struct grammar_vocab *vocab;

static void make_vocab(void)
{
	static const char *const words[] = {"{\"", "\":", "\", \"",   "}}", "]]", "true",
					    "12",  "ab",  "\xC3\xA9", "  ", "abc"};
	struct grammar_token tokens[257 + sizeof(words) / sizeof(words[0])];
	static char bytes[256];

	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		tokens[i] = (struct grammar_token){&bytes[i], 1, false};
	}
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		tokens[256 + i] = (struct grammar_token){words[i], strlen(words[i]), false};
	tokens[256 + sizeof(words) / sizeof(words[0])] = (struct grammar_token){"<|end|>", 7, true};
	if (grammar_vocab_new(tokens, sizeof(tokens) / sizeof(tokens[0]),
			      sizeof(tokens) / sizeof(tokens[0]), &vocab))
		abort();
}

static bool allows(const struct grammar_mask *mask, int32_t token)
{
	if (mask->bits)
		return mask->bits[token / 32] >> (token % 32) & 1;
	for (uint32_t i = 0; i < mask->n; i++) {
		if (mask->list[i] == token)
			return true;
	}
	return false;
}

static void walk(struct grammar *g, unsigned choice)
{
	struct grammar_matcher *m;
	struct grammar_mask mask;
	int error = grammar_matcher_new(g, vocab, &m);

	if (error)
		return;
	for (unsigned step = 0; step < 24; step++) {
		int32_t token = (int32_t)(choice % 268);

		if (grammar_matcher_mask(m, &mask))
			break;
		/* Nothing may come: then it may end. Only at the greatest depth may a text be
		 * stuck. */
		if (!mask.n && !mask.end)
			abort();
		if (!mask.n)
			break;
		for (unsigned i = 0; i < 268 && !allows(&mask, token); i++) {
			if (i % 16 == 0 && !grammar_matcher_accept(m, token))
				abort();
			token = (token + 1) % 268;
		}
		error = grammar_matcher_accept(m, token);
		if (error && error != -7 /* -E2BIG */)
			abort();
		if (error)
			break;
		choice = choice * 2654435761u + 12345;
	}
	grammar_matcher_free(m);
}

static uint32_t make_schema(struct grammar_builder *b, const char *text, size_t len, bool strict,
			    cJSON **ret)
{
	const struct grammar_json_options options = {.strict = strict};
	struct grammar_json *j;
	uint32_t root = 0;

	*ret = txda_json_parse(text, len, NULL, 0);
	if (!*ret) {
		grammar_fail(b, -22, "no JSON");
		return 0;
	}
	j = grammar_json_new(b, &options);
	if (j) {
		root = grammar_json_schema(j, *ret, *ret);
		grammar_json_finish(j);
	}
	grammar_json_free(j);
	return root;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct grammar_regex_options options = {.search = size % 2, .json = size % 3 == 0};
	struct grammar_builder *b;
	struct grammar *g = NULL;
	const char *text = (const char *)data + 1;
	cJSON *schema = NULL;
	uint32_t root = 0;
	char err[256] = "";
	int error;

	if (!vocab)
		make_vocab();
	if (!size)
		return 0;
	b = grammar_builder_new();
	if (!b)
		return 0;
	switch (data[0]) {
	case 'r':
		root = grammar_rule(b, "root");
		grammar_define(b, root, grammar_regex(b, text, size - 1, &options));
		break;
	case 's':
	case 'S': root = make_schema(b, text, size - 1, data[0] == 'S', &schema); break;
	default: grammar_gbnf(b, text, size - 1, &root); break;
	}
	error = grammar_build(b, root, &g, err, sizeof(err));
	if (error ? !err[0] || g : !g)
		abort();
	grammar_builder_free(b);
	if (g) {
		for (unsigned i = 0; i < 3; i++)
			walk(g, i * 97 + data[size / 2]);
		grammar_unref(g);
	}
	cJSON_Delete(schema);
	return 0;
}
