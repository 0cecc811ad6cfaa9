// SPDX-License-Identifier: MIT
#include "budget.h"

#include <stdio.h>
#include <stdlib.h>

void budget_init(struct budget *b, uint64_t limit)
{
	*b = (struct budget){.limit = limit};
	TAILQ_INIT(&b->accounts);
	kept_init(&b->kept, limit / KEPT_PART);
}

static void free_account(struct budget *b, struct account *a)
{
	TAILQ_REMOVE(&b->accounts, a, link);
	b->n_idle--;
	free(a);
}

void budget_clear(struct budget *b)
{
	kept_clear(&b->kept);
	while (!TAILQ_EMPTY(&b->accounts))
		free_account(b, TAILQ_FIRST(&b->accounts));
}

/* ---- accounts -------------------------------------------------------------------------------- */

struct account *account_get(struct budget *b, user_id uid, const char *name)
{
	struct account *a;

	TAILQ_FOREACH(a, &b->accounts, link) {
		if (a->uid == uid)
			break;
	}
	if (a) {
		TAILQ_REMOVE(&b->accounts, a, link);
	} else {
		a = calloc(1, sizeof(*a));
		if (!a)
			return NULL;
		a->budget = b;
		a->uid = uid;
		TAILQ_INIT(&a->waiting);
		b->n_idle++;
	}
	snprintf(a->name, sizeof(a->name), "%s", name);
	TAILQ_INSERT_HEAD(&b->accounts, a, link);
	return account_ref(a);
}

struct account *account_ref(struct account *a)
{
	if (a && !a->refs++)
		a->budget->n_idle--;
	return a;
}

void account_unref(struct account *a)
{
	struct account *idle;
	struct budget *b;

	if (!a || --a->refs)
		return;
	b = a->budget;
	if (++b->n_idle <= ACCOUNTS_KEPT)
		return;
	TAILQ_FOREACH_REVERSE(idle, &b->accounts, account_list, link)
	{
		/* What is charged to it may be freed by another thread at any time. */
		if (idle->refs || atomic_load(&idle->held))
			continue;
		free_account(b, idle);
		return;
	}
}

bool account_take_load(struct account *a, uint64_t now_ns, unsigned *ret_wait)
{
	const uint64_t second = 1000000000, cost = ACCOUNT_LOAD_SECONDS * second;
	uint64_t paid = (a->loads_paid_ns > now_ns ? a->loads_paid_ns : now_ns) + cost;

	if (paid - now_ns > ACCOUNT_LOADS * cost) {
		*ret_wait = (unsigned)((paid - now_ns - ACCOUNT_LOADS * cost) / second) + 1;
		return false;
	}
	a->loads_paid_ns = paid;
	a->loads++;
	return true;
}

void account_charge_loop(struct account *a, uint64_t now_ns, uint64_t spent_ns)
{
	uint64_t paid = a->loop_paid_ns > now_ns ? a->loop_paid_ns : now_ns;
	uint64_t most = now_ns + ACCOUNT_LOOP_BURST_NS * ACCOUNT_LOOP_PART + ACCOUNT_LOOP_DEBT_NS;

	paid += spent_ns * ACCOUNT_LOOP_PART;
	paid = paid < most ? paid : most;
	if (paid > a->loop_paid_ns)
		a->loop_paid_ns = paid;
}

bool account_has_loop(const struct account *a, uint64_t now_ns)
{
	return a->loop_paid_ns <= now_ns + ACCOUNT_LOOP_BURST_NS * ACCOUNT_LOOP_PART;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Whether a user may hold @held bytes while all hold @used, these included. */
static bool is_share(const struct budget *b, uint64_t used, uint64_t held)
{
	uint64_t left = used < b->limit ? b->limit - used : 0;

	return held <= 3 * left || held <= b->limit / BUDGET_LITTLE;
}

uint64_t budget_room(const struct account *a)
{
	const struct budget *b = a->budget;
	uint64_t used = atomic_load(&b->used), most = used < b->limit ? 3 * (b->limit - used) : 0,
		 held = atomic_load(&a->held), little = b->limit / BUDGET_LITTLE,
		 room = most > held ? (most - held) / 4 : 0;

	return little > held && little - held > room ? little - held : room;
}

bool budget_is_beyond(const struct account *a)
{
	return !is_share(a->budget, atomic_load(&a->budget->used), atomic_load(&a->held));
}

static bool has_room(const struct account *a, uint64_t bytes)
{
	return is_share(a->budget, atomic_load(&a->budget->used) + bytes,
			atomic_load(&a->held) + bytes);
}

bool budget_fits(struct account *a, uint64_t bytes)
{
	struct budget *b = a->budget;
	uint64_t unused, own, used, held;

	if (bytes > b->limit)
		return false;
	if (has_room(a, bytes))
		return true;
	/*
	 * Frees nothing if that does not make enough room. An estimate: other threads change these
	 * numbers.
	 */
	unused = kept_unused(&b->kept, a, &own);
	used = atomic_load(&b->used) + bytes;
	held = atomic_load(&a->held) + bytes;
	if (!is_share(b, used > unused ? used - unused : 0, held > own ? held - own : 0))
		return false;
	while (!has_room(a, bytes)) {
		if (!kept_evict(&b->kept, a))
			return false;
	}
	return true;
}

bool budget_is_exceeded(struct budget *b)
{
	/* This is asked for every token. */
	if (atomic_load(&b->used) <= b->limit)
		return false;
	/* Frees nothing if a request has to be ended anyway. */
	if (atomic_load(&b->used) > b->limit + kept_unused(&b->kept, NULL, NULL))
		return true;
	while (atomic_load(&b->used) > b->limit) {
		if (!kept_evict(&b->kept, NULL))
			return true;
	}
	return false;
}

void budget_add(struct account *a, uint64_t bytes)
{
	struct budget *b = a->budget;
	uint64_t used = atomic_fetch_add(&b->used, bytes) + bytes;

	atomic_fetch_add(&a->held, bytes);
	/* A race between two threads may lose the higher value; it is only used for statistics. */
	if (used > atomic_load(&b->peak))
		atomic_store(&b->peak, used);
}

void budget_release(struct account *a, uint64_t bytes)
{
	struct budget *b = a->budget;

	/* An account that nobody references may be freed as soon as nothing is charged to it. */
	atomic_fetch_sub(&a->held, bytes);
	atomic_fetch_sub(&b->used, bytes);
}

/* Taken first and checked after, since other threads may take at the same time. */
bool budget_take(struct account *a, uint64_t bytes)
{
	if (!budget_fits(a, bytes))
		return false;
	budget_add(a, bytes);
	if (!budget_is_beyond(a))
		return true;
	budget_release(a, bytes);
	return false;
}
