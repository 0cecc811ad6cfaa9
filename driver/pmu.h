/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The chip's counters for perf: "perf stat -e txda_0/compute_busy/,txda_0/dram_read/" counts on the
 * chip behind accel0. The events count for the whole chip, not for one process, so opening them
 * requires the rights of other system-wide events (CAP_PERFMON, or kernel.perf_event_paranoid below
 * 1).
 *
 * A PMU belongs to the number of an accel node, not to a chip: it is created for the first chip
 * with that number and stays until the module is unloaded, since open events hold a reference to
 * the module only. While there is no chip, or a reset has made the registers inaccessible, its
 * events do not count; they continue with the next chip of that number. A reset of the chip loses
 * no counts. The PMU has events of C2C traffic if its first chip counts that; a later one that does
 * not adds nothing to them.
 *
 * Threads: any. Events are read with interrupts off.
 */
#ifndef TXDA_PMU_H
#define TXDA_PMU_H

struct txda_device;

#ifdef CONFIG_PERF_EVENTS
/*
 * Call once the node has its number. On failure the chip is used without perf counters, and the log
 * says so.
 */
void txda_pmu_add(struct txda_device *tdev);
/*
 * Before the registers become inaccessible, and when they are accessible again. No-ops before
 * txda_pmu_add().
 */
void txda_pmu_close(struct txda_device *tdev);
void txda_pmu_open(struct txda_device *tdev);
/* Before a chip reset, which clears the counters, and after it. */
void txda_pmu_save(struct txda_device *tdev);
void txda_pmu_restart(struct txda_device *tdev);
/* At module exit, when no chip is bound. */
void txda_pmus_exit(void);
#else
static inline void txda_pmu_add(struct txda_device *tdev)
{
}

static inline void txda_pmu_close(struct txda_device *tdev)
{
}

static inline void txda_pmu_open(struct txda_device *tdev)
{
}

static inline void txda_pmu_save(struct txda_device *tdev)
{
}

static inline void txda_pmu_restart(struct txda_device *tdev)
{
}

static inline void txda_pmus_exit(void)
{
}
#endif

#endif /* TXDA_PMU_H */
