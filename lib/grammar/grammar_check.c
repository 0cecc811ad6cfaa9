// SPDX-License-Identifier: MIT
/* Checks and preparation of a complete grammar. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "grammar_build.h"
#include "grammar_internal.h"

/* Scratch memory; nodes are numbered across all rules. */
struct check {
	struct nfa *nfa;
	uint32_t *before; /* nodes that lead to a node: [first_before[n], first_before[n + 1]) */
	uint32_t *first_before; /* [n_nodes + 1] */
	uint32_t *queue;	/* [n_nodes] */
	bool *empty;		/* [n_nodes] the end of the rule can be reached without a byte */
	uint32_t *mark;		/* [n_nodes] the last rule that reached it, + 1 */
	uint8_t *colour;	/* [n_rules] 0: not visited, 1: in progress, 2: done */
	uint32_t *from;		/* [n_rules] the rule from which it was reached */
	uint32_t *place;	/* [n_rules + 1] start of its entries in leads_to */
	uint32_t *leads_to;	/* [n_leads] rules that a rule may begin with */
	uint32_t n_leads;
	size_t cap_leads;
};

static uint32_t callee(const struct nfa *nfa, const struct node *node)
{
	return node->op == NODE_CALL ? node->alt : nfa->repeats[node->alt].rule;
}

/* Writes the successors of a node, including a called rule's start; returns their number. */
static unsigned next_of(const struct nfa *nfa, const struct node *node, uint32_t next[2])
{
	unsigned n = 0;

	if (node->out != NODE_NONE)
		next[n++] = node->out;
	if (node->op == NODE_EMPTY && node->alt != NODE_NONE)
		next[n++] = node->alt;
	if (node->op == NODE_CALL || node->op == NODE_REPEAT)
		next[n++] = nfa->rules[callee(nfa, node)];
	return n;
}

static int find_before(struct check *c)
{
	const struct nfa *nfa = c->nfa;
	uint32_t next[2], total = 0;

	for (uint32_t i = 0; i < nfa->n_nodes; i++) {
		unsigned n = next_of(nfa, &nfa->nodes[i], next);

		for (unsigned k = 0; k < n; k++)
			c->first_before[next[k]]++;
	}
	for (uint32_t i = 0; i <= nfa->n_nodes; i++) {
		total += c->first_before[i];
		c->first_before[i] = total;
	}
	c->before = calloc(total + 1, sizeof(*c->before));
	if (!c->before)
		return -ENOMEM;
	for (uint32_t i = 0; i < nfa->n_nodes; i++) {
		unsigned n = next_of(nfa, &nfa->nodes[i], next);

		for (unsigned k = 0; k < n; k++)
			c->before[--c->first_before[next[k]]] = i;
	}
	return 0;
}

/* Whether @node leads to a node of @reached, including through calls. */
static bool leads(const struct nfa *nfa, const struct node *node, const bool *reached, bool bytes)
{
	bool out = node->out != NODE_NONE && reached[node->out], through;

	switch (node->op) {
	case NODE_EMPTY: return out || (node->alt != NODE_NONE && reached[node->alt]);
	case NODE_RANGE: return bytes && out;
	case NODE_END: return true;
	default: break;
	}
	through = reached[nfa->rules[callee(nfa, node)]] ||
		  (node->op == NODE_REPEAT && !nfa->repeats[node->alt].min);
	return out && through;
}

/*
 * Finds the nodes from which the end of their rule can be reached; without @bytes: without reading
 * a byte.
 */
static void reach_ends(struct check *c, bool *reached, bool bytes)
{
	const struct nfa *nfa = c->nfa;
	uint32_t n = 0;

	for (uint32_t i = 0; i < nfa->n_nodes; i++) {
		if (nfa->nodes[i].op != NODE_END)
			continue;
		reached[i] = true;
		c->queue[n++] = i;
	}
	while (n) {
		uint32_t to = c->queue[--n];

		for (uint32_t k = c->first_before[to]; k < c->first_before[to + 1]; k++) {
			uint32_t i = c->before[k];

			if (reached[i] || !leads(nfa, &nfa->nodes[i], reached, bytes))
				continue;
			reached[i] = true;
			c->queue[n++] = i;
		}
	}
}

/* ---- rules that begin with themselves -------------------------------------------------------- */

static int note_lead(struct check *c, uint32_t rule)
{
	if (!array_grow(&c->leads_to, &c->cap_leads, (size_t)c->n_leads + 1, sizeof(*c->leads_to)))
		return -ENOMEM;
	c->leads_to[c->n_leads++] = rule;
	return 0;
}

/* Lists the rules that @rule may begin with. */
static int find_leads(struct check *c, uint32_t rule)
{
	const struct nfa *nfa = c->nfa;
	uint32_t n = 0, next[2];

	c->place[rule] = c->n_leads;
	c->queue[n++] = nfa->rules[rule];
	c->mark[nfa->rules[rule]] = rule + 1;
	while (n) {
		const struct node *node = &nfa->nodes[c->queue[--n]];
		unsigned n_next = 0;

		if (!node->live || node->op == NODE_RANGE || node->op == NODE_END)
			continue;
		if (node->op == NODE_EMPTY) {
			n_next = next_of(nfa, node, next);
		} else {
			uint32_t called = callee(nfa, node);

			if (nfa->nodes[nfa->rules[called]].live && note_lead(c, called))
				return -ENOMEM;
			if (c->empty[nfa->rules[called]] ||
			    (node->op == NODE_REPEAT && !nfa->repeats[node->alt].min))
				next[n_next++] = node->out;
		}
		for (unsigned k = 0; k < n_next; k++) {
			if (c->mark[next[k]] == rule + 1)
				continue;
			c->mark[next[k]] = rule + 1;
			c->queue[n++] = next[k];
		}
	}
	c->place[rule + 1] = c->n_leads;
	return 0;
}

/* A rule that may begin with itself, or NODE_NONE. */
static uint32_t find_loop(struct check *c)
{
	/* The next entry of each rule's leads; there are at least as many nodes as rules. */
	uint32_t *at = c->queue;

	for (uint32_t start = 0; start < c->nfa->n_rules; start++) {
		uint32_t rule = start;

		if (c->colour[start])
			continue;
		c->from[start] = NODE_NONE;
		c->colour[start] = 1;
		at[start] = c->place[start];
		while (rule != NODE_NONE) {
			uint32_t next;

			if (at[rule] == c->place[rule + 1]) {
				c->colour[rule] = 2;
				rule = c->from[rule];
				continue;
			}
			next = c->leads_to[at[rule]++];
			if (c->colour[next] == 1)
				return next;
			if (c->colour[next])
				continue;
			c->colour[next] = 1;
			c->from[next] = rule;
			at[next] = c->place[next];
			rule = next;
		}
	}
	return NODE_NONE;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void nfa_find_classes(struct nfa *nfa)
{
	bool cut[257] = {true};

	for (uint32_t i = 0; i < nfa->n_nodes; i++) {
		const struct node *node = &nfa->nodes[i];

		if (node->op == NODE_RANGE && node->live) {
			cut[node->first] = true;
			cut[node->last + 1] = true;
		}
	}
	for (unsigned byte = 0; byte < 256; byte++) {
		if (cut[byte])
			nfa->examples[nfa->n_classes++] = (uint8_t)byte;
		nfa->classes[byte] = (uint8_t)(nfa->n_classes - 1);
	}
}

static int check_rules(struct check *c, char *const *names, char *err, size_t errlen)
{
	struct nfa *nfa = c->nfa;
	bool *live = calloc(nfa->n_nodes, sizeof(*live));
	uint32_t loop;

	if (!live)
		return -ENOMEM;
	reach_ends(c, live, true);
	for (uint32_t i = 0; i < nfa->n_nodes; i++)
		nfa->nodes[i].live = live[i];
	free(live);
	if (!nfa->nodes[nfa->rules[nfa->root]].live) {
		snprintf(err, errlen, "the grammar matches nothing: \"%.100s\" has no end",
			 names[nfa->root]);
		return -EINVAL;
	}
	reach_ends(c, c->empty, false);
	for (uint32_t i = 0; i < nfa->n_repeats; i++) {
		if (c->empty[nfa->rules[nfa->repeats[i].rule]])
			nfa->repeats[i].min = 0;
	}
	for (uint32_t i = 0; i < nfa->n_rules; i++) {
		if (find_leads(c, i))
			return -ENOMEM;
	}
	loop = find_loop(c);
	if (loop != NODE_NONE) {
		snprintf(err, errlen, "the rule \"%.100s\" may begin with itself (left recursion)",
			 names[loop]);
		return -EINVAL;
	}
	nfa_find_classes(nfa);
	return 0;
}

int nfa_check(struct nfa *nfa, char *const *names, char *err, size_t errlen)
{
	struct check c = {.nfa = nfa};
	int error = -ENOMEM;

	c.first_before = calloc((size_t)nfa->n_nodes + 2, sizeof(*c.first_before));
	c.queue = calloc(nfa->n_nodes, sizeof(*c.queue));
	c.empty = calloc(nfa->n_nodes, sizeof(*c.empty));
	c.mark = calloc(nfa->n_nodes, sizeof(*c.mark));
	c.colour = calloc(nfa->n_rules, sizeof(*c.colour));
	c.from = calloc(nfa->n_rules, sizeof(*c.from));
	c.place = calloc((size_t)nfa->n_rules + 1, sizeof(*c.place));
	if (c.first_before && c.queue && c.empty && c.mark && c.colour && c.from && c.place)
		error = find_before(&c);
	if (!error)
		error = check_rules(&c, names, err, errlen);
	if (error == -ENOMEM)
		snprintf(err, errlen, "out of memory");
	free(c.before);
	free(c.first_before);
	free(c.queue);
	free(c.empty);
	free(c.mark);
	free(c.colour);
	free(c.from);
	free(c.place);
	free(c.leads_to);
	return error;
}
