/* SPDX-License-Identifier: MIT */
/*
 * A grammar's automata, determinised lazily, with all cached results.
 *
 *	place	a set of nodes of one rule: where a text may be within it
 *	frame	a call: the place to continue at when the called rule ends, and the frame below; the
 *		bottom one is the root. Frames are shared, so that a stack is its uppermost frame. A
 *		repeat's frame counts its rounds.
 *	config	a set of items (place, frame): all readings of a text so far
 *
 * Each is interned: equal ones are the same object, and results (transitions, allowed tokens) are
 * cached with it. All memory belongs to the automaton; when it uses too much, what is still needed
 * is copied into a new one.
 *
 * Counting. Whether 5000 or 4000 rounds are left does not affect the next token if no allowed token
 * is that long: inside a counted repeat, tokens longer than HORIZON bytes are not allowed. So each
 * frame has a canonical one, with a representative count for which the same tokens are allowed, and
 * masks are cached at the config of canonical frames.
 *
 * Errors are sticky: functions return NULL; automaton_error() returns -ENOMEM or -E2BIG and clears
 * it.
 *
 * One thread at a time (the grammar's lock).
 */
#ifndef TXDA_GRAMMAR_AUTOMATON_H
#define TXDA_GRAMMAR_AUTOMATON_H

#include "grammar_internal.h"

/* Inside counted repeats, longer tokens have to be spelled by shorter ones. */
#define HORIZON 32

/* First member of interned objects. */
struct entry {
	struct entry *next;
	uint32_t hash;
	uint32_t id; /* increases with each object created */
};

struct table {
	struct entry **slots;
	uint32_t n, cap;
};

struct place;
struct config;

struct call {
	bool repeat;
	uint32_t id;	     /* rule or repeat */
	struct place *after; /* where it continues */
};

struct place {
	struct entry entry;
	bool ends;     /* the rule may end here */
	bool bytes;    /* a byte may come here */
	bool expanded; /* calls are known */
	uint32_t n, n_calls;
	const uint32_t *nodes; /* [n], ascending */
	struct call *calls;
	struct place **next;	   /* [n_classes], NULL: not computed yet */
	const struct local *local; /* masks.c's */
};

struct frame {
	struct entry entry;
	struct frame *below;	 /* NULL: the root */
	struct frame *canonical; /* NULL: not computed yet */
	struct place *after;
	uint32_t repeat; /* its number + 1; 0: a plain call */
	uint32_t count;	 /* rounds begun */
	uint32_t depth;
	bool counted;	       /* it or one below is a repeat's */
	struct config *popped; /* everything that may follow its end; NULL: not computed yet */
};

struct item {
	struct place *place;
	struct frame *frame;
};

struct config {
	struct entry entry;
	bool accepting; /* the text may end here */
	uint32_t n;
	struct item *items;	  /* [n], ordered by ids */
	struct config **next;	  /* [n_classes], NULL: not computed yet */
	struct config *canonical; /* NULL: not computed yet */
	struct mask *mask;	  /* masks.c's; at canonical ones */
};

struct chunk;
struct visit;

struct automaton {
	const struct nfa *nfa;
	struct grammar_vocab *vocab; /* the vocabulary of the masks; NULL: none yet */
	struct chunk *chunks;
	size_t bytes; /* all memory held */
	int error;
	int64_t work; /* remaining operations of this call */
	uint32_t next_id;
	struct table places, frames, configs;
	struct frame *root;
	struct place *no_place;
	struct config *no_config; /* the config without any reading */
	struct place **starts;	  /* [n_rules], NULL: not computed yet */

	/* Scratch memory. */
	uint32_t *marks, mark; /* [n_nodes] */
	uint32_t *set;	       /* [n_nodes] nodes of a place under construction */
	uint32_t *stack;       /* [n_nodes] nodes to be visited */
	struct visit *visits;
	uint32_t n_visits, cap_visits;
	uint32_t *visit_slots, n_visit_slots; /* an index over visits, number + 1 */
	uint32_t *bits[2];		      /* [words of the vocabulary] */
	uint32_t *spots;		      /* of a walk */
	uint32_t n_spots;
	size_t cap_spots;
	struct config **path; /* [longest token + 1] */
};

int automaton_new(const struct nfa *nfa, struct automaton **ret);
void automaton_free(struct automaton *a);
/* The nfa has moved to @nfa. */
void automaton_move(struct automaton *a, const struct nfa *nfa);
/* Takes a reference to the vocabulary. -ENOMEM. */
int automaton_bind(struct automaton *a, struct grammar_vocab *vocab);

/* Begins a call, with its budget of operations. */
void automaton_begin(struct automaton *a);
/* 0 or the error since automaton_begin(). */
int automaton_error(const struct automaton *a);

/* The config at the beginning of a text. */
struct config *automaton_start(struct automaton *a);
/* The config after @byte; a->no_config if it is not allowed. */
struct config *automaton_step(struct automaton *a, struct config *c, uint8_t byte);
/* The config of one item and everything that it leads to without a byte. */
struct config *automaton_at(struct automaton *a, struct place *place, struct frame *frame);
/* What may follow the end of @frame, which is not the root. */
struct config *automaton_pop(struct automaton *a, struct frame *frame);
struct config *automaton_canonical(struct automaton *a, struct config *c);

/* Copies a config of another automaton of the same nfa. */
struct config *automaton_copy(struct automaton *a, const struct config *from);

/* Memory that lasts as long as the automaton; NULL sets the error. */
void *automaton_alloc(struct automaton *a, size_t size);

/* ---- what automaton.c and places.c share ----------------------------------------------------- */

/* Charges @n operations; false when the budget is used up. */
bool automaton_pay(struct automaton *a, uint32_t n);
uint32_t automaton_mix(uint32_t hash, uint32_t value);
/* The head of the chain for @hash; NULL: out of memory. */
struct entry **table_chain(struct automaton *a, struct table *t, uint32_t hash);
void table_put(struct automaton *a, struct table *t, struct entry **chain, struct entry *e,
	       uint32_t hash);
/* The place of @n nodes in ascending order. */
struct place *place_intern(struct automaton *a, const uint32_t *set, uint32_t n);
struct place *place_start(struct automaton *a, uint32_t rule);
/* Finds the calls of a place. */
bool place_expand(struct automaton *a, struct place *p);
/* The place after a byte of @class from @p; a->no_place: none. */
struct place *place_step(struct automaton *a, struct place *p, unsigned class);

/* Uses cached transitions only, for inner loops. */
static inline struct config *automaton_step_fast(struct automaton *a, struct config *c,
						 uint8_t byte)
{
	struct config *next = c->next ? c->next[a->nfa->classes[byte]] : NULL;

	return next ? next : automaton_step(a, c, byte);
}

#endif
