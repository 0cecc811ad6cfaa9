// SPDX-License-Identifier: MIT
/*
 * Serialised grammars: bytes without pointers, written by one process and checked by another.
 *
 * The check covers that every index is valid. It does not cover whether rules terminate or begin
 * with themselves: a grammar with such errors allows too little, or exceeds the limits of a call,
 * but does no harm.
 */
#include "grammar_internal.h"
#include "text_buf.h"

#include <errno.h>

struct tables_head {
	uint32_t n_nodes, n_rules, n_repeats, root;
	char skipped[GRAMMAR_SKIPPED];
};

int grammar_export(const struct grammar *g, struct text_buf *out)
{
	const struct nfa *nfa = &g->nfa;
	struct tables_head head = {nfa->n_nodes, nfa->n_rules, nfa->n_repeats, nfa->root, ""};
	bool ok;

	memcpy(head.skipped, g->skipped, sizeof(head.skipped));
	ok = text_buf_add(out, &head, sizeof(head)) &&
	     text_buf_add(out, nfa->nodes, nfa->n_nodes * sizeof(*nfa->nodes)) &&
	     text_buf_add(out, nfa->rules, nfa->n_rules * sizeof(*nfa->rules)) &&
	     text_buf_add(out, nfa->repeats, nfa->n_repeats * sizeof(*nfa->repeats));

	return ok ? 0 : -ENOMEM;
}

static bool leads_on(const struct nfa *nfa, uint32_t node)
{
	return node < nfa->n_nodes;
}

static bool leads_on_or_ends(const struct nfa *nfa, uint32_t node)
{
	return node == NODE_NONE || node < nfa->n_nodes;
}

static bool node_is_sound(const struct nfa *nfa, const struct node *node)
{
	switch (node->op) {
	case NODE_EMPTY:
		return leads_on_or_ends(nfa, node->out) && leads_on_or_ends(nfa, node->alt);
	case NODE_RANGE: return node->first <= node->last && leads_on(nfa, node->out);
	case NODE_CALL: return node->alt < nfa->n_rules && leads_on(nfa, node->out);
	case NODE_REPEAT: return node->alt < nfa->n_repeats && leads_on(nfa, node->out);
	case NODE_END: return true;
	default: return false;
	}
}

static bool is_sound(const struct nfa *nfa)
{
	bool sound = nfa->root < nfa->n_rules;

	for (uint32_t i = 0; sound && i < nfa->n_nodes; i++)
		sound = node_is_sound(nfa, &nfa->nodes[i]);
	for (uint32_t i = 0; sound && i < nfa->n_rules; i++)
		sound = leads_on(nfa, nfa->rules[i]);
	for (uint32_t i = 0; sound && i < nfa->n_repeats; i++)
		sound = nfa->repeats[i].rule < nfa->n_rules && nfa->repeats[i].max &&
			nfa->repeats[i].min <= nfa->repeats[i].max;
	return sound;
}

static void *take(const char **data, size_t n, size_t size)
{
	void *copy = malloc(n * size + 1);

	if (copy)
		memcpy(copy, *data, n * size);
	*data += n * size;
	return copy;
}

/* The bytes of a bool must be 0 or 1. */
static bool bools_are_sound(const char *nodes, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t live =
			(uint8_t)nodes[i * sizeof(struct node) + offsetof(struct node, live)];

		if (live > 1)
			return false;
	}
	return true;
}

int grammar_import(const char *data, size_t len, struct grammar **ret)
{
	struct tables_head head;
	struct nfa nfa = {0};
	int r = -EINVAL;

	if (len < sizeof(head))
		return -EINVAL;
	memcpy(&head, data, sizeof(head));
	data += sizeof(head);
	if (!head.n_nodes || head.n_nodes > GRAMMAR_MAX_NODES || head.n_rules > GRAMMAR_MAX_RULES ||
	    head.n_repeats > head.n_nodes ||
	    len != sizeof(head) + head.n_nodes * sizeof(*nfa.nodes) +
			    head.n_rules * sizeof(*nfa.rules) +
			    head.n_repeats * sizeof(*nfa.repeats) ||
	    !memchr(head.skipped, '\0', sizeof(head.skipped)) ||
	    !bools_are_sound(data, head.n_nodes))
		return -EINVAL;
	nfa.n_nodes = head.n_nodes;
	nfa.n_rules = head.n_rules;
	nfa.n_repeats = head.n_repeats;
	nfa.root = head.root;
	nfa.nodes = take(&data, nfa.n_nodes, sizeof(*nfa.nodes));
	nfa.rules = take(&data, nfa.n_rules, sizeof(*nfa.rules));
	nfa.repeats = take(&data, nfa.n_repeats, sizeof(*nfa.repeats));
	if (!nfa.nodes || !nfa.rules || !nfa.repeats)
		r = -ENOMEM;
	else if (is_sound(&nfa))
		r = 0;
	if (!r) {
		nfa_find_classes(&nfa);
		*ret = grammar_of_nfa(&nfa);
		r = *ret ? 0 : -ENOMEM;
	}
	if (!r)
		memcpy((*ret)->skipped, head.skipped, sizeof(head.skipped));
	if (r)
		nfa_free(&nfa);
	return r;
}
