/* SPDX-License-Identifier: MIT */
/*
 * What clients make the daemon hold, and each user's share of it.
 *
 * A user may hold three times as many bytes as are left then: one alone three quarters of the limit,
 * two three sevenths each, and there is always room for one more. A BUDGET_LITTLE-th of the limit is
 * never refused. What cannot be refused any more (budget_add()) may go beyond; then the owner ends
 * something of who holds most.
 *
 * An account is a user's. It lasts as long as somebody refers to it, and longer for its counters:
 * those of the last ACCOUNTS_KEPT users who have nothing any more are kept.
 *
 * Threads: the event loop's; budget_take(), budget_add() and budget_give() any.
 */
#ifndef TXDA_DAEMON_BUDGET_H
#define TXDA_DAEMON_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "identity.h"

#define ACCOUNTS_KEPT	     256
#define ACCOUNT_LOADS	     8
#define ACCOUNT_LOAD_SECONDS 15
#define BUDGET_LITTLE	     256

struct account {
	struct budget *budget;
	uid_t uid;
	char name[IDENTITY_NAME]; /* of a key's user that is no account of the system; else "" */
	unsigned refs;
	_Atomic uint64_t held; /* bytes */
	unsigned connections;  /* that were let in */
	unsigned requests;     /* exchanges */
	/* Counters. */
	uint64_t responses[6]; /* by first digit of the status */
	uint64_t prompt_tokens, generation_tokens;
	uint64_t loads; /* of models, that its requests began */
	/* Of the log, in this second: lines, and those that were left out. */
	unsigned lines, unlogged;
	uint64_t unlogged_total;
	uint64_t loads_paid_ns; /* account_take_load()'s */
	TAILQ_ENTRY(account) link;
};

TAILQ_HEAD(account_list, account);

struct budget {
	uint64_t limit;
	_Atomic uint64_t used;
	_Atomic uint64_t peak;	      /* most that was used; the owner may lower it */
	struct account_list accounts; /* those that were used last come first */
	unsigned n_idle;	      /* of them, nobody refers to these */
};

void budget_init(struct budget *b, uint64_t limit);
/* Frees the accounts, none of which anybody refers to. */
void budget_clear(struct budget *b);

/* A reference to the account of @uid; @name: of a key's user, or "". NULL: out of memory. */
struct account *account_get(struct budget *b, uid_t uid, const char *name);
/* NULL is accepted by both. */
struct account *account_ref(struct account *a);
void account_unref(struct account *a);

/*
 * The user's request is to begin a load of a model: whether it may. ACCOUNT_LOADS at once, and one
 * more every ACCOUNT_LOAD_SECONDS. False: *ret_wait is how many seconds are left.
 */
bool account_take_load(struct account *a, uint64_t now_ns, unsigned *ret_wait);

/* What one user may hold at most, if all others hold nothing. */
static inline uint64_t budget_most(const struct budget *b)
{
	return b->limit / 4 * 3;
}
/* Bytes that the user may take now. */
uint64_t budget_room(const struct account *a);
/* False, and nothing is taken: it is more than that. */
bool budget_take(struct account *a, uint64_t bytes);
/* Takes it whatever the limit is; budget_give() must follow in either case. */
void budget_add(struct account *a, uint64_t bytes);
void budget_give(struct account *a, uint64_t bytes);
/* Whether the user holds more than its share. */
bool budget_is_beyond(const struct account *a);

#endif
