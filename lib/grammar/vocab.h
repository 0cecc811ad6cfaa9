/* SPDX-License-Identifier: MIT */
/*
 * The trie of a vocabulary's byte strings in pre-order: a node's children follow it, and each node
 * has the index at which a walk that skips it continues.
 *
 * Control tokens have a separate path, TOKEN_BYTE and their id (grammar_internal.h). Ordinary
 * tokens that contain that byte, which does not occur in UTF-8, are left out.
 *
 * Constant once made.
 */
#ifndef TXDA_GRAMMAR_VOCAB_H
#define TXDA_GRAMMAR_VOCAB_H

#include "grammar_internal.h"

struct trie_node {
	int32_t token;	/* the first that ends here; -1: none */
	uint32_t skip;	/* the node after its subtree */
	uint16_t depth; /* bytes up to and including this one */
	uint8_t byte;
};

struct grammar_vocab {
	atomic_uint refs;
	struct trie_node *nodes; /* [n_nodes]; [0] is the root, of depth 0 */
	uint32_t n_nodes;
	int32_t *same; /* [n_tokens] the next token of the same bytes; -1: none */
	char *text;
	uint32_t *first; /* [n_tokens + 1] where each token's bytes are in text */
	uint32_t n_tokens, width;
	uint32_t longest; /* bytes of a token */
};

static inline size_t vocab_words(const struct grammar_vocab *v)
{
	return ((size_t)v->width + 31) / 32;
}

#endif
