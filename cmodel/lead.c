// SPDX-License-Identifier: MIT
#include "lead.h"
#include "pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS_PER_CLOCK 32   /* turns of a spin loop between looks at the clock */
#define TURNS_PER_CLOCK 16   /* ops between looks at a waiter's deadline */
#define PAUSE_SPINS	4000 /* turns before cm_pause() sleeps */

/* The machine that this thread leads or has paused; others that it does so further out follow by
 * ->outer. */
static _Thread_local struct cm_machine *leading;

static bool is_leading(const struct cm_machine *m)
{
	for (const struct cm_machine *at = leading; at; at = at->outer) {
		if (at == m)
			return true;
	}
	return false;
}

/* Sleeps while *@word is @seen, until it is woken or CLOCK_MONOTONIC passes @deadline_ns. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec ts = {(time_t)(deadline_ns / 1000000000u),
			      (long)(deadline_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen,
		deadline_ns == UINT64_MAX ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Whether a queue is worth a look. */
static bool work_pending(struct cm_machine *m)
{
	uint64_t timer;

	for (unsigned i = 0; i < CM_QUEUE_WORDS; i++) {
		if (atomic_load(&m->active[i]))
			return true;
	}
	if (atomic_load(&m->repoll) && atomic_load(&m->n_parked))
		return true;
	timer = atomic_load(&m->timer_ns);
	return timer && cm_now_ns() >= timer;
}

static bool lead_is_free(struct cm_machine *m)
{
	return atomic_load(&m->lead) == CM_LEAD_FREE && !atomic_load(&m->pausers);
}

static bool lead_take(struct cm_machine *m, unsigned core, bool external)
{
	uint32_t free = CM_LEAD_FREE;

	if (!lead_is_free(m) || !atomic_compare_exchange_strong(&m->lead, &free, CM_LEAD_HELD))
		return false;
	m->outer = leading;
	leading = m;
	m->lead_core = core;
	m->lead_since_ns = 0;
	atomic_store_explicit(&m->external, external, memory_order_relaxed);
	return true;
}

static void lead_drop(struct cm_machine *m)
{
	cm_account(m, NULL, false);
	atomic_store_explicit(&m->external, false, memory_order_relaxed);
	leading = m->outer;
	if (atomic_exchange(&m->lead, CM_LEAD_FREE) == CM_LEAD_CONTENDED)
		futex_wake(&m->lead, 1);
}

void cm_pause(struct cm_machine *m)
{
	if (is_leading(m)) {
		m->pause_depth++;
		return;
	}
	atomic_fetch_add(&m->pausers, 1);
	for (unsigned spins = 0;; spins++) {
		uint32_t free = CM_LEAD_FREE;

		if (atomic_compare_exchange_strong(&m->lead, &free, CM_LEAD_HELD))
			break;
		if (spins >= PAUSE_SPINS) {
			while (atomic_exchange(&m->lead, CM_LEAD_CONTENDED) != CM_LEAD_FREE)
				futex_wait(&m->lead, CM_LEAD_CONTENDED, UINT64_MAX);
			break;
		}
		if (m->yield)
			sched_yield();
		else
			cm_relax();
	}
	m->outer = leading;
	leading = m;
}

void cm_resume(struct cm_machine *m)
{
	if (m->pause_depth) {
		m->pause_depth--;
		return;
	}
	atomic_fetch_sub(&m->pausers, 1);
	lead_drop(m);
	cm_lead_notify(m);
}

void cm_machine_hold(struct cm_machine *m)
{
	cm_pause(m);
}

void cm_machine_release(struct cm_machine *m)
{
	cm_resume(m);
}

/* ---- waking ---------------------------------------------------------------------------------- */

static void wake_worker(struct cm_machine *m, unsigned i)
{
	uint64_t bit = 1ull << i;

	if (atomic_fetch_and(&m->asleep, ~bit) & bit) {
		atomic_fetch_add(&m->worker[i].wake, 1);
		futex_wake(&m->worker[i].wake, 1);
	}
}

void cm_lead_notify(struct cm_machine *m)
{
	uint64_t all = m->cores == 64 ? ~0ull : (1ull << m->cores) - 1;

	if (!lead_is_free(m) || atomic_load(&m->asleep) != all)
		return;
	if (!work_pending(m) && !atomic_load(&m->timer_ns))
		return;
	/* A thread in cm_wait() is the better choice: it sees its fence without another wake-up. */
	if (atomic_load(&m->sleepers)) {
		atomic_fetch_add(&m->event, 1);
		futex_wake(&m->event, 1);
	} else {
		wake_worker(m, m->cores - 1);
	}
}

void cm_lead_wake_waiters(struct cm_machine *m)
{
	if (atomic_load(&m->sleepers)) {
		atomic_fetch_add(&m->event, 1);
		futex_wake(&m->event, INT_MAX);
	}
}

void cm_lead_wake_helpers(struct cm_machine *m, unsigned n)
{
	uint64_t asleep = atomic_load(&m->asleep);

	if (atomic_load_explicit(&m->external, memory_order_relaxed)) {
		asleep &= ~1ull;
	} else if (asleep & 1) {
		/* The thread that worker 0 made room for comes back soon, as a rule. */
		uint64_t now = cm_now_ns();

		if (!m->lead_since_ns)
			m->lead_since_ns = now;
		if (now - m->lead_since_ns < m->spin_ns)
			asleep &= ~1ull;
	}
	for (; asleep && n; asleep &= asleep - 1, n--)
		wake_worker(m, (unsigned)__builtin_ctzll(asleep));
}

void cm_kick(struct cm_machine *m)
{
	atomic_store(&m->repoll, 1);
	cm_lead_wake_waiters(m);
	cm_lead_notify(m);
}

/* ---- workers --------------------------------------------------------------------------------- */

static bool worker_may_lead(struct cm_machine *m)
{
	return lead_is_free(m) && !atomic_load(&m->takers) && work_pending(m);
}

static void worker_sleep(struct cm_worker *w)
{
	struct cm_machine *m = w->machine;
	uint64_t bit = 1ull << w->core, timer;
	uint32_t seen = atomic_load(&w->wake);

	atomic_fetch_or(&m->asleep, bit);
	timer = atomic_load(&m->timer_ns);
	if (!atomic_load(&m->stop) && !cm_pool_has_parts(m, w->core) && !worker_may_lead(m)) {
		cm_ops_rest();
		futex_wait(&w->wake, seen, timer ? timer : UINT64_MAX);
	}
	atomic_fetch_and(&m->asleep, ~bit);
}

static void *worker_main(void *arg)
{
	struct cm_worker *w = arg;
	struct cm_machine *m = w->machine;
	uint64_t idle_from = 0;
	unsigned spins = 0;

	while (!atomic_load_explicit(&m->stop, memory_order_relaxed)) {
		if (cm_pool_help(m, w->core)) {
			idle_from = 0;
			continue;
		}
		if (worker_may_lead(m) && lead_take(m, w->core, false)) {
			while (!atomic_load(&m->stop) && !atomic_load(&m->pausers) &&
			       !atomic_load(&m->takers) && cm_cp_turn(m))
				;
			lead_drop(m);
			idle_from = 0;
			continue;
		}
		if (w->core == 0 && atomic_load_explicit(&m->external, memory_order_relaxed)) {
			worker_sleep(w);
			continue;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = cm_now_ns();

			if (!idle_from)
				idle_from = now;
			if (now - idle_from > m->spin_ns) {
				worker_sleep(w);
				idle_from = 0;
			} else if (m->yield) {
				sched_yield();
			}
		}
		cm_relax();
	}
	return NULL;
}

int cm_lead_start(struct cm_machine *m)
{
	sigset_t all, old;
	int err = 0;

	/* The embedder's signals are for its own threads, but those that an access makes. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < m->cores && !err; i++) {
		struct cm_worker *w = &m->worker[i];

		w->machine = m;
		w->core = i;
		err = pthread_create(&w->thread, NULL, worker_main, w);
		w->started = !err;
		if (!err)
			pthread_setname_np(w->thread, "txda-core");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

void cm_lead_stop(struct cm_machine *m)
{
	atomic_store(&m->stop, true);
	for (unsigned i = 0; i < m->cores; i++)
		wake_worker(m, i);
	for (unsigned i = 0; i < m->cores; i++) {
		if (m->worker[i].started)
			pthread_join(m->worker[i].thread, NULL);
	}
}

/* ---- waiting threads ------------------------------------------------------------------------- */

struct waiting {
	struct cm_queue *queue;
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
	if (w->queue && atomic_load(&w->queue->state) == CM_QUEUE_FAULTED)
		return __atomic_load_n(w->word, __ATOMIC_SEQ_CST) >= w->value ? 0 : -EIO;
	return WAIT_GO_ON;
}

/* Whether the deadline has passed; a wait without one does not look at the clock. */
static bool wait_is_late(const struct waiting *w)
{
	return w->deadline_ns != UINT64_MAX && (!w->deadline_ns || cm_now_ns() >= w->deadline_ns);
}

/* Leads until the wait is over (0 or -errno), somebody pauses the machine, or there was nothing to
 * do for long. */
static int wait_lead(struct cm_machine *m, const struct waiting *w)
{
	uint64_t idle_from = 0;
	unsigned turns = 0, spins = 0;

	for (;;) {
		int ret = wait_check(w);

		if (ret <= 0)
			return ret;
		if (atomic_load(&m->pausers))
			return WAIT_GO_ON;
		if (cm_cp_turn(m)) {
			idle_from = 0;
			if (++turns % TURNS_PER_CLOCK == 0 && wait_is_late(w))
				return -ETIMEDOUT;
			continue;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = cm_now_ns();

			if (wait_is_late(w))
				return -ETIMEDOUT;
			if (!idle_from)
				idle_from = now;
			if (now - idle_from > m->spin_ns)
				return WAIT_IDLE;
		}
		cm_relax();
	}
}

static void wait_sleep(struct cm_machine *m, const struct waiting *w)
{
	uint32_t seen;

	atomic_fetch_add(&m->sleepers, 1);
	seen = atomic_load(&m->event);
	if (wait_check(w) > 0 && !(lead_is_free(m) && work_pending(m))) {
		cm_ops_rest();
		futex_wait(&m->event, seen, w->deadline_ns);
	}
	atomic_fetch_sub(&m->sleepers, 1);
}

/*
 * Spins for leadership (WAIT_LEAD: taken) and for the end of the wait (0 or -errno); WAIT_IDLE when
 * neither came soon.
 */
static int wait_spin(struct cm_machine *m, const struct waiting *w)
{
	uint64_t from = 0;
	unsigned spins = 0;
	int ret;

	if (lead_take(m, 0, true))
		return WAIT_LEAD;
	/* A worker that leads sees this and steps aside. */
	atomic_fetch_add(&m->takers, 1);
	do {
		ret = wait_check(w);
		if (ret <= 0)
			break;
		if (lead_take(m, 0, true)) {
			ret = WAIT_LEAD;
			break;
		}
		if (++spins % SPINS_PER_CLOCK == 0) {
			uint64_t now = cm_now_ns();

			if (!from)
				from = now;
			if (wait_is_late(w))
				ret = -ETIMEDOUT;
			else if (now - from > m->spin_ns)
				ret = WAIT_IDLE;
			else if (m->yield)
				sched_yield();
		}
		cm_relax();
	} while (ret == WAIT_GO_ON);
	atomic_fetch_sub(&m->takers, 1);
	return ret;
}

int cm_wait(struct cm_machine *m, struct cm_queue *q, const uint64_t *word, uint64_t value,
	    uint64_t deadline_ns)
{
	struct waiting w = {q, word, value, deadline_ns};
	bool slept = false;
	int ret = wait_check(&w);

	if (ret <= 0)
		return ret;
	if (is_leading(m))
		return -EDEADLK;
	while (ret > 0 && !wait_is_late(&w)) {
		/* After a sleep there is nothing to spin for: others had the time to take the lead.
		 */
		if (slept)
			ret = lead_take(m, 0, true) ? WAIT_LEAD : WAIT_IDLE;
		else
			ret = wait_spin(m, &w);
		if (ret == WAIT_LEAD) {
			ret = wait_lead(m, &w);
			lead_drop(m);
		}
		if (ret == WAIT_IDLE) {
			/* What this thread leaves behind is for the workers from now on. */
			cm_lead_notify(m);
			wait_sleep(m, &w);
			slept = true;
			ret = wait_check(&w);
		}
	}
	cm_lead_notify(m);
	return ret > 0 ? -ETIMEDOUT : ret;
}
