// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "automaton.h"
#include "masks.h"
#include "vocab.h"

struct grammar_matcher {
	struct grammar *grammar;
	struct grammar_vocab *vocab;
	struct config *config;		     /* of the grammar's automaton; under its lock */
	struct grammar_matcher *prev, *next; /* of the grammar's list, under its lock */
	struct mask *mask;		     /* the last mask that was returned */
	bool over;
};

/* Discards the automaton's cached results, except for the configs of the matchers. Locked. */
static void start_afresh(struct grammar *g)
{
	struct automaton *fresh = NULL;
	struct grammar_matcher *m;
	struct config **places;
	size_t n = 0;
	bool ok;

	for (m = g->matchers; m; m = m->next)
		n++;
	places = malloc((n + 1) * sizeof(*places));
	ok = places && !automaton_new(&g->nfa, &fresh) &&
	     !automaton_bind(fresh, g->automaton->vocab);
	if (ok)
		automaton_begin(fresh);
	n = 0;
	for (m = g->matchers; ok && m; m = m->next) {
		places[n] = automaton_copy(fresh, m->config);
		ok = places[n++];
	}
	/* Without memory for a new automaton the old one is kept. */
	if (!ok) {
		automaton_free(fresh);
		free(places);
		return;
	}
	n = 0;
	for (m = g->matchers; m; m = m->next)
		m->config = places[n++];
	automaton_free(g->automaton);
	g->automaton = fresh;
	free(places);
}

static struct automaton *begin(struct grammar *g)
{
	pthread_mutex_lock(&g->lock);
	if (g->automaton->bytes > (g->too_much ? GRAMMAR_CACHE_LOW : GRAMMAR_CACHE)) {
		start_afresh(g);
		grammar_count(g);
	}
	automaton_begin(g->automaton);
	return g->automaton;
}

static int end(struct grammar *g)
{
	int error = automaton_error(g->automaton);

	grammar_count(g);
	pthread_mutex_unlock(&g->lock);
	return error;
}

/* Locked. */
static void list_matcher(struct grammar_matcher *m)
{
	struct grammar *g = m->grammar;

	m->next = g->matchers;
	if (m->next)
		m->next->prev = m;
	g->matchers = m;
}

static void move_to(struct grammar_matcher *m, struct config *c)
{
	m->config = c;
	m->over = c->accepting && !c->n;
}

int grammar_matcher_new(struct grammar *g, struct grammar_vocab *v, struct grammar_matcher **ret)
{
	struct grammar_matcher *m = calloc(1, sizeof(*m));
	struct config *start;
	struct automaton *a;
	int error = 0;

	if (!m)
		return -ENOMEM;
	a = begin(g);
	if (!a->vocab)
		error = automaton_bind(a, v);
	else if (a->vocab != v)
		error = -EXDEV;
	if (!error) {
		start = automaton_start(a);
		error = automaton_error(a);
	}
	if (!error) {
		m->grammar = grammar_ref(g);
		m->vocab = grammar_vocab_ref(v);
		move_to(m, start);
		list_matcher(m);
	}
	end(g);
	if (error)
		free(m);
	else
		*ret = m;
	return error;
}

void grammar_matcher_free(struct grammar_matcher *m)
{
	struct grammar *g;

	if (!m)
		return;
	g = m->grammar;
	pthread_mutex_lock(&g->lock);
	if (m->prev)
		m->prev->next = m->next;
	else
		g->matchers = m->next;
	if (m->next)
		m->next->prev = m->prev;
	pthread_mutex_unlock(&g->lock);
	mask_unref(m->mask);
	grammar_vocab_unref(m->vocab);
	grammar_unref(g);
	free(m);
}

int grammar_matcher_mask(struct grammar_matcher *m, struct grammar_mask *ret)
{
	struct automaton *a = begin(m->grammar);
	struct mask *mask = masks_find(a, m->config);
	int error = end(m->grammar);

	if (error) {
		mask_unref(mask);
		return error;
	}
	mask_unref(m->mask);
	m->mask = mask;
	*ret = (struct grammar_mask){
		.bits = mask->bits, .list = mask->list, .n = mask->n, .end = mask->end};
	return 0;
}

int grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len)
{
	struct automaton *a = begin(m->grammar);
	struct config *c = m->config;
	int error;

	for (size_t i = 0; i < len && c && c != a->no_config; i++)
		c = automaton_step_fast(a, c, (uint8_t)bytes[i]);
	error = automaton_error(a);
	if (!error && c == a->no_config)
		error = -EINVAL;
	if (!error)
		move_to(m, c);
	end(m->grammar);
	return error;
}

int grammar_matcher_accept(struct grammar_matcher *m, int32_t token)
{
	const struct grammar_vocab *v = m->vocab;

	if (token < 0 || (uint32_t)token >= v->n_tokens || v->first[token] == v->first[token + 1])
		return -EINVAL;
	return grammar_matcher_accept_bytes(m, v->text + v->first[token],
					    v->first[token + 1] - v->first[token]);
}

bool grammar_matcher_over(const struct grammar_matcher *m)
{
	return m->over;
}
