/* SPDX-License-Identifier: MIT */
/*
 * Computes the tokens allowed next at a config of an automaton.
 *
 * The trie of the vocabulary is walked together with the config, and a branch is abandoned where no
 * reading is left. Two results are cached so that walks are rare:
 *
 *	per place	the tokens that stay within the rule, and the spots of the trie at which
 *			the rule may end. What a caller allows then is a walk below those spots,
 *			and these are few: inside of a JSON string all that begin with some text
 *			and a quote.
 *	per config	the whole mask, at the canonical one.
 *
 * A mask is constant and reference-counted: it may outlive the automaton that created it.
 */
#ifndef TXDA_GRAMMAR_MASKS_H
#define TXDA_GRAMMAR_MASKS_H

#include "automaton.h"

struct mask {
	atomic_uint refs;
	uint32_t n;
	bool end;
	uint32_t *bits; /* or */
	int32_t *list;	/* [n] */
};

/* The mask at @c, with a reference; NULL sets the automaton's error. */
struct mask *masks_find(struct automaton *a, struct config *c);
struct mask *mask_ref(struct mask *m);
void mask_unref(struct mask *m);
/* The automaton is being freed. */
void masks_drop(struct config *c);

#endif
