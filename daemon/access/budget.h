/* SPDX-License-Identifier: MIT */
/*
 * Accounting of memory held for clients and of the event loop's time, and each user's share of them.
 *
 * A user may hold three times as many bytes as would be left then: one user alone three quarters of
 * the limit, two users three sevenths each, so there is always room for one more. A
 * BUDGET_LITTLE-th of the limit is never refused. Memory that cannot be refused any more
 * (budget_add()) may exceed the limit; then the owner ends a request of the user who holds most.
 * Before anything is refused or ended, what is kept for later requests is freed (kept.h).
 *
 * Accepting and reading a user's connections may take one ACCOUNT_LOOP_PART-th of the loop's time,
 * and ACCOUNT_LOOP_BURST_NS of it at once. Only processor time counts: time in which the loop waits
 * for a processor is charged to nobody.
 *
 * There is one account per user. It exists as long as it is referenced or charged for memory, and
 * longer for its counters: the accounts of the last ACCOUNTS_KEPT users without references are kept.
 *
 * Threads: the event loop's; any for the functions below budget_most().
 */
#ifndef TXDA_ACCESS_BUDGET_H
#define TXDA_ACCESS_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "identity.h"
#include "kept.h"

#define ACCOUNTS_KEPT	      256
#define ACCOUNT_LOADS	      8
#define ACCOUNT_LOAD_SECONDS  15
#define ACCOUNT_LOOP_PART     8
#define ACCOUNT_LOOP_BURST_NS 4000000
#define ACCOUNT_LOOP_DEBT_NS  1000000000 /* the maximum time that a user may owe */
#define BUDGET_LITTLE	      256

struct http_conn;

struct account {
	struct budget *budget;
	user_id uid;
	char name[IDENTITY_NAME]; /* name of a key's user without a system account; else "" */
	unsigned refs;
	_Atomic uint64_t held;	 /* bytes */
	atomic_uint images;	 /* of open requests */
	_Atomic uint64_t pixels; /* of these images, as sent */
	unsigned connections;	 /* admitted requests */
	unsigned requests;	 /* exchanges */
	/* Counters. */
	uint64_t responses[6]; /* by first digit of the status */
	uint64_t prompt_tokens, generation_tokens;
	uint64_t images_read;
	uint64_t loads; /* model loads that its requests started */
	/* Log rate limit: lines in the current second, and suppressed ones. */
	unsigned lines, unlogged;
	uint64_t unlogged_total;
	uint64_t loads_paid_ns; /* state of account_take_load() */
	uint64_t loop_paid_ns;	/* state of account_charge_loop() */
	/* Connections that wait until the user has time of the loop again (http_turn.c). */
	TAILQ_HEAD(, http_conn) waiting;
	uint64_t waits;	  /* number of connections that had to wait */
	uint64_t surplus; /* connections closed without an answer */
	TAILQ_ENTRY(account) link, turn;
};

TAILQ_HEAD(account_list, account);

struct budget {
	uint64_t limit;
	_Atomic uint64_t used;
	_Atomic uint64_t peak;	      /* highest use; the owner may reset it */
	struct account_list accounts; /* most recently used first */
	unsigned n_idle;	      /* number of accounts without references */
	struct kept_list kept;
};

void budget_init(struct budget *b, uint64_t limit);
/* Frees what is kept, and the accounts; none may be referenced or charged any more. */
void budget_clear(struct budget *b);

/* A reference to the account of @uid; @name: name of a key's user, or "". NULL: out of memory. */
struct account *account_get(struct budget *b, user_id uid, const char *name);
/* NULL is accepted by both. */
struct account *account_ref(struct account *a);
void account_unref(struct account *a);

/*
 * Whether the user's request may start a load of a model: ACCOUNT_LOADS at once, and one more every
 * ACCOUNT_LOAD_SECONDS. False: *ret_wait is the number of seconds to wait.
 */
bool account_take_load(struct account *a, uint64_t now_ns, unsigned *ret_wait);

/* Counts @spent_ns of the event loop's processor time. */
void account_charge_loop(struct account *a, uint64_t now_ns, uint64_t spent_ns);
/* Whether the user may take more of it now. */
bool account_has_loop(const struct account *a, uint64_t now_ns);

/* The most that one user may hold if all others hold nothing. */
static inline uint64_t budget_most(const struct budget *b)
{
	return b->limit / 4 * 3;
}
/* Bytes that the user may take now, without freeing what is kept. */
uint64_t budget_room(const struct account *a);
/*
 * Whether the user's share has room for @bytes more (0: whether the user is within it). If it would
 * have without what is kept, as much of that is freed as is needed.
 */
bool budget_fits(struct account *a, uint64_t bytes);
/* False if it does not fit, and then nothing is taken. */
bool budget_take(struct account *a, uint64_t bytes);
/* Takes it regardless of the limit; must also be paired with budget_release(). */
void budget_add(struct account *a, uint64_t bytes);
void budget_release(struct account *a, uint64_t bytes);
/* Whether the user holds more than its share. */
bool budget_is_beyond(const struct account *a);
/*
 * Whether all hold more than the limit, also without what is kept. Otherwise as much of that is
 * freed as is needed.
 */
bool budget_is_exceeded(struct budget *b);

#endif
