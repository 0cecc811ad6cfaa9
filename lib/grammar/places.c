// SPDX-License-Identifier: MIT
/* Interning, and places: sets of nodes, and where bytes and calls lead from them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "automaton.h"

/* ---- interning ------------------------------------------------------------------------------- */

uint32_t automaton_mix(uint32_t hash, uint32_t value)
{
	uint64_t x = ((uint64_t)hash << 32 | value) * 0x9E3779B97F4A7C15ull;

	return (uint32_t)(x >> 32) ^ (uint32_t)x;
}

struct entry **table_chain(struct automaton *a, struct table *t, uint32_t hash)
{
	if (t->n >= t->cap) {
		uint32_t cap = t->cap ? 4 * t->cap : 64;
		struct entry **slots = calloc(cap, sizeof(*slots));

		if (!slots) {
			a->error = -ENOMEM;
			return NULL;
		}
		for (uint32_t i = 0; i < t->cap; i++) {
			struct entry *e = t->slots[i], *next;

			for (; e; e = next) {
				next = e->next;
				e->next = slots[e->hash & (cap - 1)];
				slots[e->hash & (cap - 1)] = e;
			}
		}
		a->bytes += (cap - t->cap) * sizeof(*slots);
		free(t->slots);
		t->slots = slots;
		t->cap = cap;
	}
	return &t->slots[hash & (t->cap - 1)];
}

void table_put(struct automaton *a, struct table *t, struct entry **chain, struct entry *e,
	       uint32_t hash)
{
	e->hash = hash;
	e->id = a->next_id++;
	e->next = *chain;
	*chain = e;
	t->n++;
}

/* ---- places ---------------------------------------------------------------------------------- */

static int by_number(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return a < b ? -1 : a > b;
}

struct place *place_intern(struct automaton *a, const uint32_t *set, uint32_t n)
{
	uint32_t hash = n;
	struct entry **chain;
	struct place *p;
	uint32_t *nodes;

	if (!n)
		return a->no_place;
	for (uint32_t i = 0; i < n; i++)
		hash = automaton_mix(hash, set[i]);
	chain = table_chain(a, &a->places, hash);
	if (!chain)
		return NULL;
	for (struct entry *e = *chain; e; e = e->next) {
		p = (struct place *)e;
		if (e->hash == hash && p->n == n && !memcmp(p->nodes, set, n * sizeof(*set)))
			return p;
	}
	p = automaton_alloc(a, sizeof(*p));
	nodes = automaton_alloc(a, n * sizeof(*nodes));
	if (!p || !nodes)
		return NULL;
	memcpy(nodes, set, n * sizeof(*nodes));
	p->n = n;
	p->nodes = nodes;
	for (uint32_t i = 0; i < n; i++) {
		p->ends = p->ends || a->nfa->nodes[nodes[i]].op == NODE_END;
		p->bytes = p->bytes || a->nfa->nodes[nodes[i]].op == NODE_RANGE;
	}
	table_put(a, &a->places, chain, &p->entry, hash);
	return p;
}

/* Starts a set of nodes. */
static void begin_set(struct automaton *a)
{
	if (!++a->mark) {
		memset(a->marks, 0, a->nfa->n_nodes * sizeof(*a->marks));
		a->mark = 1;
	}
}

static uint32_t push_node(struct automaton *a, uint32_t node, uint32_t depth)
{
	if (node == NODE_NONE || a->marks[node] == a->mark || !a->nfa->nodes[node].live)
		return depth;
	a->marks[node] = a->mark;
	a->stack[depth] = node;
	return depth + 1;
}

/* Adds what @node leads to without a byte or a call to a->set; returns its new length. */
static uint32_t add_node(struct automaton *a, uint32_t node, uint32_t n)
{
	const struct nfa *nfa = a->nfa;
	uint32_t depth = push_node(a, node, 0);

	while (depth) {
		uint32_t i = a->stack[--depth];
		const struct node *at = &nfa->nodes[i];

		a->work--;
		if (at->op == NODE_EMPTY) {
			depth = push_node(a, at->out, depth);
			depth = push_node(a, at->alt, depth);
			continue;
		}
		a->set[n++] = i;
		if (at->op == NODE_REPEAT && !nfa->repeats[at->alt].min)
			depth = push_node(a, at->out, depth);
	}
	return n;
}

static struct place *end_set(struct automaton *a, uint32_t n)
{
	if (!automaton_pay(a, n))
		return NULL;
	qsort(a->set, n, sizeof(*a->set), by_number);
	return place_intern(a, a->set, n);
}

struct place *place_start(struct automaton *a, uint32_t rule)
{
	if (!a->starts[rule]) {
		begin_set(a);
		a->starts[rule] = end_set(a, add_node(a, a->nfa->rules[rule], 0));
	}
	return a->starts[rule];
}

static uint64_t call_key(const struct node *node)
{
	return (uint64_t)(node->op == NODE_REPEAT) << 32 | node->alt;
}

struct labelled {
	uint64_t key;
	uint32_t out;
};

static int by_key(const void *x, const void *y)
{
	const struct labelled *a = x, *b = y;

	return a->key < b->key ? -1 : a->key > b->key;
}

/* Creates one call for all nodes that call the same rule. */
static bool make_call(struct automaton *a, struct place *p, const struct labelled *first,
		      uint32_t n)
{
	struct call *call = &p->calls[p->n_calls];
	uint32_t n_set = 0;

	call->repeat = first->key >> 32;
	call->id = (uint32_t)first->key;
	begin_set(a);
	for (uint32_t i = 0; i < n; i++)
		n_set = add_node(a, first[i].out, n_set);
	call->after = end_set(a, n_set);
	if (!call->after)
		return false;
	p->n_calls++;
	return true;
}

bool place_expand(struct automaton *a, struct place *p)
{
	struct labelled *calls;
	uint32_t n = 0, from, to;
	bool ok = true;

	if (p->expanded)
		return true;
	calls = malloc((p->n + 1) * sizeof(*calls));
	if (!calls) {
		a->error = -ENOMEM;
		return false;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		const struct node *node = &a->nfa->nodes[p->nodes[i]];
		uint32_t rule;

		if (node->op != NODE_CALL && node->op != NODE_REPEAT)
			continue;
		rule = node->op == NODE_CALL ? node->alt : a->nfa->repeats[node->alt].rule;
		if (a->nfa->nodes[a->nfa->rules[rule]].live)
			calls[n++] = (struct labelled){call_key(node), node->out};
	}
	qsort(calls, n, sizeof(*calls), by_key);
	p->calls = n ? automaton_alloc(a, n * sizeof(*p->calls)) : NULL;
	ok = !n || p->calls;
	for (from = 0; ok && from < n; from = to) {
		for (to = from + 1; to < n && calls[to].key == calls[from].key; to++)
			;
		ok = make_call(a, p, calls + from, to - from);
	}
	free(calls);
	p->expanded = ok;
	if (!ok)
		p->n_calls = 0;
	return ok;
}

struct place *place_step(struct automaton *a, struct place *p, unsigned class)
{
	uint8_t byte = a->nfa->examples[class];
	uint32_t n = 0;

	if (!p->next) {
		p->next = automaton_alloc(a, a->nfa->n_classes * sizeof(struct place *));
		if (!p->next)
			return NULL;
	}
	if (p->next[class])
		return p->next[class];
	begin_set(a);
	a->work -= p->n;
	for (uint32_t i = 0; i < p->n; i++) {
		const struct node *node = &a->nfa->nodes[p->nodes[i]];

		if (node->op == NODE_RANGE && byte >= node->first && byte <= node->last)
			n = add_node(a, node->out, n);
	}
	p->next[class] = end_set(a, n);
	return p->next[class];
}
