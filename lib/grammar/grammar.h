/* SPDX-License-Identifier: MIT */
/*
 * Structured output: a language of byte strings, and the tokens allowed next so that a text stays a
 * prefix of it.
 *
 * A grammar is built by one of the front ends (grammar_gbnf.h, grammar_regex.h, grammar_schema.h,
 * or grammar_build.h directly) and is constant from then on. A matcher follows one text being
 * generated: it computes which tokens are allowed next and accepts the one that was chosen.
 * docs/structured-output.md is the manual of the dialects.
 *
 * How it works. Each rule is a nondeterministic automaton over bytes that may call other rules. A
 * matcher's state ("configuration") is a set of pairs: where in a rule (a set of automaton nodes,
 * determinised lazily) and what to return to (a stack, shared as a tree). States are interned and
 * their transitions cached: a text that reaches a state again costs one table lookup per byte.
 * Masks are computed by walking the trie of the vocabulary; they are cached per place in a rule,
 * with the positions at which a token leaves the rule and its caller decides, and per state.
 *
 * Hostile grammars are bounded: nodes and rules when they are built; stack depth, simultaneous
 * readings and work per call when they run; memory always. Exceeding a limit gives -E2BIG with a
 * message.
 *
 * Threads: a grammar may be shared; a lock protects its cached results. A matcher belongs to one
 * thread at a time.
 *
 * Independent of models and tokenisers: vocabularies are byte strings.
 */
#ifndef TXDA_GRAMMAR_H
#define TXDA_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MAX_NODES (1u << 20) /* of the automata of all rules */
#define GRAMMAR_MAX_RULES (1u << 16)
#define GRAMMAR_MAX_DEPTH 1024		     /* nested calls; deeper ones are not followed */
#define GRAMMAR_MAX_ITEMS 2048		     /* simultaneous readings of a text */
#define GRAMMAR_MAX_WORK  (16u << 20)	     /* operations per call */
#define GRAMMAR_SKIPPED	  256		     /* bytes of grammar_skipped() */
#define GRAMMAR_CACHE	  ((size_t)32 << 20) /* bytes of cached results of a grammar */
#define GRAMMAR_CACHE_LOW ((size_t)1 << 20)  /* the same while its meter says that it is too much */

/* ---- the vocabulary -------------------------------------------------------------------------- */

struct grammar_vocab;

struct grammar_token {
	const char *bytes; /* NULL or empty: never allowed */
	size_t len;
	/*
	 * A control token: it is not spelled by text; a grammar allows it only where it names the
	 * id (grammar_token()).
	 */
	bool special;
};

/*
 * @tokens [n], the index is the id; the bytes are copied. @width: number of ids that the model can
 * generate, at least @n; those from @n on are never allowed. -ENOMEM; -EINVAL: no tokens, or more
 * than 2^21.
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
 * Serialises the grammar to @out for another process, in a format of this build: 0, -ENOMEM.
 * grammar_import() checks untrusted data completely: 0, -EINVAL, -ENOMEM.
 */
struct text_buf;
int grammar_export(const struct grammar *g, struct text_buf *out);
int grammar_import(const char *data, size_t len, struct grammar **ret);

/*
 * What its source asks for and the grammar does not enforce, such as keywords of a schema, one a
 * line; "": nothing. Ends with "..." if there was more.
 */
const char *grammar_skipped(const struct grammar *g);

/* Bytes that it held after the last call, including cached results. Never blocks. */
size_t grammar_memory(const struct grammar *g);
/* Whether there are other references than the caller's. */
bool grammar_is_shared(const struct grammar *g);

/*
 * Accounts for a grammar's memory. count() is called with each change in bytes, by any thread, one
 * at a time, and must not use the grammar; the last call, with all that is left, is made when the
 * grammar is freed. False: its owner holds too much, and the grammar should cache little.
 */
struct grammar_meter {
	bool (*count)(void *arg, int64_t bytes);
	void *arg;
};
/* For a grammar that nobody shares yet. Returns what count() does for the memory so far. */
bool grammar_set_meter(struct grammar *g, const struct grammar_meter *meter);

/* ---- a text in the making -------------------------------------------------------------------- */

struct grammar_matcher;

/*
 * The tokens allowed next. Constant, valid until the matcher's next call. Either bits or list is
 * set, whichever is shorter.
 */
struct grammar_mask {
	const uint32_t *bits; /* token t: bit t % 32 of word t / 32; of the vocabulary's width */
	const int32_t *list;  /* [n], ascending */
	uint32_t n;	      /* number of allowed tokens; 0: none */
	bool end;	      /* the text may end here */
};

/* Starts at the beginning of a text. Takes references. -ENOMEM, -E2BIG. */
int grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **ret);
void grammar_matcher_free(struct grammar_matcher *m);

/*
 * -E2BIG: the grammar needs more work or more readings than allowed. -ENOMEM. If calls are nested
 * almost to the limit, the mask may contain a token that is not accepted then.
 */
int grammar_matcher_mask(struct grammar_matcher *m, struct grammar_mask *ret);
/* -EINVAL: the token is not allowed, and nothing has changed. -E2BIG, -ENOMEM. */
int grammar_matcher_accept(struct grammar_matcher *m, int32_t token);
/*
 * Accepts bytes of a text, for tests and for text that the model did not generate. Errors as above.
 */
int grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len);
/* Whether the text may end here and nothing may follow. */
bool grammar_matcher_over(const struct grammar_matcher *m);

#endif
