/* SPDX-License-Identifier: MIT */
/*
 * How many of a pool's cores compute.
 *
 * A phase ends with its slowest part, so it needs all of its cores at once. Where something else takes
 * their CPUs away (other processes, a limit of CPU time, the host of a virtual machine), each core more
 * raises the chance that one is missing, which keeps all others waiting until it is back, milliseconds
 * later. If each of n cores is missing for a share s of the time, all are there for (1 - s)^n of it; the
 * work done, n (1 - s)^n, is largest at about n = 1 / s.
 *
 * So each core measures its own share: of the time that it wanted to run, what its thread's CPU clock
 * lacks. Where n s is above 0.7, a quarter of the cores leaves; while it stays below half of that for a
 * second, an eighth more joins. The others sleep, and whoever took their CPUs may have them.
 *
 * Time that a host takes from a virtual machine is seen only if the guest's kernel accounts for it
 * (CONFIG_PARAVIRT_TIME_ACCOUNTING).
 *
 * Threads: functions with @core are for that core's thread, the others for any.
 */
#ifndef CM_ACTIVE_H
#define CM_ACTIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "host.h"

#define CM_ACTIVE_LEAST 2 /* cores: one leads, and another measures */

struct cm_active_core {
	_Alignas(CM_CACHE_LINE) uint64_t since_ns; /* it wants to run since then; 0: it sleeps */
	uint64_t cpu_ns;			   /* the thread's CPU clock at that time */
	uint64_t wanted_ns, ran_ns;		   /* before */
	unsigned phases;
	_Atomic uint32_t missing; /* share of the time, in 65536ths; UINT32_MAX: not known */
};

struct cm_active {
	unsigned cores;
	bool fixed;	       /* all of them, always */
	_Atomic uint32_t n;    /* cores below it are active */
	_Atomic uint32_t calm; /* decisions in a row that found few missing */
	_Atomic uint64_t decided_ns;
	struct cm_active_core *core; /* [cores] */
};

/* All @cores are active, and stay so if @fixed. 0 or -ENOMEM; cm_active_fini() in any case. */
int cm_active_init(struct cm_active *a, unsigned cores, bool fixed);
void cm_active_fini(struct cm_active *a);

static inline bool cm_is_active(const struct cm_active *a, unsigned core)
{
	return core < atomic_load_explicit(&a->n, memory_order_relaxed);
}

/* @core has taken part in a phase. Now and then it reads clocks and may change the number. */
void cm_active_measure(struct cm_active *a, unsigned core);
/* @core is about to sleep. */
void cm_active_rest(struct cm_active *a, unsigned core);

/* The number after @n of @cores, if on average the share @missing of each is, and the new *@calm. */
unsigned cm_active_next(unsigned n, unsigned cores, double missing, unsigned *calm);

#endif /* CM_ACTIVE_H */
