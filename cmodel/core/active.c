// SPDX-License-Identifier: MIT
#include "active.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"

#define MEASURE_NS     50000000	 /* of time that a core wants to run, for a measurement */
#define DECIDE_NS      100000000 /* between two decisions */
#define PHASES_A_CLOCK 16	 /* between reads of the clock */
#define CALM_DECISIONS 10	 /* before more cores join */
#define TOO_MANY       0.7	 /* cores times their missing share */
#define FEW	       0.35

int cm_active_init(struct cm_active *a, unsigned cores, bool fixed)
{
	a->cores = cores;
	a->fixed = fixed;
	a->n = cores;
	a->core = aligned_alloc(CM_CACHE_LINE, cores * sizeof(*a->core));
	for (unsigned i = 0; a->core && i < cores; i++)
		a->core[i] = (struct cm_active_core){.missing = UINT32_MAX};
	return a->core ? 0 : -ENOMEM;
}

void cm_active_fini(struct cm_active *a)
{
	free(a->core);
	a->core = NULL;
}

unsigned cm_active_next(unsigned n, unsigned cores, double missing, unsigned *calm)
{
	if (n * missing > TOO_MANY) {
		*calm = 0;
		n = n * 3 / 4;
	} else if (n * missing > FEW) {
		*calm = 0;
	} else if (++*calm >= CALM_DECISIONS) {
		*calm = 0;
		n += n / 8 + 1;
	}
	if (n < CM_ACTIVE_LEAST)
		n = CM_ACTIVE_LEAST;
	return n < cores ? n : cores;
}

/* Changes the number by what the active cores measured since the last time. */
static void decide(struct cm_active *a, uint64_t now)
{
	uint64_t before = atomic_load(&a->decided_ns), sum = 0;
	unsigned n = atomic_load(&a->n), known = 0, calm;

	/* Whoever changes the time decides. */
	if (now - before < DECIDE_NS ||
	    !atomic_compare_exchange_strong(&a->decided_ns, &before, now))
		return;
	for (unsigned i = 0; i < n; i++) {
		uint32_t missing = atomic_exchange(&a->core[i].missing, UINT32_MAX);

		known += missing != UINT32_MAX;
		sum += missing != UINT32_MAX ? missing : 0;
	}
	/* Few phases have work for all. */
	if (known < n / 2)
		return;
	calm = atomic_load(&a->calm);
	n = cm_active_next(n, a->cores, (double)sum / known / 65536, &calm);
	atomic_store(&a->calm, calm);
	atomic_store(&a->n, n);
}

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void cm_active_rest(struct cm_active *a, unsigned core)
{
	struct cm_active_core *c = &a->core[core];

	if (!c->since_ns)
		return;
	c->wanted_ns += clock_ns() - c->since_ns;
	c->ran_ns += thread_ns() - c->cpu_ns;
	c->since_ns = 0;
}

void cm_active_measure(struct cm_active *a, unsigned core)
{
	struct cm_active_core *c = &a->core[core];
	uint64_t now;

	if (a->fixed || (c->since_ns && ++c->phases % PHASES_A_CLOCK))
		return;
	now = clock_ns();
	if (c->since_ns && c->wanted_ns + (now - c->since_ns) < MEASURE_NS)
		return;
	if (c->since_ns) {
		uint64_t wanted, ran;

		cm_active_rest(a, core);
		wanted = c->wanted_ns;
		ran = c->ran_ns < wanted ? c->ran_ns : wanted;
		c->wanted_ns = c->ran_ns = 0;
		atomic_store(&c->missing, (uint32_t)((wanted - ran) * 65536 / wanted));
		decide(a, now);
	}
	c->since_ns = now;
	c->cpu_ns = thread_ns();
}
