// SPDX-License-Identifier: MIT
#include "pool.h"
#include "cpus.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Iterations that the leader waits for helpers before it yields its CPU. */
#define SPINS_BEFORE_YIELD 1000
#define MAX_SHARED_SCRATCH (4ull << 30)
#define MAX_CORE_SCRATCH   (256ull << 20)

int cm_pool_init(struct cm_pool *p, unsigned cores, uint64_t spin_ns, bool pin)
{
	unsigned cpu[CM_MAX_CORES], cpus = cm_cpus(cpu, CM_MAX_CORES);

	pthread_mutex_init(&p->apart_lock, NULL);
	p->cores = cores;
	p->yield = p->cores > cpus;
	p->spin_ns = spin_ns;
	p->n_complexes = (p->cores + CM_COMPLEX - 1) / CM_COMPLEX;
	p->worker = aligned_alloc(CM_CACHE_LINE, p->cores * sizeof(*p->worker));
	p->complex = aligned_alloc(CM_CACHE_LINE, p->n_complexes * sizeof(*p->complex));
	p->core = calloc(p->cores, sizeof(*p->core));
	p->core_ptr = calloc(p->cores, sizeof(*p->core_ptr));
	/* Threads that outnumber the CPUs are missing by design. */
	if (cm_active_init(&p->active, p->cores, p->yield) || !p->worker || !p->complex ||
	    !p->core || !p->core_ptr)
		return -ENOMEM;
	for (unsigned i = 0; i < p->cores; i++)
		p->worker[i] = (struct cm_worker){
			.core = i, .cpu = pin && p->cores <= cpus ? (int)cpu[i] : -1, .avoids = -1};
	p->choice = p->cores > 1 && !p->yield && !pin ? cm_cpus_choice() : NULL;
	p->apart = p->choice;
	p->lead_cpu = -1;
	memset(p->complex, 0, p->n_complexes * sizeof(*p->complex));
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
	for (unsigned i = 0; p->core && i < p->cores; i++)
		scratch_free(&p->core[i]);
	free(p->choice);
	pthread_mutex_destroy(&p->apart_lock);
	cm_active_fini(&p->active);
	free(p->core);
	free(p->core_ptr);
	free(p->complex);
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

static bool end_sleep(struct cm_pool *p, unsigned i)
{
	uint32_t bit = 1u << i % CM_COMPLEX;

	if (!(atomic_fetch_and(&p->complex[i / CM_COMPLEX].asleep, ~bit) & bit))
		return false;
	atomic_fetch_sub(&p->sleeping, 1);
	return true;
}

/* The count is raised last: whoever finds all workers counted finds their bits, too. */
void cm_pool_announce_sleep(struct cm_pool *p, unsigned i)
{
	atomic_store_explicit(&p->worker[i].slept_on, sched_getcpu(), memory_order_relaxed);
	atomic_fetch_or(&p->complex[i / CM_COMPLEX].asleep, 1u << i % CM_COMPLEX);
	atomic_fetch_add(&p->sleeping, 1);
}

void cm_pool_end_sleep(struct cm_pool *p, unsigned i)
{
	end_sleep(p, i);
}

void cm_pool_wake(struct cm_pool *p, unsigned i)
{
	if (end_sleep(p, i)) {
		atomic_fetch_add(&p->worker[i].wake, 1);
		cm_futex_wake(&p->worker[i].wake, 1);
	}
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

/* The CPU of the caller, who leads. */
static void lead_here(struct cm_pool *p)
{
	int cpu = sched_getcpu();

	/* Mostly it stays, and so does the line in the workers' caches. */
	if (atomic_load_explicit(&p->lead_cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&p->lead_cpu, cpu, memory_order_relaxed);
}

/* Keeps worker @i off the leader's CPU, if @cpu, where it runs or slept, is that. */
static void keep_off(struct cm_pool *p, unsigned i, int cpu)
{
	struct cm_worker *w = &p->worker[i];
	int ret;

	if (cpu < 0 || cpu != atomic_load_explicit(&p->lead_cpu, memory_order_relaxed))
		return;
	pthread_mutex_lock(&p->apart_lock);
	ret = cm_cpus_avoid(p->choice, w->tid, w->avoids, cpu);
	if (!ret)
		w->avoids = cpu;
	pthread_mutex_unlock(&p->apart_lock);
	if (ret == -EPERM)
		atomic_store_explicit(&p->apart, false, memory_order_relaxed);
}

void cm_pool_keep_apart(struct cm_pool *p, unsigned core)
{
	if (atomic_load_explicit(&p->apart, memory_order_relaxed))
		keep_off(p, core, sched_getcpu());
}

/* Wakes worker @i for a phase. */
static void wake_apart(struct cm_pool *p, unsigned i)
{
	if (atomic_load_explicit(&p->apart, memory_order_relaxed))
		keep_off(p, i, atomic_load_explicit(&p->worker[i].slept_on, memory_order_relaxed));
	cm_pool_wake(p, i);
}

/* Wakes up to @n sleeping workers of complex @c, active ones, but those of @but. */
static void wake_some(struct cm_pool *p, unsigned c, uint32_t but, unsigned n)
{
	uint32_t asleep = atomic_load(&p->complex[c].asleep) & ~but;

	for (; asleep && n; asleep &= asleep - 1, n--) {
		unsigned core = c * CM_COMPLEX + (unsigned)__builtin_ctz(asleep);

		if (!cm_is_active(&p->active, core))
			return;
		wake_apart(p, core);
	}
}

/* The sleeping workers of complex 0 that are not worth waking: worker 0 while another thread is core
 * 0, or was until a moment ago. Leader. */
static uint32_t leave_asleep(struct cm_pool *p)
{
	uint64_t now;

	if (atomic_load_explicit(&p->external, memory_order_relaxed))
		return 1;
	if (!(atomic_load(&p->complex[0].asleep) & 1))
		return 0;
	/* The thread that replaced worker 0 usually comes back soon. */
	now = clock_ns();
	if (!p->lead_since_ns)
		p->lead_since_ns = now;
	return now - p->lead_since_ns < p->spin_ns;
}

/* Wakes the first workers for the phase that was just published. Leader. */
static void wake_helpers(struct cm_pool *p)
{
	const struct cm_job *job = &p->job;
	uint32_t but = leave_asleep(p);

	for (unsigned i = 0; i < job->complexes; i++) {
		unsigned c = (job->first + i) % job->around,
			 parts = (uint32_t)atomic_load_explicit(&p->complex[c].claim,
								memory_order_relaxed);

		wake_some(p, c, c ? 0 : but, parts < 2 ? parts : 2);
	}
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Claims one part of complex @c for a helper on @core, or for the leader (@core is TXDA_NONE). */
static bool claim_part(struct cm_pool *p, unsigned c, uint32_t core, unsigned *ret_part)
{
	_Atomic uint64_t *claim = &p->complex[c].claim;
	uint64_t word = atomic_load_explicit(claim, memory_order_relaxed);

	for (;;) {
		uint32_t left = (uint32_t)word;

		if (!left || word >> 32 == core)
			return false;
		if (atomic_compare_exchange_weak_explicit(
			    claim, &word, word - 1, memory_order_acquire, memory_order_relaxed)) {
			/* The last one claimed is the last of the phase. */
			const struct cm_job *job = &p->job;
			unsigned place = (c + job->around - job->first) % job->around,
				 all = (job->parts - place + job->complexes - 1) / job->complexes;

			*ret_part = place + (all - left) * job->complexes;
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
	const uint32_t mode = cm_float_mode();

	if (sigsetjmp(cancelled, 0)) {
		running = NULL;
		/* The system gave the handler registers of its own, and these stay: no tiles. */
		cm_ops_rest();
		cm_set_float_mode(mode);
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

static void run_claimed(struct cm_pool *p, unsigned part, unsigned core)
{
	if (!run_part(p, &p->job, part, core))
		atomic_store_explicit(&p->cut, true, memory_order_relaxed);
}

/* Runs what is left of complex @c; returns the parts. */
static uint32_t run_parts(struct cm_pool *p, unsigned c, uint32_t core)
{
	unsigned own = core == TXDA_NONE ? p->lead_core : core, part;
	uint32_t n = 0;

	for (; claim_part(p, c, core, &part); n++)
		run_claimed(p, part, own);
	return n;
}

bool cm_pool_help(struct cm_pool *p, unsigned core)
{
	unsigned own = core / CM_COMPLEX, part;
	struct cm_complex *c = &p->complex[own];
	uint32_t mine;

	if (!cm_is_active(&p->active, core) || !claim_part(p, own, core, &part))
		return false;
	if (atomic_load_explicit(&c->asleep, memory_order_relaxed)) {
		uint32_t left = (uint32_t)atomic_load_explicit(&c->claim, memory_order_relaxed);

		wake_some(p, own, own ? 0 : 1, left < 2 ? left : 2);
	}
	run_claimed(p, part, core);
	mine = 1 + run_parts(p, own, core);
	for (unsigned i = 1; i < p->n_complexes; i++)
		mine += run_parts(p, (own + i) % p->n_complexes, core);
	atomic_fetch_add_explicit(&c->done, mine, memory_order_release);
	return true;
}

/* The parts that helpers have done. */
static uint32_t parts_done(struct cm_pool *p)
{
	uint32_t n = 0;

	for (unsigned c = 0; c < p->n_complexes; c++)
		n += atomic_load_explicit(&p->complex[c].done, memory_order_acquire);
	return n;
}

static void publish(struct cm_pool *p)
{
	const struct cm_job *job = &p->job;

	for (unsigned c = 0; c < p->n_complexes; c++)
		atomic_store_explicit(&p->complex[c].done, 0, memory_order_relaxed);
	/* Ordered before the check for sleepers; a worker marks itself asleep, then checks this. */
	for (unsigned i = 0; i < job->complexes; i++)
		atomic_store(&p->complex[(job->first + i) % job->around].claim,
			     (uint64_t)p->lead_core << 32 |
				     (job->parts - i + job->complexes - 1) / job->complexes);
}

bool cm_pool_run(struct cm_pool *p, cm_part_fn run, const void *arg, unsigned phase, unsigned parts,
		 const struct cm_cancel *cancel)
{
	unsigned active = atomic_load_explicit(&p->active.n, memory_order_relaxed);
	unsigned around = (active + CM_COMPLEX - 1) / CM_COMPLEX;
	unsigned complexes = (parts + CM_COMPLEX - 1) / CM_COMPLEX;
	struct cm_job job = {
		.run = run,
		.arg = arg,
		.phase = phase,
		.parts = parts,
		.first = p->lead_core < active ? p->lead_core / CM_COMPLEX : 0,
		.complexes = complexes < around ? complexes : around,
		.around = around,
		.cancel = cancel,
	};
	uint32_t mine = 0, spins = 0;

	if (parts <= 1 || p->cores == 1) {
		bool done = true;

		for (unsigned part = 0; part < parts && done; part++)
			done = run_part(p, &job, part, p->lead_core);
		return done;
	}
	p->job = job;
	if (atomic_load_explicit(&p->apart, memory_order_relaxed))
		lead_here(p);
	atomic_store_explicit(&p->cut, false, memory_order_relaxed);
	publish(p);
	if (atomic_load(&p->sleeping))
		wake_helpers(p);
	for (unsigned i = 0; i < job.complexes; i++)
		mine += run_parts(p, (job.first + i) % job.around, TXDA_NONE);
	while (parts_done(p) + mine != parts) {
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

/* Gives back the memory beyond the first @bytes. */
static void scratch_trim(const struct cm_scratch *s, size_t bytes)
{
	size_t kept = (bytes + CM_PAGE - 1) & ~(CM_PAGE - 1);

	if (s->ptr && kept < s->mapped - CM_PAGE)
		madvise((uint8_t *)s->ptr + kept, s->mapped - CM_PAGE - kept, MADV_DONTNEED);
}

int cm_pool_scratch(struct cm_pool *p, struct cm_scratch_need *need)
{
	int ret;

	if (need->shared_bytes > MAX_SHARED_SCRATCH || need->core_bytes > MAX_CORE_SCRATCH)
		return -ENOMEM;
	ret = scratch_grow(&p->shared, need->shared_bytes);
	p->scratch_generation += ret > 0;
	for (unsigned i = 0; i < p->cores && ret >= 0; i++) {
		ret = scratch_grow(&p->core[i], need->core_bytes);
		p->core_ptr[i] = p->core[i].ptr;
		p->scratch_generation += ret > 0;
	}
	if (ret < 0)
		return ret;
	need->next = p->needs;
	p->needs = need;
	return 0;
}

void cm_pool_scratch_end(struct cm_pool *p, struct cm_scratch_need *need)
{
	struct cm_scratch_need **link = &p->needs;
	size_t shared = 0, core = 0;

	while (*link != need)
		link = &(*link)->next;
	*link = need->next;
	for (const struct cm_scratch_need *n = p->needs; n; n = n->next) {
		shared = n->shared_bytes > shared ? n->shared_bytes : shared;
		core = n->core_bytes > core ? n->core_bytes : core;
	}
	if (need->shared_bytes > shared)
		scratch_trim(&p->shared, shared);
	for (unsigned i = 0; i < p->cores && need->core_bytes > core; i++)
		scratch_trim(&p->core[i], core);
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
