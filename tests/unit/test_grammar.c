// SPDX-License-Identifier: MIT
/* The matcher: texts of grammars and expressions, masks against their definition, bounds. */
#include "unit.h"
#include "case_file.h"
#include "grammar_test.h"

#include <pthread.h>

static const char *const words[] = {
	"a",	    "aa",	"aaa",	    "ab",
	"abc",	    "b",	"ba",	    "{",
	"{\"",	    "\":",	"\": \"",   "\"",
	"\",",	    "\"}",	"}}",	    "}",
	",",	    ", ",	", \"",	    "[",
	"[[",	    "]]",	"],",	    "]",
	"1",	    "12",	"123",	    "0",
	"0.",	    ".5",	"true",	    "null",
	"tru",	    "false",	"n",	    "name",
	"\"name\"", "\"n",	"    ",	    " ",
	"\n",	    "\n  ",	"x",	    "hello",
	"\\",	    "\\\"",	"\\u",	    "\\n",
	"\xC3",	    "\xC3\xA9", "\xE2\x82", "\xF0\x9F\x98\x80",
	"\xA9",	    "(",	")",	    "((",
	"))",	    "()",	"yes",	    "no",
	"y",	    "es",
};
static struct grammar_vocab *vocab;
static uint32_t n_tokens;
static uint64_t seed = 88172645463325252ull;

static uint32_t random_below(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed % n);
}

static struct grammar *gbnf(const char *text)
{
	struct grammar *g = NULL;
	char err[256] = "";

	if (build_gbnf(text, &g, err, sizeof(err)))
		fail_msg("%s: %s", text, err);
	return g;
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

/* A matcher, and what it has accepted. Tokens below 128 are those bytes. */
struct walk {
	struct grammar *grammar;
	struct grammar_matcher *m;
	int32_t *tokens;
	size_t n, room;
};

static void begin_walk(struct walk *w, struct grammar *g)
{
	*w = (struct walk){.grammar = g};
	assert_int_equal(grammar_matcher_new(g, vocab, &w->m), 0);
}

static void end_walk(struct walk *w)
{
	grammar_matcher_free(w->m);
	free(w->tokens);
}

static void take(struct walk *w, int32_t token)
{
	assert_int_equal(grammar_matcher_accept(w->m, token), 0);
	if (w->n == w->room) {
		w->room = w->room ? 2 * w->room : 64;
		w->tokens = realloc(w->tokens, w->room * sizeof(*w->tokens));
		assert_non_null(w->tokens);
	}
	w->tokens[w->n++] = token;
}

/* Another matcher that has accepted the same. */
static struct grammar_matcher *walk_again(const struct walk *w)
{
	struct grammar_matcher *m;
	char bytes[4096];
	size_t n = 0;

	assert_int_equal(grammar_matcher_new(w->grammar, vocab, &m), 0);
	for (size_t i = 0; i < w->n; i++) {
		bool byte = w->tokens[i] < 128;

		if (byte)
			bytes[n++] = (char)w->tokens[i];
		if (!byte || n == sizeof(bytes) || i + 1 == w->n) {
			assert_int_equal(grammar_matcher_accept_bytes(m, bytes, n), 0);
			n = 0;
		}
		if (!byte)
			assert_int_equal(grammar_matcher_accept(m, w->tokens[i]), 0);
	}
	return m;
}

/* The mask says what trying each token says; a refused token changes nothing. */
static void check_mask(struct walk *w, struct grammar_mask *ret)
{
	uint32_t n = 0;

	assert_int_equal(grammar_matcher_mask(w->m, ret), 0);
	assert_true(!ret->bits != !ret->list);
	for (int32_t token = 0; token < (int32_t)n_tokens + 5; token++) {
		bool allowed = allows(ret, token);
		struct grammar_matcher *m = allowed ? walk_again(w) : w->m;
		int error = grammar_matcher_accept(m, token);

		if (allowed)
			grammar_matcher_free(m);
		if (error != (allowed ? 0 : -EINVAL))
			fail_msg("token %d: %d, but the mask says otherwise", token, error);
		n += allowed;
	}
	assert_int_equal(n, ret->n);
	for (uint32_t i = 1; ret->list && i < ret->n; i++)
		assert_true(ret->list[i - 1] < ret->list[i]);
}

/* Random texts of the grammar, with each mask checked. */
static void wander(struct grammar *g, unsigned texts, unsigned steps)
{
	for (unsigned i = 0; i < texts; i++) {
		struct walk w;

		begin_walk(&w, g);
		for (unsigned k = 0; k < steps; k++) {
			struct grammar_mask mask;
			int32_t token;

			check_mask(&w, &mask);
			if (!mask.n) {
				assert_true(mask.end && grammar_matcher_over(w.m));
				break;
			}
			assert_false(grammar_matcher_over(w.m));
			do
				token = (int32_t)random_below(n_tokens);
			while (!allows(&mask, token));
			take(&w, token);
		}
		end_walk(&w);
	}
}

/* ---- grammars -------------------------------------------------------------------------------- */

static struct grammar *regex(const char *text, bool search)
{
	struct grammar *g = NULL;
	char err[256] = "";

	if (build_regex(text, search, &g, err, sizeof(err)))
		fail_msg("%s: %s", text, err);
	return g;
}

/* The grammar of the rows that follow. */
static struct grammar *current;

/* A grammar ("="), an expression ("~") or one to search for ("/"), or a text for the one before. */
static void check_row(char **field)
{
	static const char marks[] = "-0+";
	const char *text = field[0] + (field[0][1] ? 2 : 1), *mark = strchr(marks, field[0][0]);
	unsigned texts, steps;

	if (mark) {
		int got = matches(current, vocab, text, strlen(text));

		if (got != (int)(mark - marks) - 1)
			fail_msg("'%s': %d", field[0], got);
		return;
	}
	grammar_unref(current);
	current = field[0][0] == '=' ? gbnf(text) : regex(text, field[0][0] == '/');
	if (field[1]) {
		assert_int_equal(sscanf(field[1], "%ux%u", &texts, &steps), 2);
		wander(current, texts, steps);
	}
}

TEST(texts_of_grammars)
{
	struct grammar *g = gbnf("root ::= [^\\x00-\\x7F\"]{3}");

	each_case("grammars.txt", "grammars", check_row);
	/* Bytes that are no UTF-8. */
	assert_int_equal(matches(g, vocab, "\xC0\x80", 2), -1);
	assert_int_equal(matches(g, vocab, "\xED\xA0\x80", 3), -1);
	assert_int_equal(matches(g, vocab, "\xF4\x90\x80\x80", 4), -1);
	grammar_unref(g);
}

static void refuse_grammar(char **field)
{
	struct grammar *g = NULL;
	char err[256] = "";

	assert_int_equal(build_gbnf(field[0], &g, err, sizeof(err)), -EINVAL);
	if (!strstr(err, field[1]))
		fail_msg("%s: '%s' does not say '%s'", field[0], err, field[1]);
}

TEST(wrong_grammars)
{
	each_case("grammars.txt", "wrong grammars", refuse_grammar);
}

/* ---- regular expressions --------------------------------------------------------------------- */

TEST(texts_of_expressions)
{
	each_case("grammars.txt", "expressions", check_row);
}

static void refuse_expression(char **field)
{
	struct grammar *g = NULL;
	char err[256] = "";

	if (build_regex(field[0], false, &g, err, sizeof(err)) != -EINVAL)
		fail_msg("'%s' is taken", field[0]);
	assert_non_null(strstr(err, "regular expression, offset "));
}

TEST(wrong_expressions)
{
	each_case("grammars.txt", "wrong expressions", refuse_expression);
}

/* ---- counting -------------------------------------------------------------------------------- */

TEST(counts_are_exact_and_cheap)
{
	struct grammar *g = gbnf("root ::= \"<\" [a-z]{5,100000} \">\"");
	char *text = malloc(200000);
	struct walk w;
	struct grammar_mask mask;
	size_t before;

	assert_non_null(text);
	memset(text, 'a', 200000);
	text[0] = '<';
	text[5] = '>';
	assert_int_equal(matches(g, vocab, text, 6), -1);
	text[5] = 'a';
	text[6] = '>';
	assert_int_equal(matches(g, vocab, text, 7), 1);
	text[6] = 'a';
	assert_int_equal(matches(g, vocab, text, 100002), -1);
	text[100001] = '>';
	assert_int_equal(matches(g, vocab, text, 100002), 1);
	/* Near both ends every count is a state of its own, between them one mask serves all. */
	begin_walk(&w, g);
	for (unsigned i = 0; i < 20; i++) {
		check_mask(&w, &mask);
		take(&w, i ? 'a' : '<');
	}
	before = grammar_memory(g);
	for (unsigned i = 20; i < 99990; i++) {
		assert_int_equal(grammar_matcher_mask(w.m, &mask), 0);
		take(&w, 'a');
	}
	assert_true(grammar_memory(g) < before + ((size_t)64 << 20));
	for (unsigned i = 99990; i < 100001; i++) {
		check_mask(&w, &mask);
		take(&w, 'a');
	}
	check_mask(&w, &mask);
	assert_int_equal(mask.n, 1); /* > */
	end_walk(&w);
	free(text);
	grammar_unref(g);
}

/* ---- control tokens -------------------------------------------------------------------------- */

TEST(control_tokens_are_named)
{
	struct grammar_builder *b = grammar_builder_new();
	struct grammar_piece piece;
	struct grammar_mask mask;
	struct grammar *g;
	struct walk w;
	uint32_t root;
	char err[256];

	root = grammar_rule(b, "root");
	piece = grammar_seq(b, grammar_token(b, n_tokens - 1), grammar_text(b, "yes"));
	grammar_define(b, root, grammar_either(b, piece, grammar_text(b, "no")));
	assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), 0);
	grammar_builder_free(b);
	begin_walk(&w, g);
	check_mask(&w, &mask);
	assert_true(allows(&mask, (int32_t)n_tokens - 1));
	assert_false(allows(&mask, '<'));
	take(&w, (int32_t)n_tokens - 1);
	check_mask(&w, &mask);
	assert_true(allows(&mask, 'y'));
	end_walk(&w);
	grammar_unref(g);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Grammars that would be too much: an error in time, and nothing else. */
TEST(too_much_is_an_error)
{
	static const char *const hostile[] = {
		/* 2^20 and more states if they were all made. */
		"root ::= [ab]* \"a\" [ab]{500} \"!\"",
		"root ::= ([ab]* \"a\"){40} \"!\"",
		/* Many readings of the same text. */
		"root ::= x{0,3000} \"!\"\nx ::= \"a\" | \"aa\" | b\nb ::= \"a\" y | \"aa\" y\ny "
		"::= \"b\"?",
		"root ::= \"a\" root \"x\" | \"a\" s \"y\" | \"z\"\ns ::= \"a\" root \"p\" | root "
		"\"q\"",
		"root ::= (((((\"a\"{0,99}){0,99}){0,99}){0,99}){0,99}){0,99} \"!\"",
		"root ::= \"(\" root \")\" root | \"(\" root | \"z\"",
	};

	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		struct grammar *g = gbnf(hostile[i]);
		struct grammar_matcher *m;
		struct grammar_mask mask;
		int error = 0;

		assert_int_equal(grammar_matcher_new(g, vocab, &m), 0);
		for (unsigned k = 0; k < 3000 && !error; k++) {
			error = grammar_matcher_mask(m, &mask);
			if (!error)
				error = grammar_matcher_accept(m, allows(&mask, 'a')   ? 'a'
								  : allows(&mask, '(') ? '('
										       : 'z');
		}
		assert_true(!error || error == -E2BIG || error == -EINVAL);
		assert_true(grammar_memory(g) < (size_t)256 << 20);
		grammar_matcher_free(m);
		grammar_unref(g);
	}
}

TEST(depth_is_bounded)
{
	struct grammar *g = gbnf("root ::= \"(\" root \")\" | \"x\"");
	struct grammar_matcher *m;
	struct grammar_mask mask;
	unsigned depth = 0;

	assert_int_equal(grammar_matcher_new(g, vocab, &m), 0);
	while (!grammar_matcher_accept(m, '('))
		depth++;
	assert_int_equal(depth, GRAMMAR_MAX_DEPTH);
	/* Here the mask may name what then is too deep, but not leave out what is not. */
	assert_int_equal(grammar_matcher_mask(m, &mask), 0);
	assert_true(allows(&mask, 'x'));
	assert_int_equal(grammar_matcher_accept(m, 'x'), 0);
	for (; depth; depth--)
		assert_int_equal(grammar_matcher_accept(m, ')'), 0);
	assert_true(grammar_matcher_over(m));
	grammar_matcher_free(m);
	grammar_unref(g);
}

TEST(big_grammars_are_refused)
{
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root = grammar_rule(b, "root");
	struct grammar *g = NULL;
	char err[256];

	for (unsigned i = 0; i < 20000; i++)
		grammar_text(b, "012345678901234567890123456789012345678901234567890123456789");
	grammar_define(b, root, grammar_text(b, "a"));
	assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), -E2BIG);
	assert_non_null(strstr(err, "more than 1048576 nodes"));
	grammar_builder_free(b);
}

/* ---- starting afresh, threads ---------------------------------------------------------------- */

/* Texts go on where they were when what was remembered is thrown away. */
TEST(it_forgets_without_losing_the_place)
{
	struct grammar *g = gbnf("root ::= (\"<\" [a-z]{1,2000000} \">\"){2}");
	struct grammar_matcher *m;
	struct walk other;
	struct grammar_mask mask;
	size_t most = 0;

	assert_int_equal(grammar_matcher_new(g, vocab, &m), 0);
	assert_int_equal(grammar_matcher_accept_bytes(m, "<abc", 4), 0);
	begin_walk(&other, g);
	for (unsigned i = 0; i < 4; i++)
		take(&other, "<abc"[i]);
	for (unsigned i = 0; i < 400000; i++) {
		size_t memory;

		assert_int_equal(grammar_matcher_accept(m, 'a'), 0);
		memory = i % 1000 ? 0 : grammar_memory(g);
		most = memory > most ? memory : most;
	}
	assert_true(most < GRAMMAR_CACHE + ((size_t)8 << 20));
	check_mask(&other, &mask);
	assert_int_equal(grammar_matcher_accept_bytes(other.m, "d><z>", 5), 0);
	assert_true(grammar_matcher_over(other.m));
	assert_int_equal(grammar_matcher_accept_bytes(m, "><z>", 4), 0);
	assert_true(grammar_matcher_over(m));
	grammar_matcher_free(m);
	end_walk(&other);
	grammar_unref(g);
}

/* The allowed token that comes as number @k % n. */
static int32_t pick(const struct grammar_mask *mask, unsigned k)
{
	k %= mask->n;
	for (int32_t token = 0;; token++) {
		if (allows(mask, token) && !k--)
			return token;
	}
}

/* Returns what went wrong first; cmocka's checks are for the main thread. */
static void *wander_in_thread(void *arg)
{
	struct grammar *g = arg;
	intptr_t error = 0;

	for (unsigned i = 0; i < 50 && !error; i++) {
		struct grammar_matcher *m;
		struct grammar_mask mask;

		error = grammar_matcher_new(g, vocab, &m);
		for (unsigned k = 0; k < 30 && !error; k++) {
			error = grammar_matcher_mask(m, &mask);
			if (error || !mask.n)
				break;
			error = grammar_matcher_accept(m, pick(&mask, i + k));
		}
		grammar_matcher_free(m);
	}
	return (void *)error;
}

TEST(threads_share_a_grammar)
{
	struct grammar *g = gbnf("root ::= \"{\" (pair (\", \" pair){0,4})? \"}\" | [a-c]{2,9}\n"
				 "pair ::= \"\\\"\" [a-z]+ \"\\\": \" (root | \"1\" | \"null\")");
	pthread_t threads[4];

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wander_in_thread, g), 0);
	for (unsigned i = 0; i < 4; i++) {
		void *error;

		pthread_join(threads[i], &error);
		assert_int_equal((intptr_t)error, 0);
	}
	grammar_unref(g);
}

static int set_up(void **state)
{
	(void)state;
	vocab = test_vocab(words, ARRAY_SIZE(words), &n_tokens);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	grammar_unref(current);
	grammar_vocab_unref(vocab);
	return 0;
}

TEST_MAIN_ALL(set_up, tear_down)
