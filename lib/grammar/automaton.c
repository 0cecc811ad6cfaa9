// SPDX-License-Identifier: MIT
#include "automaton.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_build.h"
#include "masks.h"
#include "vocab.h"

#define CHUNK_BYTES ((size_t)32 << 10)

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char data[];
};

/* An item reached by a closure. */
struct visit {
	struct item item;
	bool fresh; /* no byte was read since the round of the innermost repeat began */
	bool done;
};

/* ---- memory ---------------------------------------------------------------------------------- */

void *automaton_alloc(struct automaton *a, size_t size)
{
	struct chunk *chunk = a->chunks;
	void *memory;

	size = (size + 15) & ~(size_t)15;
	if (!chunk || chunk->size - chunk->used < size) {
		size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;

		chunk = calloc(1, sizeof(*chunk) + room);
		if (!chunk) {
			a->error = -ENOMEM;
			return NULL;
		}
		chunk->size = room;
		chunk->next = a->chunks;
		a->chunks = chunk;
		a->bytes += sizeof(*chunk) + room;
	}
	memory = chunk->data + chunk->used;
	chunk->used += size;
	return memory;
}

int automaton_new(const struct nfa *nfa, struct automaton **ret)
{
	struct automaton *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->nfa = nfa;
	a->marks = calloc(nfa->n_nodes, sizeof(*a->marks));
	a->set = calloc(nfa->n_nodes, sizeof(*a->set));
	a->stack = calloc(nfa->n_nodes, sizeof(*a->stack));
	a->bytes = sizeof(*a) + (size_t)nfa->n_nodes * 3 * sizeof(*a->marks);
	a->root = automaton_alloc(a, sizeof(*a->root));
	a->no_place = automaton_alloc(a, sizeof(*a->no_place));
	a->no_config = automaton_alloc(a, sizeof(*a->no_config));
	a->starts = automaton_alloc(a, nfa->n_rules * sizeof(*a->starts));
	if (!a->marks || !a->set || !a->stack || a->error) {
		automaton_free(a);
		return -ENOMEM;
	}
	a->root->canonical = a->root;
	a->next_id = 1;
	*ret = a;
	return 0;
}

void automaton_free(struct automaton *a)
{
	struct chunk *chunk, *next;

	if (!a)
		return;
	for (uint32_t i = 0; i < a->configs.cap; i++) {
		for (struct entry *e = a->configs.slots[i]; e; e = e->next)
			masks_drop((struct config *)e);
	}
	/* It is not in any table. */
	if (a->no_config)
		masks_drop(a->no_config);
	for (chunk = a->chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	grammar_vocab_unref(a->vocab);
	free(a->places.slots);
	free(a->frames.slots);
	free(a->configs.slots);
	free(a->marks);
	free(a->set);
	free(a->stack);
	free(a->visits);
	free(a->visit_slots);
	free(a->bits[0]);
	free(a->bits[1]);
	free(a->spots);
	free(a->path);
	free(a);
}

void automaton_move(struct automaton *a, const struct nfa *nfa)
{
	a->nfa = nfa;
}

int automaton_bind(struct automaton *a, struct grammar_vocab *vocab)
{
	size_t words = vocab_words(vocab);

	a->bits[0] = calloc(words, sizeof(uint32_t));
	a->bits[1] = calloc(words, sizeof(uint32_t));
	a->path = calloc((size_t)vocab->longest + 1, sizeof(struct config *));
	if (!a->bits[0] || !a->bits[1] || !a->path)
		return -ENOMEM;
	a->bytes += 2 * words * sizeof(uint32_t) + vocab->longest * sizeof(struct config *);
	a->vocab = grammar_vocab_ref(vocab);
	return 0;
}

void automaton_begin(struct automaton *a)
{
	a->error = 0;
	a->work = GRAMMAR_MAX_WORK;
}

int automaton_error(const struct automaton *a)
{
	return a->error;
}

bool automaton_pay(struct automaton *a, uint32_t n)
{
	a->work -= n;
	if (a->work < 0 && !a->error)
		a->error = -E2BIG;
	return !a->error;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The smallest count that allows and forbids the same within the horizon. */
static uint32_t canonical_count(const struct automaton *a, uint32_t number, uint32_t count)
{
	const struct repeat *r = &a->nfa->repeats[number];
	uint32_t least = r->min ? r->min : 1;
	uint64_t far = HORIZON + 1;

	if (count + far < r->min)
		return 1;
	if (count >= least && (r->max == GRAMMAR_UNLIMITED || count + far < r->max))
		return least;
	return count;
}

static struct frame *intern_frame(struct automaton *a, struct place *after, uint32_t repeat,
				  uint32_t count, struct frame *below)
{
	uint32_t hash = automaton_mix(automaton_mix(automaton_mix(after->entry.id, repeat), count),
				      below->entry.id);
	struct frame *f;
	struct entry **chain = table_chain(a, &a->frames, hash);

	if (!chain)
		return NULL;
	for (struct entry *e = *chain; e; e = e->next) {
		f = (struct frame *)e;
		if (e->hash == hash && f->after == after && f->repeat == repeat &&
		    f->count == count && f->below == below)
			return f;
	}
	f = automaton_alloc(a, sizeof(*f));
	if (!f)
		return NULL;
	f->after = after;
	f->repeat = repeat;
	f->count = count;
	f->below = below;
	f->depth = below->depth + 1;
	f->counted = repeat || below->counted;
	table_put(a, &a->frames, chain, &f->entry, hash);
	return f;
}

/* Recursion is limited by GRAMMAR_MAX_DEPTH. */
static struct frame *canonical_frame(struct automaton *a, struct frame *f)
{
	struct frame *below;
	uint32_t count;

	if (f->canonical)
		return f->canonical;
	below = canonical_frame(a, f->below);
	if (!below)
		return NULL;
	count = f->repeat ? canonical_count(a, f->repeat - 1, f->count) : 0;
	f->canonical = count == f->count && below == f->below
			       ? f
			       : intern_frame(a, f->after, f->repeat, count, below);
	return f->canonical;
}

/* ---- closure --------------------------------------------------------------------------------- */

static uint32_t item_hash(const struct item *item)
{
	return automaton_mix(item->place->entry.id, item->frame->entry.id);
}

static bool grow_visits(struct automaton *a)
{
	uint32_t cap = a->cap_visits ? 2 * a->cap_visits : 64, n_slots = 4 * cap;
	struct visit *visits = realloc(a->visits, cap * sizeof(*visits));
	uint32_t *slots;

	if (visits)
		a->visits = visits;
	slots = calloc(n_slots, sizeof(*slots));
	if (!visits || !slots) {
		free(slots);
		a->error = -ENOMEM;
		return false;
	}
	for (uint32_t i = 0; i < a->n_visits; i++) {
		uint32_t at = item_hash(&visits[i].item) & (n_slots - 1);

		while (slots[at])
			at = (at + 1) & (n_slots - 1);
		slots[at] = i + 1;
	}
	free(a->visit_slots);
	a->visit_slots = slots;
	a->n_visit_slots = n_slots;
	a->bytes += (cap - a->cap_visits) * (sizeof(*visits) + 4 * sizeof(*slots));
	a->cap_visits = cap;
	return true;
}

/* Adds an item to be visited; again if it was fresh and is not any more. */
static void visit(struct automaton *a, struct place *place, struct frame *frame, bool fresh)
{
	struct item item = {place, frame};
	uint32_t at;

	if (!place || !frame || place == a->no_place || a->error)
		return;
	if (a->n_visits == a->cap_visits && !grow_visits(a))
		return;
	for (at = item_hash(&item) & (a->n_visit_slots - 1); a->visit_slots[at];
	     at = (at + 1) & (a->n_visit_slots - 1)) {
		struct visit *v = &a->visits[a->visit_slots[at] - 1];

		if (v->item.place != place || v->item.frame != frame)
			continue;
		if (v->fresh && !fresh)
			v->fresh = v->done = false;
		return;
	}
	if (a->n_visits == 4 * GRAMMAR_MAX_ITEMS) {
		a->error = -E2BIG;
		return;
	}
	a->visits[a->n_visits++] = (struct visit){.item = item, .fresh = fresh};
	a->visit_slots[at] = a->n_visits;
}

static void begin_closure(struct automaton *a)
{
	for (uint32_t i = 0; i < a->n_visits; i++) {
		uint32_t at = item_hash(&a->visits[i].item) & (a->n_visit_slots - 1);

		while (a->visit_slots[at]) {
			a->visit_slots[at] = 0;
			at = (at + 1) & (a->n_visit_slots - 1);
		}
	}
	a->n_visits = 0;
}

/* Continues after the end of @frame. A round of a repeat that read nothing leads nowhere new. */
static void leave(struct automaton *a, struct frame *frame, bool fresh)
{
	const struct repeat *r;
	uint32_t count;

	if (!frame->repeat) {
		visit(a, frame->after, frame->below, fresh);
		return;
	}
	if (fresh)
		return;
	r = &a->nfa->repeats[frame->repeat - 1];
	if (frame->count >= r->min)
		visit(a, frame->after, frame->below, false);
	if (frame->count >= r->max)
		return;
	count = frame->count + 1;
	/* Without a maximum, rounds beyond the minimum are all equivalent. */
	if (r->max == GRAMMAR_UNLIMITED && count > r->min)
		count = r->min ? r->min : 1;
	visit(a, place_start(a, r->rule),
	      intern_frame(a, frame->after, frame->repeat, count, frame->below), true);
}

/* A place that can only end: a call before it needs no frame. */
static bool only_ends(const struct place *p)
{
	return p->ends && p->n == 1;
}

static void enter(struct automaton *a, const struct call *call, struct frame *frame, bool fresh)
{
	uint32_t rule = call->repeat ? a->nfa->repeats[call->id].rule : call->id;

	if (call->repeat) {
		fresh = true;
		frame = frame->depth < GRAMMAR_MAX_DEPTH
				? intern_frame(a, call->after, call->id + 1, 1, frame)
				: NULL;
	} else if (!only_ends(call->after)) {
		frame = frame->depth < GRAMMAR_MAX_DEPTH ? intern_frame(a, call->after, 0, 0, frame)
							 : NULL;
	}
	visit(a, place_start(a, rule), frame, fresh);
}

static int by_ids(const void *x, const void *y)
{
	const struct item *a = x, *b = y;

	if (a->place != b->place)
		return a->place->entry.id < b->place->entry.id ? -1 : 1;
	if (a->frame != b->frame)
		return a->frame->entry.id < b->frame->entry.id ? -1 : 1;
	return 0;
}

/* The config of the items [n], which are sorted here. */
static struct config *intern_config(struct automaton *a, struct item *items, uint32_t n,
				    bool accepting)
{
	uint32_t hash = n + accepting;
	struct entry **chain;
	struct config *c;

	if (!n && !accepting)
		return a->no_config;
	qsort(items, n, sizeof(*items), by_ids);
	for (uint32_t i = 0; i < n; i++)
		hash = automaton_mix(hash, item_hash(&items[i]));
	chain = table_chain(a, &a->configs, hash);
	if (!chain)
		return NULL;
	for (struct entry *e = *chain; e; e = e->next) {
		c = (struct config *)e;
		if (e->hash == hash && c->n == n && c->accepting == accepting &&
		    (!n || !memcmp(c->items, items, n * sizeof(*items))))
			return c;
	}
	c = automaton_alloc(a, sizeof(*c));
	if (c && n)
		c->items = automaton_alloc(a, n * sizeof(*items));
	if (!c || (n && !c->items))
		return NULL;
	if (n)
		memcpy(c->items, items, n * sizeof(*items));
	c->n = n;
	c->accepting = accepting;
	table_put(a, &a->configs, chain, &c->entry, hash);
	return c;
}

/* Follows all visited items as far as no byte is needed, and interns the resulting config. */
static struct config *end_closure(struct automaton *a)
{
	struct item items[GRAMMAR_MAX_ITEMS];
	bool accepting = false, again = true;
	uint32_t n = 0;

	while (again && !a->error) {
		again = false;
		for (uint32_t i = 0; i < a->n_visits && !a->error; i++) {
			struct visit v = a->visits[i];

			if (v.done)
				continue;
			a->visits[i].done = true;
			again = true;
			if (!automaton_pay(a, 2) || !place_expand(a, v.item.place))
				break;
			if (v.item.place->ends && !v.item.frame->below)
				accepting = true;
			else if (v.item.place->ends)
				leave(a, v.item.frame, v.fresh);
			for (uint32_t k = 0; k < v.item.place->n_calls; k++)
				enter(a, &v.item.place->calls[k], v.item.frame, v.fresh);
		}
	}
	for (uint32_t i = 0; i < a->n_visits && !a->error; i++) {
		if (!a->visits[i].item.place->bytes)
			continue;
		if (n == GRAMMAR_MAX_ITEMS)
			a->error = -E2BIG;
		else
			items[n++] = a->visits[i].item;
	}
	return a->error ? NULL : intern_config(a, items, n, accepting);
}

/* ---- configs --------------------------------------------------------------------------------- */

struct config *automaton_at(struct automaton *a, struct place *place, struct frame *frame)
{
	begin_closure(a);
	visit(a, place, frame, false);
	return end_closure(a);
}

struct config *automaton_start(struct automaton *a)
{
	return automaton_at(a, place_start(a, a->nfa->root), a->root);
}

struct config *automaton_pop(struct automaton *a, struct frame *frame)
{
	if (!frame->popped) {
		begin_closure(a);
		leave(a, frame, false);
		frame->popped = end_closure(a);
	}
	return frame->popped;
}

struct config *automaton_step(struct automaton *a, struct config *c, uint8_t byte)
{
	unsigned class = a->nfa->classes[byte];

	if (c == a->no_config || !c->n)
		return a->no_config;
	if (!c->next) {
		c->next = automaton_alloc(a, a->nfa->n_classes * sizeof(struct config *));
		if (!c->next)
			return NULL;
	}
	if (c->next[class])
		return c->next[class];
	begin_closure(a);
	for (uint32_t i = 0; i < c->n && automaton_pay(a, 1); i++)
		visit(a, place_step(a, c->items[i].place, class), c->items[i].frame, false);
	c->next[class] = end_closure(a);
	return c->next[class];
}

struct config *automaton_canonical(struct automaton *a, struct config *c)
{
	struct item items[GRAMMAR_MAX_ITEMS];
	uint32_t n = 0;

	if (c->canonical)
		return c->canonical;
	for (uint32_t i = 0; i < c->n; i++) {
		items[i].place = c->items[i].place;
		items[i].frame = canonical_frame(a, c->items[i].frame);
		if (!items[i].frame)
			return NULL;
	}
	qsort(items, c->n, sizeof(items[0]), by_ids);
	for (uint32_t i = 0; i < c->n; i++) {
		if (!i || by_ids(&items[i], &items[i - 1]))
			items[n++] = items[i];
	}
	c->canonical = intern_config(a, items, n, c->accepting);
	return c->canonical;
}

/* ---- starting afresh ------------------------------------------------------------------------- */

static struct place *copy_place(struct automaton *a, const struct place *from)
{
	return place_intern(a, from->nodes, from->n);
}

/* Recursion is limited by GRAMMAR_MAX_DEPTH. */
static struct frame *copy_frame(struct automaton *a, const struct frame *from)
{
	struct frame *below;
	struct place *after;

	if (!from->below)
		return a->root;
	below = copy_frame(a, from->below);
	after = below ? copy_place(a, from->after) : NULL;
	return after ? intern_frame(a, after, from->repeat, from->count, below) : NULL;
}

struct config *automaton_copy(struct automaton *a, const struct config *from)
{
	struct item items[GRAMMAR_MAX_ITEMS];

	for (uint32_t i = 0; i < from->n; i++) {
		items[i].place = copy_place(a, from->items[i].place);
		items[i].frame = copy_frame(a, from->items[i].frame);
		if (!items[i].place || !items[i].frame)
			return NULL;
	}
	return intern_config(a, items, from->n, from->accepting);
}
