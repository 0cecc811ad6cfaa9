// SPDX-License-Identifier: MIT
#include "ready.h"

/* @ns 0 or UINT64_MAX: none. */
static void set_timer(struct cm_ready *r, uint64_t ns)
{
	uint64_t timer = atomic_load(&r->timer_ns);

	if (ns && ns != UINT64_MAX && (!timer || ns < timer))
		atomic_store(&r->timer_ns, ns);
}

static bool is_parked(const struct cm_ready *r, unsigned slot)
{
	return r->parked[slot / 64] >> slot % 64 & 1;
}

static void unpark(struct cm_ready *r, unsigned slot)
{
	if (!is_parked(r, slot))
		return;
	r->parked[slot / 64] &= ~(1ull << slot % 64);
	atomic_store(&r->n_parked, atomic_load(&r->n_parked) - 1);
}

void cm_ready_park(struct cm_ready *r, unsigned slot, uint64_t resume_ns, uint64_t poll_ns)
{
	if (!is_parked(r, slot)) {
		r->parked[slot / 64] |= 1ull << slot % 64;
		atomic_store(&r->n_parked, atomic_load(&r->n_parked) + 1);
	}
	set_timer(r, resume_ns);
	set_timer(r, poll_ns);
	cm_ready_deactivate(r, slot);
}

void cm_ready_forget(struct cm_ready *r, unsigned slot)
{
	unpark(r, slot);
	cm_ready_deactivate(r, slot);
}

void cm_ready_rank(struct cm_ready *r, unsigned slot, enum cm_queue_priority priority)
{
	uint64_t bit = 1ull << slot % 64;

	for (unsigned i = 0; i < CM_PRIORITIES; i++) {
		uint64_t *word = &r->ranked[i][slot / 64];

		r->n_ranked -= *word & bit ? 1 : 0;
		*word &= ~bit;
	}
	if (priority != CM_PRIORITY_NORMAL) {
		r->ranked[priority][slot / 64] |= bit;
		r->n_ranked++;
	}
}

void cm_ready_wrote(struct cm_ready *r)
{
	/* Giving up the lead orders this for the next leader. */
	if (atomic_load_explicit(&r->n_parked, memory_order_relaxed))
		atomic_store_explicit(&r->repoll, 1, memory_order_relaxed);
}

/* Makes all parked queues active; those that still wait park again and set the timer anew. */
static void unpark_all(struct cm_ready *r)
{
	/* An exchange, so that this thread sees what was stored before @repoll was set. */
	atomic_exchange(&r->repoll, 0);
	atomic_store(&r->timer_ns, 0);
	if (!atomic_load(&r->n_parked))
		return;
	for (unsigned i = 0; i < CM_QUEUE_WORDS; i++) {
		if (r->parked[i])
			atomic_fetch_or(&r->active[i], r->parked[i]);
		r->parked[i] = 0;
	}
	atomic_store(&r->n_parked, 0);
}

/* The active slots of a word that have this priority. */
static uint64_t active_of(struct cm_ready *r, unsigned word, enum cm_queue_priority priority)
{
	uint64_t bits = atomic_load(&r->active[word]);

	if (priority != CM_PRIORITY_NORMAL)
		return bits & r->ranked[priority][word];
	return bits & ~(r->ranked[CM_PRIORITY_LOW][word] | r->ranked[CM_PRIORITY_HIGH][word]);
}

/* The next active slot of a priority, starting at *@next, which is advanced. */
static unsigned next_of(struct cm_ready *r, enum cm_queue_priority priority, unsigned *next)
{
	unsigned word = *next / 64, bit = *next % 64;

	/* The first word twice: its upper bits at the start, its lower ones at the end. */
	for (unsigned i = 0; i <= CM_QUEUE_WORDS; i++) {
		uint64_t bits = active_of(r, word, priority);

		if (i == 0)
			bits &= ~0ull << bit;
		if (bits) {
			unsigned slot = word * 64 + (unsigned)__builtin_ctzll(bits);

			*next = (slot + 1) % CM_MAX_QUEUES;
			return slot;
		}
		word = (word + 1) % CM_QUEUE_WORDS;
	}
	return CM_NO_SLOT;
}

/* The same where priorities differ: each has its own round-robin position. */
static unsigned next_ranked(struct cm_ready *r)
{
	static const enum cm_queue_priority falling[] = {CM_PRIORITY_HIGH, CM_PRIORITY_NORMAL,
							 CM_PRIORITY_LOW};
	unsigned turn = r->ranked_turn++ % 8, slot = CM_NO_SLOT;

	if (turn == 3)
		slot = next_of(r, CM_PRIORITY_NORMAL, &r->ranked_next[CM_PRIORITY_NORMAL]);
	else if (turn == 7)
		slot = next_of(r, CM_PRIORITY_LOW, &r->ranked_next[CM_PRIORITY_LOW]);
	for (unsigned i = 0; slot == CM_NO_SLOT && i < CM_PRIORITIES; i++)
		slot = next_of(r, falling[i], &r->ranked_next[falling[i]]);
	return slot;
}

unsigned cm_ready_next(struct cm_ready *r)
{
	uint64_t timer = atomic_load_explicit(&r->timer_ns, memory_order_relaxed);
	unsigned slot;

	if (atomic_load_explicit(&r->repoll, memory_order_relaxed) ||
	    (timer && clock_ns() >= timer))
		unpark_all(r);
	/* With no ranked slots all are of normal priority. */
	slot = r->n_ranked ? next_ranked(r) : next_of(r, CM_PRIORITY_NORMAL, &r->next_slot);
	if (slot != CM_NO_SLOT)
		unpark(r, slot);
	return slot;
}

bool cm_ready_pending(struct cm_ready *r)
{
	uint64_t timer;

	for (unsigned i = 0; i < CM_QUEUE_WORDS; i++) {
		if (atomic_load(&r->active[i]))
			return true;
	}
	if (atomic_load(&r->repoll) && atomic_load(&r->n_parked))
		return true;
	timer = atomic_load(&r->timer_ns);
	return timer && clock_ns() >= timer;
}
