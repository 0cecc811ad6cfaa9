// SPDX-License-Identifier: MIT
#include "lead.h"
#include "bus.h"
#include "cpus.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define SPINS_PER_CLOCK 32   /* iterations of a spin loop between reads of the clock */
#define TURNS_PER_CLOCK 16   /* ops between checks of a waiter's deadline */
#define PAUSE_SPINS	4000 /* iterations before cm_pause() sleeps */

/* The machine that this thread leads or has paused; ->outer is the one before, which it still
 * leads. */
static _Thread_local struct cm_lead *leading;

static bool is_leading(const struct cm_lead *l)
{
	for (const struct cm_lead *at = leading; at; at = at->outer) {
		if (at == l)
			return true;
	}
	return false;
}

static bool lead_is_free(struct cm_lead *l)
{
	return atomic_load(&l->state) == CM_LEAD_FREE && !atomic_load(&l->pausers);
}

static bool lead_take(struct cm_lead *l, unsigned core, bool external)
{
	uint32_t free = CM_LEAD_FREE;

	if (!lead_is_free(l) || !atomic_compare_exchange_strong(&l->state, &free, CM_LEAD_HELD))
		return false;
	l->outer = leading;
	leading = l;
	l->pool->lead_core = core;
	l->pool->lead_since_ns = 0;
	atomic_store_explicit(&l->pool->external, external, memory_order_relaxed);
	return true;
}

static void lead_drop(struct cm_lead *l)
{
	cm_account(l->pool, NULL, false);
	atomic_store_explicit(&l->pool->external, false, memory_order_relaxed);
	atomic_store_explicit(&l->pool->lead_cpu, -1, memory_order_relaxed);
	leading = l->outer;
	if (atomic_exchange(&l->state, CM_LEAD_FREE) == CM_LEAD_CONTENDED)
		cm_futex_wake(&l->state, 1);
}

void cm_pause(struct cm_lead *l)
{
	if (is_leading(l)) {
		l->pause_depth++;
		return;
	}
	atomic_fetch_add(&l->pausers, 1);
	for (unsigned spins = 0;; spins++) {
		uint32_t free = CM_LEAD_FREE;

		if (atomic_compare_exchange_strong(&l->state, &free, CM_LEAD_HELD))
			break;
		if (spins >= PAUSE_SPINS) {
			while (atomic_exchange(&l->state, CM_LEAD_CONTENDED) != CM_LEAD_FREE)
				cm_futex_wait(&l->state, CM_LEAD_CONTENDED, UINT64_MAX);
			break;
		}
		if (l->pool->yield)
			sched_yield();
		else
			cm_relax();
	}
	l->outer = leading;
	leading = l;
}

void cm_resume(struct cm_lead *l)
{
	if (l->pause_depth) {
		l->pause_depth--;
		return;
	}
	atomic_fetch_sub(&l->pausers, 1);
	lead_drop(l);
	cm_lead_notify(l);
}

/* ---- waking ---------------------------------------------------------------------------------- */

void cm_lead_notify(struct cm_lead *l)
{
	if (!lead_is_free(l) || atomic_load(&l->pool->sleeping) < l->pool->cores)
		return;
	if (!cm_ready_pending(l->ready) && !atomic_load(&l->ready->timer_ns))
		return;
	/* A thread in cm_wait() is the better choice: it sees its fence without another wake-up. */
	if (atomic_load(&l->sleepers)) {
		atomic_fetch_add(&l->event, 1);
		cm_futex_wake(&l->event, 1);
	} else {
		cm_pool_wake(l->pool, l->pool->cores - 1);
	}
}

void cm_lead_wake_waiters(struct cm_lead *l)
{
	if (atomic_load(&l->sleepers)) {
		atomic_fetch_add(&l->event, 1);
		cm_futex_wake(&l->event, INT_MAX);
	}
}

void cm_lead_kick(struct cm_lead *l)
{
	atomic_store(&l->ready->repoll, 1);
	cm_lead_wake_waiters(l);
	cm_lead_notify(l);
}

/* ---- workers --------------------------------------------------------------------------------- */

static bool worker_may_lead(struct cm_lead *l)
{
	return lead_is_free(l) && !atomic_load(&l->takers) && cm_ready_pending(l->ready);
}

static void worker_sleep(struct cm_worker *w)
{
	struct cm_lead *l = w->lead;
	uint32_t seen = atomic_load(&w->wake);
	uint64_t timer;

	cm_pool_announce_sleep(l->pool, w->core);
	timer = atomic_load(&l->ready->timer_ns);
	if (!atomic_load(&l->stop) && !cm_pool_has_parts(l->pool, w->core) && !worker_may_lead(l)) {
		cm_ops_rest();
		cm_active_rest(&l->pool->active, w->core);
		cm_futex_wait(&w->wake, seen, timer ? timer : UINT64_MAX);
	}
	cm_pool_end_sleep(l->pool, w->core);
}

static void *worker_main(void *arg)
{
	struct cm_worker *w = arg;
	struct cm_lead *l = w->lead;
	uint64_t idle_from = 0;
	unsigned spins = 0;

	w->tid = gettid();
	/* Before its scratch is touched. A CPU that went away meanwhile is no reason to fail. */
	if (w->cpu >= 0)
		(void)cm_cpus_pin((unsigned)w->cpu);
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		if (cm_pool_help(l->pool, w->core)) {
			cm_pool_keep_apart(l->pool, w->core);
			cm_active_measure(&l->pool->active, w->core);
			idle_from = 0;
			continue;
		}
		if (worker_may_lead(l) && lead_take(l, w->core, false)) {
			while (!atomic_load(&l->stop) && !atomic_load(&l->pausers) &&
			       !atomic_load(&l->takers) && l->turn(l->turn_arg))
				;
			lead_drop(l);
			idle_from = 0;
			continue;
		}
		if (w->core == 0 &&
		    atomic_load_explicit(&l->pool->external, memory_order_relaxed)) {
			worker_sleep(w);
			continue;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = clock_ns();

			cm_pool_keep_apart(l->pool, w->core);
			if (!idle_from)
				idle_from = now;
			if (now - idle_from > l->pool->spin_ns) {
				worker_sleep(w);
				idle_from = 0;
			} else if (l->pool->yield) {
				sched_yield();
			}
		}
		cm_relax();
	}
	return NULL;
}

int cm_lead_start(struct cm_lead *l, struct cm_pool *pool, struct cm_ready *ready,
		  bool (*turn)(void *arg), void *turn_arg)
{
	sigset_t all, old;
	int err = 0;

	l->pool = pool;
	l->ready = ready;
	l->turn = turn;
	l->turn_arg = turn_arg;
	/* The embedder's signals are for its own threads; those that a memory access raises are not. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	if (pool->interrupt)
		sigdelset(&all, pool->interrupt);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < l->pool->cores && !err; i++) {
		struct cm_worker *w = &l->pool->worker[i];

		w->lead = l;
		err = pthread_create(&w->thread, NULL, worker_main, w);
		w->started = !err;
		if (!err)
			pthread_setname_np(w->thread, "txda-core");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

void cm_lead_stop(struct cm_lead *l)
{
	if (!l->pool)
		return;
	atomic_store(&l->stop, true);
	for (unsigned i = 0; i < l->pool->cores; i++)
		cm_pool_wake(l->pool, i);
	for (unsigned i = 0; i < l->pool->cores; i++) {
		if (l->pool->worker[i].started)
			pthread_join(l->pool->worker[i].thread, NULL);
		l->pool->worker[i].started = false;
	}
}

/* ---- waiting threads ------------------------------------------------------------------------- */

struct waiting {
	_Atomic uint32_t *failed;
	const uint64_t *word;
	uint64_t value;
	uint64_t deadline_ns;
};

enum { WAIT_GO_ON = 1, WAIT_IDLE, WAIT_LEAD };

/* 0, -EIO, or WAIT_GO_ON. */
static int wait_check(const struct waiting *w)
{
	if (__atomic_load_n(w->word, __ATOMIC_SEQ_CST) >= w->value)
		return 0;
	if (w->failed && atomic_load(w->failed))
		return __atomic_load_n(w->word, __ATOMIC_SEQ_CST) >= w->value ? 0 : -EIO;
	return WAIT_GO_ON;
}

/* Whether the deadline has passed; a wait without one does not read the clock. */
static bool wait_is_late(const struct waiting *w)
{
	return w->deadline_ns != UINT64_MAX && (!w->deadline_ns || clock_ns() >= w->deadline_ns);
}

/*
 * Leads until the wait is over (0 or -errno), the machine is paused, or there has been nothing to
 * do for long.
 */
static int wait_lead(struct cm_lead *l, const struct waiting *w)
{
	uint64_t idle_from = 0;
	unsigned turns = 0, spins = 0;

	for (;;) {
		int ret = wait_check(w);

		if (ret <= 0)
			return ret;
		if (atomic_load(&l->pausers))
			return WAIT_GO_ON;
		if (l->turn(l->turn_arg)) {
			idle_from = 0;
			if (++turns % TURNS_PER_CLOCK == 0 && wait_is_late(w))
				return -ETIMEDOUT;
			continue;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = clock_ns();

			if (wait_is_late(w))
				return -ETIMEDOUT;
			if (!idle_from)
				idle_from = now;
			if (now - idle_from > l->pool->spin_ns)
				return WAIT_IDLE;
		}
		cm_relax();
	}
}

static void wait_sleep(struct cm_lead *l, const struct waiting *w)
{
	uint32_t seen;

	atomic_fetch_add(&l->sleepers, 1);
	seen = atomic_load(&l->event);
	if (wait_check(w) > 0 && !(lead_is_free(l) && cm_ready_pending(l->ready))) {
		cm_ops_rest();
		cm_futex_wait(&l->event, seen, w->deadline_ns);
	}
	atomic_fetch_sub(&l->sleepers, 1);
}

/*
 * Spins for leadership (WAIT_LEAD: taken) and for the end of the wait (0 or -errno); WAIT_IDLE when
 * neither came soon.
 */
static int wait_spin(struct cm_lead *l, const struct waiting *w)
{
	uint64_t from = 0;
	unsigned spins = 0;
	int ret;

	if (lead_take(l, 0, true))
		return WAIT_LEAD;
	/* A worker that leads sees this and gives up the lead. */
	atomic_fetch_add(&l->takers, 1);
	do {
		ret = wait_check(w);
		if (ret <= 0)
			break;
		if (lead_take(l, 0, true)) {
			ret = WAIT_LEAD;
			break;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = clock_ns();

			if (!from)
				from = now;
			if (wait_is_late(w))
				ret = -ETIMEDOUT;
			else if (now - from > l->pool->spin_ns)
				ret = WAIT_IDLE;
			else if (l->pool->yield)
				sched_yield();
		}
		cm_relax();
	} while (ret == WAIT_GO_ON);
	atomic_fetch_sub(&l->takers, 1);
	return ret;
}

int cm_lead_wait(struct cm_lead *l, _Atomic uint32_t *failed, const uint64_t *word, uint64_t value,
		 uint64_t deadline_ns)
{
	struct waiting w = {failed, word, value, deadline_ns};
	bool slept = false;
	int ret = wait_check(&w);

	if (ret <= 0)
		return ret;
	if (is_leading(l))
		return -EDEADLK;
	cm_bus_unblock(); /* it may run ops */
	while (ret > 0 && !wait_is_late(&w)) {
		/* After a sleep do not spin: other threads had time to take the lead. */
		if (slept)
			ret = lead_take(l, 0, true) ? WAIT_LEAD : WAIT_IDLE;
		else
			ret = wait_spin(l, &w);
		if (ret == WAIT_LEAD) {
			ret = wait_lead(l, &w);
			lead_drop(l);
		}
		if (ret == WAIT_IDLE) {
			/* The workers continue with the work that this thread leaves. */
			cm_lead_notify(l);
			wait_sleep(l, &w);
			slept = true;
			ret = wait_check(&w);
		}
	}
	cm_lead_notify(l);
	return ret > 0 ? -ETIMEDOUT : ret;
}
