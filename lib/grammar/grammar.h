/* SPDX-License-Identifier: MIT */
/*
 * Structured output: a language of bytes, and which tokens may come next so that a text stays in
 * it.
 *
 * A grammar is made by one of the front ends (grammar_gbnf.h, grammar_regex.h, grammar_schema.h, or
 * grammar_build.h directly) and is constant from then on. A matcher is one text in the making: it
 * says which tokens may come next and takes the one that was chosen. docs/structured-output.md is
 * the manual of the dialects.
 *
 * How it works. Each rule is a nondeterministic automaton over bytes that may call other rules. A
 * matcher's state ("configuration") is a set of pairs: where in a rule (a set of automaton nodes,
 * determinised as they are met) and what to return to (a stack, shared as a tree). States are
 * interned, their transitions remembered: a text that comes by a state again pays a table lookup a
 * byte. Masks are found by walking the trie of the vocabulary; they are kept per place in a rule,
 * with the spots where a token leaves the rule and its caller decides, and per state.
 *
 * Hostile grammars are bounded: nodes and rules when they are made, stack depth, readings at once
 * and work per call when they run, memory always. What goes beyond is -E2BIG with words, never an
 * abort.
 *
 * Threads: a grammar may be shared; a lock protects what it remembers. A matcher belongs to one
 * thread at a time.
 *
 * Knows nothing of sockets, models or tokenisers: vocabularies come as byte strings.
 */
#ifndef TXDA_GRAMMAR_H
#define TXDA_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MAX_NODES (1u << 20) /* of the automata of all rules */
#define GRAMMAR_MAX_RULES (1u << 16)
#define GRAMMAR_MAX_DEPTH 1024		      /* calls within calls; deeper ones are not taken */
#define GRAMMAR_MAX_ITEMS 2048		      /* readings of a text at once */
#define GRAMMAR_MAX_WORK  (16u << 20)	      /* operations of one call */
#define GRAMMAR_CACHE	  ((size_t)32 << 20)  /* bytes that a grammar may remember */
#define GRAMMAR_CACHE_ALL ((size_t)512 << 20) /* and all together, before each keeps to ... */
#define GRAMMAR_CACHE_LOW ((size_t)1 << 20)   /* this */

/* ---- the vocabulary -------------------------------------------------------------------------- */

struct grammar_vocab;

struct grammar_token {
	const char *bytes; /* NULL or of no length: never allowed */
	size_t len;
	/*
	 * A control token: no text spells it; a grammar allows it only where it names its id
	 * (grammar_token()).
	 */
	bool special;
};

/*
 * @tokens [n], the index is the id; the bytes are copied. @width: how many ids the model may give,
 * at least @n; those beyond are never allowed. -ENOMEM; -EINVAL: no tokens, or more than 2^21.
 */
int grammar_vocab_new(const struct grammar_token *tokens, uint32_t n, uint32_t width,
		      struct grammar_vocab **ret);
struct grammar_vocab *grammar_vocab_ref(struct grammar_vocab *v);
void grammar_vocab_unref(struct grammar_vocab *v);

/* ---- the grammar ----------------------------------------------------------------------------- */

struct grammar;

struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g);
/*
 * Adds to @out what another process needs to have the same grammar, in the form of this build: 0,
 * -ENOMEM. grammar_import() checks all of it, whoever wrote it: 0, -EINVAL, -ENOMEM.
 */
struct text_buf;
int grammar_export(const struct grammar *g, struct text_buf *out);
int grammar_import(const char *data, size_t len, struct grammar **ret);

/* Bytes that it holds now, what it remembers included. */
size_t grammar_memory(struct grammar *g);

/* ---- a text in the making -------------------------------------------------------------------- */

struct grammar_matcher;

/*
 * Which tokens may come next. Constant, valid until the matcher's next call. Exactly one of bits
 * and list is set, the shorter form.
 */
struct grammar_mask {
	const uint32_t *bits; /* token t: bit t % 32 of word t / 32; of the vocabulary's width */
	const int32_t *list;  /* [n], ascending */
	uint32_t n;	      /* tokens that may come; 0: none */
	bool end;	      /* the text may end here */
};

/* Starts at the beginning of a text. Takes references. -ENOMEM, -E2BIG. */
int grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **ret);
/* Another text that begins as this one did; for tests, which hold masks to what tokens do. */
int grammar_matcher_clone(const struct grammar_matcher *m, struct grammar_matcher **ret);
void grammar_matcher_free(struct grammar_matcher *m);

/*
 * -E2BIG: the grammar needs more work or more readings than is allowed. -ENOMEM. Where calls are
 * nested almost as deep as they may be, the mask may name a token that then is not taken.
 */
int grammar_matcher_mask(struct grammar_matcher *m, struct grammar_mask *ret);
/* -EINVAL: the token may not come (nothing has changed). -E2BIG, -ENOMEM. */
int grammar_matcher_accept(struct grammar_matcher *m, int32_t token);
/* Bytes of a text; for tests and for text that is not the model's. Errors as above. */
int grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len);
/* The text may end here, as the mask has it; for tests. */
bool grammar_matcher_may_end(const struct grammar_matcher *m);
/* The text may end here and nothing may follow. */
bool grammar_matcher_over(const struct grammar_matcher *m);

#endif
