/* SPDX-License-Identifier: MIT */
/*
 * Pre-tokenising: splits normalised text into words, which are encoded separately. Internal to the
 * tokeniser.
 *
 * The pre_tokenizer of tokenizer.json becomes a list of steps. Each takes a piece of text and
 * passes its parts to the next step, the last one to the caller; nothing is collected in between.
 *
 * Threads: the steps are shared; each thread has its own pretok_run.
 */
#ifndef TXDA_TEXT_PRETOK_H
#define TXDA_TEXT_PRETOK_H

#include "pretok_regex.h"
#include "text_buf.h"
#include "tokenizer_json.h"

#define PRETOK_MAX_STEPS 16

enum pretok_kind {
	PRETOK_SPLIT,
	PRETOK_REPLACE_SPACES, /* ' ' by `text` */
	PRETOK_PREPEND,	       /* `text`, unless the piece starts with it */
	PRETOK_PREPEND_FIRST,  /* the same, only for the piece that starts the input */
};

/* What a PRETOK_SPLIT step matches. */
enum pretok_matcher {
	PRETOK_REGEX,
	PRETOK_LITERAL,	    /* `text` */
	PRETOK_NUMERIC,	    /* one character of the categories Nd, Nl, No */
	PRETOK_SPACE,	    /* one character of White_Space */
	PRETOK_PUNCTUATION, /* one of ASCII's, or of the categories Pc, Pd, Pe, Pf, Pi, Po, Ps */
};

/* How matches ("delimiters") and the text between them are treated. */
enum pretok_behavior {
	PRETOK_ISOLATED,
	PRETOK_REMOVED,
	PRETOK_MERGED_WITH_PREVIOUS,
	PRETOK_MERGED_WITH_NEXT,
	PRETOK_CONTIGUOUS,
};

/*
 * A hand-written scanner for the ASCII part of the expressions that nearly all byte-level models
 * use (GPT-2's and those derived from cl100k's). It finds the same matches as the expression,
 * several times faster.
 */
struct pretok_fast {
	bool on;
	bool gpt2;	     /* GPT-2's expression; else the cl100k family */
	unsigned max_digits; /* cl100k family: \p{N}{1,max_digits} */
};

struct pretok_step {
	enum pretok_kind kind;
	enum pretok_matcher matcher;
	enum pretok_behavior behavior;
	bool invert; /* matches and gaps are swapped */
	struct pretok_regex *regex;
	struct pretok_fast fast;
	char *text;
	size_t text_len;
};

struct pretok {
	struct pretok_step steps[PRETOK_MAX_STEPS];
	unsigned n_steps;
	bool byte_level; /* words are to be taken as bytes */
};

/* Takes a word. Returns 0 or a negative errno, which ends the run. */
typedef int (*pretok_emit_fn)(void *arg, const char *word, size_t len);

/* One thread's work. Zero-initialise, set emit and arg, reuse for any number of pieces. */
struct pretok_run {
	const struct pretok *pretok;
	pretok_emit_fn emit;
	void *arg;
	struct pretok_match match;
	struct text_buf bufs[PRETOK_MAX_STEPS]; /* text rewritten by each step */
};

/* Reads the value of "pre_tokenizer" (NULL: nothing to do). 0, -EINVAL with a message, -ENOMEM. */
int pretok_load(struct pretok *pretok, const cJSON *json, struct json_errors *errors);
void pretok_free(struct pretok *pretok);

/* Splits one piece of valid UTF-8; @first: it starts at the start of the whole input. */
int pretok_run_piece(struct pretok_run *run, const char *text, size_t len, bool first);
void pretok_run_free(struct pretok_run *run);

/* Whether @pattern is one that pretok_fast_match() knows; fills *fast. */
bool pretok_fast_known(const char *pattern, struct pretok_fast *fast);
/*
 * The end of the match that starts at @at (which must be a character's start), or 0 if it depends
 * on characters beyond ASCII: then the expression itself must be used.
 */
size_t pretok_fast_match(const struct pretok_fast *fast, const char *text, size_t len, size_t at);

#endif
