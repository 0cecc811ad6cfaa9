/* SPDX-License-Identifier: MIT */
/*
 * The trie of a vocabulary's byte strings, laid out in the order of a walk: a node's children
 * follow it, and each node says where the walk goes on when it is not gone into.
 *
 * Control tokens have a path of their own, TOKEN_BYTE and their id (grammar_internal.h). Ordinary
 * tokens that hold that byte are left out: no UTF-8 has it.
 *
 * Constant once made.
 */
#ifndef TXDA_GRAMMAR_VOCAB_H
#define TXDA_GRAMMAR_VOCAB_H

#include "grammar_internal.h"

struct trie_node {
	int32_t token;	/* the first that ends here; -1: none */
	uint32_t skip;	/* the node after all that lies below */
	uint16_t depth; /* bytes up to and with this one */
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
