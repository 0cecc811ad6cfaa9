// SPDX-License-Identifier: MIT
#include "pool.h"
#include "lead.h"

#include <sched.h>

/* The leader has waited this many turns for a helper: the helper may want this CPU. */
#define SPINS_BEFORE_YIELD 1000

/* Claims one part for a helper on @core, or for the leader (@core is TXDA_NONE). */
static bool claim_part(struct cm_machine *m, uint32_t core, unsigned *ret_part)
{
	uint64_t word = atomic_load_explicit(&m->claim, memory_order_relaxed);

	for (;;) {
		uint32_t left = (uint32_t)word;

		if (!left || word >> 32 == core)
			return false;
		if (atomic_compare_exchange_weak_explicit(&m->claim, &word, word - 1,
							  memory_order_acquire,
							  memory_order_relaxed)) {
			*ret_part = m->job.parts - left;
			return true;
		}
	}
}

static void run_part(const struct cm_job *job, unsigned part, unsigned core)
{
	if (!job->cancel || !atomic_load_explicit(job->cancel, memory_order_relaxed))
		job->run(job->arg, job->phase, part, core);
}

bool cm_pool_help(struct cm_machine *m, unsigned core)
{
	uint32_t mine = 0;
	unsigned part;

	while (claim_part(m, core, &part)) {
		run_part(&m->job, part, core);
		mine++;
	}
	if (mine)
		atomic_fetch_add_explicit(&m->done, mine, memory_order_release);
	return mine != 0;
}

void cm_pool_run(struct cm_machine *m, cm_part_fn run, const void *arg, unsigned phase,
		 unsigned parts, const _Atomic bool *cancel)
{
	struct cm_job job = {run, arg, phase, parts, cancel};
	uint32_t mine = 0, spins = 0;
	unsigned part;

	if (parts <= 1 || m->cores == 1) {
		for (part = 0; part < parts; part++)
			run_part(&job, part, m->lead_core);
		return;
	}
	m->job = job;
	atomic_store_explicit(&m->done, 0, memory_order_relaxed);
	/* Ordered before the look at who sleeps; a worker marks itself asleep, then looks here. */
	atomic_store(&m->claim, (uint64_t)m->lead_core << 32 | parts);
	if (atomic_load(&m->asleep))
		cm_lead_wake_helpers(m, parts - 1);
	while (claim_part(m, TXDA_NONE, &part)) {
		run_part(&job, part, m->lead_core);
		mine++;
	}
	while (atomic_load_explicit(&m->done, memory_order_acquire) + mine != parts) {
		if (m->yield || ++spins > SPINS_BEFORE_YIELD)
			sched_yield();
		else
			cm_relax();
	}
}
