/* SPDX-License-Identifier: MIT */
/*
 * The monitor: a thread that watches the health of simulated chips and publishes their telemetry.
 *
 * While the chips are in use it wakes a few times a second: it updates the rates, turns changed
 * counters into events and writes the telemetry page. After some seconds without activity it sleeps
 * until txda__monitor_poke(), so that an idle process never wakes up. Real chips do not need it:
 * the kernel does this.
 *
 * Threads: any function from any thread. A poke costs a few nanoseconds while the monitor is awake.
 */
#ifndef TXDA_MONITOR_H
#define TXDA_MONITOR_H

#include "context.h"

/* How much of @ns is @busy_ns, per thousand, at most 1000. */
static inline uint32_t txda__permille(uint64_t busy_ns, uint64_t ns)
{
	uint64_t permille = busy_ns * 1000 / ns;

	return permille > 1000 ? 1000 : (uint32_t)permille;
}

void txda__monitor_init(struct txda__monitor *monitor);
int txda__monitor_start(struct txda__monitor *monitor, struct txda_context *context);
void txda__monitor_stop(struct txda__monitor *monitor);
void txda__monitor_wake(struct txda__monitor *monitor);

/* Call when something was submitted, allocated or freed. */
static inline void txda__monitor_poke(struct txda__monitor *monitor)
{
	atomic_fetch_add(&monitor->pokes, 1);
	if (atomic_load(&monitor->asleep))
		txda__monitor_wake(monitor);
}

/* Utilisation in the last second, per thousand; UINT32_MAX if unknown. */
static inline uint32_t txda__monitor_utilisation(struct txda__monitor *monitor, unsigned device)
{
	return atomic_load_explicit(&monitor->utilisation[device], memory_order_relaxed);
}

#endif /* TXDA_MONITOR_H */
