/* SPDX-License-Identifier: MIT */
/*
 * Added tokens ("<|im_end|>", "<think>"): found in the text before anything else is done to it.
 * Internal to the tokeniser.
 *
 * Matches are the leftmost, of those the longest, and do not overlap. Threads: a filled set is
 * shared.
 */
#ifndef TXDA_TEXT_TOKENIZER_ADDED_H
#define TXDA_TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest added token, in bytes: bounds the work for each byte of text. */
#define ADDED_TOKEN_MAX 1024

struct added_token {
	uint32_t id;
	bool single_word; /* only between characters that are not of a word */
	bool lstrip;	  /* takes the white space in front of it */
	bool rstrip;	  /* and behind it */
	bool normalized;  /* looked for in normalised text, itself normalised */
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
	const struct added_token *tokens; /* what the indices mean; not owned */
};

/* Adds the spelling of tokens[index]; the first of equal ones counts. 0, -E2BIG (longer than
 * ADDED_TOKEN_MAX), -ENOMEM. */
int added_set_add(struct added_set *set, const char *spelling, size_t len, uint32_t index);
void added_set_free(struct added_set *set);

/* A walk over a text: zero-initialise, then call added_set_next() until it returns false. */
struct added_walk {
	size_t scan; /* where the next match may start */
	size_t done; /* up to here the text is given out */
	/* The match: text[before .. start) lies in front of it. */
	size_t before, start;
	uint32_t id;
};

/*
 * Finds the next token: the text between walk->before and walk->start is ordinary, then comes token
 * walk->id; after the last one, what stands behind walk->done is ordinary. @no_special passes over
 * special tokens.
 */
bool added_set_next(const struct added_set *set, const char *text, size_t len, bool no_special,
		    struct added_walk *walk);

#endif
