/* SPDX-License-Identifier: MIT */
/* The automata of a grammar, built by grammar_build.c and run by automaton.c. */
#ifndef TXDA_GRAMMAR_INTERNAL_H
#define TXDA_GRAMMAR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar.h"

#define NODE_NONE UINT32_MAX

/* Control tokens in the byte language: this byte, which does not occur in UTF-8, then the id. */
#define TOKEN_BYTE 0xFF

enum node_op {
	NODE_EMPTY,  /* continues at out and at alt (each may be NODE_NONE) */
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
	uint32_t rule, min, max; /* max GRAMMAR_UNLIMITED: no maximum */
};

struct nfa {
	struct node *nodes;
	uint32_t n_nodes;
	uint32_t *rules; /* [n_rules] the start node of each */
	uint32_t n_rules;
	struct repeat *repeats;
	uint32_t n_repeats;
	uint32_t root;	       /* rule */
	uint8_t classes[256];  /* bytes that no node distinguishes have the same class */
	uint8_t examples[256]; /* [n_classes] a byte of each class */
	unsigned n_classes;
};

struct automaton;

struct grammar {
	atomic_uint refs;
	struct nfa nfa;
	char skipped[GRAMMAR_SKIPPED];
	pthread_mutex_t lock;
	/* Under lock. */
	struct automaton *automaton; /* cached results */
	struct grammar_matcher *matchers;
	struct grammar_meter meter; /* count NULL: none */
	bool too_much;		    /* as it said last */
	_Atomic size_t bytes;	    /* as counted last; read without the lock */
};

/*
 * grammar_check.c: marks live nodes, sets the minimum of repeats of possibly empty pieces to 0,
 * computes classes.
 */
int nfa_check(struct nfa *nfa, char *const *names, char *err, size_t errlen);
/* The last part of nfa_check(). */
void nfa_find_classes(struct nfa *nfa);
/* grammar_build.c: creates a grammar from *nfa, which it takes over. NULL: out of memory. */
struct grammar *grammar_of_nfa(struct nfa *nfa);
/* Counts its memory anew. Locked, or not shared yet. */
void grammar_count(struct grammar *g);
void nfa_free(struct nfa *nfa);

#endif
