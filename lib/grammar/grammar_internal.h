/* SPDX-License-Identifier: MIT */
/* The automata of a grammar, as grammar_build.c makes them and automaton.c runs them. */
#ifndef TXDA_GRAMMAR_INTERNAL_H
#define TXDA_GRAMMAR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar.h"
#include "grammar_build.h"

#define NODE_NONE UINT32_MAX

/* Where control tokens lie in the language of bytes: this byte, which no UTF-8 has, then the id. */
#define TOKEN_BYTE 0xFF

enum node_op {
	NODE_EMPTY,  /* goes on at out and at alt (each may be NODE_NONE) */
	NODE_RANGE,  /* one byte of first to last, then out */
	NODE_CALL,   /* rule arg, then out */
	NODE_REPEAT, /* repeat arg, then out */
	NODE_END,    /* of its rule */
};

struct node {
	uint8_t op;
	uint8_t first, last;
	bool live; /* the end of its rule can be reached from here */
	uint32_t out;
	uint32_t alt; /* NODE_EMPTY: the other way; NODE_CALL, NODE_REPEAT: the rule or repeat */
};

struct repeat {
	uint32_t rule, min, max; /* max GRAMMAR_UNLIMITED: no end */
};

struct nfa {
	struct node *nodes;
	uint32_t n_nodes;
	uint32_t *rules; /* [n_rules] the start node of each */
	uint32_t n_rules;
	struct repeat *repeats;
	uint32_t n_repeats;
	uint32_t root;	       /* rule */
	uint8_t classes[256];  /* bytes that no node tells apart have the same class */
	uint8_t examples[256]; /* [n_classes] a byte of each class */
	unsigned n_classes;
};

struct automaton;

struct grammar {
	atomic_uint refs;
	struct nfa nfa;
	pthread_mutex_t lock;
	/* Under lock. */
	struct automaton *automaton; /* what is remembered */
	struct grammar_matcher *matchers;
};

/* grammar_check.c: marks live nodes, lets repeats of what may be empty begin at 0, finds classes.
 */
int nfa_check(struct nfa *nfa, char *const *names, char *err, size_t errlen);
/* The last part of that. */
void nfa_find_classes(struct nfa *nfa);
/* grammar_build.c: a grammar of *nfa, which it takes over. NULL: out of memory. */
struct grammar *grammar_of_nfa(struct nfa *nfa);
void nfa_free(struct nfa *nfa);

#endif
