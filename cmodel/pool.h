/* SPDX-License-Identifier: MIT */
/*
 * The pool: one phase of work on all cores.
 *
 * The leader publishes a phase as one word, machine.claim = its own core << 32 | parts left. A part
 * is claimed by a compare-and-swap that takes one off; it succeeds only on the phase that is
 * current at that instant, and from then on the leader cannot leave the phase, because it waits
 * until all parts are done. So a claim alone makes machine.job valid to read, and a helper that
 * comes late finds no parts left and has read nothing else. No generation counter is needed: a
 * helper that slept between load and swap and finds an equal word claims a part of the phase that
 * runs now, which is right. Helpers report the number of parts that they did in one addition, once
 * they find none left.
 *
 * Cores. Worker i is core i. A thread that leads from cm_wait() is core 0, in the place of worker
 * 0, which is barred from its phases by the core number in the word and sleeps meanwhile.
 */
#ifndef CM_POOL_H
#define CM_POOL_H

#include "internal.h"

/* Runs parts [0, parts) of @phase and returns when all are done. @cancel: skip what has not begun.
 * Leader. */
void cm_pool_run(struct cm_machine *m, cm_part_fn run, const void *arg, unsigned phase,
		 unsigned parts, const _Atomic bool *cancel);
/* Takes part in the phase that runs now; false if there was nothing to claim. Worker @core. */
bool cm_pool_help(struct cm_machine *m, unsigned core);
/* Whether cm_pool_help() might find a part. */
static inline bool cm_pool_has_parts(struct cm_machine *m, unsigned core)
{
	uint64_t word = atomic_load(&m->claim);

	return (uint32_t)word && word >> 32 != core;
}

#endif /* CM_POOL_H */
