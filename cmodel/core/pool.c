// SPDX-License-Identifier: MIT
#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Iterations that the leader waits for helpers before it yields its CPU. */
#define SPINS_BEFORE_YIELD 1000
#define MAX_SHARED_SCRATCH (4ull << 30)
#define MAX_CORE_SCRATCH   (256ull << 20)

static unsigned online_cpus(void)
{
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 0)
		return (unsigned)CPU_COUNT(&set);
	return 1;
}

int cm_pool_init(struct cm_pool *p, unsigned cores, uint64_t spin_ns)
{
	unsigned cpus = online_cpus();

	p->cores = cores ? cores : cpus > CM_MAX_CORES ? CM_MAX_CORES : cpus;
	p->yield = p->cores > cpus;
	p->spin_ns = spin_ns;
	p->worker = aligned_alloc(CM_CACHE_LINE, p->cores * sizeof(*p->worker));
	if (!p->worker)
		return -ENOMEM;
	for (unsigned i = 0; i < p->cores; i++)
		p->worker[i] = (struct cm_worker){.core = i};
	return 0;
}

static void scratch_free(struct cm_scratch *s)
{
	if (s->ptr)
		munmap(s->ptr, s->mapped);
}

void cm_pool_fini(struct cm_pool *p)
{
	scratch_free(&p->shared);
	for (unsigned i = 0; i < CM_MAX_CORES; i++)
		scratch_free(&p->core[i]);
	free(p->worker);
}

/* ---- waking ---------------------------------------------------------------------------------- */

/* Sleeps while *@word is @seen, until it is woken or CLOCK_MONOTONIC passes @deadline_ns. */
void cm_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec ts = {(time_t)(deadline_ns / 1000000000u),
			      (long)(deadline_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen,
		deadline_ns == UINT64_MAX ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}

void cm_futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

void cm_pool_wake(struct cm_pool *p, unsigned i)
{
	uint64_t bit = 1ull << i;

	if (atomic_fetch_and(&p->asleep, ~bit) & bit) {
		atomic_fetch_add(&p->worker[i].wake, 1);
		cm_futex_wake(&p->worker[i].wake, 1);
	}
}

/* Wakes up to @n sleeping workers for the phase that was just published. Leader. */
static void wake_helpers(struct cm_pool *p, unsigned n)
{
	uint64_t asleep = atomic_load(&p->asleep);

	if (atomic_load_explicit(&p->external, memory_order_relaxed)) {
		asleep &= ~1ull;
	} else if (asleep & 1) {
		/* The thread that replaced worker 0 usually comes back soon. */
		uint64_t now = clock_ns();

		if (!p->lead_since_ns)
			p->lead_since_ns = now;
		if (now - p->lead_since_ns < p->spin_ns)
			asleep &= ~1ull;
	}
	for (; asleep && n; asleep &= asleep - 1, n--)
		cm_pool_wake(p, (unsigned)__builtin_ctzll(asleep));
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Claims one part for a helper on @core, or for the leader (@core is TXDA_NONE). */
static bool claim_part(struct cm_pool *p, uint32_t core, unsigned *ret_part)
{
	uint64_t word = atomic_load_explicit(&p->claim, memory_order_relaxed);

	for (;;) {
		uint32_t left = (uint32_t)word;

		if (!left || word >> 32 == core)
			return false;
		if (atomic_compare_exchange_weak_explicit(&p->claim, &word, word - 1,
							  memory_order_acquire,
							  memory_order_relaxed)) {
			*ret_part = p->job.parts - left;
			return true;
		}
	}
}

static bool is_cancelled(const struct cm_cancel *cancel)
{
	for (unsigned i = 0; i < cancel->n; i++) {
		if (atomic_load_explicit(cancel->flag[i], memory_order_relaxed))
			return true;
	}
	return false;
}

/* The work that this thread does, NULL: none, and where it goes on when that is cancelled. */
static _Thread_local const struct cm_cancel *volatile running;
static _Thread_local sigjmp_buf cancelled;

void cm_pool_on_interrupt(void)
{
	if (running && is_cancelled(running))
		siglongjmp(cancelled, 1);
}

static bool run_unless_interrupted(const struct cm_job *job, unsigned part, unsigned core)
{
	if (sigsetjmp(cancelled, 0)) {
		running = NULL;
		return false;
	}
	/* A signal before this store finds nothing to end, but then the flag is set already. */
	running = job->cancel;
	atomic_signal_fence(memory_order_seq_cst);
	if (!is_cancelled(job->cancel)) {
		job->run(job->arg, job->phase, part, core);
		running = NULL;
		return true;
	}
	running = NULL;
	return false;
}

/* True: all of it was done. */
static bool run_part(const struct cm_pool *p, const struct cm_job *job, unsigned part,
		     unsigned core)
{
	if (p->interrupt)
		return run_unless_interrupted(job, part, core);
	if (is_cancelled(job->cancel))
		return false;
	job->run(job->arg, job->phase, part, core);
	return true;
}

void cm_pool_interrupt(struct cm_pool *p)
{
	for (unsigned i = 0; p->interrupt && i < p->cores; i++) {
		if (p->worker[i].started)
			pthread_kill(p->worker[i].thread, p->interrupt);
	}
}

bool cm_pool_help(struct cm_pool *p, unsigned core)
{
	uint32_t mine = 0;
	unsigned part;

	while (claim_part(p, core, &part)) {
		if (!run_part(p, &p->job, part, core))
			atomic_store_explicit(&p->cut, true, memory_order_relaxed);
		mine++;
	}
	if (mine)
		atomic_fetch_add_explicit(&p->done, mine, memory_order_release);
	return mine != 0;
}

bool cm_pool_run(struct cm_pool *p, cm_part_fn run, const void *arg, unsigned phase, unsigned parts,
		 const struct cm_cancel *cancel)
{
	struct cm_job job = {run, arg, phase, parts, cancel};
	uint32_t mine = 0, spins = 0;
	unsigned part;

	if (parts <= 1 || p->cores == 1) {
		bool done = true;

		for (part = 0; part < parts && done; part++)
			done = run_part(p, &job, part, p->lead_core);
		return done;
	}
	p->job = job;
	atomic_store_explicit(&p->cut, false, memory_order_relaxed);
	atomic_store_explicit(&p->done, 0, memory_order_relaxed);
	/* Ordered before the check for sleepers; a worker marks itself asleep, then checks this. */
	atomic_store(&p->claim, (uint64_t)p->lead_core << 32 | parts);
	if (atomic_load(&p->asleep))
		wake_helpers(p, parts - 1);
	while (claim_part(p, TXDA_NONE, &part)) {
		if (!run_part(p, &job, part, p->lead_core))
			atomic_store_explicit(&p->cut, true, memory_order_relaxed);
		mine++;
	}
	while (atomic_load_explicit(&p->done, memory_order_acquire) + mine != parts) {
		if (p->yield || ++spins > SPINS_BEFORE_YIELD)
			sched_yield();
		else
			cm_relax();
	}
	return !atomic_load_explicit(&p->cut, memory_order_relaxed);
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* 1: it has moved, 0: it was large enough, -ENOMEM. */
static int scratch_grow(struct cm_scratch *s, size_t bytes)
{
	size_t usable = (bytes + CM_PAGE - 1) & ~(CM_PAGE - 1), mapped = usable + CM_PAGE;
	void *ptr;

	if (bytes <= s->bytes)
		return 0;
	/* Page aligned and sparse: only pages that ops touch take memory. */
	ptr = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ptr == MAP_FAILED)
		return -ENOMEM;
	/* A kernel that overruns its scratch faults at this page. */
	mprotect((uint8_t *)ptr + usable, CM_PAGE, PROT_NONE);
	if (usable >= CM_HUGE_PAGE)
		madvise(ptr, usable, MADV_HUGEPAGE);
	scratch_free(s);
	*s = (struct cm_scratch){ptr, bytes, mapped};
	return 1;
}

int cm_pool_scratch(struct cm_pool *p, size_t shared_bytes, size_t core_bytes)
{
	int ret;

	if (shared_bytes > MAX_SHARED_SCRATCH || core_bytes > MAX_CORE_SCRATCH)
		return -ENOMEM;
	ret = scratch_grow(&p->shared, shared_bytes);
	p->scratch_generation += ret > 0;
	for (unsigned i = 0; i < p->cores && ret >= 0; i++) {
		ret = scratch_grow(&p->core[i], core_bytes);
		p->scratch_generation += ret > 0;
	}
	return ret < 0 ? ret : 0;
}

/* ---- accounting ------------------------------------------------------------------------------ */

void cm_account_flush(struct cm_pool *p)
{
	struct cm_chip *c = p->account_chip;
	uint64_t now;

	if (!c)
		return;
	now = clock_ns();
	cm_count(p->account_copy ? &c->activity.copy_busy_ns : &c->activity.busy_ns,
		 now - p->account_since_ns);
	p->account_since_ns = now;
}

void cm_account(struct cm_pool *p, struct cm_chip *chip, bool copy)
{
	if (p->account_chip == chip && (!chip || p->account_copy == copy))
		return;
	if (p->account_chip)
		cm_account_flush(p);
	else
		p->account_since_ns = clock_ns();
	p->account_chip = chip;
	p->account_copy = copy;
}
