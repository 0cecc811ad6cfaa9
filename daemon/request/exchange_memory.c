// SPDX-License-Identifier: MIT
/* Accounting of a request's memory, on its user's account. */
#include "exchange.h"
#include "share.h"

#include "service.h"

bool exchange_hold(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e)
{
	budget_release(x->account, x->held);
	x->held = 0;
	if (!budget_take(x->account, bytes))
		return share_refused(x->account, bytes, member, e);
	x->held = bytes;
	return true;
}

bool exchange_take(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e)
{
	if (!budget_take(x->account, bytes))
		return share_refused(x->account, bytes, member, e);
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
static struct exchange *find_largest(const struct service *s, uint64_t *ret_leaving)
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
	if (!budget_is_exceeded(budget))
		return;
	most = find_largest(x->service, &leaving);
	/* No open exchange at all: what is held is on its way out. */
	if (!most || budget->used - leaving <= budget->limit)
		return;
	api_error_set(&e, 429, "overloaded", NULL,
		      "%llu bytes are held for all clients, most of them (%llu) for this user, of "
		      "these %llu for this answer; the limit is %llu",
		      (unsigned long long)budget->used, (unsigned long long)most->account->held,
		      (unsigned long long)all_held(most), (unsigned long long)budget->limit);
	exchange_fail(most, &e);
	if (most == x) {
		/* It has ended and does not grow; its caller frees it. */
		x->held -= bytes;
		budget_release(x->account, bytes);
	} else {
		exchange_free_if_over(most);
	}
}
