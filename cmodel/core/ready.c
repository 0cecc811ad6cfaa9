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
	r->priority[slot] = (uint8_t)priority;
	r->time[slot] = r->level;
	if (slot / 64 >= r->n_words)
		r->n_words = slot / 64 + 1;
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
	for (unsigned i = 0; i < r->n_words; i++) {
		if (r->parked[i])
			atomic_fetch_or(&r->active[i], r->parked[i]);
		r->parked[i] = 0;
	}
	atomic_store(&r->n_parked, 0);
}

/* How much more time than the others it had. */
static uint64_t lead_of(const struct cm_ready *r, unsigned slot)
{
	uint64_t lead = r->time[slot] - r->level;

	/* Times wrap: one that is not a little ahead is behind. */
	return lead <= CM_READY_LEAD_NS ? lead : 0;
}

static unsigned find_next(struct cm_ready *r, bool *ret_shared)
{
	unsigned found = CM_NO_SLOT, word = r->next_slot / 64, n = 0;
	uint64_t low = (1ull << r->next_slot % 64) - 1, least = UINT64_MAX;

	/* The first word twice: its upper bits at the start, its lower ones at the end. */
	for (unsigned i = 0; i <= r->n_words; i++, word = word + 1 < r->n_words ? word + 1 : 0) {
		uint64_t bits = atomic_load(&r->active[word]);

		if (i == 0)
			bits &= ~low;
		else if (i == r->n_words)
			bits &= low;
		for (; bits; bits &= bits - 1, n++) {
			unsigned slot = word * 64 + (unsigned)__builtin_ctzll(bits);
			uint64_t lead = lead_of(r, slot);

			if (lead < least) {
				least = lead;
				found = slot;
			}
		}
	}
	*ret_shared = n > 1;
	if (found != CM_NO_SLOT) {
		r->level += least;
		r->time[found] = r->level;
		r->next_slot = (found + 1) % (r->n_words * 64);
	}
	return found;
}

void cm_ready_charge(struct cm_ready *r, unsigned slot, uint64_t ns)
{
	uint64_t time = ns * 8 >> 3 * r->priority[slot];

	r->time[slot] += time < CM_READY_LEAD_NS ? time : CM_READY_LEAD_NS;
}

unsigned cm_ready_next(struct cm_ready *r, bool *ret_shared)
{
	uint64_t timer = atomic_load_explicit(&r->timer_ns, memory_order_relaxed);
	unsigned slot;

	if (atomic_load_explicit(&r->repoll, memory_order_relaxed) ||
	    (timer && clock_ns() >= timer))
		unpark_all(r);
	slot = find_next(r, ret_shared);
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
