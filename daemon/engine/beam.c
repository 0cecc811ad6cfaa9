// SPDX-License-Identifier: MIT
#include "beam.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_NODE UINT32_MAX

/* A token and its predecessor: hypotheses share their prefixes. */
struct node {
	uint32_t parent; /* NO_NODE: the first token */
	struct engine_logprob token;
};

struct hypothesis {
	uint32_t node; /* its last token; NO_NODE: none */
	unsigned n, parent;
	double sum, score;
	bool stopped;
};

struct candidate {
	double sum;
	unsigned beam, rank; /* index of the beam, and of its candidate */
};

struct beam_search {
	struct beam_options options;
	struct node *nodes;
	struct engine_logprob *top; /* [n_nodes][n_top] */
	uint32_t n_nodes, cap_nodes;
	unsigned n_live, length;
	struct hypothesis *live, *next; /* [width] */
	struct hypothesis *finished;	/* [2 * width] best first */
	unsigned n_finished;
	struct candidate *pool; /* [width * (2 * width)] */
	bool over;
};

int beam_search_new(const struct beam_options *options, struct beam_search **ret)
{
	struct beam_search *b;

	if (!options->width || !options->max_tokens)
		return -EINVAL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->options = *options;
	b->live = calloc(options->width, sizeof(*b->live));
	b->next = calloc(options->width, sizeof(*b->next));
	b->finished = calloc(2 * (size_t)options->width, sizeof(*b->finished));
	b->pool = calloc(2 * (size_t)options->width * options->width, sizeof(*b->pool));
	if (!b->live || !b->next || !b->finished || !b->pool) {
		beam_search_free(b);
		return -ENOMEM;
	}
	b->live[0].node = NO_NODE;
	b->n_live = 1;
	*ret = b;
	return 0;
}

void beam_search_free(struct beam_search *b)
{
	if (!b)
		return;
	free(b->nodes);
	free(b->top);
	free(b->live);
	free(b->next);
	free(b->finished);
	free(b->pool);
	free(b);
}

unsigned beam_search_live(const struct beam_search *b)
{
	return b->over ? 0 : b->n_live;
}

unsigned beam_search_length(const struct beam_search *b)
{
	return b->length;
}

unsigned beam_search_parent(const struct beam_search *b, unsigned beam)
{
	return b->live[beam].parent;
}

int32_t beam_search_token(const struct beam_search *b, unsigned beam)
{
	return b->nodes[b->live[beam].node].token.token;
}

/* ---- a round --------------------------------------------------------------------------------- */

static int add_node(struct beam_search *b, uint32_t parent, const struct engine_logprob *token,
		    const struct engine_logprob *top, uint32_t *ret)
{
	unsigned n_top = b->options.n_top;

	if (b->n_nodes == b->cap_nodes) {
		uint32_t cap = b->cap_nodes ? 2 * b->cap_nodes : 64;
		struct node *nodes = realloc(b->nodes, cap * sizeof(*nodes));
		struct engine_logprob *tops;

		if (nodes)
			b->nodes = nodes;
		tops = realloc(b->top, ((size_t)cap * n_top + 1) * sizeof(*tops));
		if (tops)
			b->top = tops;
		if (!nodes || !tops)
			return -ENOMEM;
		b->cap_nodes = cap;
	}
	b->nodes[b->n_nodes] = (struct node){parent, *token};
	if (n_top)
		memcpy(b->top + (size_t)b->n_nodes * n_top, top, n_top * sizeof(*top));
	*ret = b->n_nodes++;
	return 0;
}

static double score_of(const struct beam_search *b, double sum, unsigned length)
{
	return sum / pow(length ? length : 1, b->options.length_penalty);
}

/* Adds a hypothesis to the finished ones if it is good enough. */
static void finish(struct beam_search *b, struct hypothesis h, unsigned length)
{
	unsigned at = b->n_finished;

	h.score = score_of(b, h.sum, length);
	while (at && b->finished[at - 1].score < h.score)
		at--;
	if (at >= b->options.width)
		return;
	memmove(&b->finished[at + 1], &b->finished[at],
		(b->n_finished - at) * sizeof(b->finished[0]));
	b->finished[at] = h;
	if (b->n_finished < b->options.width)
		b->n_finished++;
}

static bool is_stop(const struct beam_search *b, int32_t token)
{
	for (unsigned i = 0; i < b->options.n_stops; i++) {
		if (b->options.stops[i] == token)
			return true;
	}
	return false;
}

/* Best first; ties are broken by the earlier beam, then by the better rank. */
static int by_sum(const void *x, const void *y)
{
	const struct candidate *a = x, *b = y;

	if (a->sum != b->sum)
		return a->sum > b->sum ? -1 : 1;
	if (a->beam != b->beam)
		return a->beam < b->beam ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* The best score that any beam can still reach. */
static double best_to_come(const struct beam_search *b)
{
	double sum = b->n_live ? b->live[0].sum : -INFINITY;
	bool late = b->options.stopping == BEAM_STOP_NEVER && b->options.length_penalty > 0;

	/* Log probabilities only decrease, but a longer text may divide them by more. */
	return score_of(b, sum, late ? b->options.max_tokens : b->length);
}

static void check_finished(struct beam_search *b)
{
	unsigned width = b->options.width;

	if (b->n_finished >= width)
		b->over = b->options.stopping == BEAM_STOP_AT_WIDTH ||
			  b->finished[width - 1].score >= best_to_come(b);
	if (b->length < b->options.max_tokens && b->n_live && !b->over)
		return;
	/* Out of tokens: unfinished beams count as they are. */
	for (unsigned i = 0; i < b->n_live && !b->over; i++)
		finish(b, b->live[i], b->length);
	b->over = true;
}

int beam_search_step(struct beam_search *b, const struct engine_logprob *const *candidates,
		     unsigned n)
{
	unsigned width = b->options.width, each = n < 2 * width ? n : 2 * width, n_pool = 0;
	unsigned n_next = 0;
	struct hypothesis *swap;

	for (unsigned beam = 0; beam < b->n_live; beam++) {
		for (unsigned rank = 0; rank < each; rank++)
			b->pool[n_pool++] = (struct candidate){
				b->live[beam].sum + candidates[beam][rank].logprob, beam, rank};
	}
	qsort(b->pool, n_pool, sizeof(b->pool[0]), by_sum);
	b->length++;
	for (unsigned i = 0; i < n_pool && i < 2 * width && n_next < width; i++) {
		const struct candidate *c = &b->pool[i];
		const struct engine_logprob *token = &candidates[c->beam][c->rank];
		struct hypothesis h = b->live[c->beam];
		int error;

		h.sum = c->sum;
		h.parent = c->beam;
		if (is_stop(b, token->token)) {
			h.stopped = true;
			if (i < width)
				finish(b, h, b->length);
			continue;
		}
		error = add_node(b, h.node, token, candidates[c->beam], &h.node);
		if (error)
			return error;
		h.n++;
		b->next[n_next++] = h;
	}
	swap = b->live;
	b->live = b->next;
	b->next = swap;
	b->n_live = n_next;
	check_finished(b);
	return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

unsigned beam_search_results(const struct beam_search *b)
{
	return b->n_finished;
}

void beam_search_result(const struct beam_search *b, unsigned i, struct beam_result *ret)
{
	const struct hypothesis *h = &b->finished[i];

	*ret = (struct beam_result){.n = h->n, .score = h->score, .stopped = h->stopped};
}

void beam_search_copy(const struct beam_search *b, unsigned i, int32_t *tokens,
		      struct engine_logprob *logprobs, struct engine_logprob *top)
{
	const struct hypothesis *h = &b->finished[i];
	unsigned n_top = b->options.n_top;
	uint32_t node = h->node;

	for (unsigned k = h->n; k; k--) {
		logprobs[k - 1] = b->nodes[node].token;
		tokens[k - 1] = b->nodes[node].token.token;
		if (n_top)
			memcpy(top + (size_t)(k - 1) * n_top, b->top + (size_t)node * n_top,
			       n_top * sizeof(*top));
		node = b->nodes[node].parent;
	}
}
