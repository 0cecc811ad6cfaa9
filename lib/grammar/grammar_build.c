// SPDX-License-Identifier: MIT
#include "grammar_build.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "automaton.h"
#include "grammar_internal.h"

struct grammar_builder {
	struct nfa nfa;
	size_t cap_nodes, cap_rules, cap_repeats;
	char **names; /* [cap_rules] of the rules */
	int error;
	char text[256];
	char skipped[GRAMMAR_SKIPPED];
};

struct grammar_builder *grammar_builder_new(void)
{
	return calloc(1, sizeof(struct grammar_builder));
}

void nfa_free(struct nfa *nfa)
{
	free(nfa->nodes);
	free(nfa->rules);
	free(nfa->repeats);
	*nfa = (struct nfa){0};
}

void grammar_builder_free(struct grammar_builder *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->nfa.n_rules && b->names; i++)
		free(b->names[i]);
	free(b->names);
	nfa_free(&b->nfa);
	free(b);
}

void grammar_fail(struct grammar_builder *b, int error, const char *format, ...)
{
	va_list args;

	if (b->error)
		return;
	b->error = error;
	va_start(args, format);
	vsnprintf(b->text, sizeof(b->text), format, args);
	va_end(args);
}

void grammar_skip(struct grammar_builder *b, const char *what)
{
	static const char more[] = "...";
	size_t used = strlen(b->skipped), n = strlen(what), room = sizeof(b->skipped) - used;

	for (const char *p = b->skipped; (p = strstr(p, what)); p++)
		if ((p == b->skipped || p[-1] == '\n') && (!p[n] || p[n] == '\n'))
			return;
	/* With room for the last line. */
	if (what != more && n + sizeof(more) + 2 > room)
		grammar_skip(b, more);
	else
		snprintf(b->skipped + used, room, "%s%s", used ? "\n" : "", what);
}

bool grammar_failed(const struct grammar_builder *b)
{
	return b->error;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Makes room for one more of @n entries of @size bytes; false after an error. */
static bool grow(struct grammar_builder *b, void *array, uint32_t n, size_t *cap, size_t size)
{
	if (!b->error && !array_grow(array, cap, (size_t)n + 1, size))
		grammar_fail(b, -ENOMEM, "out of memory");
	return !b->error;
}

static uint32_t add_node(struct grammar_builder *b, struct node node)
{
	if (b->nfa.n_nodes >= GRAMMAR_MAX_NODES)
		grammar_fail(b, -E2BIG, "the grammar has more than %u nodes", GRAMMAR_MAX_NODES);
	if (!grow(b, &b->nfa.nodes, b->nfa.n_nodes, &b->cap_nodes, sizeof(node)))
		return 0;
	b->nfa.nodes[b->nfa.n_nodes] = node;
	return b->nfa.n_nodes++;
}

uint32_t grammar_node(struct grammar_builder *b)
{
	return add_node(b, (struct node){.op = NODE_EMPTY, .out = NODE_NONE, .alt = NODE_NONE});
}

static uint32_t range_node(struct grammar_builder *b, unsigned first, unsigned last, uint32_t out)
{
	return add_node(b, (struct node){.op = NODE_RANGE,
					 .first = (uint8_t)first,
					 .last = (uint8_t)last,
					 .out = out,
					 .alt = NODE_NONE});
}

void grammar_link(struct grammar_builder *b, uint32_t from, uint32_t to)
{
	struct node *node;
	uint32_t more;

	if (b->error)
		return;
	node = &b->nfa.nodes[from];
	if (node->out == NODE_NONE) {
		node->out = to;
		return;
	}
	if (node->alt == NODE_NONE) {
		node->alt = to;
		return;
	}
	more = add_node(b, (struct node){.op = NODE_EMPTY, .out = node->alt, .alt = to});
	if (!b->error)
		b->nfa.nodes[from].alt = more;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct grammar_piece grammar_empty(struct grammar_builder *b)
{
	uint32_t node = grammar_node(b);

	return (struct grammar_piece){node, node};
}

struct grammar_piece grammar_never(struct grammar_builder *b)
{
	return (struct grammar_piece){grammar_node(b), grammar_node(b)};
}

struct grammar_piece grammar_bytes(struct grammar_builder *b, const char *bytes, size_t len)
{
	struct grammar_piece piece = grammar_empty(b);

	for (size_t i = 0; i < len && !b->error; i++) {
		uint8_t byte = (uint8_t)bytes[i];
		uint32_t end = grammar_node(b);

		grammar_link(b, piece.end, range_node(b, byte, byte, end));
		piece.end = end;
	}
	return piece;
}

struct grammar_piece grammar_byte(struct grammar_builder *b, unsigned first, unsigned last)
{
	uint32_t end = grammar_node(b);

	return (struct grammar_piece){range_node(b, first, last, end), end};
}

struct grammar_piece grammar_text(struct grammar_builder *b, const char *text)
{
	return grammar_bytes(b, text, strlen(text));
}

struct grammar_piece grammar_token(struct grammar_builder *b, uint32_t id)
{
	const char bytes[] = {(char)TOKEN_BYTE, (char)(id >> 16), (char)(id >> 8), (char)id};

	return grammar_bytes(b, bytes, sizeof(bytes));
}

struct grammar_piece grammar_seq(struct grammar_builder *b, struct grammar_piece first,
				 struct grammar_piece second)
{
	grammar_link(b, first.end, second.start);
	return (struct grammar_piece){first.start, second.end};
}

struct grammar_piece grammar_either(struct grammar_builder *b, struct grammar_piece one,
				    struct grammar_piece other)
{
	struct grammar_piece piece = grammar_never(b);

	grammar_link(b, piece.start, one.start);
	grammar_link(b, piece.start, other.start);
	grammar_link(b, one.end, piece.end);
	grammar_link(b, other.end, piece.end);
	return piece;
}

struct grammar_piece grammar_optional(struct grammar_builder *b, struct grammar_piece piece)
{
	return grammar_either(b, piece, grammar_empty(b));
}

struct grammar_piece grammar_plus(struct grammar_builder *b, struct grammar_piece piece)
{
	uint32_t start = grammar_node(b), end = grammar_node(b);

	grammar_link(b, start, piece.start);
	grammar_link(b, piece.end, start);
	grammar_link(b, piece.end, end);
	return (struct grammar_piece){start, end};
}

struct grammar_piece grammar_star(struct grammar_builder *b, struct grammar_piece piece)
{
	return grammar_optional(b, grammar_plus(b, piece));
}

struct grammar_piece grammar_repeat(struct grammar_builder *b, struct grammar_piece piece,
				    uint32_t min, uint32_t max)
{
	uint32_t rule, end, node;

	if (max < min) {
		grammar_fail(b, -EINVAL, "a repetition from %u to %u times is invalid", min, max);
		return grammar_never(b);
	}
	if (!max)
		return grammar_empty(b);
	if (min <= 1 && max == 1)
		return min ? piece : grammar_optional(b, piece);
	if (min <= 1 && max == GRAMMAR_UNLIMITED)
		return min ? grammar_plus(b, piece) : grammar_star(b, piece);
	rule = grammar_rule(b, "a repeated part");
	grammar_define(b, rule, piece);
	if (!grow(b, &b->nfa.repeats, b->nfa.n_repeats, &b->cap_repeats, sizeof(struct repeat)))
		return grammar_never(b);
	b->nfa.repeats[b->nfa.n_repeats] = (struct repeat){rule, min, max};
	end = grammar_node(b);
	node = add_node(b, (struct node){.op = NODE_REPEAT, .out = end, .alt = b->nfa.n_repeats++});
	return (struct grammar_piece){node, end};
}

static int by_bytes(const void *a, const void *b)
{
	const struct grammar_bytes *x = a, *y = b;
	size_t shared = x->len < y->len ? x->len : y->len;
	int order = shared ? memcmp(x->bytes, y->bytes, shared) : 0;

	return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

/*
 * Common prefixes are shared: in sorted order, each string branches off the path of the previous
 * one where they differ.
 */
struct grammar_piece grammar_one_of(struct grammar_builder *b, struct grammar_bytes *strings,
				    size_t n)
{
	struct grammar_piece piece = grammar_never(b);
	size_t longest = 0, shared;
	uint32_t *path;

	if (!n || b->error)
		return piece;
	qsort(strings, n, sizeof(*strings), by_bytes);
	for (size_t i = 0; i < n; i++)
		longest = strings[i].len > longest ? strings[i].len : longest;
	path = malloc((longest + 1) * sizeof(*path));
	if (!path) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return piece;
	}
	path[0] = piece.start;
	for (size_t i = 0; i < n && !b->error; i++) {
		const struct grammar_bytes *s = &strings[i], *before = i ? &strings[i - 1] : NULL;

		if (before && !by_bytes(s, before))
			continue;
		for (shared = 0; before && shared < s->len && shared < before->len; shared++) {
			if (s->bytes[shared] != before->bytes[shared])
				break;
		}
		for (size_t k = shared; k < s->len && !b->error; k++) {
			uint8_t byte = (uint8_t)s->bytes[k];

			path[k + 1] = grammar_node(b);
			grammar_link(b, path[k], range_node(b, byte, byte, path[k + 1]));
		}
		grammar_link(b, path[s->len], piece.end);
	}
	free(path);
	return piece;
}

/* ---- rules ----------------------------------------------------------------------------------- */

uint32_t grammar_rule(struct grammar_builder *b, const char *name)
{
	size_t cap = b->cap_rules, cap_names = b->cap_rules;
	char *copy;

	if (b->nfa.n_rules >= GRAMMAR_MAX_RULES)
		grammar_fail(b, -E2BIG, "the grammar has more than %u rules", GRAMMAR_MAX_RULES);
	copy = strdup(name);
	if (!copy)
		grammar_fail(b, -ENOMEM, "out of memory");
	if (!grow(b, &b->nfa.rules, b->nfa.n_rules, &cap, sizeof(uint32_t)) ||
	    !grow(b, &b->names, b->nfa.n_rules, &cap_names, sizeof(char *))) {
		free(copy);
		return 0;
	}
	b->cap_rules = cap;
	b->names[b->nfa.n_rules] = copy;
	b->nfa.rules[b->nfa.n_rules] = NODE_NONE;
	return b->nfa.n_rules++;
}

void grammar_define(struct grammar_builder *b, uint32_t rule, struct grammar_piece piece)
{
	if (b->error)
		return;
	b->nfa.rules[rule] = piece.start;
	grammar_link(b, piece.end, add_node(b, (struct node){.op = NODE_END, .out = NODE_NONE}));
}

bool grammar_is_defined(const struct grammar_builder *b, uint32_t rule)
{
	return !b->error && b->nfa.rules[rule] != NODE_NONE;
}

struct grammar_piece grammar_call(struct grammar_builder *b, uint32_t rule)
{
	uint32_t end = grammar_node(b);

	return (struct grammar_piece){
		add_node(b, (struct node){.op = NODE_CALL, .out = end, .alt = rule}), end};
}

/* ---- the grammar ----------------------------------------------------------------------------- */

void grammar_count(struct grammar *g)
{
	size_t before = atomic_load_explicit(&g->bytes, memory_order_relaxed),
	       bytes = sizeof(*g) + g->automaton->bytes + g->nfa.n_nodes * sizeof(struct node) +
		       g->nfa.n_rules * sizeof(uint32_t) + g->nfa.n_repeats * sizeof(struct repeat);

	if (bytes == before)
		return;
	atomic_store_explicit(&g->bytes, bytes, memory_order_relaxed);
	if (g->meter.count)
		g->too_much = !g->meter.count(g->meter.arg, (int64_t)bytes - (int64_t)before);
}

size_t grammar_memory(const struct grammar *g)
{
	return atomic_load_explicit(&g->bytes, memory_order_relaxed);
}

bool grammar_set_meter(struct grammar *g, const struct grammar_meter *meter)
{
	g->meter = *meter;
	g->too_much = !meter->count(meter->arg, (int64_t)grammar_memory(g));
	return !g->too_much;
}

struct grammar *grammar_of_nfa(struct nfa *nfa)
{
	struct grammar *g = calloc(1, sizeof(*g));

	if (!g || automaton_new(nfa, &g->automaton)) {
		free(g);
		return NULL;
	}
	atomic_init(&g->refs, 1);
	pthread_mutex_init(&g->lock, NULL);
	g->nfa = *nfa;
	*nfa = (struct nfa){0};
	automaton_move(g->automaton, &g->nfa);
	grammar_count(g);
	return g;
}

int grammar_build(struct grammar_builder *b, uint32_t root, struct grammar **ret, char *err,
		  size_t errlen)
{
	struct grammar *g;
	int error;

	for (uint32_t i = 0; i < b->nfa.n_rules && !b->error; i++) {
		if (b->nfa.rules[i] == NODE_NONE)
			grammar_fail(b, -EINVAL, "the rule \"%.100s\" is not defined", b->names[i]);
	}
	b->nfa.root = root;
	if (!b->error) {
		error = nfa_check(&b->nfa, b->names, b->text, sizeof(b->text));
		b->error = error;
	}
	if (b->error) {
		snprintf(err, errlen, "%s", b->text);
		return b->error;
	}
	g = grammar_of_nfa(&b->nfa);
	if (!g) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	memcpy(g->skipped, b->skipped, sizeof(g->skipped));
	for (uint32_t i = 0; i < g->nfa.n_rules; i++)
		free(b->names[i]);
	free(b->names);
	b->names = NULL;
	b->error = -EINVAL;
	*ret = g;
	return 0;
}

const char *grammar_skipped(const struct grammar *g)
{
	return g->skipped;
}

struct grammar *grammar_ref(struct grammar *g)
{
	atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
	return g;
}

bool grammar_is_shared(const struct grammar *g)
{
	return atomic_load_explicit(&g->refs, memory_order_acquire) > 1;
}

void grammar_unref(struct grammar *g)
{
	if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1)
		return;
	automaton_free(g->automaton);
	nfa_free(&g->nfa);
	pthread_mutex_destroy(&g->lock);
	if (g->meter.count)
		g->meter.count(g->meter.arg, -(int64_t)grammar_memory(g));
	free(g);
}
