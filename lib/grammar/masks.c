// SPDX-License-Identifier: MIT
#include "masks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "vocab.h"

/* From this number of tokens on a mask is stored as bits; below, a list is shorter. */
#define DENSE(width) ((width) / 32)

/* Cached results of a place. */
struct local {
	uint32_t n, n_spots;
	const uint32_t *bits;  /* or */
	const int32_t *list;   /* [n] */
	const uint32_t *spots; /* [n_spots] nodes of the trie at which the rule may have ended */
};

static void allow(const struct grammar_vocab *v, uint32_t *bits, int32_t token)
{
	for (; token >= 0; token = v->same[token])
		bits[token / 32] |= 1u << (token % 32);
}

static bool note_spot(struct automaton *a, uint32_t node)
{
	size_t before = a->cap_spots;

	if (!array_grow(&a->spots, &a->cap_spots, (size_t)a->n_spots + 1, sizeof(*a->spots))) {
		a->error = -ENOMEM;
		return false;
	}
	a->bytes += (a->cap_spots - before) * sizeof(*a->spots);
	a->spots[a->n_spots++] = node;
	return true;
}

/*
 * Sets the bits of the tokens below @node of the trie, of @longest bytes at most, that are allowed
 * from @start. With @spots the nodes at which the text may end are recorded. False: the automaton
 * has an error.
 */
static bool walk(struct automaton *a, uint32_t node, struct config *start, uint32_t longest,
		 uint32_t *bits, bool spots)
{
	const struct grammar_vocab *v = a->vocab;
	uint32_t i = node + 1, end = v->nodes[node].skip, visited = 0;
	struct config **path = a->path;

	path[v->nodes[node].depth] = start;
	while (i < end) {
		const struct trie_node *at = &v->nodes[i];
		struct config *c;

		visited++;
		c = at->depth > longest ? a->no_config
					: automaton_step_fast(a, path[at->depth - 1], at->byte);
		if (!c)
			return false;
		if (c == a->no_config) {
			i = at->skip;
			continue;
		}
		if (at->token >= 0)
			allow(v, bits, at->token);
		if (spots && c->accepting && at->skip > i + 1 && !note_spot(a, i))
			return false;
		path[at->depth] = c;
		i = c->n ? i + 1 : at->skip;
	}
	a->work -= visited;
	if (a->work < 0)
		a->error = -E2BIG;
	return !a->error;
}

static uint32_t count_bits(const uint32_t *bits, size_t words)
{
	uint32_t n = 0;

	for (size_t i = 0; i < words; i++)
		n += (uint32_t)__builtin_popcount(bits[i]);
	return n;
}

static void list_bits(const uint32_t *bits, size_t words, int32_t *list)
{
	for (size_t i = 0; i < words; i++) {
		for (uint32_t word = bits[i]; word; word &= word - 1)
			*list++ = (int32_t)(i * 32) + __builtin_ctz(word);
	}
}

static void *copy(struct automaton *a, const void *from, size_t size)
{
	void *to = automaton_alloc(a, size ? size : 1);

	if (to && size)
		memcpy(to, from, size);
	return to;
}

/* The tokens that a place allows independently of the rule's caller. */
static const struct local *find_local(struct automaton *a, struct place *place)
{
	size_t words = vocab_words(a->vocab);
	uint32_t *bits = a->bits[1];
	struct config *start;
	struct local *l;

	if (place->local)
		return place->local;
	start = automaton_at(a, place, a->root);
	if (!start)
		return NULL;
	memset(bits, 0, words * sizeof(*bits));
	a->n_spots = 0;
	if (!walk(a, 0, start, a->vocab->longest, bits, true))
		return NULL;
	l = automaton_alloc(a, sizeof(*l));
	if (!l)
		return NULL;
	l->n = count_bits(bits, words);
	l->n_spots = a->n_spots;
	l->spots = copy(a, a->spots, a->n_spots * sizeof(*a->spots));
	if (l->n < DENSE(a->vocab->width)) {
		int32_t *list = automaton_alloc(a, (l->n + 1) * sizeof(*list));

		if (list)
			list_bits(bits, words, list);
		l->list = list;
	} else {
		l->bits = copy(a, bits, words * sizeof(*bits));
	}
	if (a->error)
		return NULL;
	place->local = l;
	return l;
}

static bool add_item(struct automaton *a, const struct item *item, uint32_t *bits)
{
	const struct local *l = find_local(a, item->place);
	uint32_t longest = item->frame->counted ? HORIZON : a->vocab->longest;
	size_t words = vocab_words(a->vocab);
	struct config *popped;

	if (!l)
		return false;
	if (l->bits) {
		for (size_t i = 0; i < words; i++)
			bits[i] |= l->bits[i];
	} else {
		for (uint32_t i = 0; i < l->n; i++)
			bits[l->list[i] / 32] |= 1u << (l->list[i] % 32);
	}
	a->work -= l->bits ? (uint32_t)words : l->n;
	if (!item->frame->below || !l->n_spots)
		return true;
	popped = automaton_pop(a, item->frame);
	if (!popped)
		return false;
	if (popped == a->no_config || !popped->n)
		return true;
	for (uint32_t i = 0; i < l->n_spots; i++) {
		if (!walk(a, l->spots[i], popped, longest, bits, false))
			return false;
	}
	return true;
}

static struct mask *make_mask(struct automaton *a, const uint32_t *bits, bool end)
{
	size_t words = vocab_words(a->vocab), size;
	uint32_t n = count_bits(bits, words);
	bool dense = n >= DENSE(a->vocab->width);
	struct mask *m;

	size = dense ? words * sizeof(*bits) : (n + 1) * sizeof(int32_t);
	m = malloc(sizeof(*m) + size);
	if (!m) {
		a->error = -ENOMEM;
		return NULL;
	}
	*m = (struct mask){.n = n, .end = end};
	atomic_init(&m->refs, 1);
	if (dense) {
		m->bits = (uint32_t *)(m + 1);
		memcpy(m->bits, bits, size);
	} else {
		m->list = (int32_t *)(m + 1);
		list_bits(bits, words, m->list);
	}
	a->bytes += sizeof(*m) + size;
	return m;
}

struct mask *masks_find(struct automaton *a, struct config *c)
{
	uint32_t *bits = a->bits[0];

	c = automaton_canonical(a, c);
	if (!c)
		return NULL;
	if (c->mask)
		return mask_ref(c->mask);
	memset(bits, 0, vocab_words(a->vocab) * sizeof(*bits));
	for (uint32_t i = 0; i < c->n; i++) {
		if (!add_item(a, &c->items[i], bits))
			return NULL;
	}
	c->mask = make_mask(a, bits, c->accepting);
	return c->mask ? mask_ref(c->mask) : NULL;
}

struct mask *mask_ref(struct mask *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void mask_unref(struct mask *m)
{
	if (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1)
		free(m);
}

void masks_drop(struct config *c)
{
	mask_unref(c->mask);
	c->mask = NULL;
}
