// SPDX-License-Identifier: MIT
/* Accounting of a request's memory, on its user's account. */
#include "exchange.h"

#include "server_internal.h"

static bool refuse_bytes(const struct exchange *x, uint64_t bytes, const char *member,
			 struct api_error *e)
{
	const struct budget *b = x->account->budget;

	if (bytes > budget_most(b))
		return api_error_set(e, 400, NULL, member,
				     "the request may need %llu bytes of memory; the limit is "
				     "%llu, three quarters of the total",
				     (unsigned long long)bytes, (unsigned long long)budget_most(b));
	return api_error_set(
		e, 429, "overloaded", NULL,
		"too much is queued: the request may need %llu bytes, %llu are held for "
		"the user and %llu for all; the limit is %llu in all, and for a user three times "
		"what is left",
		(unsigned long long)bytes, (unsigned long long)x->account->held,
		(unsigned long long)b->used, (unsigned long long)b->limit);
}

bool exchange_hold(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e)
{
	budget_release(x->account, x->held);
	x->held = 0;
	if (!budget_take(x->account, bytes))
		return refuse_bytes(x, bytes, member, e);
	x->held = bytes;
	return true;
}

bool exchange_take(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e)
{
	if (!budget_take(x->account, bytes))
		return refuse_bytes(x, bytes, member, e);
	x->worker_held += bytes;
	return true;
}

void exchange_return(struct exchange *x, uint64_t bytes)
{
	budget_release(x->account, bytes);
	x->worker_held -= bytes;
}

static uint64_t all_held(const struct exchange *x)
{
	/* While a worker has it, its part of the account must not be read here. */
	return x->held + (x->at_worker ? 0 : x->worker_held);
}

/* Of the user who holds most, the open request that holds most. */
static struct exchange *find_largest(const struct server *s, uint64_t *ret_leaving)
{
	struct exchange *most = NULL;

	*ret_leaving = 0;
	for (struct exchange *x = s->exchanges; x; x = x->next) {
		if (!x->conn)
			*ret_leaving += all_held(x);
		else if (!most || x->account->held > most->account->held ||
			 (x->account == most->account && all_held(x) > all_held(most)))
			most = x;
	}
	return most;
}

void exchange_grow(struct exchange *x, uint64_t bytes)
{
	struct budget *budget = x->account->budget;
	struct exchange *most;
	struct api_error e;
	uint64_t leaving;

	x->held += bytes;
	budget_add(x->account, bytes);
	if (budget->used <= budget->limit)
		return;
	most = find_largest(x->server, &leaving);
	if (!most || budget->used - leaving <= budget->limit)
		return;
	api_error_set(&e, 429, "overloaded", NULL,
		      "%llu bytes are held for all clients, most of them (%llu) for this user, of "
		      "these %llu for this answer; the limit is %llu",
		      (unsigned long long)budget->used, (unsigned long long)most->account->held,
		      (unsigned long long)all_held(most), (unsigned long long)budget->limit);
	exchange_fail(most, &e);
	if (most == x) {
		/* Unreachable: some request holds memory. */
		x->held -= bytes;
		budget_release(x->account, bytes);
	} else {
		exchange_free_if_over(most);
	}
}
