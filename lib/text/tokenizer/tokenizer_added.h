/* SPDX-License-Identifier: MIT */
/*
 * Added tokens ("<|im_end|>", "<think>"): recognised in the text before any other processing.
 * Internal to the tokeniser.
 *
 * Matches are leftmost-longest and do not overlap. Threads: a filled set is shared.
 */
#ifndef TXDA_TEXT_TOKENIZER_ADDED_H
#define TXDA_TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest added token in bytes: bounds the work per byte of text. */
#define ADDED_TOKEN_MAX 1024

struct added_token {
	uint32_t id;
	bool single_word; /* only if not adjacent to characters of a word */
	bool lstrip;	  /* includes the white space before it */
	bool rstrip;	  /* and after it */
	bool normalized;  /* matched in normalised text, itself normalised */
	bool special;
};

struct added_node {
	uint32_t child, sibling; /* 0: none */
	uint32_t token;		 /* index + 1, 0: none ends here */
	uint8_t byte;
};

/* A trie of spellings. Zero-initialised is empty. */
struct added_set {
	uint32_t roots[256];
	struct added_node *nodes; /* [0] is not used */
	size_t n_nodes, cap_nodes;
	const struct added_token *tokens; /* the tokens of the indices; not owned */
};

/*
 * Adds the spelling of tokens[index]; of equal ones the first counts. 0, -E2BIG (longer than
 * ADDED_TOKEN_MAX), -ENOMEM.
 */
int added_set_add(struct added_set *set, const char *spelling, size_t len, uint32_t index);
void added_set_free(struct added_set *set);

/* A walk over a text: zero-initialise, then call added_set_next() until it returns false. */
struct added_walk {
	size_t scan; /* where the next match may start */
	size_t done; /* end of the text returned so far */
	/* The match: text[before .. start) precedes it. */
	size_t before, start;
	uint32_t id;
};

/*
 * Finds the next token: the text between walk->before and walk->start is ordinary, then comes token
 * walk->id; after the last one, the text after walk->done is ordinary. @no_special skips special
 * tokens.
 */
bool added_set_next(const struct added_set *set, const char *text, size_t len, bool no_special,
		    struct added_walk *walk);

#endif
